"""Writes what followers put off until their next fetch has left: the leader reads while the follower writes.

```
 turn of the loop    an answer is told ── the fetch that goes ahead is sent ── a write ── a write ── …
 the leader                                                  reads and sends the next answer
```

Kafka has no counterpart: its followers fetch and write in turn.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from tidelog.server.tasks import Tasks

TURNS_UNTIL_SENT = 4
"""Turns of the loop in which a fetcher wakes up, gathers what is wanted, sends it, and the socket takes it."""


class PutsOff(Protocol):
    """A follower. `FollowerDriver` is one."""

    def write(self) -> None: ...


class PutOffWrites:
    """Those of all followers of a node, in their order, with turns for others in between."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._due: dict[PutsOff, None] = {}
        self._is_running = False

    def add(self, follower: PutsOff) -> None:
        """Call `write` in some turns of the loop."""
        self._due[follower] = None
        if not self._is_running:
            self._run()

    def _run(self, _bug: Exception | None = None) -> None:
        self._is_running = True
        self._tasks.start(self._write_all(), on_bug=self._run)

    async def _write_all(self) -> None:
        for _ in range(TURNS_UNTIL_SENT):
            await asyncio.sleep(0)
        while self._due:
            follower = next(iter(self._due))
            del self._due[follower]
            follower.write()
            await asyncio.sleep(0)
        self._is_running = False
