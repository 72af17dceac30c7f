"""The deadlines of one coordinator: moved at each heartbeat, looked at when they are due. Kafka: `CoordinatorTimer`."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

STALE_ENTRIES_MIN = 64


class Cause(Enum):
    """What a deadline ends."""

    SESSION = "a member's session, or the time for a new member to come back with its id"
    JOIN = "the time for members to join"
    SYNC = "the time for members to sync"
    CONSUMER_SESSION = "the session of a member of a consumer group"
    CONSUMER_REVOCATION = "the time for it to give partitions up"
    SHARE_SESSION = "the session of a member of a share group"


class Alarm(NamedTuple):
    """Names a deadline of groups."""

    cause: Cause
    group_id: str
    member_id: str


A = TypeVar("A", bound=Hashable)


class Deadlines(Generic[A]):
    """Alarms by their time.

    To move a deadline later costs one dict entry; the heap learns of it when the old time comes. The heap is held to
    about twice the number of alarms.
    """

    def __init__(self) -> None:
        self._due_ms: dict[A, int] = {}
        self._heap: list[tuple[int, int, A]] = []
        self._sequence = 0
        self._queued_ms: dict[A, int] = {}  # the earliest entry of each in the heap

    def __len__(self) -> int:
        return len(self._due_ms)

    def __contains__(self, alarm: A) -> bool:
        return alarm in self._due_ms

    def set(self, alarm: A, due_ms: int) -> None:
        """Set or move."""
        self._due_ms[alarm] = due_ms
        queued_ms = self._queued_ms.get(alarm)
        if queued_ms is None or due_ms < queued_ms:
            self._push(alarm, due_ms)
            if len(self._heap) > 2 * len(self._due_ms) + STALE_ENTRIES_MIN:
                self._rebuild()

    def cancel(self, alarm: A) -> None:
        """Forget it, if it is set."""
        self._due_ms.pop(alarm, None)

    def next_ms(self) -> int | None:
        """When the first is due; None if none is set."""
        heap = self._heap
        while heap and self._due_ms.get(heap[0][2]) != heap[0][0]:
            self._drop_first()
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: int) -> A | None:
        """The next alarm that is due, which is set no more."""
        due_ms = self.next_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        alarm = self._heap[0][2]
        del self._due_ms[alarm]
        self._drop_first()
        return alarm

    def _push(self, alarm: A, due_ms: int) -> None:
        self._sequence += 1
        self._queued_ms[alarm] = due_ms
        heappush(self._heap, (due_ms, self._sequence, alarm))

    def _drop_first(self) -> None:
        queued_ms, _, alarm = heappop(self._heap)
        if self._queued_ms.get(alarm) != queued_ms:
            return  # an earlier entry of the same alarm was there, and spoke for it
        del self._queued_ms[alarm]
        due_ms = self._due_ms.get(alarm)
        if due_ms is not None and due_ms > queued_ms:
            self._push(alarm, due_ms)

    def _rebuild(self) -> None:
        self._queued_ms = dict(self._due_ms)
        self._heap = [(due_ms, number, alarm) for number, (alarm, due_ms) in enumerate(self._due_ms.items())]
        self._sequence = len(self._heap)
        heapify(self._heap)
