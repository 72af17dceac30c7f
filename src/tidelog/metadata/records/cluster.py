"""Records of the cluster as a whole: settings, features, producer ids."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.errors import ConfigError
from tidelog.wire.messages.losses import LossEntry
from tidelog.wire.schema import (
    array,
    boolean,
    field,
    float64,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    struct,
    uuid,
)

BROKER_RESOURCE = 4
LOSSES_TAG = 10_000
FORGOTTEN_LOSSES_TAG = 10_001
"""Ours: far from the tags that Kafka's layouts may come to use."""


@message(api_key=4, versions="0", flexible="0+", kind="record")
class ConfigRecord:
    """One setting of a topic or a broker was set, or, with no value, taken back."""

    resource_type: int = field(int8, doc="2 topic, 4 broker.")
    resource_name: str = field(string, doc="The topic's name, the broker's id, or nothing for all brokers.")
    name: str = field(string, doc="The key.")
    value: str | None = field(string, nullable="0+", default=None, doc="The value as text; None removes it.")

    @property
    def has_secret(self) -> bool:
        """Whether the value is never shown: a password is, and whatever no release knows."""
        from tidelog.metadata.configs import config_key  # which takes long to import, and few ask

        if self.value is None or self.resource_type != BROKER_RESOURCE:
            return False
        try:
            return config_key("broker", self.name).is_sensitive
        except ConfigError:
            return True

    def __repr__(self) -> str:
        value = "<hidden>" if self.has_secret else repr(self.value)
        return (
            f"ConfigRecord(resource_type={self.resource_type}, resource_name={self.resource_name!r}, "
            f"name={self.name!r}, value={value})"
        )


@message(api_key=12, versions="0", flexible="0+", kind="record")
class FeatureLevelRecord:
    """A feature is finalized at a level, or, at level 0, off."""

    name: str = field(string, doc="The feature's name, such as metadata.version.")
    feature_level: int = field(int16, doc="The level.")


@struct
class QuotaEntityPart:
    """A part of whom a quota is for."""

    entity_type: str = field(string, doc="user, client-id or ip.")
    entity_name: str | None = field(string, nullable="0+", doc="The name; None for the default.")


@message(api_key=14, versions="0", flexible="0+", kind="record")
class ClientQuotaRecord:
    """One quota of clients was set or, by `remove`, taken back (KIP-546)."""

    entity: list[QuotaEntityPart] = field(array(QuotaEntityPart), doc="Whom it is for.")
    key: str = field(string, doc="The key, such as producer_byte_rate.")
    value: float = field(float64, doc="The value.")
    remove: bool = field(boolean, default=False, doc="Whether there is no such quota from now on.")


@message(api_key=15, versions="0", flexible="0+", kind="record")
class ProducerIdsRecord:
    """A block of producer ids was given to a broker."""

    broker_id: int = field(int32, doc="Who has it.")
    broker_epoch: int = field(int64, default=-1, doc="Which incarnation of it.")
    next_producer_id: int = field(int64, doc="The first id that nobody has.")


@message(api_key=23, versions="0", flexible="0+", kind="record")
class BeginTransactionRecord:
    """What follows counts as a whole, from the end of the transaction on (KIP-868)."""

    name: str | None = field(string, nullable="0+", tag=0, tagged="0+", default=None, doc="What it is about.")


@message(api_key=24, versions="0", flexible="0+", kind="record")
class EndTransactionRecord:
    """All since the begin of the transaction counts."""


@message(api_key=25, versions="0", flexible="0+", kind="record")
class AbortTransactionRecord:
    """Nothing since the begin of the transaction counts."""

    reason: str | None = field(string, nullable="0+", tag=0, tagged="0+", default=None, doc="Why.")


@struct
class ForgottenLoss:
    """An entry of the account that goes, by what it is known by."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The epoch.")


@message(api_key=20, versions="0", flexible="0+", kind="record")
class NoOpRecord:
    """Nothing, for Kafka's readers; it moves the end of the log. The account of losses is in tagged fields of ours, so
    that they, and older releases, pass over it.
    """

    losses: list[LossEntry] = field(
        array(LossEntry), tag=LOSSES_TAG, tagged="0+", default_factory=list, doc="Entries as they are from now on."
    )
    forgotten_losses: list[ForgottenLoss] = field(
        array(ForgottenLoss), tag=FORGOTTEN_LOSSES_TAG, tagged="0+", default_factory=list, doc="Entries that go."
    )
