"""The token in the headers of answers: where the metadata stands that they were made of (KIP-1243)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from support.clients.token_client import metadata, produce, token_client
from support.clients.wire_client import WireClient, receive_exactly
from support.clients.wire_samples import minimal
from support.nodes.listeners_node import ListenersNode
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code, NetworkError
from tidelog.client.cluster import real_world
from tidelog.server.api.apis import APIS as SERVED
from tidelog.wire import APIS, NO_TOKEN_YET, ApiKey, ConsistencyState, decode, decode_response_header, encode_request
from tidelog.wire.api import Api
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        yield client


def state_of(client: WireClient, key: ApiKey, version: int, request: object) -> ConsistencyState | None:
    """What the header of the answer to a request says."""
    pieces: list[Any] = encode_request(key, version, 1, "tokens", request, consistency_state=NO_TOKEN_YET)
    client.stream.sendall(b"".join(pieces))
    (size,) = struct.unpack(">i", receive_exactly(client.stream, 4))
    _, state, _ = decode_response_header(receive_exactly(client.stream, size), key, version)
    return state


def token_of(client: WireClient, key: ApiKey, version: int, request: object) -> int:
    state = state_of(client, key, version, request)
    assert state is not None
    assert state.token is not None
    assert state.cluster_id
    return state.token


def creation_of(topic: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1)], timeout_ms=10_000
    )


def test_a_token_moves_with_the_metadata_and_with_nothing_else(client: WireClient) -> None:
    question = MetadataRequest(topics=[MetadataRequestTopic(name="token-moves")], allow_auto_topic_creation=False)
    before = token_of(client, ApiKey.METADATA, 12, question)
    assert token_of(client, ApiKey.METADATA, 12, question) == before
    created = token_of(client, ApiKey.CREATE_TOPICS, 7, creation_of("token-moves"))
    assert created >= before + 2  # a topic and a partition, at least
    assert token_of(client, ApiKey.METADATA, 12, question) >= created


def test_who_is_refused_is_told_how_far_the_broker_looked(client: WireClient) -> None:
    created = token_of(client, ApiKey.CREATE_TOPICS, 7, creation_of("token-twice"))
    assert token_of(client, ApiKey.CREATE_TOPICS, 7, creation_of("token-twice")) >= created


def test_headers_without_room_carry_none(client: WireClient) -> None:
    assert state_of(client, ApiKey.METADATA, 8, MetadataRequest(topics=[])) is None
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    assert state_of(client, ApiKey.API_VERSIONS, 4, request) is None


@pytest.fixture(scope="module")
def listeners_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenersNode]:
    """What is asked there includes orders to the quorum, so it is a node of this file's own."""
    node = ListenersNode(tmp_path_factory.mktemp("listeners"))
    try:
        node.start()
        yield node
        assert "Traceback" not in node.log
    finally:
        node.close()


@pytest.mark.parametrize("key", sorted(APIS.keys() & SERVED.keys()), ids=lambda key: ApiKey(key).name.lower())
def test_who_sends_no_tag_gets_a_header_of_kafkas_bytes(listeners_node: ListenersNode, key: int) -> None:
    """The correlation id, and one zero byte where the header may have tagged fields. sarama reads no other."""
    known = APIS[key]
    offered = {role: listeners_node.advertised(role).get(ApiKey(key), range(0)) for role in listeners_node.ports}
    for role in SERVED[key].roles:
        # Below the first version Produce is offered, and not served.
        assert {*range(known.min_version, known.max_version + 1)} <= {*offered[role]}, f"not offered at {role}"
    for role, versions in offered.items():
        for version in versions:
            if version >= known.min_version:
                check_header(listeners_node.ports[role], known, version)


def test_no_listener_offers_an_api_that_is_not_tried(listeners_node: ListenersNode) -> None:
    offered = {key for role in listeners_node.ports for key in listeners_node.advertised(role)}
    assert offered == APIS.keys() & SERVED.keys()


def check_header(port: int, known: Api, version: int) -> None:
    pieces: list[Any] = encode_request(known.key, version, 0x01020304, "a client", minimal(known.request, version))
    with WireClient(port) as client:
        client.stream.sendall(b"".join(pieces))
        (size,) = struct.unpack(">i", receive_exactly(client.stream, 4))
        frame = bytes(receive_exactly(client.stream, size))
    has_tags = known.key != ApiKey.API_VERSIONS and known.is_flexible(version)
    header = b"\1\2\3\4" + (b"\0" if has_tags else b"")
    assert frame.startswith(header), (port, version)
    decode(known.response, frame, version, len(header))  # raises unless the rest is the whole body


def test_a_read_waits_for_what_somebody_else_does(shared_node: NodeProcess, client: WireClient) -> None:
    seen = state_of(client, ApiKey.METADATA, 12, MetadataRequest(topics=[]))
    assert seen is not None
    assert seen.token is not None
    later = seen._replace(token=seen.token + 1)

    async def story() -> None:
        async with asyncio.timeout(60), token_client(real_world(), "127.0.0.1", shared_node.port, later) as reader:
            asking = asyncio.ensure_future(reader.ask(metadata("token-waits")))
            await asyncio.to_thread(client.create_topic, "token-waits")
            (topic,) = (await asking).topics
            assert topic.error_code == Code.NONE
            assert reader.stamps[-1] == state_of(client, ApiKey.METADATA, 12, MetadataRequest(topics=[]))

    asyncio.run(story())


def test_a_token_of_another_cluster_is_refused_or_its_connection_closed(shared_node: NodeProcess) -> None:
    async def story() -> None:
        foreign = ConsistencyState("another-cluster", 0)
        async with asyncio.timeout(60), token_client(real_world(), "127.0.0.1", shared_node.port, foreign) as stranger:
            assert (await stranger.ask(metadata("t"))).error_code == Code.INCONSISTENT_CLUSTER_ID
            with pytest.raises(NetworkError, match="closed the connection"):
                await stranger.ask(produce("t"), version=12)

    asyncio.run(story())
