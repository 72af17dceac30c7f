"""The account of losses: a durable list of the elections by which committed records may be gone, and of what is gone.

```
 opened      the leader of epoch e may lack what was committed before: every other replica is awaited
 awaited     a replica that has not told yet whether it held more than the leader
 closed      nobody is awaited any more
```

An entry is one leader epoch of one partition. Whatever begins such an epoch opens it in the same batch of the metadata
log; the replicas tell the rest once they have compared their logs with the leader's.

Kafka: none. There an unclean election is a counter and a line in the controller's log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple, TypeVar

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId, TopicPartition

T = TypeVar("T", bound=int)

NOTE_SIZE_MAX = 1_000
"""Characters of what an operator says of an entry."""
PRODUCERS_MAX = 16
"""So many of the producers whose records are gone are named; the rest are counted."""


class LossCause(IntEnum):
    """Why the leader of an epoch may lack committed records."""

    BY_SETTING = 1
    """An unclean election, which the setting `unclean.leader.election.enable` allows."""
    BY_OPERATOR = 2
    """An unclean election that somebody ordered."""
    LOST_BY_LEADER = 3
    """The leader may have lost records itself: a loss of power, or of a disk, that fewer than all replicas survived."""
    FOUND = 4
    """A replica had to cut off more than the metadata could have told of."""


class ReplicaFate(IntEnum):
    """What became of one replica's log."""

    AWAITED = 0
    """Nobody knows: it has not told."""
    LED = 1
    """It is the truth from the epoch on."""
    WHOLE = 2
    """Nothing was cut off it."""
    CUT = 3
    """It held more, which is cut off."""
    LEFT = 4
    """It was taken out of the partition, or the topic was deleted, before it told."""
    EMPTY = 5
    """Its log was empty when it came back: it never held a record, or what it held is gone, and nobody knows of it."""
    UNCOMPARED = 6
    """Its log was thrown away without a comparison: the leader's begins behind its end, or its epochs were lost."""


class LossId(NamedTuple):
    """Which entry: no topic ever has an epoch of a partition twice."""

    topic_id: TopicId
    partition: PartitionIndex
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class ReplicaLoss:
    """What is known of one replica in one entry.

    Attributes:
        end_offset: exclusive, of its log before anything was cut off; None while it has not told.
        cut_from: from there on its records are cut off, up to `end_offset`; None where none were.
        high_watermark: its own, at that moment: below it every record was committed.
        first_epoch: leader epoch of the first record that is cut off.
        last_epoch: of the last one.
        first_timestamp_ms: the smallest timestamp of those records, since 1970.
        last_timestamp_ms: the largest.
        producer_ids: of idempotent producers that wrote them; at most `PRODUCERS_MAX`.
        producer_count: how many there are.
        kept_size_bytes: how much of what was cut off lies in a file there.
        told_ms: when it told, since 1970, by the controller's clock.
    """

    broker_id: BrokerId
    fate: ReplicaFate = ReplicaFate.AWAITED
    end_offset: Offset | None = None
    cut_from: Offset | None = None
    high_watermark: Offset | None = None
    first_epoch: LeaderEpoch | None = None
    last_epoch: LeaderEpoch | None = None
    first_timestamp_ms: int | None = None
    last_timestamp_ms: int | None = None
    producer_ids: tuple[ProducerId, ...] = ()
    producer_count: int = 0
    kept_size_bytes: int = 0
    told_ms: int | None = None

    def joined(self, other: ReplicaLoss) -> ReplicaLoss:
        """One range of two that were cut off the same log, in whatever order."""
        if self.cut_from is None or other.cut_from is None:
            return self if other.cut_from is None else other
        lower, upper = (self, other) if self.cut_from <= other.cut_from else (other, self)
        if (upper.end_offset or 0) <= (lower.end_offset or 0):
            return lower  # it was noted before
        known = tuple(dict.fromkeys((*lower.producer_ids, *upper.producer_ids)))
        return replace(
            lower,
            end_offset=upper.end_offset,
            high_watermark=_most(lower.high_watermark, upper.high_watermark),
            last_epoch=lower.last_epoch if upper.last_epoch is None else upper.last_epoch,
            first_timestamp_ms=_least(lower.first_timestamp_ms, upper.first_timestamp_ms),
            last_timestamp_ms=_most(lower.last_timestamp_ms, upper.last_timestamp_ms),
            producer_ids=known[:PRODUCERS_MAX],
            producer_count=max(len(known), lower.producer_count, upper.producer_count),
            kept_size_bytes=lower.kept_size_bytes + upper.kept_size_bytes,
        )

    @property
    def cut_count(self) -> int:
        """Offsets that are cut off."""
        return 0 if self.cut_from is None or self.end_offset is None else self.end_offset - self.cut_from

    @property
    def committed_count(self) -> int:
        """Of those, how many this replica knew to be committed."""
        if self.cut_from is None or self.end_offset is None or self.high_watermark is None:
            return 0
        return max(min(self.high_watermark, self.end_offset) - self.cut_from, 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """One entry of the account.

    Attributes:
        leader_epoch: the first one whose leader may lack what was committed in older ones.
        leader: who that is; None where the epoch began without one.
        opened_ms: since 1970.
        replicas: all that the partition had then, the leader among them.
        acknowledged_ms: when an operator said that it is dealt with; None while nobody did.
        note: what the operator said.
    """

    topic: str
    topic_id: TopicId
    partition: PartitionIndex
    leader_epoch: LeaderEpoch
    cause: LossCause
    leader: BrokerId | None
    opened_ms: int
    replicas: tuple[ReplicaLoss, ...]
    acknowledged_ms: int | None = None
    note: str = ""

    @property
    def id(self) -> LossId:
        return LossId(self.topic_id, self.partition, self.leader_epoch)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def name(self) -> str:
        """As commands name it: `orders-3@17`."""
        return f"{self.topic}-{self.partition}@{self.leader_epoch}"

    @property
    def awaited(self) -> tuple[BrokerId, ...]:
        """Replicas that have not told: each may hold records that nobody else has."""
        return tuple(one.broker_id for one in self.replicas if one.fate is ReplicaFate.AWAITED)

    @property
    def is_open(self) -> bool:
        return any(one.fate is ReplicaFate.AWAITED for one in self.replicas)

    @property
    def cut(self) -> tuple[ReplicaLoss, ...]:
        """Replicas that held more than the leader."""
        return tuple(one for one in self.replicas if one.fate is ReplicaFate.CUT)

    @property
    def lost_offsets(self) -> tuple[Offset, Offset] | None:
        """From the first offset that any replica cut off to the last one's end (exclusive); None while none did."""
        starts = [one.cut_from for one in self.cut if one.cut_from is not None]
        ends = [one.end_offset for one in self.cut if one.end_offset is not None]
        return (min(starts), max(ends)) if starts and ends else None

    @property
    def is_of_committed(self) -> bool:
        """Whether records are gone of which a replica knew that they were committed."""
        return any(one.committed_count for one in self.cut)

    def may_name(self, producer_id: int) -> bool:
        """Whether a producer wrote some of what was cut off, as far as is known: an open entry has yet to hear of more,
        and one with many producers does not name them all.
        """
        return self.is_open or any(
            producer_id in one.producer_ids or one.producer_count > len(one.producer_ids) for one in self.cut
        )

    def replica(self, broker_id: BrokerId) -> ReplicaLoss | None:
        return next((one for one in self.replicas if one.broker_id == broker_id), None)


def _most(one: T | None, other: T | None) -> T | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _least(one: T | None, other: T | None) -> T | None:
    return min((each for each in (one, other) if each is not None), default=None)
