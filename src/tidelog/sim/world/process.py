"""One incarnation of a program: everything that it started, so that it can end between two steps, as by `kill -9`.

Callbacks and tasks inherit the context in which they were made; whose context names a process that is dead are not run
any more by the simulator's loop. So no `finally`, no timer and no answer of it is seen after its death.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context
from inspect import CORO_CREATED, getcoroutinestate, iscoroutine
from types import CoroutineType
from typing import Any

CURRENT: ContextVar[Process | None] = ContextVar("tidelog.sim.world.process", default=None)
"""Whose step this is; None for the simulation's own."""

_PRUNE_AT_MIN = 64
_CLOSE_ATTEMPTS_MAX = 8


class ProcessKilledError(BaseException):
    """The process is gone in the midst of a step. No part of it catches this."""


class Process:
    """See the module.

    Args:
        name: for messages and traces.

    Attributes:
        context: of its steps.
        is_alive: until `end`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.context: Context = copy_context()
        self.context.run(CURRENT.set, self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = _PRUNE_AT_MIN

    def on_task(self, task: asyncio.Task[Any]) -> None:
        """It started another task."""
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = self.pending_tasks
            self._prune_at = max(2 * len(self._tasks), _PRUNE_AT_MIN)

    @property
    def pending_tasks(self) -> list[asyncio.Task[Any]]:
        """By age."""
        return [task for task in self._tasks if not task.done()]

    def end(self) -> None:
        """Let nothing of it run from now on. What remains of its tasks is to be buried, outside its own steps."""
        self.is_alive = False

    def bury(self) -> None:
        """Close its coroutines now: later they would be, at a time that no seed decides.

        Their `finally` clauses run here; the caller sees to it that they reach nothing.
        """
        for _ in range(_CLOSE_ATTEMPTS_MAX):  # a `finally` may start more
            tasks, self._tasks = self.pending_tasks, []
            for task in tasks:
                self._close(task)

    def _close(self, task: asyncio.Task[Any]) -> None:
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own mark, as in `gather`
        coroutine = task.get_coro()
        for unawaited in list(_not_begun(coroutine)):
            unawaited.close()  # Python would complain of it
        for _ in range(_CLOSE_ATTEMPTS_MAX):  # one that waits in a `finally` has to be told again
            try:
                self.context.run(coroutine.close)
            except Exception:  # noqa: S112  # of a process that is dead
                continue
            break


def _not_begun(coroutine: object) -> Iterator[CoroutineType[Any, Any, Any]]:
    """Coroutines that another has been given, and did not come to await."""
    while iscoroutine(coroutine) and coroutine.cr_frame is not None:
        for value in coroutine.cr_frame.f_locals.values():
            if iscoroutine(value) and getcoroutinestate(value) == CORO_CREATED:
                yield from _not_begun(value)
                yield value
        coroutine = coroutine.cr_await
