"""Where work goes that may wait for a disk, or takes the processor for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")

THREADS = 4
"""Enough to keep a disk's queue filled. Their work waits rather than computes, so cores do not matter."""


class ThreadExecutor:
    """The `Executor` of a real node: a few threads for disks and one that computes, started when first needed.

    `close` waits for what was begun. Work that was not is dropped: its awaitable is cancelled.
    """

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="tidelog-disk")
        self._computing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tidelog-compute")

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Start `work` on a thread. To be called, and awaited, on an event loop."""
        return asyncio.get_running_loop().run_in_executor(self._threads, work)

    def compute(self, work: Callable[[], T]) -> Awaitable[T]:
        """As `run`, after all that was to be computed before."""
        return asyncio.get_running_loop().run_in_executor(self._computing, work)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._computing.shutdown(wait=True, cancel_futures=True)


class InlineExecutor:
    """Runs work at once, in the caller's step: for tests and tools, which have no time to lose."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Do `work` now. What it raised is raised by the `await`, as a thread's would be."""
        try:
            return _Done(work())
        except Exception as error:  # whatever it is, it belongs to whoever awaits
            return _Failed(error)

    def compute(self, work: Callable[[], T]) -> Awaitable[T]:
        """As `run`."""
        return self.run(work)

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
