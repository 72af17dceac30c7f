"""One timer for many that wait."""

from __future__ import annotations

import asyncio

from support.fixtures.loop_steps import Steps
from tidelog.server.replication.deadlines import ReplicationDeadlines
from tidelog.server.transport.turns import TURN_SIZE
from tidelog.sim.world.clock import SimulatedClock
from tidelog.sim.world.world import SimulatedWorld


class Waiter:
    """Notes when it is told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def on_due(self, now_ms: int) -> None:
        self.told.append(now_ms)


def test_each_is_told_at_its_time_and_the_timer_is_that_of_the_first() -> None:
    async def story(world: SimulatedWorld) -> None:
        deadlines = ReplicationDeadlines(SimulatedClock(world.loop))
        now_ms = SimulatedClock(world.loop).now_ms()
        one, two = Waiter(), Waiter()
        deadlines.add(one, now_ms + 500)
        deadlines.add(two, now_ms + 100)
        deadlines.add(two, now_ms + 900)
        await asyncio.sleep(2)
        assert [at - now_ms for at in one.told] == [500]
        assert [at - now_ms for at in two.told] == [100, 900]

    with SimulatedWorld(1) as world:
        world.run(story(world))


def test_one_that_is_always_due_lets_the_others_have_their_turn() -> None:
    class Impatient(Waiter):
        def __init__(self, deadlines: ReplicationDeadlines) -> None:
            super().__init__()
            self.deadlines = deadlines

        def on_due(self, now_ms: int) -> None:
            super().on_due(now_ms)
            self.deadlines.add(self, now_ms)

    async def story(world: SimulatedWorld) -> None:
        deadlines = ReplicationDeadlines(SimulatedClock(world.loop))
        one, two = Impatient(deadlines), Waiter()
        now_ms = SimulatedClock(world.loop).now_ms()
        deadlines.add(one, now_ms)
        deadlines.add(two, now_ms + 20)
        await asyncio.sleep(0.1)
        assert two.told == [now_ms + 20]
        assert len(one.told) <= 101
        deadlines.stop()
        before = len(one.told)
        await asyncio.sleep(1)
        assert len(one.told) == before

    with SimulatedWorld(1) as world:
        world.run(story(world))


def test_thousands_that_are_due_at_once_are_told_in_turns() -> None:
    async def story(world: SimulatedWorld) -> None:
        deadlines = ReplicationDeadlines(SimulatedClock(world.loop))
        now_ms = SimulatedClock(world.loop).now_ms()
        steps = Steps()
        waiters = [Counted(steps) for _ in range(5 * TURN_SIZE)]
        for waiter in waiters:
            deadlines.add(waiter, now_ms + 100)
        await asyncio.sleep(1)
        assert all(len(waiter.told) == 1 for waiter in waiters)
        assert steps.counts == [TURN_SIZE] * 5

    with SimulatedWorld(1) as world:
        world.run(story(world))


class Counted(Waiter):
    def __init__(self, steps: Steps) -> None:
        super().__init__()
        self._steps = steps

    def on_due(self, now_ms: int) -> None:
        super().on_due(now_ms)
        self._steps.count()
