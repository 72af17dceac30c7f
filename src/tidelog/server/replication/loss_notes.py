"""What the replicas of this broker have to tell the account of losses, and what is awaited of them.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import LossId, ReplicaLoss

T = TypeVar("T", bound=int)

ReplicaKey = tuple[TopicId, PartitionIndex]


class LossNotes:
    """See the module. To be used on one event loop.

    Attributes:
        awaited: entries that wait for a replica here, by replica; those of one replica the oldest first.
        untold: what was cut off here and is not in the account yet.
        kept_size_bytes_max: so much of what is cut off may be kept in each log directory.
    """

    def __init__(self) -> None:
        self.awaited: dict[ReplicaKey, list[LeaderEpoch]] = {}
        self.untold: dict[LossId, ReplicaLoss] = {}
        self.kept_size_bytes_max = 0

    def await_told(self, loss_id: LossId) -> bool:
        """An entry waits for a replica here. Returns whether that is news."""
        epochs = self.awaited.setdefault((loss_id.topic_id, loss_id.partition), [])
        if loss_id.leader_epoch in epochs:
            return False
        epochs.append(loss_id.leader_epoch)
        epochs.sort()
        return True

    def await_no_more(self, loss_id: LossId) -> None:
        """An entry has what a replica here had to tell, or is gone."""
        replica = loss_id.topic_id, loss_id.partition
        epochs = [each for each in self.awaited.get(replica, ()) if each != loss_id.leader_epoch]
        if epochs:
            self.awaited[replica] = epochs
        else:
            self.awaited.pop(replica, None)

    def loss_of(
        self, topic_id: TopicId, partition: PartitionIndex, last_epoch: LeaderEpoch | None, unclean_epoch: LeaderEpoch
    ) -> LossId:
        """Which entry records belong to that are about to be cut off: the first one whose leader was not theirs.

        Args:
            last_epoch: of those records; None where that is lost.
            unclean_epoch: of the partition now, where no entry waits for this replica.
        """
        later = [
            each
            for each in self.awaited.get((topic_id, partition), ())
            if (last_epoch is None or each > last_epoch) and each <= unclean_epoch
        ]
        return LossId(topic_id, partition, later[0] if later else unclean_epoch)

    def note(self, loss_id: LossId, replica: ReplicaLoss) -> None:
        """Records were cut off. What is cut in several steps, from the end on, is one range.

        What was cut before the process began may come last, for it is read from the disk.
        """
        known = self.untold.get(loss_id)
        if known is None or known.cut_from is None or replica.cut_from is None:
            self.untold[loss_id] = replica
        elif replica.cut_from < known.cut_from:
            self.untold[loss_id] = joined(known, replica)
        elif (replica.end_offset or 0) > (known.end_offset or 0):
            self.untold[loss_id] = joined(replica, known)


def joined(later: ReplicaLoss, earlier: ReplicaLoss) -> ReplicaLoss:
    """One range of two that were cut off one after the other: the offsets of `earlier` are below those of `later`."""
    known = (*earlier.producer_ids, *later.producer_ids)
    return replace(
        earlier,
        end_offset=later.end_offset,
        high_watermark=_largest(earlier.high_watermark, later.high_watermark),
        last_epoch=later.last_epoch if later.last_epoch is not None else earlier.last_epoch,
        first_timestamp_ms=_smallest(earlier.first_timestamp_ms, later.first_timestamp_ms),
        last_timestamp_ms=_largest(earlier.last_timestamp_ms, later.last_timestamp_ms),
        producer_ids=tuple(dict.fromkeys(known)),
        producer_count=max(len(set(known)), earlier.producer_count, later.producer_count),
        kept_size_bytes=earlier.kept_size_bytes + later.kept_size_bytes,
    )


def _largest(one: T | None, other: T | None) -> T | None:
    return max((each for each in (one, other) if each is not None), default=None)


def _smallest(one: T | None, other: T | None) -> T | None:
    return min((each for each in (one, other) if each is not None), default=None)
