"""Connections by the thousand, slow ones, and those that come and go: they cost little, and nobody else anything."""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, with_file_limit
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

CONNECTIONS = 2_000
TOPIC = "many-connections"
SECONDS_MAX = 60.0

Start = Callable[[dict[str, str]], NodeProcess]


@pytest.fixture(autouse=True)
def files() -> Iterator[None]:
    """This process needs a file for each connection too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CONNECTIONS + 200:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start the test's own node, with settings."""
    with ExitStack() as nodes:

        def start_one(config: dict[str, str]) -> NodeProcess:
            node = NodeProcess(tmp_path / "data", config=config)
            nodes.callback(node.close)
            node.start()
            return node

        yield start_one


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)


def is_closed(stream: socket.socket) -> bool:
    """Whether the node hung up, having sent nothing."""
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def ask_versions(port: int) -> int:
    with WireClient(port) as client:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return len(client.ask(ApiKey.API_VERSIONS, 3, request, ApiVersionsResponse).api_keys)


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


def test_thousands_of_idle_connections_cost_little_and_hold_up_nobody(shared_node: NodeProcess) -> None:
    with WireClient(shared_node.port) as client:
        client.create_topic(TOPIC)
        before = resident_bytes(shared_node.pid)
        streams = [connect(shared_node.port) for _ in range(CONNECTIONS)]
        try:
            end_offset = client.log_end_offset(TOPIC)
            for _ in range(50):
                assert client.produce(TOPIC, batch_of(b"x")).error_code == 0
            assert client.log_end_offset(TOPIC) == end_offset + 50
            # A connection that never spoke holds no buffer (16 KiB, 32 MiB for these).
            assert resident_bytes(shared_node.pid) - before < CONNECTIONS * 8 * 1024
        finally:
            for stream in streams:
                stream.close()


def test_many_that_come_and_go_leave_nothing_behind(shared_node: NodeProcess) -> None:
    files = Path(f"/proc/{shared_node.pid}/fd")
    served = ask_versions(shared_node.port)
    before = len(list(files.iterdir()))
    for number in range(600):
        if number % 3 == 0:
            assert ask_versions(shared_node.port) == served
        else:
            stream = connect(shared_node.port)
            if number % 3 == 1:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
            stream.close()
    wait_until(lambda: len(list(files.iterdir())) <= before + 2, "their files are closed")
    assert "Traceback" not in shared_node.log


def test_a_request_that_comes_byte_by_byte_is_closed_at_the_idle_limit(start: Start) -> None:
    """A byte now and then is no sign of life: the request has to come to its end."""
    node = start({"connections.max.idle.ms": "800"})
    with connect(node.port) as slow, WireClient(node.port) as busy:
        slow.setblocking(False)
        slow.sendall(struct.pack(">i", 1_000))
        started = time.monotonic()

        def is_hung_up_on() -> bool:
            ask(busy)  # which keeps its own connection open
            try:
                slow.send(b"\0")
                return slow.recv(1) == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        wait_until(is_hung_up_on, "the slow sender is hung up on")
        assert time.monotonic() - started > 0.5
        ask(busy)
    assert "a request that began did not end" in node.log


def ask(client: WireClient) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    client.ask(ApiKey.API_VERSIONS, 3, request, ApiVersionsResponse)


def test_an_answer_that_nobody_takes_is_given_up_at_the_idle_limit(start: Start) -> None:
    node = start({"connections.max.idle.ms": "800"})
    with WireClient(node.port) as client:
        client.create_topic(TOPIC)
        batch = batch_of(b"x" * 1_000_000)
        for _ in range(20):
            client.produce(TOPIC, batch)
    with WireClient(node.port) as stalled:
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
        topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50_000_000, topics=topics)
        stalled.send(ApiKey.FETCH, 12, request)
        wait_until(lambda: "it takes none of its answer" in node.log, "the stalled reader is hung up on")


