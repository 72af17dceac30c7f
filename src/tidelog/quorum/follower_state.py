"""The follower's side: one fetch at a time, to the leader if it is known, else to one voter after the other.

Nothing is fetched while the disk owes something: a fetch says that all below its offset is on disk.

Kafka: `QuorumFollower`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import BrokerId, Offset
from tidelog.base.invariant import invariant
from tidelog.quorum.values import QuorumFetch, SnapshotId

ROUNDS_MAX = 5
"""How much longer than at first a node waits, at most, that asks everyone in vain."""


class Awaited(NamedTuple):
    """The fetch that has no answer yet."""

    number: int
    target: BrokerId
    fetch: QuorumFetch


class QuorumFollower:
    """What a node that does not lead fetches, and what it owes its disk. It outlives epochs, as its disk does.

    Attributes:
        truncation, append, load: owed, and not handed out yet.
        is_truncating, is_appending, is_loading: owed, or handed out and not done yet.
        leader_high_watermark: as the leader of this epoch told; None if it told none.
    """

    __slots__ = (
        "_failures",
        "_turn",
        "append",
        "awaited",
        "is_appending",
        "is_loading",
        "is_truncating",
        "leader_high_watermark",
        "load",
        "retry_ms",
        "truncation",
    )

    def __init__(self, turn: int) -> None:
        """`turn`: at whom to begin, so that not all begin at the same voter."""
        self.awaited: Awaited | None = None
        self.retry_ms: int | None = None
        self.truncation: Offset | None = None
        self.append: int | None = None
        self.load: SnapshotId | None = None
        self.is_truncating = self.is_appending = self.is_loading = False
        self.leader_high_watermark: Offset | None = None
        self._turn = turn
        self._failures = 0

    @property
    def is_disk_busy(self) -> bool:
        return self.is_truncating or self.is_appending or self.is_loading

    def awaits(self, number: int) -> bool:
        """Whether that fetch has to be answered yet: the records of no other one are ever to be appended."""
        return self.awaited is not None and self.awaited.number == number

    def request_target(self, others: tuple[BrokerId, ...]) -> BrokerId | None:
        """Whose turn it is; None if there is nobody."""
        return others[self._turn % len(others)] if others else None

    def is_due(self, now_ms: int) -> bool:
        """Whether the time has come to ask again, if something failed."""
        if self.retry_ms is not None and now_ms < self.retry_ms:
            return False
        self.retry_ms = None
        return True

    # What happened.

    def on_role_left(self) -> None:
        """Whatever was asked or owed in the role is void; what was handed out is done, and told, all the same."""
        self.awaited = self.retry_ms = self.leader_high_watermark = None
        if self.truncation is not None:
            self.truncation, self.is_truncating = None, False
        if self.append is not None:
            self.append, self.is_appending = None, False
        if self.load is not None:
            self.load, self.is_loading = None, False

    def take_awaited(self, number: int) -> Awaited | None:
        """The fetch that this answers; None if nobody waits for that."""
        awaited = self.awaited
        if not self.awaits(number):
            return None
        self.awaited = None
        return awaited

    def on_served(self) -> None:
        self._failures, self.retry_ms = 0, None

    def on_refused(self, now_ms: int, backoff_ms: int) -> None:
        """Try the next one, a moment later."""
        self._turn += 1
        self._failures = min(self._failures + 1, ROUNDS_MAX)
        self.retry_ms = now_ms + backoff_ms * self._failures

    def owe_truncation(self, end_offset: Offset) -> None:
        self.truncation, self.is_truncating = end_offset, True

    def owe_append(self, number: int) -> None:
        self.append, self.is_appending = number, True

    def owe_load(self, snapshot: SnapshotId) -> None:
        self.load, self.is_loading = snapshot, True

    def on_truncated(self) -> None:
        invariant(self.is_truncating and self.truncation is None, "the metadata log was truncated without need")
        self.is_truncating = False

    def on_appended(self) -> None:
        """What was fetched is written; or, of a leader, what it wrote."""
        if self.append is None:
            self.is_appending = False

    def on_loaded(self) -> None:
        invariant(self.is_loading and self.load is None, "a snapshot was loaded without need")
        self.is_loading = False

    def clone(self) -> QuorumFollower:
        copy = QuorumFollower(self._turn)
        for name in QuorumFollower.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Clocks, numbers and turns aside."""
        return (
            self.awaited is None or self.awaited._replace(number=0),
            self.retry_ms is not None,
            self.truncation,
            self.append is not None,
            self.load,
            (self.is_truncating, self.is_appending, self.is_loading),
            self.leader_high_watermark,
        )
