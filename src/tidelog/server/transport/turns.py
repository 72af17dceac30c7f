"""Long loops on the event loop, with turns for everybody else in between.

Its counterpart in Kafka: none; a thread that is busy there keeps nobody else from a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from tidelog.base.ports import Clock

T = TypeVar("T")

TURN_SIZE = 128
"""Of things that take some ten microseconds each."""
TURN_MS_MAX = 2
"""So long somebody is served at a time, a millisecond at least. The last thing that was begun takes longer."""


class Turn:
    """How long somebody is served before everybody else is.

    Under simulation no time passes within a turn, so that none is ever over.
    """

    __slots__ = ("_clock", "_ends_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends_ms = 0

    def begin(self) -> None:
        """The others have had theirs."""
        self._ends_ms = self._clock.now_ms() + TURN_MS_MAX

    @property
    def is_over(self) -> bool:
        """Whether the others are to be served first."""
        return self._clock.now_ms() >= self._ends_ms


class RestingTurn(Turn):
    """Of somebody who goes on by itself, once the others have had theirs.

    Args:
        rests: called when it begins to rest.
        go_on: called in a later turn of the event loop.

    Attributes:
        resting: until then; None while it does not rest.
    """

    __slots__ = ("_go_on", "_rests", "resting")

    def __init__(self, clock: Clock, rests: Callable[[], None], go_on: Callable[[], None]) -> None:
        super().__init__(clock)
        self._rests = rests
        self._go_on = go_on
        self.resting: asyncio.Handle | None = None

    def rest(self) -> None:
        """Do nothing more until the others have had a turn."""
        if self.resting is None:
            self.resting = asyncio.get_running_loop().call_soon(self._wake)
            self._rests()

    def _wake(self) -> None:
        self.resting = None
        self._go_on()

    def end(self) -> None:
        """Do not go on, and let go of whoever was served."""
        if self.resting is not None:
            self.resting.cancel()
        self._rests = self._go_on = _do_nothing


def _do_nothing() -> None:
    pass


async def in_turns(items: Iterable[T], *, turn_size: int = TURN_SIZE) -> AsyncIterator[T]:
    """Each of them. Between some and the next ones anything may happen, as at any `await`: look again."""
    for number, item in enumerate(items, start=1):
        yield item
        if not number % turn_size:
            await asyncio.sleep(0)
