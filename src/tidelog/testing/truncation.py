"""An unclean election to order: the last records of a partition are lost, though they were acknowledged.

```
    leader           followers
    0 1 2 3 4 5 6    0 1 2 3 4 5 6     in sync: all of it is acknowledged
                     stop
                     0 1 2 3           their files lose the end, and what shows that nothing can be lost
                     start             registered as after a loss of power: they leave the ISR; cut off from the leader
    stop                               nobody is left that holds what was acknowledged
                     elect (unclean)   one leads, with a new leader epoch
    start
    0 1 2 3          0 1 2 3           the old leader truncates, and follows
```
At each moment a majority of the nodes runs that the next step needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidelog.base.errors import Code
from tidelog.base.ids import TopicPartition
from tidelog.client.admin.descriptions import PartitionDescription
from tidelog.testing.errors import ClusterUsageError
from tidelog.testing.links import REPLICATION, Links
from tidelog.testing.lost_tail import end_of_log, lose_tail
from tidelog.testing.node import Node
from tidelog.testing.watch import ClusterWatch

NODES_MIN = 3


@dataclass(frozen=True, slots=True)
class LostRecords:
    """What a partition has lost, and between which leader epochs.

    Attributes:
        partition: whose they were.
        start_offset: of the first record that is lost: the log ends here now.
        end_offset: exclusive; where the log ended before.
        old_leader_epoch: in which the last of them was written.
        new_leader_epoch: of the leader that was elected without them.
    """

    partition: TopicPartition
    start_offset: int
    end_offset: int
    old_leader_epoch: int
    new_leader_epoch: int

    @property
    def count(self) -> int:
        """How many offsets."""
        return self.end_offset - self.start_offset


class Truncation:
    """One of them.

    Args:
        nodes: all of the cluster, by number.
        records: how many to lose.
    """

    def __init__(
        self, nodes: Mapping[int, Node], watch: ClusterWatch, links: Links, partition: TopicPartition, records: int
    ) -> None:
        self._nodes = nodes
        self._watch = watch
        self._links = links
        self._partition = partition
        self._records = records

    def run(self) -> LostRecords:
        """Do it. Raises as `Cluster.truncate`."""
        self._check_cluster()
        self._watch.wait_until_in_sync(self._partition.topic)
        before = self._watch.partition(*self._partition)
        leader = self._nodes[-1 if before.leader is None else before.leader]
        followers = [self._nodes[one] for one in before.replicas if one != before.leader]
        end_offset = self._end_offset() - self._records
        try:
            for follower in followers:
                self._links.cut(follower.node_id, leader.node_id, REPLICATION)
            at_once = (len(self._nodes) + 1) // 2  # the last of them still stops with a majority there
            for first in range(0, len(followers), at_once):
                self._let_lose(followers[first : first + at_once], end_offset)
            self._wait(lambda now: now.isr == (leader.node_id,), f"only {leader} is in sync")
            leader.stop()
        finally:
            self._links.mend(REPLICATION)
        old_end_offset, old_leader_epoch = end_of_log(self._directory(leader))
        self._wait(lambda now: now.leader != leader.node_id, f"{leader} leads no more")
        self._elect()
        now = self._wait(lambda now: now.leader not in (None, leader.node_id), "a follower leads")
        leader.start()
        self._watch.wait_until_in_sync(self._partition.topic)
        return LostRecords(self._partition, end_offset, old_end_offset, old_leader_epoch, now.leader_epoch or 0)

    def _check_cluster(self) -> None:
        if self._records < 1:
            raise ClusterUsageError(f"truncate: records={self._records}; at least one record is to be lost")
        found = self._watch.partition(*self._partition)
        if len(found.replicas) == 1:
            raise ClusterUsageError(
                f"truncate: {self._partition} has one replica, so nobody could be elected without its records; create "
                "the topic with replication_factor=2 or more, in a cluster of three nodes"
            )
        if len(self._nodes) < NODES_MIN:
            raise ClusterUsageError(
                f"truncate: of {len(self._nodes)} nodes none may stop, or there is no majority to elect a leader; "
                f"ask for Cluster(nodes={NODES_MIN})"
            )
        for node in self._nodes.values():
            if not node.is_running or node.is_paused:
                how = "is paused: resume it" if node.is_running else "does not run: start it"
                raise ClusterUsageError(
                    f"truncate: {node} {how} first; all nodes have their part in an election to order"
                )
        if not self._links.are_whole:
            raise ClusterUsageError("truncate: links are cut: heal them first, with cluster.heal()")

    def _end_offset(self) -> int:
        """Exclusive. Raises ClusterUsageError: too little lies below it."""
        with self._watch.admin() as admin:
            earliest = admin.list_offsets({self._partition: "earliest"})[self._partition]
            latest = admin.list_offsets({self._partition: "latest"})[self._partition]
        start, end = (0 if found is None else found.offset for found in (earliest, latest))
        if end - start < self._records:
            raise ClusterUsageError(
                f"truncate: records={self._records}, but {self._partition} holds {end - start} (offsets {start} up to, "
                f"but not with, {end}); produce more first, and flush the producer"
            )
        return end

    def _let_lose(self, followers: list[Node], end_offset: int) -> None:
        for follower in followers:
            follower.stop()
        for follower in followers:
            lose_tail(self._directory(follower).parent, self._partition, end_offset)
        for follower in followers:
            follower.start_soon()
        for follower in followers:
            follower.wait_until_serving()

    def _elect(self) -> None:
        def is_elected() -> bool:
            with self._watch.admin() as admin:
                error = admin.elect_leaders("unclean", [self._partition])[self._partition]
            if error is not None and error.code != Code.ELECTION_NOT_NEEDED:
                raise error
            return True

        self._watch.wait(is_elected, f"an unclean election is held for {self._partition}")

    def _directory(self, node: Node) -> Path:
        """Of the replica."""
        return next(path for each in node.directories if (path := each / str(self._partition)).is_dir())

    def _wait(self, is_so: Callable[[PartitionDescription], bool], what: str) -> PartitionDescription:
        def found() -> PartitionDescription | None:
            now = self._watch.partition(*self._partition)
            return now if is_so(now) else None

        return self._watch.wait(found, f"{self._partition}: {what}")
