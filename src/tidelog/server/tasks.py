"""The tasks of a node, as a tree: the node is the root, its parts are the branches, and every task has one owner.

```
 node ─┬─ upkeep            what runs for as long as the node does; a bug of it stops the node
       ├─ metrics
       ├─ quorum            a bug of it stops the node; syncs and replays are waited for
       ├─ stops, probes     what the active controller does beside its decisions
       ├─ log files         removals of what was deleted
       └─ broker ─┬─ replication ── a fetcher for each leader        syncs and truncations are waited for
                  ├─ moves between log directories
                  ├─ lifecycle, directories        a bug of the heartbeats stops the node
                  └─ groups, transactions, share groups          a bug of one partition takes that one offline
```
A branch is a boundary: nothing that happens to one of its tasks is felt by another. An error that a task did not handle
is a bug of ours; it is logged, and then the branch's own rule says what stops.

`asyncio.TaskGroup` is no such owner. It takes the failure of one task for the end of all. And it lives in one task that
enters and leaves it, whereas a part is started by one task, stopped by another, and fed by callbacks in between.

A connection and its sender are the owners of their tasks themselves (`start_kept`): as many as requests that wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from tidelog.base.errors import InvariantBrokenError, TidelogError

logger = logging.getLogger("tidelog.server.tasks")

CANCEL_AGAIN_SECONDS = 3.0
"""A task may swallow a cancellation (Python 3.11: one that comes in the step in which `wait_for` is over)."""

T = TypeVar("T")

OnBug = Callable[[Exception], None]


class Tasks:
    """One owner of tasks: the root, or a branch.

    Args:
        name: for the log.
        on_bug: told of an error that a task did not handle, after it was logged; None where that is all.
    """

    def __init__(self, name: str, on_bug: OnBug | None = None) -> None:
        self.name = name
        self._on_bug = on_bug
        self._tasks: dict[asyncio.Task[Any], OnBug | None] = {}  # by age: a set's order would differ from run to run
        self._branches: dict[Tasks, None] = {}
        self._parent: Tasks | None = None
        self._is_ended = False

    def __len__(self) -> int:
        """How many tasks have not ended, those of branches included."""
        return sum(1 for _ in self.pending())

    def branch(self, name: str, on_bug: OnBug | None = None) -> Tasks:
        """An owner below this one. It ends before this one does, or with it."""
        branch = Tasks(name, on_bug)
        branch._parent, branch._is_ended = self, self._is_ended
        self._branches[branch] = None
        return branch

    def start(self, work: Coroutine[Any, Any, T], *, on_bug: OnBug | None = None) -> asyncio.Task[T]:
        """Start a task. After `end` it is cancelled before its first step.

        Args:
            on_bug: in the place of the branch's own.
        """
        task = self._new_task(work, on_bug or self._on_bug)
        task.add_done_callback(self._on_done)
        return task

    def share(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start what several wait for, each behind `asyncio.shield`: it goes on when one of them gives up.

        Its error is theirs. Where none is left, a refusal is nobody's; a bug is logged in any case.
        """
        task = self._new_task(work, None)
        task.add_done_callback(self._on_shared_done)
        return task

    def pending(self) -> Iterator[asyncio.Task[Any]]:
        """The tasks that have not ended, those of branches first, by age."""
        for branch in self._branches:
            yield from branch.pending()
        yield from self._tasks

    async def finish(self) -> None:
        """Return once all tasks that there are have come to their end by themselves."""
        while pending := list(self.pending()):
            await asyncio.wait(pending)

    async def end(self) -> None:
        """Cancel all tasks, and return once they have ended; nothing is started from now on."""
        self._close()
        while pending := list(self.pending()):
            for task in pending:
                task.cancel()
            await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
            for task in pending:
                if not task.done():
                    logger.warning("%s: %s goes on, and is cancelled again", self.name, _name_of(task))
        if self._parent is not None:
            self._parent._branches.pop(self, None)

    def _close(self) -> None:
        self._is_ended = True
        for branch in self._branches:
            branch._close()

    def _new_task(self, work: Coroutine[Any, Any, T], on_bug: OnBug | None) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = on_bug
        if self._is_ended:
            task.cancel()
        return task

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        on_bug = self._tasks.pop(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log(task, error)
            if on_bug is not None and isinstance(error, Exception):
                on_bug(error)

    def _on_shared_done(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and (isinstance(error, InvariantBrokenError) or not isinstance(error, TidelogError)):
            self._log(task, error)

    def _log(self, task: asyncio.Task[Any], error: BaseException) -> None:
        logger.critical("%s: %s ended: a bug in Tidelog", self.name, _name_of(task), exc_info=error)


def start_kept(work: Awaitable[T]) -> asyncio.Future[T]:
    """Start what the caller keeps: it awaits or cancels it, and what is raised is its own to handle.

    A task of the hottest paths, which costs nothing but itself.
    """
    return asyncio.ensure_future(work)


async def to_its_end(work: Awaitable[T]) -> T:
    """What it returns. Cancelled, this waits for the end of it before it is."""
    running = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # cancelled again: all the same
                await asyncio.wait([running])
        if not running.cancelled() and running.exception() is not None:
            logger.debug("ended with %s", running.exception())
        raise


async def unless(work: Awaitable[T], happens: Awaitable[object]) -> T | None:
    """The outcome of `work`; None as soon as `happens` is done before it. Neither outlives this."""
    working, happening = asyncio.ensure_future(work), asyncio.ensure_future(happens)
    try:
        await asyncio.wait((working, happening), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        happening.cancel()
        await asyncio.gather(working, happening, return_exceptions=True)


def _name_of(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return getattr(coroutine, "__qualname__", None) or repr(coroutine)
