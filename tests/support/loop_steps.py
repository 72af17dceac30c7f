"""Counts what is done in one step of the event loop: how long others wait, without a clock."""

from __future__ import annotations

import asyncio


class Steps:
    """How much was done in each step in which something was.

    Attributes:
        counts: by step.
    """

    def __init__(self) -> None:
        self.counts: list[int] = []
        self._is_step = False

    def count(self, number: int = 1) -> None:
        """So much is done."""
        if not self._is_step:
            self._is_step = True
            self.counts.append(0)
            asyncio.get_running_loop().call_soon(self._end)
        self.counts[-1] += number

    def _end(self) -> None:
        self._is_step = False
