"""An event loop on virtual time: when nothing is ready, the clock jumps to the next timer.

No sockets, no threads, no signals; callbacks run in the order in which they became due, those that are due together in
the order in which they were made. So a run is decided by what it is given, and takes no longer than it computes.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, NoReturn, TypeVar

from tidelog.base.errors import TidelogError
from tidelog.sim.world.process import CURRENT, Process, ProcessKilledError

T = TypeVar("T")

START_SECONDS = 1_000.0
"""What the clock shows at first: monotonic clocks do not begin at zero."""
LIMIT_SECONDS = 3_600.0
WAITING_TOLD_MAX = 20
_PURGE_AT_MIN = 256

logger = logging.getLogger("tidelog.sim")


class StuckError(TidelogError):
    """The run cannot end: nothing is left that could happen, or its time is over. Says what waits, and where."""


class ScheduledCall(asyncio.TimerHandle):
    """What is to be called, once. As asyncio's own handles, but for what those do for people who debug."""

    __slots__ = ("_is_timer",)

    _context: Context

    def __init__(  # what the base class does beside this would cost as much as all the rest
        self, loop: SimulatedLoop, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context
    ) -> None:
        self._loop = loop
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._is_timer = False

    def cancel(self) -> None:
        """Do not call it; nothing happens if that is done."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = _nothing
            self._args = ()
            if self._is_timer:
                self._loop.on_timer_cancelled()

    def __repr__(self) -> str:
        return f"<step at {self._when} {self._callback}{' cancelled' if self._cancelled else ''}>"


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. To be closed after `run`, which may be called several times.

    Attributes:
        events: callbacks run so far.
        now_us: virtual microseconds, whole.
        root: the tasks that belong to no other process: those of the simulation itself.
        stepped: the process whose step was the last; None for one that belongs to none.
        after_step: called after every step of everybody; what it raises ends the run.
    """

    _ready: deque[ScheduledCall]
    _stopping: bool
    _closed: bool

    def __init__(self) -> None:
        super().__init__()
        self.events = 0
        self.root = Process("the simulation")
        self.stepped: Process | None = None
        self.after_step: Callable[[], None] | None = None
        self.now_us = round(START_SECONDS * 1e6)
        self._now = START_SECONDS
        self._limit = START_SECONDS
        self._timers: list[tuple[float, int, ScheduledCall]] = []
        self._timer_count = 0
        self._cancelled_timers = 0
        self._processes: list[Process] = [self.root]
        self.set_exception_handler(self._on_exception)

    # Time.

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    @property
    def elapsed_seconds(self) -> float:
        """Virtual seconds since the simulation began."""
        return self._now - START_SECONDS

    # To run.

    def run(self, main: Coroutine[Any, Any, T], *, limit_seconds: float = LIMIT_SECONDS) -> T:
        """Run until `main` is done.

        Args:
            main: what the simulation does.
            limit_seconds: of virtual time, from now.

        Raises:
            StuckError: it cannot be done, or not in that time.
        """
        self._limit = self._now + limit_seconds
        return self.root.context.copy().run(self.run_until_complete, main)

    def new_process(self, name: str) -> Process:
        """A program of its own, which can be ended."""
        self._processes = [each for each in self._processes if each.is_alive]
        process = Process(name)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End everything that still runs."""
        # What a `finally` does here finds this loop, and not one that asyncio would make for the thread and leave open.
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for process in self._processes:
                process.end()
                process.bury()
        finally:
            asyncio._set_running_loop(running)
        self._timers.clear()
        super().close()

    def _run_once(self) -> None:
        """Run turn after turn until somebody stops the loop: asyncio's own would come back here after each."""
        ready, timers = self._ready, self._timers
        while True:
            if not ready and not self._stopping:
                self._jump()
            now = self._now
            while timers and timers[0][0] <= now:
                due = heapq.heappop(timers)[2]
                if due._cancelled:
                    self._cancelled_timers -= 1
                else:
                    ready.append(due)
            for _ in range(len(ready)):
                step = ready.popleft()
                if step._cancelled:
                    continue
                process = step._context.get(CURRENT)
                if process is not None and not process.is_alive:
                    continue
                self.events += 1
                try:
                    step._context.run(step._callback, *step._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._on_raised(step, error)
                if self.after_step is not None:
                    self.stepped = process
                    self.after_step()
            if self._stopping:
                return

    def _jump(self) -> None:
        """To the next timer of somebody who is alive."""
        timers = self._timers
        while timers:
            when, _, step = timers[0]
            if not step._cancelled:
                process = step._context.get(CURRENT)
                if process is None or process.is_alive:
                    break
            self._cancelled_timers -= step._cancelled
            heapq.heappop(timers)
        if not timers:
            self._stuck("nothing is left that could happen")
        if when > self._limit:
            self._stuck(f"its time is over ({self._limit - START_SECONDS:.0f} virtual seconds)")
        if when > self._now:
            self._now = when
            self.now_us = round(when * 1e6)

    def _stuck(self, reason: str) -> NoReturn:
        waiting = [
            f"  {process.name}: {_where(task)}"
            for process in self._processes
            if process.is_alive
            for task in process.pending_tasks
        ]
        more = len(waiting) - WAITING_TOLD_MAX
        told = waiting[:WAITING_TOLD_MAX] + ([f"  and {more} more"] if more > 0 else [])
        raise StuckError("\n".join([f"the run is stuck at {self._now:.6f} s: {reason}; what waits:", *told]))

    def _on_raised(self, step: ScheduledCall, error: BaseException) -> None:
        if not isinstance(error, ProcessKilledError):
            raise error  # a callback of the code under test failed: so does the run

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ProcessKilledError):
            logger.error("%s", context.get("message"), exc_info=error)

    # What asyncio asks of a loop.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        """Call it in the next turn."""
        if self._closed:
            self._complain_of_end()
        step = ScheduledCall(self, self._now, callback, args, copy_context() if context is None else context)
        self._ready.append(step)
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        """Call it in so many virtual seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> ScheduledCall:
        """Call it at a virtual time."""
        if self._closed:
            self._complain_of_end()
        step = ScheduledCall(self, when, callback, args, copy_context() if context is None else context)
        step._is_timer = True
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, step))
        return step

    def on_timer_cancelled(self) -> None:
        """One that waits will not be called."""
        self._cancelled_timers += 1
        if self._cancelled_timers >= max(_PURGE_AT_MIN, len(self._timers) // 2):
            self._timers[:] = [timer for timer in self._timers if not timer[2]._cancelled]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """Start a task, which ends with the process that made it."""
        if self._closed:
            self._complain_of_end()
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        owner = CURRENT.get() if context is None else context.get(CURRENT)
        (owner or self.root).on_task(task)
        return task

    def run_in_executor(self, *_: object) -> NoReturn:
        """There are no threads here."""
        raise RuntimeError("a thread was asked for in a simulation: what may wait for the disk goes to the Executor")

    def _complain_of_end(self) -> NoReturn:
        raise RuntimeError("the simulation is over")


def _nothing() -> None:
    """What a step that was cancelled does."""


def _where(task: asyncio.Task[Any]) -> str:
    """The innermost line at which a task waits, and how it came there."""
    coroutine: Any = task.get_coro()
    steps = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            break
        steps.append(f"{frame.f_code.co_qualname} ({frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno})")
        coroutine = coroutine.cr_await
    return " > ".join(steps) or repr(task)
