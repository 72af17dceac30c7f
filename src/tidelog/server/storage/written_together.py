"""One write for all that wait for it, where a file names them all: a checkpoint of thousands of logs, say.

Counterpart in Kafka: none; there each log rewrites the checkpoint of its directory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Generic, TypeVar

from tidelog.base.errors import DiskError
from tidelog.base.ports import Executor
from tidelog.server.tasks import to_its_end

T = TypeVar("T")


class WrittenTogether(Generic[T]):
    """See the module. To be used on one event loop.

    Args:
        write: writes all that it is given; on a thread. Raises DiskError: none of them is written.
    """

    def __init__(self, write: Callable[[Iterable[T]], None], executor: Executor) -> None:
        self._write = write
        self._executor = executor
        self._lock = asyncio.Lock()
        self._waiting: list[_Waiting[T]] = []

    async def write(self, item: T) -> None:
        """Return once it is written, with whatever came while the last write was under way. Raises DiskError.

        Cancelled, it may have been written, and is not from then on: what it says may be out of date.
        """
        mine = _Waiting(item)
        self._waiting.append(mine)
        try:
            async with self._lock:
                if not mine.is_done:
                    await self._write_all()
        except asyncio.CancelledError:
            mine.is_given_up = True
            raise
        if mine.error is not None:
            raise mine.error

    async def _write_all(self) -> None:
        batch, self._waiting = [each for each in self._waiting if not each.is_given_up], []
        error: DiskError | None = None
        try:
            await to_its_end(self._executor.run(partial(self._write, [each.item for each in batch])))
        except DiskError as refused:
            error = refused
        except asyncio.CancelledError:
            self._waiting = [*batch, *self._waiting]  # the next one writes those who wait, perhaps once more
            raise
        for each in batch:
            each.is_done, each.error = True, error


class _Waiting(Generic[T]):
    __slots__ = ("error", "is_done", "is_given_up", "item")

    def __init__(self, item: T) -> None:
        self.item = item
        self.is_done = self.is_given_up = False
        self.error: DiskError | None = None
