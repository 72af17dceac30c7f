"""A log that a node is to have, by the metadata."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import LeaderEpoch, TopicId, TopicPartition
from tidelog.log.files.replica_list import ListedReplica


class WantedLog(NamedTuple):
    """A log that this node is to have."""

    topic_partition: TopicPartition
    topic_id: TopicId
    is_new: bool
    """Nobody can have written to it yet: if it lies nowhere, it is made."""
    is_only_replica: bool = False
    first_leader_epoch: LeaderEpoch | None = None
    """This node leads it in that epoch, from its first record on: a lineage that is made with the log says so."""

    @property
    def replica(self) -> ListedReplica:
        return self.topic_id, self.topic_partition.partition
