"""One write for all that wait: each is written, few times, and each hears of a refusal that was its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import pytest

from tidelog.base.errors import DiskError
from tidelog.io.executor import InlineExecutor
from tidelog.server.storage.written_together import WrittenTogether

T = TypeVar("T")


class SlowExecutor(InlineExecutor):
    """Others have a turn while a write is under way."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        async def later() -> T:
            await asyncio.sleep(0)
            return work()

        return later()


def test_what_comes_while_one_is_written_is_written_together() -> None:
    written: list[list[int]] = []

    def write(items: Iterable[int]) -> None:
        written.append(list(items))

    async def story() -> None:
        together = WrittenTogether(write, SlowExecutor())
        first = asyncio.create_task(together.write(0))
        await asyncio.sleep(0)
        await asyncio.gather(*(together.write(number) for number in range(1, 100)))
        await first

    asyncio.run(story())
    assert len(written) <= 3
    assert [number for batch in written for number in batch] == list(range(100))


def test_a_refusal_is_heard_by_those_that_it_was_about() -> None:

    def write(items: Iterable[int]) -> None:
        if 2 in items:
            raise DiskError("checkpoint", "no")

    async def story() -> None:
        together = WrittenTogether(write, SlowExecutor())
        outcomes = await asyncio.gather(*(together.write(number) for number in range(4)), return_exceptions=True)
        assert isinstance(outcomes[2], DiskError)
        assert outcomes[0] is None
        await together.write(5)

    asyncio.run(story())


def test_who_gives_up_takes_nobody_along() -> None:
    written: list[list[int]] = []

    def write(items: Iterable[int]) -> None:
        written.append(list(items))

    async def story() -> None:
        together = WrittenTogether(write, SlowExecutor())
        first = asyncio.create_task(together.write(0))
        await asyncio.sleep(0)
        second = asyncio.create_task(together.write(1))
        third = asyncio.create_task(together.write(2))
        await asyncio.sleep(0)
        first.cancel()
        second.cancel()
        await third
        with pytest.raises(asyncio.CancelledError):
            await first
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(story())
    assert 2 in [number for batch in written for number in batch]


def test_what_nobody_waits_for_any_more_is_not_written_later() -> None:
    """It says what is to be in a file, which may say something newer by then."""
    written: list[list[int]] = []

    def write(items: Iterable[int]) -> None:
        written.append(list(items))

    async def story() -> None:
        together = WrittenTogether(write, SlowExecutor())
        given_up = [asyncio.create_task(together.write(number)) for number in range(3)]
        await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        await asyncio.wait(given_up)
        await together.write(3)

    asyncio.run(story())
    assert written == [[0], [3]]


def test_what_was_given_up_while_another_wrote_it_is_not_written_once_more() -> None:
    """Who writes is cancelled last: the batch goes back, without those that were cancelled before."""
    written: list[list[int]] = []

    def write(items: Iterable[int]) -> None:
        written.append(list(items))

    async def story() -> None:
        together = WrittenTogether(write, SlowExecutor())
        blocker = asyncio.create_task(together.write(0))
        await asyncio.sleep(0)
        second, third = (asyncio.create_task(together.write(number)) for number in (1, 2))
        await blocker
        await asyncio.sleep(0)  # the second one writes its own and the third's
        third.cancel()
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.wait([second, third])
        await together.write(3)

    asyncio.run(story())
    assert [batch for batch in written if 2 in batch][1:] == []
    assert written[-1] == [3]