def test_a_low_hard_limit_is_told_with_what_to_do_and_leaves_the_logs_their_files(tmp_path: Path) -> None:
    """More connect than there are files for: they are closed at once, and the logs still roll."""
    limit = 256
    node = NodeProcess(tmp_path / "data", config={"log.segment.bytes": "100000"})
    node.wrapper = with_file_limit(limit)
    node.start()
    streams: list[socket.socket] = []
    try:
        assert f"the file limit is {limit}: " in node.log
        assert "Raise the hard limit to " in node.log
        with WireClient(node.port) as client:
            client.create_topic(TOPIC)
            streams += [connect(node.port) for _ in range(limit)]
            assert is_closed(streams[-1])
            wait_until(lambda: "connection refused: " in node.log, "it says why")
            for _ in range(8):  # a segment each
                assert client.produce(TOPIC, batch_of(b"x" * 90_000)).error_code == 0
            for stream in streams:
                stream.close()
            wait_until(lambda: serves(node.port), "there is room again")
    finally:
        for stream in streams:
            stream.close()
        node.close()


def serves(port: int) -> bool:
    try:
        return ask_versions(port) > 10
    except ConnectionError:
        return False


def test_above_max_connections_who_comes_waits_for_one_to_leave(start: Start) -> None:
    node = start({"max.connections": "3"})
    held = [WireClient(node.port) for _ in range(3)]
    for client in held:
        ask(client)
    with WireClient(node.port, timeout_seconds=SECONDS_MAX) as waiting:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        waiting.send(ApiKey.API_VERSIONS, 3, request)
        wait_until(lambda: "(max.connections)" in node.log, "it says that it is full")
        waiting.stream.settimeout(0.3)
        with pytest.raises(TimeoutError):
            waiting.stream.recv(1)
        waiting.stream.settimeout(SECONDS_MAX)
        held.pop().close()
        assert waiting.receive(ApiKey.API_VERSIONS, 3, ApiVersionsResponse).api_keys
    for client in held:
        client.close()


def test_above_the_limit_of_an_address_who_comes_is_closed(start: Start) -> None:
    node = start({"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "127.0.0.9:3"})
    with WireClient(node.port) as first, WireClient(node.port) as second:
        ask(first)
        ask(second)
        with connect(node.port) as third:
            assert is_closed(third)
        others = [
            socket.create_connection(("127.0.0.1", node.port), timeout=SECONDS_MAX, source_address=("127.0.0.9", 0))
            for _ in range(4)
        ]
        assert is_closed(others[3])
        others[0].settimeout(0.2)
        with pytest.raises(TimeoutError):
            others[0].recv(1)
        for stream in others:
            stream.close()
        second.close()
        wait_until(lambda: serves(node.port), "there is room for another")
    assert "max.connections.per.ip" in node.log


def test_more_partitions_than_there_are_files_for_leave_the_node_its_files(tmp_path: Path) -> None:
    """Those without a log are offline; the others serve, metadata goes on, and there is room again when they go."""
    node = NodeProcess(tmp_path / "data", config={})
    node.wrapper = with_file_limit(256)
    node.start()
    try:
        with WireClient(node.port, timeout_seconds=30) as client:
            assert client.create_topic(TOPIC, partitions=400).error_code == 0
            wait_until(lambda: "no log can be made" in node.log, lambda: node.log)
            assert client.produce(TOPIC, batch_of(b"x")).error_code == 0
            codes = {Code(client.produce(TOPIC, batch_of(b"x"), partition=index).error_code) for index in range(400)}
            assert codes == {Code.NONE, Code.KAFKA_STORAGE_ERROR}
            deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)])
            assert client.ask(ApiKey.DELETE_TOPICS, 6, deleted, DeleteTopicsResponse).responses[0].error_code == 0
            assert client.create_topic("another", partitions=10).error_code == 0
            wait_until(
                lambda: all(
                    client.produce("another", batch_of(b"x"), partition=one).error_code == 0 for one in range(10)
                ),
                lambda: node.log,
            )
        assert "is out of use" not in node.log
        node.stop()
    finally:
        node.close()
