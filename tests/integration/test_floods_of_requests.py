"""Very many requests at one time: each is answered, in order, and others wait no longer than for a few of them."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fuzz.fuzz_slow import Steps
from support.clients.wire_client import WireClient, batch_of, receive_exactly
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.wire import ApiKey, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse

TOPIC, WIDE = "floods", "floods-wide"
WIDE_PARTITIONS = 480
"""As many as are described on the event loop."""
REQUESTS = 1_000
STEP_MS_MAX = 20.0
"""Of CPU, on a machine that is busy; without turns these took 80 to 700 ms."""
CONNECTIONS = 2_000
SECONDS_MAX = 60.0


class TimedNode:
    """A node whose steps are timed."""

    def __init__(self, directory: Path) -> None:
        self.steps = Steps(directory)
        self.node = NodeProcess(directory / "data", config={})
        self.steps.start(self.node)

    @property
    def port(self) -> int:
        return self.node.port

    @property
    def files(self) -> Path:
        """What it has open."""
        return Path(f"/proc/{self.node.pid}/fd")


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TimedNode]:
    timed = TimedNode(tmp_path_factory.mktemp("timed"))
    try:
        with WireClient(timed.port) as client:
            client.create_topic(TOPIC)
            assert client.create_topic(WIDE, partitions=WIDE_PARTITIONS).error_code == 0
        yield timed
        assert timed.node.is_running
        assert "Traceback" not in timed.node.log
    finally:
        timed.node.close()


def framed(key: ApiKey, version: int, number: int, request: object) -> bytes:
    pieces: list[Any] = encode_request(key, version, number, "floods", request)
    return b"".join(pieces)


def versions(number: int) -> bytes:
    return struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, number, -1)


def metadata(number: int) -> bytes:
    return framed(ApiKey.METADATA, 9, number, MetadataRequest(topics=None))


def produce(number: int) -> bytes:
    data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(0, batch_of(b"%d" % number))])]
    return framed(ApiKey.PRODUCE, 9, number, ProduceRequest(acks=1, timeout_ms=1_000, topic_data=data))


def flood(port: int, frames: list[bytes]) -> list[memoryview]:
    """Send all at one time; the answers, without their sizes."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as stream:
        sending = threading.Thread(target=stream.sendall, args=(b"".join(frames),))
        sending.start()
        answers = [receive_exactly(stream, int.from_bytes(receive_exactly(stream, 4), "big")) for _ in frames]
        sending.join()
    return answers


@pytest.mark.parametrize("make", [versions, metadata, produce])
def test_a_thousand_requests_in_one_segment_hold_up_nobody(timed: TimedNode, make: Any) -> None:
    """What is left of chance is taken out by another try."""
    frames = [make(number) for number in range(REQUESTS)]
    taken = []
    with WireClient(timed.port) as neighbour:
        for _ in range(4):
            timed.steps.longest()
            answers = flood(timed.port, frames)
            assert [int.from_bytes(answer[:4], "big") for answer in answers] == list(range(REQUESTS))
            neighbour.log_end_offset(TOPIC)  # by now the node has told of all steps before
            taken.append(timed.steps.longest())
            if taken[-1][0] <= STEP_MS_MAX:
                return
    raise AssertionError(f"the longest steps were {taken}")


def test_each_of_ten_thousand_produce_requests_has_the_next_offset(timed: TimedNode) -> None:
    with WireClient(timed.port) as client:
        start = client.log_end_offset(TOPIC)
        offsets = []
        for answer in flood(timed.port, [produce(number) for number in range(10_000)]):
            _, _, position = decode_response_header(answer, ApiKey.PRODUCE, 9)
            row = decode(ProduceResponse, answer, 9, position).responses[0].partition_responses[0]
            assert row.error_code == 0
            offsets.append(row.base_offset)
        assert offsets == list(range(start, start + 10_000))
        assert [record.value for record in client.read_all(TOPIC, start=start)] == [b"%d" % at for at in range(10_000)]


def test_what_came_before_garbage_is_answered_and_what_came_behind_it_is_not(timed: TimedNode) -> None:
    frames = [produce(number) for number in range(500)]
    with WireClient(timed.port) as client:
        before = client.log_end_offset(TOPIC)
        with socket.create_connection(("127.0.0.1", timed.port), timeout=SECONDS_MAX) as stream:
            stream.sendall(b"".join([*frames, b"\x7f\xff\xff\xff", *frames]))
            for number in range(len(frames)):
                answer = receive_exactly(stream, int.from_bytes(receive_exactly(stream, 4), "big"))
                assert int.from_bytes(answer[:4], "big") == number
            with suppress(ConnectionError):
                assert stream.recv(1) == b""
        assert client.log_end_offset(TOPIC) == before + len(frames)


@pytest.mark.parametrize("end", ["reset", "closed"])
def test_who_sends_a_flood_and_leaves_costs_nobody_anything(timed: TimedNode, end: str) -> None:
    """Some of the requests may be carried out: those that are whole, and each once, in order."""
    frames = b"".join(produce(number) for number in range(2_000))
    with WireClient(timed.port) as client:
        client.log_end_offset(TOPIC)
        files = len(list(timed.files.iterdir()))
        for _ in range(5):
            before = client.log_end_offset(TOPIC)
            stream = socket.create_connection(("127.0.0.1", timed.port), timeout=SECONDS_MAX)
            if end == "reset":
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            stream.sendall(frames)
            receive_exactly(stream, 4)  # it was accepted
            stream.close()
            assert client.produce(TOPIC, batch_of(b"mine")).error_code == 0
            wait_until(lambda: len(list(timed.files.iterdir())) <= files, "its connection is closed")
            values = [record.value for record in client.read_all(TOPIC, start=before)]
            values.remove(b"mine")
            assert values == [b"%d" % number for number in range(len(values))]


def test_two_thousand_connections_with_a_request_each_leave_nothing_behind(shared_node: NodeProcess) -> None:
    """Every other one ends with a reset, and every third of them does not wait for its answer."""
    files = Path(f"/proc/{shared_node.pid}/fd")
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    topic = "floods-of-connections"
    with WireClient(shared_node.port) as neighbour:
        neighbour.create_topic(topic)
        before = len(list(files.iterdir()))
        for number in range(CONNECTIONS):
            with WireClient(shared_node.port) as client:
                if number % 2:
                    client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if number % 3:
                    assert client.ask(ApiKey.API_VERSIONS, 3, request, ApiVersionsResponse).api_keys
                else:
                    client.send(ApiKey.API_VERSIONS, 3, request)
            if number % 50 == 0:
                assert neighbour.produce(topic, batch_of(b"x")).error_code == 0
        assert neighbour.log_end_offset(topic) == CONNECTIONS // 50
        wait_until(lambda: len(list(files.iterdir())) <= before + 2, "their files are closed")
    assert "Traceback" not in shared_node.log
