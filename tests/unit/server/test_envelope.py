"""Envelopes at a controller: what it does for the client of a broker, and what it refuses (KIP-590)."""

from __future__ import annotations

from typing import Any

import pytest

from support.clients.token_client import LATE, OneNode, play
from support.clients.wire_samples import minimal
from tidelog.base.errors import Code, NetworkError
from tidelog.base.principals import ANONYMOUS, Principal, Requester
from tidelog.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from tidelog.security.authorizer import ANYTHING
from tidelog.security.principal_data import encode_principal
from tidelog.server.api.handlers import api_19_create_topics
from tidelog.server.api.request_context import RequestContext
from tidelog.sim.node import CONTROLLER_PORT
from tidelog.wire import ConsistencyState, decode, decode_response_header, encode_request
from tidelog.wire.api import ApiKey, api
from tidelog.wire.limits import ENVELOPE_BYTES_MAX, LISTED_BYTES_MAX
from tidelog.wire.messages.api_01_fetch import FetchRequest
from tidelog.wire.messages.api_03_metadata import MetadataRequest
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.api_55_describe_quorum import DescribeQuorumRequest
from tidelog.wire.messages.api_58_envelope import EnvelopeRequest, EnvelopeResponse
from tidelog.wire.messages.api_63_broker_heartbeat import BrokerHeartbeatRequest
from tidelog.wire.schema import layout_of

ALICE = Principal("User", "alice")
HERE = bytes((192, 0, 2, 7))
CORRELATION_ID = 4_711


def create(*names: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name, 1, 1) for name in names], timeout_ms=10_000)


def embedded(request: object, version: int | None = None, state: ConsistencyState | None = None) -> bytes:
    """A client's request, its header first."""
    key = layout_of(type(request)).api_key
    version = api(key).max_version if version is None else version
    pieces = encode_request(key, version, CORRELATION_ID, "the client", request, consistency_state=state)
    return b"".join(pieces)[4:]  # type: ignore[arg-type]


def envelope(
    request_data: bytes,
    principal: bytes | None = encode_principal(ALICE, by_token=False),
    address: bytes = HERE,
) -> EnvelopeRequest:
    return EnvelopeRequest(request_data=request_data, request_principal=principal, client_host_address=address)


def answer_in(answer: EnvelopeResponse, key: ApiKey, version: int | None = None) -> tuple[Any, ConsistencyState | None]:
    """The answer in an envelope, and what its header says."""
    assert answer.error_code == Code.NONE
    version = api(key).max_version if version is None else version
    raw = memoryview(answer.response_data)  # type: ignore[arg-type]
    correlation_id, state, position = decode_response_header(raw, key, version)
    assert correlation_id == CORRELATION_ID
    return decode(api(key).response, raw, version, position), state


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[RequestContext]:
    """What the handler of CreateTopics was told beside its requests."""
    contexts = []
    handle = api_19_create_topics.handle

    async def look(node: Any, request: CreateTopicsRequest, context: RequestContext) -> Any:
        contexts.append(context)
        return await handle(node, request, context)

    monkeypatch.setattr(api_19_create_topics, "handle", look)
    return contexts


@pytest.mark.parametrize(
    ("address", "host"),
    [
        (HERE, "192.0.2.7"),
        (bytes.fromhex("20010db8000000000000000000000001"), "2001:db8::1"),
        (bytes(10) + b"\xff\xff" + HERE, "192.0.2.7"),
    ],
)
@pytest.mark.parametrize("by_token", [False, True])
def test_what_is_in_it_is_done_for_the_client(
    address: bytes, host: str, by_token: bool, seen: list[RequestContext]
) -> None:
    async def story(one: OneNode) -> None:
        has_seen = ConsistencyState(one.node.cluster_id, one.last_offset)
        principal = encode_principal(ALICE, by_token=by_token)
        async with one.client(port=CONTROLLER_PORT) as broker:
            answer = await broker.ask(envelope(embedded(create("a"), state=has_seen), principal, address))
        created, state = answer_in(answer, ApiKey.CREATE_TOPICS)
        assert [(row.name, row.error_code) for row in created.topics] == [("a", Code.NONE)]
        assert one.node.image.topic("a") is not None
        assert state is not None
        assert state.token == one.last_offset
        (context,) = seen
        assert context.requester == Requester(ALICE, host, by_token)
        assert context.header.client_id == "the client"
        assert context.header.consistency_state == has_seen

    play(story)


