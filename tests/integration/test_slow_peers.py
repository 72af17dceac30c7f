"""Peers that wait, stall or vanish: they cost the node little, and nobody else anything."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

TOPIC = "slow-peers"
MEGABYTES = 30
STALLED = 20


@pytest.fixture(scope="module")
def filled(shared_node: NodeProcess) -> Iterator[NodeProcess]:
    """30 MB in one partition."""
    with WireClient(shared_node.port) as client:
        client.create_topic(TOPIC)
        batch = batch_of(b"x" * 1_000_000)
        for _ in range(MEGABYTES):
            assert client.produce(TOPIC, batch).error_code == 0
    yield shared_node
    assert shared_node.is_running


def fetch_request(topic: str, *, wait_ms: int = 0, offset: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 * 1024 * 1024)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=50 * 1024 * 1024,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_readers_that_stall_cost_little(filled: NodeProcess) -> None:
    """Each asks for 30 MB and reads none of it: what the node holds for each is a piece of the answer."""
    before = resident_bytes(filled.pid)
    stalled = [WireClient(filled.port) for _ in range(STALLED)]
    try:
        for client in stalled:
            client.send(ApiKey.FETCH, 12, fetch_request(TOPIC))
        with WireClient(filled.port) as neighbour:
            for _ in range(20):  # by now the node is done with all that came before
                neighbour.log_end_offset(TOPIC)
        assert resident_bytes(filled.pid) - before < STALLED * 4 * 1024 * 1024
        # They may take their time: the answer is whole when they read on.
        answer = stalled[0].receive(ApiKey.FETCH, 12, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert records is not None
        assert len(records) > MEGABYTES * 1_000_000
    finally:
        for client in stalled:
            client.close()


def test_a_stalled_reader_holds_up_nobody(filled: NodeProcess) -> None:
    with WireClient(filled.port) as stalled, WireClient(filled.port) as neighbour:
        for _ in range(5):
            stalled.send(ApiKey.FETCH, 12, fetch_request(TOPIC))
        for _ in range(50):
            assert neighbour.produce(TOPIC, batch_of(b"y")).error_code == 0


def test_a_fetch_that_waits_holds_up_only_its_own_connection(filled: NodeProcess) -> None:
    with WireClient(filled.port) as client:
        client.create_topic(TOPIC + "-idle")
        client.send(ApiKey.FETCH, 12, fetch_request(TOPIC + "-idle", wait_ms=3_000))
        with WireClient(filled.port) as neighbour:
            neighbour.log_end_offset(TOPIC)
        assert not select.select([client.stream], [], [], 0)[0], "the other one was answered first"
        client.send(ApiKey.FETCH, 12, fetch_request(TOPIC))  # behind the one that waits, and answered after it
        first = client.receive(ApiKey.FETCH, 12, FetchResponse)
        assert not first.responses[0].partitions[0].records
        second = client.receive(ApiKey.FETCH, 12, FetchResponse)
        assert second.responses[0].partitions[0].records


def test_a_fetch_that_waits_is_told_when_its_topic_is_deleted(filled: NodeProcess) -> None:
    topic = TOPIC + "-deleted"
    with WireClient(filled.port) as reader, WireClient(filled.port) as admin:
        admin.create_topic(topic)
        reader.send(ApiKey.FETCH, 12, fetch_request(topic, wait_ms=100_000))
        admin.log_end_offset(topic)
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5_000)
        admin.ask(ApiKey.DELETE_TOPICS, 6, delete, DeleteTopicsResponse)
        answer = reader.receive(ApiKey.FETCH, 12, FetchResponse)
        code = Code(answer.responses[0].partitions[0].error_code)
        assert code in {Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER}


def test_peers_that_vanish_in_the_middle(filled: NodeProcess) -> None:
    """Of a request, of an answer, of a wait: none of it is more than a closed connection."""
    with WireClient(filled.port) as recorder:
        end_offset = recorder.log_end_offset(TOPIC)
        for _ in range(10):
            for key, version, request, cut in (
                (ApiKey.FETCH, 12, fetch_request(TOPIC), None),
                (ApiKey.FETCH, 12, fetch_request(TOPIC, wait_ms=10_000, offset=end_offset), None),
                (ApiKey.PRODUCE, 9, produce_request(batch_of(b"z" * 100_000)), 50_000),
            ):
                client = WireClient(filled.port)
                client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
                client.send(key, version, request, size_bytes_max=cut)
                client.close()
        assert recorder.log_end_offset(TOPIC) == end_offset
        assert recorder.produce(TOPIC, batch_of(b"still here")).base_offset == end_offset
    assert "Traceback" not in filled.log


def produce_request(batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])


def test_a_node_stops_in_time_whoever_waits(node: NodeProcess) -> None:
    with WireClient(node.port) as waiting, WireClient(node.port) as stalled, WireClient(node.port) as idle:
        idle.create_topic(TOPIC)
        for _ in range(MEGABYTES):
            idle.produce(TOPIC, batch_of(b"x" * 1_000_000))
        waiting.send(ApiKey.FETCH, 12, fetch_request(TOPIC, wait_ms=100_000, offset=MEGABYTES))
        stalled.send(ApiKey.FETCH, 12, fetch_request(TOPIC))
        idle.log_end_offset(TOPIC)
        node.stop()
    before = len(node.log)
    node.start()
    assert "cut off" not in node.log[before:], "the stop was not a clean one"
    with WireClient(node.port) as client:
        assert client.log_end_offset(TOPIC) == MEGABYTES


def test_a_request_that_waits_is_answered_when_the_node_stops(node: NodeProcess) -> None:
    """Not cut off: the client learns at once that it has to look for another leader."""
    with WireClient(node.port) as client, WireClient(node.port) as waiting:
        client.create_topic(TOPIC)
        waiting.send(ApiKey.FETCH, 12, fetch_request(TOPIC, wait_ms=30_000))
        client.log_end_offset(TOPIC)
        node.stop()
        answer = waiting.receive(ApiKey.FETCH, 12, FetchResponse)
        assert Code(answer.responses[0].partitions[0].error_code) is Code.NOT_LEADER_OR_FOLLOWER
        assert waiting.stream.recv(1) == b""
