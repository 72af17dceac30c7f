"""The channel to the active controller: whoever leads, whatever happens meanwhile, until its time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from support.clients.wire_samples import sample
from support.fixtures.scripted_broker import HANG_UP, SILENT, ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.errors import Code, KafkaError, NetworkError, UnsupportedVersionError
from tidelog.base.ids import BrokerId, ClusterId, LeaderEpoch
from tidelog.base.ports import Executor
from tidelog.base.principals import Principal, Requester
from tidelog.io.executor import InlineExecutor
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.net.address import Address
from tidelog.net.pool import CONTROL_REQUESTS
from tidelog.security.principal_data import decode_principal
from tidelog.server.api.apis import APIS as SERVED
from tidelog.server.api.envelopes import Envelope
from tidelog.server.membership.controller_channel import ControllerChannel, says_not_controller
from tidelog.wire import (
    NO_TOKEN_YET,
    ApiKey,
    ConsistencyState,
    RequestHeader,
    decode,
    decode_request_header,
    encode_response,
)
from tidelog.wire.api import api
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_58_envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.wire.schema import layout_of

SECONDS_MAX = 60.0
LONG_MS = 60_000
REQUEST = CreateTopicsRequest(topics=[CreatableTopic("flights", 1, 1)])
DONE = CreateTopicsResponse(topics=[CreatableTopicResult(name="flights")])
NOT_HERE = CreateTopicsResponse(topics=[CreatableTopicResult(name="flights", error_code=Code.NOT_CONTROLLER)])


class Leader:
    """What a node believes of who leads, changed by the test."""

    def __init__(self) -> None:
        self.leader_id: BrokerId | None = None
        self.leader_epoch: LeaderEpoch | None = None
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


def with_codes(message: Any) -> Iterator[Any]:
    """The message and all rows in it, of those that have a code."""
    if hasattr(message, "error_code"):
        yield message
    values = [getattr(message, spec.name) for spec in layout_of(type(message)).fields if spec.type.kind == "array"]
    for row in (row for rows in values for row in rows or () if hasattr(row, "__layout__")):
        yield from with_codes(row)


@pytest.mark.parametrize("key", [key for key, served in SERVED.items() if served.is_forwardable], ids=str)
def test_wherever_an_answer_says_that_this_is_not_the_controller_it_is_seen(key: int) -> None:
    known = api(key)
    for version in range(known.min_version, known.max_version + 1):
        answer = sample(known.response, version)
        rows = list(with_codes(answer))
        assert rows
        assert not says_not_controller(answer)
        for row in rows:
            before, row.error_code = row.error_code, Code.NOT_CONTROLLER
            assert says_not_controller(answer)
            row.error_code = before


# Asked for a client.

HEADER = RequestHeader(ApiKey.CREATE_TOPICS, 7, 41, "the client", ConsistencyState("mine", 9))
ALICE = Principal("User", "alice")


async def ask_for(
    channel: ControllerChannel,
    host: str = "192.0.2.7",
    version: int | None = None,
    executor: Executor | None = None,
    request_class: str = CONTROL_REQUESTS,
) -> CreateTopicsResponse:
    requester = Requester(ALICE, host, by_token=True)
    envelope = Envelope(REQUEST, CreateTopicsResponse, HEADER, requester, executor or InlineExecutor())
    return await channel.request(
        REQUEST,
        CreateTopicsResponse,
        timeout_ms=LONG_MS,
        version=version,
        request_class=request_class,
        envelope=envelope,
    )


def enclosed(answer: object, version: int = 7, correlation_id: int = 41) -> EnvelopeResponse:
    pieces = encode_response(ApiKey.CREATE_TOPICS, version, correlation_id, answer, ConsistencyState("mine", 12))
    return EnvelopeResponse(response_data=b"".join(pieces)[4:])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.0.2.7", bytes((192, 0, 2, 7))),
        ("2001:db8::1", bytes.fromhex("20010db8000000000000000000000001")),
        ("fe80::1%eth0", bytes.fromhex("fe800000000000000000000000000001")),
        ("a name", bytes(4)),
    ],
)
@pytest.mark.parametrize("version", [None, 7, 4])
def test_what_is_asked_for_a_client_says_for_whom(host: str, address: bytes, version: int | None) -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.ENVELOPE, lambda request, _: enclosed(DONE, version or 7))
        leader.is_now(first)
        assert await ask_for(channel, host, version) == DONE
        (sent,) = first.messages(ApiKey.ENVELOPE)
        assert decode_principal(sent.request_principal) == (ALICE, True)
        assert sent.client_host_address == address
        header, position = decode_request_header(sent.request_data)
        state = HEADER.consistency_state if version != 4 else None  # its header has no place for it
        assert header == HEADER._replace(api_version=version or 7, consistency_state=state)
        assert decode(CreateTopicsRequest, sent.request_data, version or 7, position) == REQUEST
        assert (first.client_ids[-1], first.tokens[-1]) == ("broker-1", NO_TOKEN_YET)
        assert not first.messages(ApiKey.CREATE_TOPICS)

    run(scenario)


def test_what_is_asked_again_says_that_it_is() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        answers = [enclosed(DONE), enclosed(DONE), HANG_UP, HANG_UP, enclosed(DONE)]
        first.on(ApiKey.ENVELOPE, lambda *_: answers.pop(0))
        leader.leader_epoch = LeaderEpoch(3)
        leader.is_now(first)
        for _number in range(3):
            await ask_for(channel)
        sent = first.messages(ApiKey.ENVELOPE)
        assert [one.sender_generation for one in sent] == [0, 0, 0, 1, 2]
        assert {one.leader_epoch for one in sent} == {3}
        (sender_id,) = {one.sender_id for one in sent}
        other = ControllerChannel(BrokerId(1), ClusterId("mine"), leader, network=RealNetwork(), rng=SystemRng())
        answers.append(enclosed(DONE))
        await ask_for(other)  # of the same broker, started again
        assert first.messages(ApiKey.ENVELOPE)[-1].sender_id != sender_id
        await other.close()

    run(scenario)


def test_what_is_given_up_makes_nothing_older_that_another_api_asks() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        answers = [HANG_UP, enclosed(DONE), enclosed(DONE)]
        first.on(ApiKey.ENVELOPE, lambda *_: answers.pop(0))
        leader.is_now(first)
        await ask_for(channel)
        await ask_for(channel, request_class="another")
        sent = first.messages(ApiKey.ENVELOPE)
        assert [one.sender_generation for one in sent] == [0, 1, 0]
        assert sent[1].sender_id != sent[2].sender_id

    run(scenario)


def test_who_knows_an_earlier_leader_epoch_hears_of_the_next_and_asks_again() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        def answer(request: EnvelopeRequest, _: int) -> EnvelopeResponse:
            return enclosed(DONE) if request.leader_epoch == 4 else EnvelopeResponse(error_code=Code.NOT_CONTROLLER)

        first.on(ApiKey.ENVELOPE, answer)
        leader.leader_epoch = LeaderEpoch(3)
        leader.is_now(first)
        asking = asyncio.ensure_future(ask_for(channel))
        await until(lambda: len(first.messages(ApiKey.ENVELOPE)) >= 2)
        leader.leader_epoch = LeaderEpoch(4)
        assert await asking == DONE
        assert {one.sender_generation for one in first.messages(ApiKey.ENVELOPE)} == {0}

    run(scenario)


def test_what_nobody_waits_for_any_more_is_older_than_what_is_asked_next() -> None:
    async def scenario(
        channel: ControllerChannel, leader: Leader, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.on(ApiKey.ENVELOPE, lambda *_: SILENT)
        second.on(ApiKey.ENVELOPE, lambda *_: enclosed(DONE))
        leader.is_now(first)
        asking = asyncio.ensure_future(ask_for(channel))
        await until(lambda: first.messages(ApiKey.ENVELOPE))
        leader.is_now(second)
        assert await asking == DONE
        (sent,) = second.messages(ApiKey.ENVELOPE)
        assert sent.sender_generation == 1

    run(scenario)


@pytest.mark.parametrize("version", [None, 4])
def test_a_controller_of_an_earlier_release_is_asked_by_the_broker_as_such(version: int | None) -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        del first.versions[ApiKey.ENVELOPE]
        first.on(ApiKey.CREATE_TOPICS, lambda request, _: DONE)
        leader.is_now(first)
        assert await ask_for(channel, version=version) == DONE
        assert [(key, of) for key, of, _ in first.requests[1:]] == [(ApiKey.CREATE_TOPICS, version or 7)]

    run(scenario)


def test_a_version_that_the_controller_does_not_serve_is_not_sent() -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.versions[ApiKey.CREATE_TOPICS] = (2, 5)
        first.on(ApiKey.ENVELOPE, lambda request, _: enclosed(DONE, 5))
        leader.is_now(first)
        assert await ask_for(channel) == DONE  # any version will do
        with pytest.raises(UnsupportedVersionError):
            await ask_for(channel, version=7)

    run(scenario)


def test_a_controller_that_is_none_any_more_says_so_in_the_envelope() -> None:
    async def scenario(
        channel: ControllerChannel, leader: Leader, first: ScriptedBroker, second: ScriptedBroker
    ) -> None:
        first.on(ApiKey.ENVELOPE, lambda request, _: EnvelopeResponse(error_code=Code.NOT_CONTROLLER))
        second.on(ApiKey.ENVELOPE, lambda request, _: enclosed(DONE))
        leader.is_now(first)
        asking = asyncio.ensure_future(ask_for(channel))
        while len(first.messages(ApiKey.ENVELOPE)) < 2:  # it is asked again while nobody else is known
            await asyncio.sleep(0.001)
        leader.is_now(second)
        assert await asking == DONE

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (EnvelopeResponse(error_code=Code.UNSUPPORTED_VERSION), Code.UNSUPPORTED_VERSION),
        (EnvelopeResponse(error_code=Code.STALE_METADATA), Code.STALE_METADATA),
        (EnvelopeResponse(error_code=Code.INVALID_REQUEST), Code.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED), Code.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(error_code=Code.PRINCIPAL_DESERIALIZATION_FAILURE), Code.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(), Code.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0\0\0"), Code.UNKNOWN_SERVER_ERROR),
        (EnvelopeResponse(response_data=b"\0\0\0\x29\0"), Code.UNKNOWN_SERVER_ERROR),
        (enclosed(DONE, correlation_id=42), Code.UNKNOWN_SERVER_ERROR),
    ],
    ids=str,
)
def test_what_is_between_nodes_is_not_told_to_clients(answer: EnvelopeResponse, code: Code) -> None:
    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        first.on(ApiKey.ENVELOPE, lambda *_: answer)
        leader.is_now(first)
        with pytest.raises(KafkaError) as caught:
            await ask_for(channel)
        assert caught.value.code == code
        assert len(first.messages(ApiKey.ENVELOPE)) == 1

    run(scenario)


def test_a_long_answer_is_read_on_another_thread() -> None:
    class Counting(InlineExecutor):
        count = 0

        async def compute(self, work: Callable[[], Any]) -> Any:
            self.count += 1
            return work()

    names = [f"a topic whose name is long, so that there is much to read: {number}" for number in range(1_000)]
    long_one = CreateTopicsResponse(topics=[CreatableTopicResult(name=name) for name in names])

    async def scenario(channel: ControllerChannel, leader: Leader, first: ScriptedBroker, _: ScriptedBroker) -> None:
        executor, answers = Counting(), [enclosed(DONE), enclosed(long_one)]
        first.on(ApiKey.ENVELOPE, lambda *_: answers.pop(0))
        leader.is_now(first)
        assert await ask_for(channel, executor=executor) == DONE
        assert executor.count == 0
        assert await ask_for(channel, executor=executor) == long_one
        assert executor.count == 1

    run(scenario)
