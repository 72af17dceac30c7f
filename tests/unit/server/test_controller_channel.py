"""The channel to the active controller: whoever leads, whatever happens meanwhile, until its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

import pytest

from support.fixtures.scripted_broker import HANG_UP, SILENT, ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.errors import Code, KafkaError, NetworkError, UnsupportedVersionError
from tidelog.base.ids import BrokerId, ClusterId
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.net.address import Address
from tidelog.server.membership.controller_channel import ControllerChannel, says_not_controller
from tidelog.wire import ApiKey, ConsistencyState
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

SECONDS_MAX = 60.0
LONG_MS = 60_000
REQUEST = CreateTopicsRequest(topics=[CreatableTopic("flights", 1, 1)])
DONE = CreateTopicsResponse(topics=[CreatableTopicResult(name="flights")])
NOT_HERE = CreateTopicsResponse(topics=[CreatableTopicResult(name="flights", error_code=Code.NOT_CONTROLLER)])


class Leader:
    """What a node believes of who leads, changed by the test."""

    def __init__(self) -> None:
        self.leader_id: BrokerId | None = None
        self.leader_address: Address | None = None
        self.leaderless_ms = 0
        self.voters_heard = "1 of the 3 voters answers"
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_leaderless(self) -> bool:
        return self.leader_address is None

    def is_now(self, broker: ScriptedBroker | None) -> None:
        self.leader_id = None if broker is None else BrokerId(broker.port)
        self.leader_address = None if broker is None else Address("127.0.0.1", broker.port)
        for future in self._waiting:
            future.set_result(None)
        self._waiting.clear()

    async def leader_changed(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            if future in self._waiting:
                self._waiting.remove(future)


Scenario = Callable[[ControllerChannel, Leader, ScriptedBroker, ScriptedBroker], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        leader = Leader()
        channel = ControllerChannel(BrokerId(1), ClusterId("mine"), leader, network=RealNetwork(), rng=SystemRng())
        async with ScriptedBroker() as first, ScriptedBroker() as second, asyncio.timeout(SECONDS_MAX):
            await scenario(channel, leader, first, second)
            await channel.close()

    asyncio.run(main())


def ask(channel: ControllerChannel, timeout_ms: int = LONG_MS) -> asyncio.Task[CreateTopicsResponse]:
    return asyncio.ensure_future(channel.request(REQUEST, CreateTopicsResponse, timeout_ms=timeout_ms))


async def too_late(channel: ControllerChannel, reason: str) -> None:
    """Ask until the time was over for this reason: on a busy machine it may be over before anything was in the way."""
    text = ""
    while reason not in text:
        with pytest.raises(KafkaError) as caught:
            await ask(channel, 100)
        assert caught.value.code == Code.REQUEST_TIMED_OUT
        text = str(caught.value)


async def asked(broker: ScriptedBroker, count: int = 1) -> None:
    while len(broker.messages(ApiKey.CREATE_TOPICS)) < count:
        await asyncio.sleep(0.001)


def test_what_is_asked_while_nobody_leads_is_answered_once_somebody_does() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: DONE)
        asking = ask(channel)
        await asyncio.sleep(0)
        leader.is_now(first)
        assert await asking == DONE
        assert first.client_ids[-1] == "broker-1"

    run(scenario)


def test_a_controller_that_is_none_any_more_is_left_for_the_next() -> None:
    async def scenario(
        channel: ControllerChannel, leader: Leader, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: NOT_HERE)
        second.on(ApiKey.CREATE_TOPICS, lambda request, version: DONE)
        leader.is_now(first)
        asking = ask(channel)
        await asked(first, 2)  # it is asked again while nobody else is known
        leader.is_now(second)
        assert await asking == DONE

    run(scenario)


def test_who_does_not_answer_is_left_as_soon_as_another_leads() -> None:
    async def scenario(
        channel: ControllerChannel, leader: Leader, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: SILENT)
        second.on(ApiKey.CREATE_TOPICS, lambda request, version: DONE)
        leader.is_now(first)
        asking = ask(channel)
        await asked(first)
        leader.is_now(None)
        await asyncio.sleep(0)
        assert not asking.done()  # it may answer yet
        leader.is_now(second)
        assert await asking == DONE

    run(scenario)


def test_a_connection_that_breaks_is_opened_again() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        answers = [HANG_UP, HANG_UP, DONE]
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: answers.pop(0))
        leader.is_now(first)
        assert await ask(channel) == DONE
        assert first.connections == 3

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "reason"), [(SILENT, "no answer of the controller"), (NOT_HERE, "is not the active controller any more")]
)
def test_when_the_time_is_over_the_text_says_what_was_in_the_way(answer: object, reason: str) -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: answer)
        leader.is_now(first)
        await too_late(channel, reason)

    run(scenario)


def test_without_a_leader_the_text_says_so() -> None:
    async def scenario(channel: ControllerChannel, *_: object) -> None:
        with pytest.raises(KafkaError, match="no controller leads the metadata quorum: 1 of the 3 voters answers"):
            await ask(channel, 10)

    run(scenario)


def test_who_does_not_wait_for_a_lost_quorum_is_told_at_once() -> None:
    async def scenario(
        channel: ControllerChannel, leader: Leader, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        def request() -> Coroutine[object, object, CreateTopicsResponse]:
            return channel.request(REQUEST, CreateTopicsResponse, timeout_ms=LONG_MS, leaderless_ms_max=20)

        waiting = asyncio.ensure_future(request())
        await until(lambda: bool(leader._waiting))
        leader.leaderless_ms = 20
        with pytest.raises(KafkaError, match="1 of the 3 voters answers") as caught:
            await waiting
        assert caught.value.code is Code.REQUEST_TIMED_OUT
        leader.leaderless_ms = 0
        leader.is_now(first)
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: CreateTopicsResponse(topics=[]))
        assert await request() == CreateTopicsResponse(topics=[])

    run(scenario)


def test_a_version_that_the_controller_does_not_serve_is_refused_at_once() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.versions[ApiKey.CREATE_TOPICS] = (2, 4)
        leader.is_now(first)
        with pytest.raises(UnsupportedVersionError):
            await channel.request(REQUEST, CreateTopicsResponse, timeout_ms=LONG_MS, version=7)

    run(scenario)


def test_the_latest_token_of_all_answers_is_kept() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: DONE)
        leader.is_now(first)
        assert channel.last_offset is None
        for token in (7, 5):
            first.token = ConsistencyState("mine", token)
            await ask(channel)
            assert channel.last_offset == 7

    run(scenario)


def test_a_controller_of_another_cluster_is_not_believed() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: DONE)
        first.token = ConsistencyState("theirs", 7)
        leader.is_now(first)
        await too_late(channel, "a controller of cluster theirs answered")
        assert channel.last_offset is None

    run(scenario)


def test_when_the_node_stops_what_is_asked_fails() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: SILENT)
        leader.is_now(first)
        asking = ask(channel)
        await asked(first)
        await channel.close()
        with pytest.raises(NetworkError, match="this node stops"):
            await asking

    run(scenario)


def test_requests_of_one_lane_do_not_hold_up_another() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        answers: list[object] = [SILENT, DONE]
        first.on(ApiKey.CREATE_TOPICS, lambda request, version: answers.pop(0))
        leader.is_now(first)
        slow = ask(channel)
        await asked(first)
        quick = channel.request(REQUEST, CreateTopicsResponse, timeout_ms=LONG_MS, request_class="heartbeats")
        assert await quick == DONE
        assert not slow.done()
        slow.cancel()

    run(scenario)


def test_not_controller_is_found_wherever_it_stands() -> None:
    assert says_not_controller(NOT_HERE)
    assert not says_not_controller(DONE)
