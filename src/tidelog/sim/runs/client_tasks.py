"""The tasks of simulated clients. An error that one raises breaks the run: it must not vanish with its task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from tidelog.sim.faults.own_bugs import words_of


class Expecting(Protocol):
    """A recorder."""

    def expect(self, holds: bool, invariant: str, what: str) -> None:
        """An invariant of the run."""


class ClientTasks:
    """Those of one workload.

    Args:
        recorder: is told of what they raise.
        who: does the work, in that text.
    """

    def __init__(self, recorder: Expecting, who: str = "a client") -> None:
        self._recorder = recorder
        self._who = who

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Have it done meanwhile."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._recorder.expect(False, "OwnInvariant", f"{self._who} raised {words_of(error)}")
