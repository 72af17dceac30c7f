"""Requests that wait until the published metadata has come as far as some offset."""

from __future__ import annotations

import asyncio

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import Offset


class AppliedOffset:
    """How far it has come, and who waits. Whoever gives up leaves nothing here."""

    def __init__(self) -> None:
        self.end_offset = Offset(0)
        """Exclusive."""
        self._waiting: dict[asyncio.Future[None], Offset] = {}
        self._is_over = False

    def __len__(self) -> int:
        return len(self._waiting)

    async def reached(self, end_offset: Offset) -> None:
        """Return once everything below `end_offset` is published.

        Raises:
            KafkaError: REQUEST_TIMED_OUT: this broker stops, and publishes nothing more.
        """
        if end_offset <= self.end_offset:
            return
        if self._is_over:
            raise _over()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = end_offset
        try:
            await future
        finally:
            del self._waiting[future]

    def on_published(self, end_offset: Offset) -> None:
        """All metadata below `end_offset` is applied: wake whoever waits for it."""
        self.end_offset = end_offset
        for future, wanted in self._waiting.items():
            if wanted <= end_offset and not future.done():
                future.set_result(None)

    def on_stopped(self) -> None:
        """No more metadata is applied here: fail all waiters at once."""
        self._is_over = True
        for future in self._waiting:
            if not future.done():
                future.set_exception(_over())


def _over() -> Exception:
    return refusal(Code.REQUEST_TIMED_OUT, "this broker stops, and applies no more metadata")
