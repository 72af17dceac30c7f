"""Memory of requests that are worked on: they wait for it in line, and give it back however they end."""

from __future__ import annotations

import asyncio

from tidelog.io.clock import SystemClock
from tidelog.server.transport.connection_memory import ConnectionMemory

LIMIT = 100
ABOVE = 1_000


def new_memory() -> ConnectionMemory:
    return ConnectionMemory(LIMIT, LIMIT, SystemClock())


def test_one_waits_until_another_is_done() -> None:
    async def story() -> None:
        memory = new_memory()
        with memory.kept() as first:
            await first.hold_in_line(ABOVE)
            second = memory.kept()
            second.count(5)  # what has come is there
            waiting = asyncio.ensure_future(second.hold_in_line(ABOVE))
            await asyncio.sleep(0)
            assert (second.size_bytes, memory.requests.waiting_count) == (5, 1)
        await waiting
        assert (second.size_bytes, memory.requests.used_bytes) == (ABOVE, ABOVE)
        second.let_go()
        assert memory.requests.used_bytes == 0

    asyncio.run(story())


def test_one_that_is_given_up_while_it_waits_leaves_the_line() -> None:
    async def story() -> None:
        memory = new_memory()

        async def wait() -> None:
            with memory.kept() as kept:
                await kept.hold_in_line(ABOVE)

        first = memory.kept()
        await first.hold_in_line(ABOVE)
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert memory.requests.waiting_count == 0
        first.let_go()
        assert memory.requests.used_bytes == 0

    asyncio.run(story())


def test_one_that_is_given_up_as_it_is_given_memory_gives_it_back() -> None:
    async def story() -> None:
        memory = new_memory()

        async def wait() -> None:
            with memory.kept() as kept:
                await kept.hold_in_line(ABOVE)

        first = memory.kept()
        await first.hold_in_line(ABOVE)
        waiting = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        first.let_go()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert memory.requests.used_bytes == 0

    asyncio.run(story())


def test_who_gives_way_is_called_once_while_others_wait() -> None:
    async def story() -> None:
        memory = new_memory()
        calls: list[str] = []
        first, second, third = memory.kept(), memory.kept(), memory.kept()
        first.give_way(lambda: calls.append("holds nothing"))
        await first.hold_in_line(ABOVE)
        first.give_way(lambda: calls.append("first"))
        waiting = [asyncio.ensure_future(one.hold_in_line(ABOVE)) for one in (second, third)]
        await asyncio.sleep(0)
        assert calls == ["first"]
        first.let_go()
        await waiting[0]
        second.give_way(lambda: calls.append("at once"))
        assert calls == ["first", "at once"]
        second.let_go()
        await waiting[1]
        third.give_way(lambda: calls.append("is done"))
        third.let_go()
        await first.hold_in_line(ABOVE)
        assert not memory.take(third, 1)
        assert calls == ["first", "at once"]
        third.let_go()
        first.let_go()

    asyncio.run(story())
