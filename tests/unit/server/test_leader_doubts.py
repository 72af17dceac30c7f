"""Which answers wait because the leader that they name has just hung up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from typing import cast
from uuid import UUID

import pytest

from tidelog.base.ids import BrokerEpoch, BrokerId
from tidelog.metadata import BrokerImage, MetadataImage
from tidelog.server.api.handlers.api_03_metadata import shown_brokers
from tidelog.server.replication import leader_doubts
from tidelog.server.replication.leader_doubts import LeaderDoubts

LEADER, OTHER = BrokerId(2), BrokerId(3)


class Published:
    """An image that says who leads."""

    def __init__(self) -> None:
        self.leader = LEADER
        self.brokers: dict[BrokerId, object] = {}

    def image(self) -> MetadataImage:
        return cast(MetadataImage, self)


def names(image: MetadataImage, leaders: Set[BrokerId]) -> bool:
    return cast(Published, image).leader in leaders


def run(scenario: Callable[[LeaderDoubts, Published], Awaitable[None]], doubt_ms_max: int = 60_000) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario(LeaderDoubts(doubt_ms_max), Published())

    asyncio.run(bounded())


async def still_waits(waiting: asyncio.Future[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not waiting.done()


def test_nobody_waits_for_a_leader_that_is_there() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        await doubts.settled(published.image, names)
        doubts.on_hung_up(OTHER)
        await doubts.settled(published.image, names)
        assert doubts.brokers == {OTHER}

    run(scenario)


def test_an_answer_waits_until_another_leads() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, names))
        doubts.on_published(published.image())
        assert await still_waits(waiting)
        published.leader, published.brokers = OTHER, {LEADER: "is fenced"}
        doubts.on_published(published.image())
        await waiting
        assert doubts.just_gone == {LEADER}

    run(scenario)


def test_an_answer_waits_until_the_leader_answers_again() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, names))
        assert await still_waits(waiting)
        doubts.on_answered(LEADER)
        await waiting
        assert (doubts.brokers, doubts.just_gone) == (set(), set())

    run(scenario)


def test_a_leader_is_in_doubt_once_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        doubts.on_hung_up(LEADER)
        await doubts.settled(published.image, names)
        assert published.leader == LEADER
        doubts.on_hung_up(LEADER)
        assert not doubts.brokers
        assert doubts.just_gone == {LEADER}
        monkeypatch.setattr(leader_doubts, "GONE_SECONDS", 0.0)
        assert not doubts.just_gone
        doubts.on_answered(LEADER)
        doubts.on_hung_up(LEADER)
        assert doubts.brokers == {LEADER}

    run(scenario, doubt_ms_max=10)


def test_nobody_is_in_doubt_where_that_is_switched_off() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        doubts.on_hung_up(LEADER)
        await doubts.settled(published.image, names)
        assert not doubts.just_gone

    run(scenario, doubt_ms_max=0)


def test_whoever_waits_is_let_go_when_the_broker_stops() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, names))
        assert await still_waits(waiting)
        doubts.stop()
        await waiting

    run(scenario)


def test_who_waits_looks_at_those_images_alone_that_tell_of_a_doubted_broker() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published) -> None:
        looks = 0

        def look(image: MetadataImage, leaders: Set[BrokerId]) -> bool:
            nonlocal looks
            looks += 1
            return names(image, leaders)

        doubts.on_hung_up(LEADER)
        published.brokers = {LEADER: "is as before"}
        doubts.on_published(published.image())
        waiting = [asyncio.ensure_future(doubts.settled(published.image, look)) for _ in range(10)]
        assert await still_waits(waiting[0])
        for number in range(100):
            published.brokers = {LEADER: "is as before", OTHER: number}
            doubts.on_published(published.image())
            assert await still_waits(waiting[0])
        assert looks == len(waiting)
        published.leader, published.brokers = OTHER, {LEADER: "is fenced"}
        doubts.on_published(published.image())
        await asyncio.gather(*waiting)
        assert looks == 2 * len(waiting)

    run(scenario)


@pytest.mark.parametrize(
    ("fenced", "gone", "shown"),
    [
        (set(), set(), [1, 2, 3]),
        ({2}, set(), [1, 3]),
        ({2}, {2}, [1, 3, 2]),
        (set(), {2}, [1, 2, 3]),
        ({1, 2, 3}, set(), [1]),
        ({1, 2, 3}, {2, 3}, [1, 2, 3]),
        ({1, 2, 3}, {1, 2}, [1, 2]),
    ],
)
def test_clients_are_shown_each_broker_once(fenced: set[int], gone: set[int], shown: list[int]) -> None:
    image = MetadataImage(
        brokers={
            BrokerId(one): BrokerImage(BrokerId(one), BrokerEpoch(0), UUID(int=one), (), None, is_fenced=one in fenced)
            for one in (1, 2, 3)
        }
    )
    found = shown_brokers(image, BrokerId(1), {BrokerId(one) for one in gone})
    assert [broker.broker_id for broker in found] == shown
