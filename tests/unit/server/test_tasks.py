"""The owner of a node's tasks: nothing is silent, nothing is left, and no task is felt by another."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from tidelog.base.errors import InvariantBrokenError, KafkaError
from tidelog.server.tasks import CANCEL_AGAIN_SECONDS, Tasks, to_its_end, unless
from tidelog.sim.world.world import SimulatedWorld


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def told() -> None:
        await story()

    with SimulatedWorld(1) as world:
        world.run(told())


async def for_ever(ends: list[str], name: str) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ends.append(name)


async def raises(error: Exception) -> None:
    raise error


def test_the_end_of_a_tree_cancels_branches_before_their_trunk_and_by_age() -> None:
    async def story() -> None:
        ends: list[str] = []
        node = Tasks("node")
        node.start(for_ever(ends, "node"))
        broker = node.branch("broker")
        fetcher = broker.branch("fetcher")
        for number in range(20):
            broker.start(for_ever(ends, f"broker {number}"))
        fetcher.start(for_ever(ends, "fetcher"))
        await asyncio.sleep(0)
        await node.end()
        assert ends == ["fetcher", *(f"broker {number}" for number in range(20)), "node"]
        assert len(node) == 0

    run(story)


def test_a_bug_is_logged_and_told_and_nobody_else_feels_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        ends: list[str] = []
        told: list[tuple[str, Exception]] = []
        tasks = Tasks("broker", lambda error: told.append(("branch", error)))
        own, first, second = InvariantBrokenError("own"), ValueError("first"), KafkaError("second")
        sibling = tasks.start(for_ever(ends, "sibling"))
        tasks.start(raises(first))
        tasks.start(raises(second))
        tasks.start(raises(own), on_bug=lambda error: told.append(("own", error)))
        await asyncio.sleep(1)
        assert told == [("branch", first), ("branch", second), ("own", own)]
        assert not sibling.done()
        assert list(tasks.pending()) == [sibling]
        await tasks.end()

    run(story)
    assert [record.getMessage() for record in caplog.records] == ["broker: raises ended: a bug in Tidelog"] * 3


def test_what_is_shared_raises_at_those_who_wait_and_only_a_bug_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        tasks = Tasks("groups", lambda error: pytest.fail(str(error)))
        refusal = KafkaError("no")
        with pytest.raises(KafkaError):
            await asyncio.shield(tasks.share(raises(refusal)))
        tasks.share(raises(refusal))
        await asyncio.sleep(1)
        assert not caplog.records
        with pytest.raises(InvariantBrokenError):
            await asyncio.shield(tasks.share(raises(InvariantBrokenError("a bug"))))
        assert len(caplog.records) == 1
        assert len(tasks) == 0
        gc.collect()  # asyncio would complain of what nobody looked at

    run(story)
    assert len(caplog.records) == 1


def test_a_task_that_swallows_a_cancellation_does_not_hang_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async def swallows() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.Event().wait()

        loop = asyncio.get_running_loop()
        tasks = Tasks("broker")
        tasks.start(swallows())
        await asyncio.sleep(0)
        began = loop.time()
        await tasks.end()
        assert loop.time() - began == pytest.approx(CANCEL_AGAIN_SECONDS)

    with caplog.at_level(logging.WARNING):
        run(story)
    assert len(caplog.records) == 1


def test_nothing_begins_after_the_end() -> None:
    async def story() -> None:
        ends: list[str] = []
        node = Tasks("node")
        branch = node.branch("broker")
        await node.end()
        late = [
            branch.start(for_ever(ends, "a")),
            node.start(for_ever(ends, "b")),
            node.branch("c").share(raises(ValueError())),
        ]
        await asyncio.wait(late)
        assert all(task.cancelled() for task in late)
        assert ends == []

    run(story)


def test_a_branch_that_ended_is_no_more_in_its_tree() -> None:
    async def story() -> None:
        node = Tasks("node")
        branch = node.branch("fetcher")
        branch.start(for_ever([], ""))
        await branch.end()
        assert not node._branches

    run(story)


def test_finishing_waits_for_what_there_is_and_cancels_nothing() -> None:
    async def story() -> None:
        tasks = Tasks("replication")
        steps: list[str] = []

        async def first() -> None:
            await asyncio.sleep(1)
            steps.append("first")
            tasks.branch("below").start(second())

        async def second() -> None:
            await asyncio.sleep(1)
            steps.append("second")

        tasks.start(first())
        await tasks.finish()
        assert steps == ["first", "second"]

    run(story)


def test_what_goes_to_its_end_does_so_however_often_it_is_cancelled() -> None:
    async def story() -> None:
        steps: list[str] = []

        async def work() -> None:
            await asyncio.sleep(10)
            steps.append("done")

        tasks = Tasks("moves")
        tasks.start(to_its_end(work()))
        await asyncio.sleep(0)
        await tasks.end()
        assert steps == ["done"]

    run(story)


def test_of_two_the_other_is_cancelled_with_the_first() -> None:
    async def story() -> None:
        ends: list[str] = []

        async def answer() -> str:
            await asyncio.sleep(1)
            return "answer"

        assert await unless(answer(), for_ever(ends, "moved")) == "answer"
        assert await unless(asyncio.sleep(2, "late"), answer()) is None
        with pytest.raises(ValueError, match="own"):
            await unless(raises(ValueError("own")), for_ever(ends, "moved"))
        assert ends == ["moved", "moved"]

    run(story)
