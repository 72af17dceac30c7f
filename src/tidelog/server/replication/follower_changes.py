"""Tells all partitions that a follower is silent, or fetches again, with turns for others in between.

A broker may lead thousands, each of which looks at its ISR then.

Kafka has no counterpart: a thread of its own looks for those that lag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from tidelog.base.ids import BrokerId
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import in_turns


class FollowedRole(Protocol):
    """What a broker is to a partition. `PartitionRole` is one."""

    def on_follower_changed(self, follower: BrokerId, is_silent: bool, now_ms: int) -> None: ...


class FollowedPartition(Protocol):
    """A partition. `Partition` is one."""

    @property
    def role(self) -> FollowedRole: ...


class FollowerChanges:
    """Those of all followers of a node, in their order.

    Args:
        partitions: all that are here.
        now_ms: monotonic.
    """

    def __init__(
        self, partitions: Callable[[], Iterable[FollowedPartition]], now_ms: Callable[[], int], tasks: Tasks
    ) -> None:
        self._partitions = partitions
        self._now_ms = now_ms
        self._tasks = tasks
        self._untold: dict[BrokerId, bool] = {}
        self._is_running = False

    def on_changed(self, follower: BrokerId, is_silent: bool) -> None:
        """Tell all of it; what was not told yet of the same follower is over."""
        self._untold.pop(follower, None)
        self._untold[follower] = is_silent
        if not self._is_running:
            self._run()

    def _run(self, _bug: Exception | None = None) -> None:
        self._is_running = True
        self._tasks.start(self._tell_all(), on_bug=self._run)

    async def _tell_all(self) -> None:
        while self._untold:
            follower = next(iter(self._untold))
            is_silent = self._untold.pop(follower)
            async for partition in in_turns(self._partitions()):
                if follower in self._untold:
                    break  # by now the opposite is true
                partition.role.on_follower_changed(follower, is_silent, self._now_ms())
        self._is_running = False
