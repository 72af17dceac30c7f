"""Clock, randomness and executors."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tidelog.base.errors import DiskError
from tidelog.io.clock import SystemClock
from tidelog.io.executor import THREADS, InlineExecutor, ThreadExecutor
from tidelog.io.rng import SystemRng


def test_the_clocks_count_milliseconds() -> None:
    clock = SystemClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 1000
    first = clock.now_ms()
    assert 0 <= clock.now_ms() - first < 1000


def test_random_numbers_lie_in_their_range() -> None:
    rng = SystemRng()
    assert all(0 <= rng.random() < 1 for _ in range(1000))
    assert len({rng.random() for _ in range(100)}) > 90
    for start, stop in ((0, 1), (-5, 5), (0, 256), (7, 8), (0, 257), (10, 10 + 2**70)):
        drawn = {rng.randrange(start, stop) for _ in range(2000)}
        assert all(start <= number < stop for number in drawn)
        if stop - start <= 10:
            assert drawn == set(range(start, stop))
    for start, stop in ((3, 3), (4, 3)):
        with pytest.raises(ValueError, match="there is no number"):
            rng.randrange(start, stop)


def test_random_ids_are_of_version_4_and_never_alike() -> None:
    rng = SystemRng()
    ids = {rng.uuid() for _ in range(1000)}
    assert len(ids) == 1000
    assert {each.version for each in ids} == {4}


def fail() -> None:
    raise DiskError("x", "refused")


def test_a_thread_does_the_work_and_the_loop_goes_on() -> None:
    async def run() -> None:
        executor = ThreadExecutor()
        release = threading.Event()
        waiting = asyncio.ensure_future(executor.run(lambda: (release.wait(10), threading.get_ident())[1]))
        assert await executor.run(lambda: 7) == 7
        assert not waiting.done()
        release.set()
        assert await waiting != threading.get_ident()
        with pytest.raises(DiskError, match="refused"):
            await executor.run(fail)
        executor.close()

    asyncio.run(run())


def test_neither_disks_nor_what_computes_wait_for_each_other() -> None:
    async def run() -> None:
        executor = ThreadExecutor()
        release = threading.Event()

        def wait() -> int:
            release.wait(10)
            return threading.get_ident()

        disks = [asyncio.ensure_future(executor.run(wait)) for _ in range(THREADS + 1)]
        assert await executor.compute(lambda: 7) == 7
        computing = [asyncio.ensure_future(executor.compute(wait)) for _ in range(2)]
        release.set()
        assert len({await one for one in computing}) == 1, "one at a time"
        assert not {await one for one in disks} & {await one for one in computing}
        with pytest.raises(DiskError, match="refused"):
            await executor.compute(fail)
        executor.close()

    asyncio.run(run())


def test_inline_work_is_done_at_once_in_the_same_step() -> None:
    async def run() -> None:
        executor = InlineExecutor()
        done: list[int] = []

        def work() -> str:
            done.append(threading.get_ident())
            return "done"

        pending = executor.run(work)
        assert done == [threading.get_ident()]
        assert await pending == "done"
        failed = executor.run(fail)
        with pytest.raises(DiskError, match="refused"):
            await failed
        executor.close()

    asyncio.run(run())
