"""What the replicas of this broker have to tell the account of losses, and what is awaited of them.

Counterpart in Kafka: none.
"""

from __future__ import annotations

from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicId
from tidelog.base.losses import LossId, ReplicaLoss

ReplicaKey = tuple[TopicId, PartitionIndex]


class LossNotes:
    """See the module. To be used on one event loop.

    Attributes:
        awaited: entries that wait for a replica here, by replica; those of one replica the oldest first.
        untold: what was cut off here and is not in the account yet.
        begun_anew: entries that waited for a replica here when its log began anew, or do since, though it was not in
            sync meanwhile: nobody knows what it had held.
        unsynced: replicas here whose log began anew, and that have not been in sync since.
        kept_size_bytes_max: so much of what is cut off may be kept at this broker.
    """

    def __init__(self) -> None:
        self.awaited: dict[ReplicaKey, list[LeaderEpoch]] = {}
        self.untold: dict[LossId, ReplicaLoss] = {}
        self._untold_size_bytes = 0
        self.begun_anew: set[LossId] = set()
        self.unsynced: set[ReplicaKey] = set()
        self.kept_size_bytes_max = 0

    def await_told(self, loss_id: LossId) -> None:
        """An entry waits for a replica here."""
        epochs = self.awaited.setdefault((loss_id.topic_id, loss_id.partition), [])
        if loss_id.leader_epoch not in epochs:
            epochs.append(loss_id.leader_epoch)
            epochs.sort()
            if (loss_id.topic_id, loss_id.partition) in self.unsynced:
                self.begun_anew.add(loss_id)

    def await_no_more(self, loss_id: LossId) -> None:
        """An entry has what a replica here had to tell, or is gone."""
        self.begun_anew.discard(loss_id)
        replica = loss_id.topic_id, loss_id.partition
        epochs = [each for each in self.awaited.get(replica, ()) if each != loss_id.leader_epoch]
        if epochs:
            self.awaited[replica] = epochs
        else:
            self.awaited.pop(replica, None)

    def awaits(self, loss_id: LossId) -> bool:
        """Whether an entry waits for a replica here."""
        return loss_id.leader_epoch in self.awaited.get((loss_id.topic_id, loss_id.partition), ())

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
        """Records were cut off. What is cut in several steps is one range, in whatever order it becomes known."""
        known = self.untold.pop(loss_id, None)
        joined = self.untold[loss_id] = replica if known is None else known.joined(replica)
        self._untold_size_bytes += joined.kept_size_bytes - (0 if known is None else known.kept_size_bytes)

    def on_told(self, loss_id: LossId) -> None:
        """The account has what was noted for an entry."""
        self._untold_size_bytes -= self.untold.pop(loss_id).kept_size_bytes

    def room_size_bytes(self) -> int:
        """How much more may be kept: of what the account has, the oldest go; of the rest nothing does."""
        return max(self.kept_size_bytes_max - self._untold_size_bytes, 0)

    def on_begun_anew(self, replica: ReplicaKey) -> None:
        """The log of a replica is gone, and begins anew: what it held, it cannot tell any more."""
        self.begun_anew.update(LossId(*replica, leader_epoch) for leader_epoch in self.awaited.get(replica, ()))
        self.unsynced.add(replica)

    def on_in_sync(self, replica: ReplicaKey) -> None:
        """It holds all that is committed, or is not here any more."""
        self.unsynced.discard(replica)