@pytest.mark.parametrize("version", [2, 5])
def test_a_request_of_a_version_without_tags_is_answered_in_it(version: int) -> None:
    async def story(one: OneNode) -> None:
        async with one.client(port=CONTROLLER_PORT) as broker:
            answer = await broker.ask(envelope(embedded(create("a"), version)))
            (row,) = answer_in(answer, ApiKey.CREATE_TOPICS, version)[0].topics
            assert row.error_code == Code.NONE

    play(story)


def nested() -> bytes:
    return embedded(envelope(embedded(create("a"))))


WHOLE = embedded(create("a"))
REFUSED: dict[str, tuple[EnvelopeRequest, Code]] = {
    "no principal": (envelope(WHOLE, None), Code.PRINCIPAL_DESERIALIZATION_FAILURE),
    "an empty principal": (envelope(WHOLE, b""), Code.PRINCIPAL_DESERIALIZATION_FAILURE),
    "a garbage principal": (envelope(WHOLE, b"\0\0\xff\xff\xff\xff\x7f"), Code.PRINCIPAL_DESERIALIZATION_FAILURE),
    "a newer principal": (envelope(WHOLE, b"\0\1\1\1\0\0"), Code.PRINCIPAL_DESERIALIZATION_FAILURE),
    "a huge principal": (envelope(WHOLE, bytes(1 << 20)), Code.PRINCIPAL_DESERIALIZATION_FAILURE),
    "no address": (envelope(WHOLE, address=b""), Code.INVALID_REQUEST),
    "an address of three bytes": (envelope(WHOLE, address=b"abc"), Code.INVALID_REQUEST),
    "an address in words": (envelope(WHOLE, address=b"localhost"), Code.INVALID_REQUEST),
    "what brokers answer": (envelope(embedded(MetadataRequest(topics=[]))), Code.INVALID_REQUEST),
    "what brokers and controllers answer": (envelope(embedded(minimal(FetchRequest, 17))), Code.INVALID_REQUEST),
    "what nobody forwards": (envelope(embedded(minimal(BrokerHeartbeatRequest, 2))), Code.INVALID_REQUEST),
    "what everybody may ask": (
        envelope(embedded(ApiVersionsRequest(client_software_name="a", client_software_version="1"))),
        Code.INVALID_REQUEST,
    ),
    "an envelope": (envelope(nested()), Code.INVALID_REQUEST),
    "an API that there is not": (envelope(b"\x7f\xff" + WHOLE[2:]), Code.INVALID_REQUEST),
    "a version to come": (envelope(WHOLE[:2] + b"\0\x63" + WHOLE[4:]), Code.UNSUPPORTED_VERSION),
    "a version that is gone": (envelope(WHOLE[:2] + b"\0\1" + WHOLE[4:]), Code.UNSUPPORTED_VERSION),
    "a negative version": (envelope(WHOLE[:2] + b"\xff\xff" + WHOLE[4:]), Code.UNSUPPORTED_VERSION),
    "nothing": (envelope(b""), Code.UNSUPPORTED_VERSION),
    "a key": (envelope(WHOLE[:2]), Code.UNSUPPORTED_VERSION),
    "part of a header": (envelope(WHOLE[:12]), Code.UNSUPPORTED_VERSION),
    "part of a request": (envelope(WHOLE[:-8]), Code.UNSUPPORTED_VERSION),
    "a client id without an end": (envelope(WHOLE[:8] + b"\x7f\xff" + WHOLE[10:]), Code.UNSUPPORTED_VERSION),
    "more topics than it has bytes": (
        envelope(embedded(CreateTopicsRequest(topics=[], timeout_ms=1))[:-6] + b"\xff\xff\xff\x7f"),
        Code.UNSUPPORTED_VERSION,
    ),
    "part of a request that lists very much": (
        envelope(embedded(create(*(f"t{number}" for number in range(3_000))))[:-8]),
        Code.UNSUPPORTED_VERSION,
    ),
    "too much for its API": (
        envelope(embedded(DescribeQuorumRequest(topics=[])) + bytes(1 << 20)),
        Code.INVALID_REQUEST,
    ),
    "too much for any API": (envelope(WHOLE + bytes(LISTED_BYTES_MAX)), Code.INVALID_REQUEST),
}  # fmt: skip


