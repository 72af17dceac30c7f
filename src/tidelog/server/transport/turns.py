"""Long loops on the event loop, with turns for everybody else in between.

Its counterpart in Kafka: none; a thread that is busy there keeps nobody else from a core.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

TURN_SIZE = 128
"""Of things that take some ten microseconds each."""


async def in_turns(items: Iterable[T], *, turn_size: int = TURN_SIZE) -> AsyncIterator[T]:
    """Each of them. Between some and the next ones anything may happen, as at any `await`: look again."""
    for number, item in enumerate(items, start=1):
        yield item
        if not number % turn_size:
            await asyncio.sleep(0)
