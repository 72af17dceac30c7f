"""What brokers, the controller and clients say to each other. Values, not bytes: `fabric` gives them all faults."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from tidelog.base.errors import Code
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicId,
)
from tidelog.controller.isr_changes import IsrChange
from tidelog.metadata.image import PartitionImage
from tidelog.records.lineage import EpochEntry
from tidelog.replica import Fetched, FollowerRequest, ReplicaId, StopOrder

PARTITION = PartitionIndex(0)
"""The one that each topic has."""


class Committed(NamedTuple):
    """A batch of the metadata log; `number` counts batches."""

    number: int
    end_offset: Offset
    records: tuple[object, ...]

    def __repr__(self) -> str:
        return f"Committed({self.number}, {self.end_offset})"


# Between a broker and the controller.


class Register(NamedTuple):
    broker_id: BrokerId
    incarnation_id: UUID
    previous_broker_epoch: BrokerEpoch | None


class Registered(NamedTuple):
    code: Code
    broker_epoch: BrokerEpoch | None = None


class Heartbeat(NamedTuple):
    """`next_number`: of the first batch of metadata that the broker has not got."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    next_number: int
    applied_end_offset: Offset


class HeartbeatAnswer(NamedTuple):
    code: Code
    committed: tuple[Committed, ...] = ()


class AskMetadata(NamedTuple):
    """Of a broker that is not registered yet."""

    next_number: int


class Metadata(NamedTuple):
    committed: tuple[Committed, ...]


class AlterPartition(NamedTuple):
    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replica: ReplicaId
    change: IsrChange


class PartitionAltered(NamedTuple):
    code: Code
    state: PartitionImage | None = None


class StopReplica(NamedTuple):
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    orders: tuple[StopOrder, ...]


# Between replicas.


class FollowerAsks(NamedTuple):
    sender: BrokerId
    broker_epoch: BrokerEpoch
    replica: ReplicaId
    request: FollowerRequest


class LeaderAnswers(NamedTuple):
    outcome: Code | Fetched | EpochEntry | Offset | None
    records: bytes = b""


# Of clients.


class Produce(NamedTuple):
    """`may_repeat`: whether the network may deliver it twice: a producer without sequence numbers could not tell."""

    replica: ReplicaId
    acks: int
    batch: bytes
    may_repeat: bool


class Produced(NamedTuple):
    code: Code
    base_offset: Offset | None = None


class FetchRecords(NamedTuple):
    replica: ReplicaId
    leader_epoch: LeaderEpoch | None
    offset: Offset
    size_bytes_max: int


class RecordsFetched(NamedTuple):
    code: Code
    records: bytes = b""
    high_watermark: Offset = Offset(0)
    log_start_offset: Offset = Offset(0)


class ListOffsets(NamedTuple):
    replica: ReplicaId
    leader_epoch: LeaderEpoch | None
    timestamp: int


class OffsetListed(NamedTuple):
    code: Code
    offset: Offset | None = None
    leader_epoch: LeaderEpoch | None = None


class AskEpochEndOf(NamedTuple):
    replica: ReplicaId
    current_leader_epoch: LeaderEpoch | None
    leader_epoch: LeaderEpoch


class EpochEndTold(NamedTuple):
    code: Code
    end: EpochEntry | None = None


class WhoLeads(NamedTuple):
    topic: str


class Leaders(NamedTuple):
    """As one broker has heard; `topic_id` is None where it knows no such topic."""

    topic_id: TopicId | None
    partitions: tuple[PartitionImage, ...] = ()
