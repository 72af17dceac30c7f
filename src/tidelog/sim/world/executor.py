"""Work that may wait for a disk: done in one step, a little later, in an order that the seed draws."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from tidelog.sim.world.loop import SimulatedLoop

T = TypeVar("T")


@dataclass(slots=True)
class ExecutorFaults:
    """How slow the disk is to those who wait for it. May change at any time.

    Attributes:
        wait_ms_max: the longest usual wait; drawn for each piece of work.
        stall_rate: how much of the work meets a disk that stalls, in [0, 1].
        stall_ms_max: for how long at most.
    """

    wait_ms_max: float = 2.0
    stall_rate: float = 0.0
    stall_ms_max: float = 2_000.0


class SimulatedExecutor:
    """The `Executor` of one machine.

    What the work does to the disk, and when the caller hears of it, are two steps: others come in between, as they do
    with a thread. Two pieces of work are done in either order.

    Attributes:
        faults: how slow it is.
        injected: how often the disk stalled.
    """

    def __init__(self, loop: SimulatedLoop, random: Random, faults: ExecutorFaults | None = None) -> None:
        self.faults = faults or ExecutorFaults()
        self._loop = loop
        self.injected: Counter[str] = Counter()
        self._random = random

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do `work` later."""
        outcome: asyncio.Future[T] = self._loop.create_future()
        self._loop.call_later(self._wait_seconds(), self._work, work, outcome)
        return outcome

    def compute(self, work: Callable[[], T]) -> Awaitable[T]:
        """As `run`."""
        return self.run(work)

    def close(self) -> None:
        """Nothing is to be waited for."""

    def _work(self, work: Callable[[], T], outcome: asyncio.Future[T]) -> None:
        """Begun by nobody any more if it was cancelled; a thread would not, either."""
        if outcome.cancelled():
            return
        try:
            result, error = work(), None
        except Exception as raised:  # whatever it is, it belongs to whoever awaits
            result, error = None, raised
        if self._random.random() < 0.5:
            self._loop.call_soon(_tell, outcome, result, error)
        else:
            self._loop.call_later(self._random.random() * self.faults.wait_ms_max / 1000, _tell, outcome, result, error)

    def _wait_seconds(self) -> float:
        faults = self.faults
        longest_ms = faults.wait_ms_max
        if faults.stall_rate and self._random.random() < faults.stall_rate:
            self.injected["disk stall"] += 1
            longest_ms = faults.stall_ms_max
        return self._random.random() * longest_ms / 1000


def _tell(outcome: asyncio.Future[Any], result: object, error: Exception | None) -> None:
    if outcome.done():
        return
    if error is None:
        outcome.set_result(result)
    else:
        outcome.set_exception(error)
