"""Waiting until something is so: the one place that pauses between two questions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.01
TURN_SECONDS = 0.001


def wait_until(condition: Callable[[], T], what: str | Callable[[], str], *, seconds: float = WAIT_SECONDS_MAX) -> T:
    """Ask until it is so, and return what made it so (the first answer that is true).

    Args:
        condition: asked again and again. It may wait itself (poll a client), as long as it comes back in time.
        what: what is waited for; a callable is asked when it did not come, so that it can tell how things stand then.
        seconds: how long to go on asking.

    Raises:
        AssertionError: it was not so in time; says `what`.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {seconds:.0f} s: {what if isinstance(what, str) else what()}")
        time.sleep(PAUSE_SECONDS)
    return answer


async def until(is_so: Callable[[], object], *, seconds: float = WAIT_SECONDS_MAX) -> None:
    """Let the loop go on until it is so, of something that lives on it.

    Raises:
        TimeoutError: it was not so in time.
    """
    async with asyncio.timeout(seconds):
        while not is_so():
            await asyncio.sleep(TURN_SECONDS)
