"""Turns of the loop that each have room for a few requests: whoever asks for very many does not hold up the others."""

from __future__ import annotations

import asyncio
from collections import deque


class LimitedTurns:
    """Lets in those who wait, in their order, so many in each turn.

    Args:
        weight_max: of those in one turn, unless one alone weighs more.
    """

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, weight: int = 1) -> None:
        """Return in a turn that has room."""
        if not self._waiting and self._has_room(weight):
            self._take(weight)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((weight, future))
        await future

    def _has_room(self, weight: int) -> bool:
        return not self._weight or self._weight + weight <= self._weight_max

    def _take(self, weight: int) -> None:
        if not self._weight:
            asyncio.get_running_loop().call_soon(self._end)
        self._weight += weight

    def _end(self) -> None:
        self._weight = 0
        while self._waiting and self._has_room(self._waiting[0][0]):
            weight, future = self._waiting.popleft()
            if not future.done():  # who gave up takes no room
                self._take(weight)
                future.set_result(None)
