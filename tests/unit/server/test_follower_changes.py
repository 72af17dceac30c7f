"""Thousands of partitions are told of a follower in turns, and of each change in its order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

from tidelog.base.ids import BrokerId
from tidelog.server.replication.follower_changes import FollowerChanges
from tidelog.server.tasks import Tasks
from tidelog.server.transport.turns import TURN_SIZE

TWO, THREE = BrokerId(2), BrokerId(3)
COUNT = 5 * TURN_SIZE


class Partition:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[BrokerId, bool]] = []

    @property
    def role(self) -> Partition:
        return self

    def on_follower_changed(self, follower: BrokerId, is_silent: bool, now_ms: int) -> None:
        self.told.append((follower, is_silent))


def run(scenario: Callable[[FollowerChanges, list[Partition], Tasks], Awaitable[None]]) -> list[Partition]:
    partitions = [Partition() for _ in range(COUNT)]

    async def bounded() -> None:
        async with asyncio.timeout(60):
            tasks = Tasks("replication")
            await scenario(FollowerChanges(lambda: partitions, lambda: 0, tasks), partitions, tasks)
            await tasks.finish()

    asyncio.run(bounded())
    return partitions


def test_no_more_are_told_in_one_turn_than_others_can_wait_for() -> None:
    counts = [0]

    async def scenario(changes: FollowerChanges, partitions: list[Partition], tasks: Tasks) -> None:
        changes.on_changed(TWO, True)
        while counts[-1] < COUNT:
            await asyncio.sleep(0)
            counts.append(sum(len(one.told) for one in partitions))

    partitions = run(scenario)
    assert max(after - before for before, after in pairwise(counts)) <= TURN_SIZE
    assert all(one.told == [(TWO, True)] for one in partitions)


def test_who_fetches_again_meanwhile_is_called_silent_no_more() -> None:
    """A partition that is told so late would have him leave its ISR, though he fetches."""

    async def scenario(changes: FollowerChanges, partitions: list[Partition], tasks: Tasks) -> None:
        changes.on_changed(TWO, True)
        await asyncio.sleep(0)
        assert partitions[0].told
        assert not partitions[-1].told
        changes.on_changed(TWO, False)
        changes.on_changed(THREE, True)
        changes.on_changed(THREE, False)

    partitions = run(scenario)
    assert all(one.told == [(TWO, True), (TWO, False), (THREE, False)] for one in partitions[:TURN_SIZE])
    assert all(one.told == [(TWO, False), (THREE, False)] for one in partitions[TURN_SIZE:])
