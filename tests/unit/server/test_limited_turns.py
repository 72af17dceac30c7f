"""Turns of the loop that have room for a few at a time."""

from __future__ import annotations

import asyncio
from collections import Counter

from tidelog.server.share_state.turns import LimitedTurns


def entered(weights: list[int], weight_max: int) -> tuple[list[int], list[int]]:
    """In which order they come in, and how much of them in each turn of the loop."""
    order: list[int] = []
    by_turn: Counter[int] = Counter()
    turn = 0

    async def count_turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async def enter(turns: LimitedTurns, number: int, weight: int) -> None:
        await turns.enter(weight)
        by_turn[turn] += weight
        order.append(number)

    async def scenario() -> None:
        counting = asyncio.ensure_future(count_turns())
        turns = LimitedTurns(weight_max)
        await asyncio.gather(*(enter(turns, number, weight) for number, weight in enumerate(weights)))
        counting.cancel()

    asyncio.run(scenario())
    return order, list(by_turn.values())


def test_so_many_come_in_at_a_time_in_their_order() -> None:
    assert entered([1] * 20, 8) == (list(range(20)), [8, 8, 4])
    assert entered([3, 3, 3, 9, 1, 8, 1], 8) == (list(range(7)), [6, 3, 9, 1, 8, 1])


def test_who_gives_up_holds_up_nobody() -> None:
    async def scenario() -> None:
        turns = LimitedTurns(1)
        await turns.enter()
        waiting = [asyncio.ensure_future(turns.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[1].cancel()
        await asyncio.wait_for(waiting[2], 5)
        await asyncio.wait_for(turns.enter(), 5)

    asyncio.run(scenario())
