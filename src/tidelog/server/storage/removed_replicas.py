"""Which replicas of this node the metadata log has removed, as the node replayed it: what may be deleted at a start.

A log that the metadata does not assign to this node is either removed, or the metadata is not what it was: it was
reset, cut, or restored from an older copy. An image cannot tell the two apart. A record of the log can:

- A RemoveTopicRecord is final. A topic id is never used again, so whatever has it is of no use, however old.
- A replica that leaves the assignment may come back. Each change of the replicas begins a leader epoch (rule 8), so a
  log whose leader epochs are all older than that of the removal is the one that was removed.

What differs between a snapshot and what was known before proves nothing. Kafka keeps every stray.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.base.ids import LeaderEpoch
from tidelog.controller import LostReplica
from tidelog.log.files.replica_list import ListedReplica


class RemovedReplicas:
    """See the module. Notes from the start on, until the logs that lie here were looked through."""

    def __init__(self) -> None:
        self._topics: set[ListedReplica] = set()
        self._replicas: dict[ListedReplica, LeaderEpoch] = {}

    def note(self, lost: LostReplica) -> None:
        """A committed record of the log removes a replica of this node."""
        replica = lost.topic_id, lost.topic_partition.partition
        if lost.leader_epoch is None:
            self._topics.add(replica)
        else:
            self._replicas[replica] = lost.leader_epoch

    def __iter__(self) -> Iterator[ListedReplica]:
        yield from self._topics | self._replicas.keys()

    def has_topic_of(self, replica: ListedReplica) -> bool:
        """Whether its topic was removed."""
        return replica in self._topics

    def removed_in(self, replica: ListedReplica) -> LeaderEpoch | None:
        """The leader epoch that began when others took its place, the last time; None if they never did."""
        return self._replicas.get(replica)

    def clear(self) -> None:
        """Everything that lies here was looked through."""
        self._topics.clear()
        self._replicas.clear()
