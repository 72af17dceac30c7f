"""An entry of the account of losses, as records of the metadata log and requests carry it (`base/losses.py`). Ours."""

from __future__ import annotations

from uuid import UUID

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.wire.schema import array, field, int8, int32, int64, string, struct, uuid

NONE = -1
CAUSES, FATES = frozenset(LossCause), frozenset(ReplicaFate)


@struct
class ReplicaLossEntry:
    """What is known of one replica; -1 wherever nothing is."""

    broker_id: int = field(int32, doc="Whose it is.")
    fate: int = field(
        int8,
        default=0,
        doc="0 awaited, 1 it led, 2 not cut, 3 cut, 4 it left, 5 empty, 6 thrown away uncompared.",
    )
    end_offset: int = field(int64, default=NONE, doc="Of its log before it was cut, exclusive.")
    cut_from: int = field(int64, default=NONE, doc="Its records from here on were cut off.")
    high_watermark: int = field(int64, default=NONE, doc="Its own, before it was cut.")
    first_epoch: int = field(int32, default=NONE, doc="The leader epoch of the first record that was cut off.")
    last_epoch: int = field(int32, default=NONE, doc="That of the last one.")
    first_timestamp: int = field(int64, default=NONE, doc="The smallest timestamp of those records, in ms since 1970.")
    last_timestamp: int = field(int64, default=NONE, doc="The largest.")
    producer_ids: list[int] = field(array(int64), default_factory=list, doc="Of the producers that wrote them.")
    producer_count: int = field(int32, default=0, doc="How many there are, those that are not named included.")
    kept_size_bytes: int = field(int64, default=0, doc="So much of what was cut off lies in a file there.")
    told_ms: int = field(int64, default=NONE, doc="When it told, in ms since 1970.")


@struct
class LossEntry:
    """One leader epoch of one partition whose leader may lack what was committed before."""

    topic: str = field(string, doc="The topic's name.")
    topic_id: UUID = field(uuid, doc="Its id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The first epoch of a leader that may lack records.")
    cause: int = field(int8, doc="1 a setting, 2 an operator, 3 the leader lost its own, 4 a replica found it out.")
    leader_id: int = field(int32, doc="Who led, or -1.")
    opened_ms: int = field(int64, doc="In ms since 1970.")
    replicas: list[ReplicaLossEntry] = field(array(ReplicaLossEntry), default_factory=list, doc="All that there were.")
    acknowledged_ms: int = field(int64, default=NONE, doc="When an operator said that it is dealt with; -1 not yet.")
    note: str = field(string, default="", doc="What the operator said.")


def entry_of(loss: Loss) -> LossEntry:
    """A value as it is carried."""
    return LossEntry(
        topic=loss.topic,
        topic_id=loss.topic_id,
        partition_index=loss.partition,
        leader_epoch=loss.leader_epoch,
        cause=loss.cause,
        leader_id=NONE if loss.leader is None else loss.leader,
        opened_ms=loss.opened_ms,
        replicas=[replica_entry_of(one) for one in loss.replicas],
        acknowledged_ms=_number(loss.acknowledged_ms),
        note=loss.note,
    )


def loss_of(entry: LossEntry) -> Loss:
    """The inverse of `entry_of`. What a newer release may say of a cause or a fate is taken for the vaguest one."""
    return Loss(
        entry.topic,
        TopicId(entry.topic_id),
        PartitionIndex(entry.partition_index),
        LeaderEpoch(entry.leader_epoch),
        LossCause(entry.cause) if entry.cause in CAUSES else LossCause.FOUND,
        None if entry.leader_id < 0 else BrokerId(entry.leader_id),
        entry.opened_ms,
        tuple(replica_loss_of(one) for one in entry.replicas),
        _known(entry.acknowledged_ms),
        entry.note,
    )


def replica_entry_of(replica: ReplicaLoss) -> ReplicaLossEntry:
    """A value as it is carried."""
    return ReplicaLossEntry(
        broker_id=replica.broker_id,
        fate=replica.fate,
        end_offset=_number(replica.end_offset),
        cut_from=_number(replica.cut_from),
        high_watermark=_number(replica.high_watermark),
        first_epoch=_number(replica.first_epoch),
        last_epoch=_number(replica.last_epoch),
        first_timestamp=_number(replica.first_timestamp_ms),
        last_timestamp=_number(replica.last_timestamp_ms),
        producer_ids=list(replica.producer_ids),
        producer_count=replica.producer_count,
        kept_size_bytes=replica.kept_size_bytes,
        told_ms=_number(replica.told_ms),
    )


def replica_loss_of(entry: ReplicaLossEntry) -> ReplicaLoss:
    """The inverse of `replica_entry_of`; see `loss_of`."""
    return ReplicaLoss(
        BrokerId(entry.broker_id),
        ReplicaFate(entry.fate) if entry.fate in FATES else ReplicaFate.AWAITED,
        _offset(entry.end_offset),
        _offset(entry.cut_from),
        _offset(entry.high_watermark),
        _epoch(entry.first_epoch),
        _epoch(entry.last_epoch),
        _known(entry.first_timestamp),
        _known(entry.last_timestamp),
        tuple(map(ProducerId, entry.producer_ids)),
        entry.producer_count,
        entry.kept_size_bytes,
        _known(entry.told_ms),
    )


def _number(value: int | None) -> int:
    return NONE if value is None else value


def _known(value: int) -> int | None:
    return None if value < 0 else value


def _offset(value: int) -> Offset | None:
    return None if value < 0 else Offset(value)


def _epoch(value: int) -> LeaderEpoch | None:
    return None if value < 0 else LeaderEpoch(value)
