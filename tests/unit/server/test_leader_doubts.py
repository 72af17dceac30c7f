"""Which answers wait because a leader that they name has just hung up, or has yet to show that it is there."""

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
from tidelog.server.replication.leader_probes import OnProbed

US, LEADER, OTHER = BrokerId(1), BrokerId(2), BrokerId(3)
LATER = float("inf")


class Published:
    """An image that says who leads."""

    def __init__(self) -> None:
        self.leader = LEADER
        self.brokers: dict[BrokerId, object] = {}

    def image(self) -> MetadataImage:
        return cast(MetadataImage, self)


class Probes:
    """Those that are asked answer when they are told to; by default at once."""

    def __init__(self) -> None:
        self.hold_back: set[BrokerId] = set()
        self.under_way: dict[BrokerId, asyncio.Event] = {}
        self.hangs_up = 0
        self.gone: set[BrokerId] = set()
        self.asked: list[BrokerId] = []

    def on_published(self, image: MetadataImage) -> None:
        pass

    def probe(self, leader: BrokerId, told: OnProbed) -> asyncio.Task[None]:
        is_gone = leader in self.gone or self.hangs_up > 0
        self.hangs_up = max(self.hangs_up - 1, 0)

        async def ask(asked: float) -> None:
            if leader in self.hold_back:
                await self.under_way.setdefault(leader, asyncio.Event()).wait()
            if is_gone:
                told.on_hung_up(leader)
            else:
                told.on_answered(leader, asked)

        self.asked.append(leader)
        return asyncio.ensure_future(ask(asyncio.get_running_loop().time()))


def named(image: MetadataImage) -> Set[BrokerId]:
    return {cast(Published, image).leader}


Scenario = Callable[[LeaderDoubts, Published, Probes], Awaitable[None]]


def run(scenario: Scenario, doubt_ms_max: int = 60_000) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            probes = Probes()
            await scenario(LeaderDoubts(US, doubt_ms_max, probes), Published(), probes)

    asyncio.run(bounded())


