"""The followers of one partition, as its leader knows them: what each has proved, and who may be in sync.

Kafka: `Partition.remoteReplicasMap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Self

from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.replica.progress import FollowerProgress


class Followers:
    """The other replicas, in one leader epoch; its leader alone changes them.

    Attributes:
        progress: how far each has come.
        active_brokers: who is neither fenced nor shutting down, in which incarnation, be it a replica or not.
    """

    __slots__ = ("_leader", "active_brokers", "progress")

    def __init__(self, leader: BrokerId, replicas: Iterable[BrokerId], now_ms: int) -> None:
        """All count as caught up at `now_ms` (monotonic), and none is known to be active."""
        self._leader = leader
        self.progress = {broker: FollowerProgress(now_ms) for broker in replicas if broker != leader}
        self.active_brokers: Mapping[BrokerId, BrokerEpoch] = {}

    def __len__(self) -> int:
        return len(self.progress)

    def __contains__(self, broker: BrokerId) -> bool:
        return broker in self.progress

    @property
    def active(self) -> frozenset[BrokerId]:
        """Those that are neither fenced nor shutting down."""
        return frozenset(self.progress.keys() & self.active_brokers.keys())

    def lag_max(self, log_end_offset: Offset) -> int:
        """How many records the one lacks that has fewest, of those that have fetched in this epoch."""
        known = [each.end_offset for each in self.progress.values() if each.end_offset is not None]
        return log_end_offset - min(known, default=log_end_offset)

    def ends_from(self, offset: int, among: Set[BrokerId]) -> dict[BrokerId, Offset]:
        """Those of `among` that are known to have everything below `offset`, with the exclusive ends of what they are
        known to have.
        """
        return {
            broker: follower.end_offset
            for broker, follower in self.progress.items()
            if broker in among and follower.end_offset is not None and follower.end_offset >= offset
        }

    def lagging(self, among: Set[BrokerId], log_end_offset: Offset, *, since_ms: int) -> set[BrokerId]:
        """Those of `among` that have been behind ever since before `since_ms`."""
        progress = self.progress
        return {
            broker for broker in among & progress.keys() if progress[broker].lags(log_end_offset, since_ms=since_ms)
        }

    def on_replicas(self, replicas: Iterable[BrokerId]) -> None:
        """The assignment is this one now; nothing is known of whoever is new."""
        known = self.progress
        others = (broker for broker in replicas if broker != self._leader)
        self.progress = {broker: known.get(broker) or FollowerProgress(0) for broker in others}

    def clone(self) -> Self:
        copy = type(self).__new__(type(self))
        copy._leader, copy.active_brokers = self._leader, self.active_brokers
        copy.progress = {broker: follower.clone() for broker, follower in self.progress.items()}
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for those that make a leader behave alike, clocks aside."""
        return (
            frozenset((broker, each.end_offset, each.broker_epoch) for broker, each in self.progress.items()),
            frozenset(self.active_brokers.items()),
        )
