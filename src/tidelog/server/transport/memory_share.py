"""A share of memory that many take from: who gets more, who waits, and who has to go.

Pure. Kafka's counterpart is `SimpleMemoryPool`, which charges what the size of a request announces; here memory is
charged as bytes arrive.

    take ──► there is room ──► given                     who holds least is given room first
      └────► waits in line ──► room came ──► given
                   │
                   └─ for STILL_MS_MAX ──► who was given nothing for longest, and waits for nothing, is closed

Nobody can lock the others out, and whatever is allowed gets through:

- Whoever holds much leaves a quarter of the share to those who hold little.
- One of those who would have to wait goes on above the limit until it is done; then another one does, by turns the one
  that holds least and the one that waits longest.

What is *kept* is a request that has come as a whole and is worked on: nobody is closed for it. It waits in the same
line, and all that is kept leaves the same quarter.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from tidelog.base.invariant import invariant

MUCH_BYTES = 1 << 20
"""Whoever holds so much leaves `RESERVE_PART` of the share to the others."""
RESERVE_PART = 4
STILL_MS_MAX = 1_000
"""So long somebody waits before the one that stood still for longest, so long at least, is closed."""

H = TypeVar("H", bound=Hashable)


class MemoryReady(NamedTuple, Generic[H]):
    """What the driver owes, in field order.

    Attributes:
        closed: to be closed; what they held is counted as free already.
        given: who waited and has what it asked for.
    """

    closed: tuple[H, ...]
    given: tuple[H, ...]


class _Account:
    """What one holder has, and waits for."""

    __slots__ = ("held_bytes", "is_to_keep", "moved_ms", "wanted_bytes")

    def __init__(self, now_ms: int, *, is_to_keep: bool = False) -> None:
        self.held_bytes = 0
        self.is_to_keep = is_to_keep
        self.wanted_bytes = 0
        self.moved_ms = now_ms


class MemoryShare(Generic[H]):
    """The memory that the holders of one kind have together. A holder without memory is not known here.

    Args:
        limit_bytes: of all together; one holder at a time may go beyond it.

    Attributes:
        used_bytes: what is held now.
        closed_count: holders that were closed to make room.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.closed_count = 0
        self._accounts: dict[H, _Account] = {}  # those that were given something longest ago come first
        self._waiting: dict[H, int] = {}  # since when; who waits longest comes first
        self._line: list[tuple[int, int, H]] = []  # a heap of those who wait, by what they hold; some left meanwhile
        self._sequence = 0
        self._beyond: H | None = None  # who goes on above the limit
        self._is_turn_of_longest = False
        self._closed: list[H] = []
        self._given: list[H] = []

    @property
    def waiting_count(self) -> int:
        """Holders that wait for memory."""
        return len(self._waiting)

    @property
    def is_scarce(self) -> bool:
        """Whether half of the share is taken."""
        return self.used_bytes > self.limit_bytes // 2

    # What happens.

    def take(self, holder: H, size_bytes: int, now_ms: int) -> bool:
        """Whether the holder has so much more from now on; else it waits in line, and is told by `take_ready`."""
        account = self._accounts.get(holder)
        if account is None:
            account = self._accounts[holder] = _Account(now_ms)
        return self._take(holder, account, size_bytes, now_ms)

    def take_to_keep(self, holder: H, size_bytes: int, now_ms: int) -> bool:
        """As `take`, for somebody who has nothing: what it is given is kept, until `keep_no_more`."""
        account = self._accounts[holder] = _Account(now_ms, is_to_keep=True)
        return self._take(holder, account, size_bytes, now_ms)

    def _take(self, holder: H, account: _Account, size_bytes: int, now_ms: int) -> bool:
        invariant(not account.wanted_bytes, "{} waits for memory already", holder)
        if self._may_have(holder, account, size_bytes):
            self._give(holder, account, size_bytes, now_ms)
            return True
        account.wanted_bytes = size_bytes
        self._waiting[holder] = now_ms
        self._sequence += 1
        heappush(self._line, (account.held_bytes, self._sequence, holder))
        return False

    def charge(self, holder: H, size_bytes: int, now_ms: int) -> None:
        """The holder has so much, whether there is room or not: those who were given nothing for longest are closed."""
        account = self._accounts.get(holder)
        if account is None:
            account = self._accounts[holder] = _Account(now_ms)
        self._give(holder, account, size_bytes - account.held_bytes, now_ms)
        while self.used_bytes > self.limit_bytes and len(self._accounts) > 1:
            self._close(next(iter(self._accounts)))

    def has_room(self, size_bytes: int) -> bool:
        """Whether so much could be kept now."""
        return self.used_bytes + size_bytes <= self._limit_of(MUCH_BYTES)

    def keep(self, size_bytes: int) -> bool:
        """Whether there is room for bytes that nobody is closed for; they are given back by `keep_no_more`."""
        if not self.has_room(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    def keep_at_once(self, size_bytes: int) -> None:
        """Bytes that are there already are kept, whether there is room or not."""
        self.used_bytes += size_bytes

    def keep_what_is_held(self, holder: H) -> int:
        """What the holder has is kept from now on, so nobody closes it for that. Returns how many bytes."""
        account = self._accounts.pop(holder, None)
        return 0 if account is None else account.held_bytes

    def keep_no_more(self, size_bytes: int, now_ms: int, done: H | None = None) -> None:
        """Bytes that were kept are free again.

        Args:
            done: who keeps nothing any more, so that another one may go beyond the limit.
        """
        self.used_bytes -= size_bytes
        if done is not None and self._beyond == done:
            self._beyond = None
        self._share_out(now_ms)

    def reduce(self, holder: H, held_bytes: int, now_ms: int) -> None:
        """What the holder took memory for is done, and it has so much from now on; with nothing it is forgotten."""
        account = self._accounts.get(holder)
        if account is None:
            return
        if held_bytes == account.held_bytes and self._beyond != holder and holder not in self._waiting:
            return
        self.used_bytes -= account.held_bytes - held_bytes
        account.held_bytes = held_bytes
        if not held_bytes:
            del self._accounts[holder]
            self._waiting.pop(holder, None)
        if self._beyond == holder:
            self._beyond = None
        self._share_out(now_ms)

    def on_time(self, now_ms: int) -> None:
        """Somebody may have waited for too long."""
        while (due_ms := self.next_deadline_ms()) is not None and due_ms <= now_ms:
            self._close(next(one for one in self._accounts if one not in self._waiting))
            self._share_out(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time`; None while nobody waits."""
        if not self._waiting:
            return None
        stillest = next((one for holder, one in self._accounts.items() if holder not in self._waiting), None)
        if stillest is None:
            return None
        return max(next(iter(self._waiting.values())), stillest.moved_ms) + STILL_MS_MAX

    # What to do about it.

    def take_ready(self) -> MemoryReady[H]:
        """All that is owed since the last call."""
        ready = MemoryReady(tuple(self._closed), tuple(self._given))
        self._closed.clear()
        self._given.clear()
        return ready

    def _limit_of(self, held_bytes: int) -> int:
        """The limit for somebody who holds so much."""
        limit = self.limit_bytes
        return limit if held_bytes < MUCH_BYTES else limit - limit // RESERVE_PART

    def _may_have(self, holder: H, account: _Account, size_bytes: int) -> bool:
        limit = self._limit_of(MUCH_BYTES if account.is_to_keep else account.held_bytes)
        if self.used_bytes + size_bytes <= limit or self._beyond == holder:
            return True
        if self._beyond is None and not self._waiting:
            self._beyond = holder
            return True
        return False

    def _give(self, holder: H, account: _Account, size_bytes: int, now_ms: int) -> None:
        account.held_bytes += size_bytes
        account.moved_ms = now_ms
        self.used_bytes += size_bytes
        del self._accounts[holder]
        if not account.is_to_keep:
            self._accounts[holder] = account

    def _share_out(self, now_ms: int) -> None:
        while self._line and self._waiting:
            _, _, holder = self._line[0]
            account = self._accounts.get(holder)
            if account is None or holder not in self._waiting:
                heappop(self._line)
                continue
            if not self._may_have(holder, account, account.wanted_bytes):
                if self._beyond is not None:
                    return
                if self._is_turn_of_longest:
                    holder = next(iter(self._waiting))
                    account = self._accounts[holder]
                self._is_turn_of_longest = not self._is_turn_of_longest
                self._beyond = holder
            del self._waiting[holder]
            self._give(holder, account, account.wanted_bytes, now_ms)
            account.wanted_bytes = 0
            self._given.append(holder)
        if not self._waiting:
            self._line.clear()

    def _close(self, holder: H) -> None:
        account = self._accounts.pop(holder)
        self.used_bytes -= account.held_bytes
        self._waiting.pop(holder, None)
        if self._beyond == holder:
            self._beyond = None
        self.closed_count += 1
        self._closed.append(holder)
