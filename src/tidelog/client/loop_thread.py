"""The event loop of a blocking client, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as WaitTimeoutError
from typing import Any, TypeVar

from tidelog.base.errors import ClientClosedError, TidelogError, TimedOutError

T = TypeVar("T")

_JOIN_SECONDS_MAX = 10.0


class LoopThread:
    """Runs an event loop until closed: uvloop's if it is installed. A daemon, so it keeps no process alive.

    Args:
        name: of the thread, for whoever looks at the process.
    """

    def __init__(self, name: str) -> None:
        self.loop = _new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine there and wait for what it returns or raises.

        Args:
            work: the coroutine.
            timeout: in seconds, after which it is cancelled; None if it keeps its own deadline.

        Raises:
            TimedOutError: the time is over.
            ClientClosedError: the client is closed.
            TidelogError: called from the client's own thread, or from another process than the one that made it.
        """
        try:
            self._check_caller()
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise
        try:
            return future.result(timeout)
        except WaitTimeoutError as error:
            if isinstance(error, TidelogError) or future.done():
                raise
            future.cancel()
            raise TimedOutError(f"not done within {timeout} s") from None
        except BaseException:
            future.cancel()  # KeyboardInterrupt, most likely: nobody waits for it any more
            raise

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Have `callback` run there. Nothing happens once the loop is closed. Raises as `run` does after a fork."""
        self._check_process()
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            if not self._closed:
                raise

    def close(self) -> None:
        """Stop the loop and end the thread. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_JOIN_SECONDS_MAX)

    def _check_caller(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is closed")
        self._check_process()
        if threading.current_thread() is self._thread:
            raise TidelogError(
                "a callback called a blocking method of its own client, which would wait for itself forever:"
                " do that in another thread"
            )

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise TidelogError("a client does not survive a fork: make a new one in the child process")

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.close()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
