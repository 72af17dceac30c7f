"""Virtual time: jumps, order, dead ends, and processes that end between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from inspect import CORO_CLOSED, getcoroutinestate
from random import Random
from typing import Any, cast

import pytest

from tidelog.sim.world.executor import ExecutorFaults, SimulatedExecutor
from tidelog.sim.world.loop import SimulatedLoop, StuckError


@pytest.fixture
def loop() -> Iterator[SimulatedLoop]:
    made = SimulatedLoop()
    yield made
    made.close()


def test_the_clock_jumps_to_the_next_timer(loop: SimulatedLoop) -> None:
    async def main() -> float:
        began = loop.time()
        await asyncio.sleep(1_000.0)
        await asyncio.sleep(0)
        return loop.time() - began

    assert loop.run(main()) == 1_000.0
    assert loop.elapsed_seconds == 1_000.0


def test_what_is_due_together_comes_in_the_order_in_which_it_was_made(loop: SimulatedLoop) -> None:
    order: list[int] = []

    async def main() -> None:
        when = loop.time() + 1
        for number in range(50):
            loop.call_at(when, order.append, number)
        await asyncio.sleep(2)

    loop.run(main())
    assert order == list(range(50))


def test_timers_that_were_cancelled_are_neither_run_nor_waited_for(loop: SimulatedLoop) -> None:
    ran: list[int] = []

    async def main() -> None:
        timers = [loop.call_later(1 + number, ran.append, number) for number in range(2_000)]
        for number, timer in enumerate(timers):
            if number % 500:
                timer.cancel()
        await asyncio.sleep(1_600)

    loop.run(main())
    assert ran == [0, 500, 1000, 1500]


def test_a_run_in_which_nothing_can_happen_says_what_waits(loop: SimulatedLoop) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        await asyncio.gather(waits_for_ever(), waits_for_ever())

    with pytest.raises(StuckError, match=r"nothing is left.*\n(.*\n)*.*waits_for_ever.*test_simulated_loop.py:\d+"):
        loop.run(main())


def test_a_run_has_an_end_in_virtual_time(loop: SimulatedLoop) -> None:
    async def main() -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(StuckError, match=r"its time is over \(60 virtual seconds\)"):
        loop.run(main(), limit_seconds=60)
    assert 59 <= loop.elapsed_seconds <= 60


def test_a_callback_that_fails_ends_the_run(loop: SimulatedLoop) -> None:
    async def main() -> None:
        loop.call_later(1, lambda: 1 // 0)
        await asyncio.sleep(10)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())


def test_threads_are_refused(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="Executor"):
        loop.run(main())


def test_nothing_of_a_process_runs_after_its_end(loop: SimulatedLoop) -> None:
    said: list[str] = []

    async def program() -> None:
        loop.call_later(5, said.append, "timer")
        child = asyncio.create_task(asyncio.sleep(6))
        child.add_done_callback(lambda _: said.append("child"))
        try:
            while True:
                said.append("step")
                await asyncio.sleep(1)
        finally:
            said.append("buried")
            await asyncio.sleep(1)
            said.append("never")

    async def main() -> None:
        process = loop.new_process("program")
        process.context.run(lambda: asyncio.create_task(program()))
        await asyncio.sleep(2.5)
        process.end()
        process.bury()
        await asyncio.sleep(100)

    loop.run(main())
    assert said == ["step", "step", "step", "buried"]


def test_what_is_left_at_the_end_ends_on_the_loop_itself(loop: SimulatedLoop) -> None:
    ended_on: list[asyncio.AbstractEventLoop] = []

    async def program() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            ended_on.append(asyncio.get_event_loop())

    async def main() -> None:
        loop.new_process("program").context.run(lambda: asyncio.create_task(program()))
        await asyncio.sleep(1)

    async def close_it() -> None:
        loop.close()
        ended_on.append(asyncio.get_running_loop())

    loop.run(main())
    other = SimulatedLoop()
    other.run(close_it())
    assert ended_on == [loop, other]
    other.close()


def test_what_a_process_starts_while_it_is_buried_ends_with_it(loop: SimulatedLoop) -> None:
    async def program() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            started.append(asyncio.create_task(program()))

    async def main() -> None:
        process = loop.new_process("program")
        process.context.run(lambda: asyncio.create_task(program()))
        await asyncio.sleep(1)
        process.end()
        process.bury()
        (one,) = started
        assert getcoroutinestate(cast(Any, one.get_coro())) == CORO_CLOSED
        assert not process.pending_tasks

    started: list[asyncio.Task[None]] = []
    loop.run(main())


def test_offloaded_work_is_done_later_and_in_an_order_of_the_seed(loop: SimulatedLoop) -> None:
    def orders(seed: int) -> list[list[int]]:
        executor = SimulatedExecutor(loop, Random(seed))
        found = []

        async def main() -> None:
            for _ in range(5):
                order: list[int] = []
                jobs = [executor.run(partial(order.append, number)) for number in range(5)]
                assert order == []
                for job in jobs:
                    await job
                found.append(order)

        loop.run(main())
        return found

    assert orders(1) == orders(1) != orders(2)
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders(3))
    assert orders(3) != [[0, 1, 2, 3, 4]] * 5


def test_what_offloaded_work_raises_is_raised_where_it_is_awaited(loop: SimulatedLoop) -> None:
    async def main() -> None:
        await SimulatedExecutor(loop, Random(1)).run(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        loop.run(main())


def test_a_disk_that_stalls_holds_up_those_who_wait_for_it(loop: SimulatedLoop) -> None:
    executor = SimulatedExecutor(loop, Random(1), ExecutorFaults(stall_rate=1.0, stall_ms_max=10_000))

    async def main() -> None:
        for _ in range(10):
            await executor.run(int)

    loop.run(main())
    assert 10 < loop.elapsed_seconds < 100