def test_what_is_wrong_with_it_is_its_own_error_and_nothing_is_done(seen: list[RequestContext]) -> None:
    async def story(one: OneNode) -> None:
        async with one.client(port=CONTROLLER_PORT) as broker:
            for what, (sent, code) in REFUSED.items():
                answer = await broker.ask(sent)
                assert (what, answer.error_code) == (what, code)
                assert answer.response_data is None
            await broker.ask(envelope(WHOLE))  # the connection serves on
        assert one.node.image.topic("a") is not None
        assert len(seen) == 1

    play(story)


def test_wherever_the_request_in_it_ends_too_early_nothing_is_done(seen: list[RequestContext]) -> None:
    async def story(one: OneNode) -> None:
        async with one.client(port=CONTROLLER_PORT) as broker:
            for size in range(len(WHOLE)):
                answer = await broker.ask(envelope(WHOLE[:size]))
                assert (size, answer.error_code) == (size, Code.UNSUPPORTED_VERSION)
        assert not seen

    play(story)


def test_who_waits_for_metadata_that_does_not_come_is_told_so_in_the_envelope() -> None:
    async def story(one: OneNode) -> None:
        state = ConsistencyState(one.node.cluster_id, LATE)
        async with one.client(port=CONTROLLER_PORT) as broker:
            answer = await broker.ask(envelope(embedded(create("a"), state=state)))
            assert answer.error_code == Code.STALE_METADATA
        assert one.node.image.topic("a") is None
        assert one.node.image.topic("flights") is not None

    play(story)


def test_more_than_an_envelope_may_hold_ends_the_connection() -> None:
    async def story(one: OneNode) -> None:
        async with one.client(port=CONTROLLER_PORT) as broker:
            with pytest.raises(NetworkError):
                await broker.ask(envelope(bytes(ENVELOPE_BYTES_MAX)))

    play(story)


def test_a_list_that_is_long_is_worked_through_in_pieces(seen: list[RequestContext]) -> None:
    names = [f"t{number}" for number in range(300)]

    async def story(one: OneNode) -> None:
        async with one.client(port=CONTROLLER_PORT) as broker:
            asked = envelope(embedded(create(*names)))
            created, _ = answer_in(await broker.ask(asked), ApiKey.CREATE_TOPICS)
        assert [(row.name, row.error_code) for row in created.topics] == [(name, Code.NONE) for name in names]
        assert len(seen) > 2
        assert {context.requester for context in seen} == {Requester(ALICE, "192.0.2.7")}
        assert not one.node.listeners.memory["nodes"].requests.used_bytes

    play(story)


class OnlyThose:
    """An authorizer that allows all to some, and keeps what it was asked."""

    deniable = ANYTHING

    def __init__(self, *allowed: Principal) -> None:
        self.allowed = allowed
        self.asked: list[tuple[Requester, AclOperation, AclResourceType, str]] = []

    def authorize(self, requester: Requester, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        self.asked.append((requester, operation, kind, name))
        return requester.principal in self.allowed

    def authorize_any(self, requester: Requester, operation: AclOperation, kind: AclResourceType) -> bool:
        return requester.principal in self.allowed


@pytest.mark.parametrize("allowed", [ANONYMOUS, ALICE])
def test_only_who_may_act_for_the_cluster_forwards(allowed: Principal, seen: list[RequestContext]) -> None:
    """The broker is asked for by its own principal: that of the client is what it says, and proves nothing."""

    async def story(one: OneNode) -> None:
        one.node.authorizer = only = OnlyThose(allowed, ALICE)
        async with one.client(port=CONTROLLER_PORT) as broker:
            answer = await broker.ask(envelope(WHOLE))
        requester, *what = only.asked[0]
        assert requester.principal == ANONYMOUS
        assert what == [AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME]
        is_allowed = allowed == ANONYMOUS
        assert answer.error_code == (Code.NONE if is_allowed else Code.CLUSTER_AUTHORIZATION_FAILED)
        assert len(seen) == is_allowed

    play(story)


def test_clients_are_not_served_envelopes() -> None:
    async def story(one: OneNode) -> None:
        async with one.client() as client:
            with pytest.raises(NetworkError):
                await client.ask(envelope(WHOLE), version=0)

    play(story)
