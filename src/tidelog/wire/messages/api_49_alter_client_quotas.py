"""AlterClientQuotas (key 49): set quotas, and take them back (KIP-546). Version 1 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, float64, int16, int32, message, string, struct


@struct
class QuotaEntityData:
    """A part of an entity."""

    entity_type: str = field(string, doc="user, client-id or ip.")
    entity_name: str | None = field(string, nullable="0+", doc="The name; null for the default.")


@struct
class OpData:
    """One quota that changes."""

    key: str = field(string, doc="The key, such as producer_byte_rate.")
    value: float = field(float64, default=0.0, doc="The value, unless it is removed.")
    remove: bool = field(boolean, default=False, doc="Whether it is taken back.")


@struct
class QuotaEntryData:
    """What changes for one entity."""

    entity: list[QuotaEntityData] = field(array(QuotaEntityData), doc="Whom it is for.")
    ops: list[OpData] = field(array(OpData), doc="The quotas that change.")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """Change quotas."""

    entries: list[QuotaEntryData] = field(array(QuotaEntryData), default_factory=list, doc="Per entity.")
    validate_only: bool = field(boolean, default=False, doc="Whether only to say what would happen.")


@struct
class QuotaEntryResult:
    """What became of one entity."""

    error_code: int = field(int16, default=0, doc="0 if all that was asked of it is done; else none of it is.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it is not.")
    entity: list[QuotaEntityData] = field(array(QuotaEntityData), default_factory=list, doc="The entity.")


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """Whether the quotas are changed."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    entries: list[QuotaEntryResult] = field(array(QuotaEntryResult), default_factory=list, doc="Per entity.")
