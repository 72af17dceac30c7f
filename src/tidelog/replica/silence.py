"""Which followers have ceased to fetch, and whether that leaves their leader cut off.

A leader that too few fetch from for a session (`broker.session.timeout.ms`) is *cut off*: it can commit nothing, and a
controller that it cannot reach either has others lead by then. It refuses acks=all with NOT_LEADER_OR_FOLLOWER until
enough fetch again, since stock clients ask who leads on that code, and on NOT_ENOUGH_REPLICAS do not. Only fetches
count: whether a controller is there makes no difference.

Kafka has no such rule.
"""

from __future__ import annotations

from typing import Self

from tidelog.base.ids import BrokerId, Offset
from tidelog.replica.followers import Followers
from tidelog.replica.isr import InSyncReplicas

NEVER_MS = -(1 << 62)
"""Longer ago than any time that is allowed."""


class Silence:
    """The silence of the followers of one partition, in one leader epoch.

    Attributes:
        silent: those that have fetched nothing of any partition for a session.
        silence_ms_max: see `ReplicationSettings`.
        cut_off_ms: when it was found out that the leader is cut off; None while it is not.
    """

    __slots__ = ("_followers", "_in_sync", "cut_off_ms", "silence_ms_max", "silent")

    def __init__(self, in_sync: InSyncReplicas, followers: Followers, silence_ms_max: int) -> None:
        self._in_sync = in_sync
        self._followers = followers
        self.silent: frozenset[BrokerId] = frozenset()
        self.silence_ms_max = silence_ms_max
        self.cut_off_ms: int | None = None

    @property
    def is_cut_off(self) -> bool:
        """Whether too few have fetched for so long that nothing is expected to be committed here."""
        return self.cut_off_ms is not None

    @property
    def may_be_succeeded(self) -> bool:
        """Whether one that may be in sync is silent: nothing is committed here without it, and it may lead by now."""
        return not self.silent.isdisjoint(self._in_sync.maximal)

    def cut_off_from_ms(self, log_end_offset: Offset) -> int | None:
        """When the leader is cut off, unless somebody fetches before; None while enough have all that there is.

        Those count that may be in sync, or could be again where these are too few.
        """
        needed = self._in_sync.size_min - 1
        if needed <= 0:
            return None
        followers = self._followers.progress
        counted = self._in_sync.maximal & followers.keys()
        silent_since_ms = []
        for broker in counted if len(counted) >= needed else followers:
            since_ms = followers[broker].silent_since_ms(log_end_offset)
            if broker in self.silent:
                silent_since_ms.append(NEVER_MS)
            elif since_ms is None:
                needed -= 1
            else:
                silent_since_ms.append(since_ms)
        if needed <= 0:
            return None
        silent_since_ms.sort()
        return silent_since_ms[-needed] + self.silence_ms_max + 1

    def look(self, log_end_offset: Offset, now_ms: int) -> None:
        """Find out whether the leader is cut off."""
        from_ms = self.cut_off_from_ms(log_end_offset)
        if from_ms is None or now_ms < from_ms:
            self.cut_off_ms = None
        elif self.cut_off_ms is None:
            self.cut_off_ms = now_ms

    def look_again(self, log_end_offset: Offset) -> None:
        """Find out whether the leader still is cut off, as of when that was found out."""
        if self.cut_off_ms is not None:
            self.look(log_end_offset, self.cut_off_ms)

    def on_silent(self, follower: BrokerId) -> None:
        """It has fetched nothing of any partition for a session, and counts as silent whatever there is to fetch."""
        self.silent |= {follower}

    def on_contact(self, follower: BrokerId) -> None:
        """It fetches again, whatever that be."""
        self.silent -= {follower}

    def clone(self, in_sync: InSyncReplicas, followers: Followers) -> Self:
        """A copy over copies of what it looks at."""
        copy = type(self)(in_sync, followers, self.silence_ms_max)
        copy.silent, copy.cut_off_ms = self.silent, self.cut_off_ms
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for those that make a leader behave alike, clocks aside."""
        return (self.is_cut_off, self.silent)
