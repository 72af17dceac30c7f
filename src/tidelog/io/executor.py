"""Where work goes that may wait for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")

THREADS = 4
"""Enough to keep a disk's queue filled. The work waits rather than computes, so cores do not matter."""


class ThreadExecutor:
    """The `Executor` of a real node: a few threads, started when first needed.

    `close` waits for what was begun. Work that was not is dropped: its awaitable is cancelled.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="tidelog-disk")

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Start `work` on a thread. To be called, and awaited, on an event loop."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


class InlineExecutor:
    """Runs work at once, in the caller's step: for tests and tools, which have no time to lose."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do `work` now. What it raised is raised by the `await`, as a thread's would be."""
        try:
            return _Done(work())
        except Exception as error:  # whatever it is, it belongs to whoever awaits
            return _Failed(error)

    def close(self) -> None:
        """Nothing is under way, ever."""


class _Done(Generic[T]):
    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self._value


class _Failed:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        raise self._error
