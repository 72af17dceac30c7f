"""One timer for all that waits at a broker: thousands of partitions, of which a few are due at any time.

Kafka: `SystemTimer`, `DelayedOperationPurgatory`.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from tidelog.base.ports import Clock
from tidelog.server.transport.turns import TURN_SIZE

TIMER_SECONDS_MIN = 0.001


class Due(Protocol):
    """Waits for a time. `on_due` may come early, and more than once: the waiter knows itself what is due."""

    def on_due(self, now_ms: int) -> None: ...


class ReplicationDeadlines:
    """See the module. Costs a few steps of a heap for each deadline, and nothing while none comes.

    To be used on one event loop.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Due]] = []
        self._numbers = count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def add(self, who: Due, due_ms: int) -> None:
        """Call `on_due` of a waiter at `due_ms`, monotonic, or a little later."""
        heappush(self._heap, (due_ms, next(self._numbers), who))
        if self._timer is None or due_ms < self._timer_ms:
            self._set_timer()

    def stop(self) -> None:
        """Cancel all deadlines."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer_ms = self._heap[0][0]
            seconds = max((self._timer_ms - self._clock.now_ms()) / 1000, TIMER_SECONDS_MIN)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms, end_number = self._clock.now_ms(), next(self._numbers)
        heap = self._heap
        try:
            for _ in range(TURN_SIZE):  # the rest has its turn when others had theirs
                if not heap or heap[0][0] > now_ms or heap[0][1] >= end_number:
                    break  # what is added from now on comes later
                heappop(heap)[2].on_due(now_ms)
        finally:
            if self._timer is None:
                self._set_timer()