async def still_waits(waiting: asyncio.Future[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not waiting.done()


def test_nobody_waits_for_a_leader_that_is_there() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        await doubts.settled(published.image, named)
        doubts.on_hung_up(OTHER)
        await doubts.settled(published.image, named)
        assert doubts.brokers == {OTHER}

    run(scenario)


def test_an_answer_waits_until_another_leads() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.gone.add(LEADER)
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        doubts.on_published(published.image())
        assert await still_waits(waiting)
        published.leader, published.brokers = OTHER, {LEADER: "is fenced"}
        doubts.on_published(published.image())
        await waiting
        assert doubts.just_gone == {LEADER}

    run(scenario)


def test_an_answer_waits_until_the_leader_answers_again() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.gone.add(LEADER)
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(waiting)
        probes.gone.clear()
        doubts.on_answered(LEADER, LATER)
        await waiting
        assert (doubts.brokers, doubts.just_gone) == (set(), set())

    run(scenario)


def test_a_leader_is_in_doubt_once_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.gone.add(LEADER)
        doubts.on_hung_up(LEADER)
        await doubts.settled(published.image, named)
        assert published.leader == LEADER
        doubts.on_hung_up(LEADER)
        assert not doubts.brokers
        assert doubts.just_gone == {LEADER}
        monkeypatch.setattr(leader_doubts, "GONE_SECONDS", 0.0)
        assert not doubts.just_gone
        doubts.on_answered(LEADER, LATER)
        doubts.on_hung_up(LEADER)
        assert doubts.brokers == {LEADER}

    run(scenario, doubt_ms_max=10)


def test_one_that_hung_up_is_asked_again() -> None:
    """Where it is not followed from here, nobody else asks it whether a connection alone broke."""

    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.hangs_up = 1
        async with asyncio.timeout(10):
            await doubts.settled(published.image, named)
        assert probes.asked == [LEADER, LEADER]
        assert not doubts.brokers

    run(scenario)


def test_no_answer_waits_longer_than_the_setting_whatever_doubts_follow() -> None:
    """Brokers may restart one after the other, or answer on one connection and hang up on another."""

    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        async def come_and_go() -> None:
            while True:
                doubts.on_answered(LEADER, LATER)
                doubts.on_hung_up(LEADER)
                await asyncio.sleep(0)

        doubts.on_hung_up(LEADER)
        coming_and_going = asyncio.ensure_future(come_and_go())
        async with asyncio.timeout(10):
            await doubts.settled(published.image, named)
        assert doubts.brokers == {LEADER}
        coming_and_going.cancel()

    run(scenario, doubt_ms_max=20)


def test_nobody_is_in_doubt_where_that_is_switched_off() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        doubts.on_hung_up(LEADER)
        await doubts.settled(published.image, named)
        assert not doubts.just_gone

    run(scenario, doubt_ms_max=0)


def test_whoever_waits_is_let_go_when_the_broker_stops() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.gone.add(LEADER)
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(waiting)
        doubts.stop()
        await waiting

    run(scenario)


def test_an_answer_waits_until_the_leader_has_shown_that_it_is_there() -> None:
    """The client's own connection may close before the one from here does."""

    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.hold_back.add(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(waiting)
        probes.under_way[LEADER].set()
        await waiting
        assert probes.asked == [LEADER]

    run(scenario)


def test_an_answer_waits_on_if_the_leader_turns_out_to_be_gone() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.probe = lambda leader, told: asyncio.ensure_future(hang_up(leader, told))  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(waiting)
        assert doubts.brokers == {LEADER}
        published.leader, published.brokers = OTHER, {LEADER: "is fenced"}
        doubts.on_published(published.image())
        await waiting

    async def hang_up(leader: BrokerId, told: OnProbed) -> None:
        if leader == LEADER:
            told.on_hung_up(leader)

    run(scenario)


def test_a_leader_that_does_not_answer_in_time_holds_up_one_answer() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.hold_back.add(LEADER)
        await doubts.settled(published.image, named)
        at_once = asyncio.ensure_future(doubts.settled(published.image, named))
        assert not await still_waits(at_once)
        probes.under_way[LEADER].set()
        await asyncio.sleep(0)
        probes.under_way.clear()
        again = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(again)
        probes.gone.add(LEADER)
        doubts.on_hung_up(LEADER)
        probes.under_way[LEADER].set()
        assert await still_waits(again)
        doubts.stop()
        await again

    run(scenario)


def test_one_that_hung_up_a_while_ago_is_waited_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have come back, and nobody has asked it anything since."""

    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.hold_back.add(LEADER)
        doubts.on_hung_up(LEADER)
        await doubts.settled(published.image, named)
        monkeypatch.setattr(leader_doubts, "GONE_SECONDS", 0.0)
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(waiting)
        probes.under_way[LEADER].set()
        await waiting
        assert not doubts.brokers

    run(scenario, doubt_ms_max=10)


def test_an_answer_to_what_was_asked_before_it_hung_up_says_nothing() -> None:
    """It may be read after the end of another connection."""

    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(0.001)
        doubts.on_hung_up(LEADER)
        doubts.on_answered(LEADER, before)
        assert doubts.brokers == {LEADER}
        doubts.on_answered(LEADER, asyncio.get_running_loop().time())
        assert not doubts.brokers

    run(scenario)


@pytest.mark.parametrize(("doubt_ms_max", "leader"), [(0, LEADER), (60_000, US)])
def test_nobody_is_asked_of_whom_there_is_no_doubt(doubt_ms_max: int, leader: BrokerId) -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        published.leader = leader
        assert not doubts.concern({leader})
        await doubts.settled(published.image, named)
        assert not probes.asked

    run(scenario, doubt_ms_max)


def test_the_next_doubt_ends_with_news_that_are_equal_to_the_last_ones() -> None:
    """A broker that comes back is registered before it may lead: as fenced as its end is told next time."""

    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        probes.gone.add(LEADER)
        doubts.on_hung_up(LEADER)
        published.brokers = {LEADER: "is fenced"}
        doubts.on_published(published.image())
        doubts.on_answered(LEADER, LATER)
        doubts.on_hung_up(LEADER)
        waiting = asyncio.ensure_future(doubts.settled(published.image, named))
        assert await still_waits(waiting)
        published.leader = OTHER
        doubts.on_published(published.image())
        await waiting

    run(scenario)


def test_who_waits_looks_at_those_images_alone_that_tell_of_a_doubted_broker() -> None:
    async def scenario(doubts: LeaderDoubts, published: Published, probes: Probes) -> None:
        looks = 0

        def look(image: MetadataImage) -> Set[BrokerId]:
            nonlocal looks
            looks += 1
            return named(image)

        probes.gone.add(LEADER)
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
        assert looks == 3 * len(waiting)

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
