"""DescribeClientQuotas (key 48): which quotas are set, for whom (KIP-546). Version 1 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import array, boolean, field, float64, int8, int16, int32, message, string, struct

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_ANY = 2
"""Of one name, of the default, or of whatever name, the default among them."""


@struct
class ComponentData:
    """What one part of an entity must be like."""

    entity_type: str = field(string, doc="user, client-id or ip.")
    match_type: int = field(int8, doc="0 this name, 1 the default, 2 any.")
    match: str | None = field(string, nullable="0+", default=None, doc="The name, of match type 0.")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Ask for quotas."""

    components: list[ComponentData] = field(
        array(ComponentData), default_factory=list, doc="All of them must be met; empty: all quotas."
    )
    strict: bool = field(boolean, default=False, doc="Whether entities with further parts are left out.")


@struct
class DescribedEntityData:
    """A part of an entity."""

    entity_type: str = field(string, doc="user, client-id or ip.")
    entity_name: str | None = field(string, nullable="0+", doc="The name; null for the default.")


@struct
class ValueData:
    """One quota."""

    key: str = field(string, doc="The key, such as producer_byte_rate.")
    value: float = field(float64, doc="The value.")


@struct
class DescribedEntryData:
    """The quotas of one entity."""

    entity: list[DescribedEntityData] = field(array(DescribedEntityData), doc="Whom they are for.")
    values: list[ValueData] = field(array(ValueData), doc="The quotas.")


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """The quotas that were asked for."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why none are told.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Likewise, in words.")
    entries: list[DescribedEntryData] | None = field(
        array(DescribedEntryData), nullable="0+", default_factory=list, doc="Per entity; null with an error."
    )
