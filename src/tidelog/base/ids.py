"""The words of the log as types: ids, offsets and the four kinds of epoch.

`NewType`s cost nothing at run time; they keep mypy from letting one kind of number pass for another.
`*_end_offset` is exclusive, `last_*_offset` inclusive. The wire's -1 never comes in here: it is `None`.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, NamedTuple, NewType
from uuid import UUID

BrokerId = NewType("BrokerId", int)
TopicId = NewType("TopicId", UUID)
ClusterId = NewType("ClusterId", str)

PartitionIndex = NewType("PartitionIndex", int)
"""The number of a partition within its topic, from 0."""

Offset = NewType("Offset", int)
"""A record's place in its partition, from 0; never reused, whatever retention and compaction remove."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""A period of leadership over one partition (KIP-101). Grows at every election."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""A version of one partition's state at the controller. Grows at every change, elections included."""

ControllerEpoch = NewType("ControllerEpoch", int)
"""The leader epoch of the metadata log: a period of one active controller."""

BrokerEpoch = NewType("BrokerEpoch", int)
"""One incarnation of a broker: the metadata offset of its registration."""

ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
CorrelationId = NewType("CorrelationId", int)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"


class _TopicPartition(NamedTuple):
    topic: str
    partition: PartitionIndex


class TopicPartition(_TopicPartition):
    """One partition by the name of its topic; prints as Kafka names its directory, `topic-0`."""

    __slots__ = ()

    if TYPE_CHECKING:  # whoever names a partition has an int

        def __new__(cls, topic: str, partition: int) -> TopicPartition: ...

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class _Position(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch | None


class Position(_Position):
    """Where a reader goes on: the next offset, and the leader epoch of the record read before it.

    The epoch is None if no record was read yet. Store both, and give both to `seek`: then a truncation that happened in
    between is found, however far the log grew since (KIP-320).
    """

    __slots__ = ()

    if TYPE_CHECKING:  # whoever has stored one reads ints

        def __new__(cls, offset: int, leader_epoch: int | None) -> Position: ...


CLUSTER_METADATA = TopicPartition(CLUSTER_METADATA_TOPIC, PartitionIndex(0))


def uuid_text(value: UUID) -> str:
    """The 22 characters of url-safe base64 in which Kafka prints topic, cluster and directory ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> UUID:
    """The inverse of `uuid_text`. Raises ValueError for anything that is not 22 characters of it."""
    raw = base64.urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka id: 22 characters of url-safe base64 are expected")
    return UUID(bytes=raw)
