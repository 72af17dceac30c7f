"""How brokers are asked whether they are there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from tidelog.base.errors import NetworkError
from tidelog.base.ids import BrokerId, Offset
from tidelog.metadata import MetadataImage
from tidelog.net.connection import Connection
from tidelog.server.replication.leader_probes import LeaderProbes
from tidelog.server.tasks import Tasks
from tidelog.wire import ConsistencyState
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsResponse

LEADER, OTHER = BrokerId(2), BrokerId(3)


class Asked:
    """Brokers that answer when they are told to."""

    def __init__(self) -> None:
        self.refuses: set[BrokerId] = set()
        self.questions: list[tuple[BrokerId, asyncio.Future[DescribeConfigsResponse]]] = []
        self.told: list[tuple[BrokerId, bool]] = []
        self.tokens: list[int | None] = []

    async def connection(self, target: BrokerId, request_class: str = "") -> Connection:
        if target in self.refuses:
            raise NetworkError("connection refused")
        return cast(Connection, AskedConnection(self, target))

    def on_hung_up(self, leader: BrokerId) -> None:
        self.told.append((leader, False))

    def on_answered(self, leader: BrokerId, asked: float) -> None:
        self.told.append((leader, True))


class AskedConnection:
    def __init__(self, asked: Asked, leader: BrokerId) -> None:
        self._asked = asked
        self._leader = leader

    def send(self, *_: object, state: ConsistencyState, **__: object) -> asyncio.Future[DescribeConfigsResponse]:
        answer: asyncio.Future[DescribeConfigsResponse] = asyncio.get_running_loop().create_future()
        self._asked.questions.append((self._leader, answer))
        self._asked.tokens.append(state.token)
        return answer


def run(scenario: Callable[[LeaderProbes, Asked], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            asked, tasks = Asked(), Tasks("probes")
            await scenario(LeaderProbes(asked, timeout_ms=1_000, tasks=tasks), asked)
            await tasks.end()

    asyncio.run(bounded())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_who_wants_to_know_while_a_question_is_under_way_shares_the_next_one() -> None:
    async def scenario(probes: LeaderProbes, asked: Asked) -> None:
        first = [probes.probe(LEADER, asked), probes.probe(LEADER, asked)]
        await turns()
        later = [probes.probe(LEADER, asked) for _ in range(1_000)]
        other = probes.probe(OTHER, asked)
        await turns()
        assert [leader for leader, _ in asked.questions] == [LEADER, OTHER]
        asked.questions[0][1].set_result(DescribeConfigsResponse(results=[]))
        await asyncio.gather(*first)
        assert not any(one.done() for one in later)
        await turns()
        assert [leader for leader, _ in asked.questions] == [LEADER, OTHER, LEADER]
        for _, answer in asked.questions[1:]:
            answer.set_result(DescribeConfigsResponse(results=[]))
        await asyncio.gather(*later, other)
        assert sorted(asked.told) == [(LEADER, True), (LEADER, True), (OTHER, True)]

    run(scenario)


def test_a_question_bears_the_token_of_what_was_published_when_it_is_sent() -> None:
    async def scenario(probes: LeaderProbes, asked: Asked) -> None:
        first = probes.probe(LEADER, asked)
        await turns()
        later = probes.probe(LEADER, asked)
        probes.on_published(MetadataImage(last_offset=Offset(7)))
        asked.questions[0][1].set_result(DescribeConfigsResponse(results=[]))
        await first
        await turns()
        assert asked.tokens == [None, 7]
        asked.questions[1][1].set_result(DescribeConfigsResponse(results=[]))
        await later

    run(scenario)


def test_one_that_refuses_or_hangs_up_is_told_of() -> None:
    async def scenario(probes: LeaderProbes, asked: Asked) -> None:
        asked.refuses.add(OTHER)
        await probes.probe(OTHER, asked)
        hung_up = probes.probe(LEADER, asked)
        await turns()
        asked.questions[0][1].set_exception(NetworkError("closed the connection"))
        await hung_up
        assert asked.told == [(OTHER, False), (LEADER, False)]

    run(scenario)
