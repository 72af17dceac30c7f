"""Peers that make a node keep what they send: it keeps a bounded amount, and serves the others meanwhile."""

from __future__ import annotations

import platform
import select
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import wait_for_coordinator
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.metadata.configs.broker import MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS
from tidelog.wire import ApiKey, encode_request
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

TOPIC = "memory-bounds"
RESIDENT_BYTES_MAX = 512 << 20
REQUEST_SIZE_BYTES_MAX = 104_857_600
SESSION_PARTITIONS_MAX = int(MAX_INCREMENTAL_FETCH_SESSION_CACHE_PARTITIONS.default or 0)
MB = 1 << 20


@pytest.fixture(scope="module")
def served(start_node: StartNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node of this file's own, with its defaults."""
    node = start_node(data_dir=tmp_path_factory.mktemp("memory") / "data")
    with WireClient(node.port) as client:
        client.create_topic(TOPIC, configs={"max.message.bytes": str(REQUEST_SIZE_BYTES_MAX)})
    yield node
    assert "Traceback" not in node.log


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


class Watch:
    """Looks at the memory of a node, and produces to it, as long as the attack goes on."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.resident_bytes_max = 0
        self.produced = 0
        self.failures: list[object] = []

    def _run(self) -> None:
        try:
            with WireClient(self._node.port) as client:
                while not self._is_over.is_set():
                    error_code = client.produce(TOPIC, batch_of(bytes(200_000))).error_code
                    if error_code:
                        self.failures.append(error_code)
                    self.produced += 1
                    self.resident_bytes_max = max(self.resident_bytes_max, resident_bytes(self._node.pid))
        except OSError as error:
            self.failures.append(error)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()


@contextmanager
def attack(node: NodeProcess) -> Iterator[ExitStack]:
    """What goes on inside leaves the node's memory small, and its other clients served."""
    with ExitStack() as stack, Watch(node) as watch:
        yield stack
        more = watch.produced + 20
        wait_until(lambda: watch.produced >= more or watch.failures, "others are served")
    print(f"RSS {watch.resident_bytes_max >> 20} MiB, produced {watch.produced}")
    assert not watch.failures
    assert watch.resident_bytes_max <= RESIDENT_BYTES_MAX


def send_as_much_as_is_taken(clients: list[WireClient], size_bytes: int) -> list[int]:
    """Send each so many bytes of a larger frame, round about; how many the node (or the system) took of each."""
    sent = [0] * len(clients)
    piece = bytes(MB)
    for client in clients:
        client.stream.setblocking(False)
        with suppress(ConnectionError):
            client.stream.send(struct.pack(">ihhi", REQUEST_SIZE_BYTES_MAX, 0, 9, 1))
    is_moving = True
    while is_moving:
        is_moving = False
        for number, client in enumerate(clients):
            with suppress(BlockingIOError, ConnectionError):
                if sent[number] < size_bytes:
                    sent[number] += client.stream.send(piece)
                    is_moving = True
    return sent


def is_closed(client: WireClient) -> bool:
    try:
        return client.stream.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_half_sent_frames_of_many(served: NodeProcess) -> None:
    with attack(served) as stack:
        clients = [stack.enter_context(WireClient(served.port)) for _ in range(30)]
        send_as_much_as_is_taken(clients, 60 * MB)
        wait_until(lambda: any(map(is_closed, clients)), "those that stood still are closed while others wait")
    assert "went no further, and others wait for memory" in served.log


def test_the_largest_legal_request_passes_while_others_stand_still(served: NodeProcess) -> None:
    with attack(served) as stack:
        clients = [stack.enter_context(WireClient(served.port)) for _ in range(30)]
        send_as_much_as_is_taken(clients, 60 * MB)
        with WireClient(served.port) as large:
            records = batch_of(bytes(REQUEST_SIZE_BYTES_MAX - 1_000))
            data = [PartitionProduceData(index=0, records=records)]
            request = ProduceRequest(
                acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
            )
            answer = large.ask(ApiKey.PRODUCE, 9, request, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == 0


def long_fetch(
    topic: str, partitions: int, *, wait_ms: int = 500, session_id: int = 0, session_epoch: int = -1
) -> FetchRequest:
    """Of more partitions than are read at once."""
    wanted = [FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MB) for index in range(partitions)]
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


def answered_partitions(client: WireClient) -> int:
    """Of a long fetch that has come to its end."""
    answer = client.receive(ApiKey.FETCH, 12, FetchResponse)
    assert answer.error_code == Code.NONE
    return sum(len(topic.partitions) for topic in answer.responses)


def test_long_requests_pass_while_others_stand_still(served: NodeProcess) -> None:
    """They wait for memory until those that stand still are closed, as what is sent waits."""
    with attack(served) as stack:
        clients = [stack.enter_context(WireClient(served.port)) for _ in range(30)]
        send_as_much_as_is_taken(clients, 60 * MB)
        fetchers = [stack.enter_context(WireClient(served.port)) for _ in range(5)]
        for fetcher in fetchers:
            fetcher.send(ApiKey.FETCH, 12, long_fetch("memory-bounds-unknown", 2_000))
        assert [answered_partitions(fetcher) for fetcher in fetchers] == [2_000] * 5


def test_long_fetches_that_wait_for_records_give_way(start_node: StartNode) -> None:
    """Three find room here, and one beyond it. The others are answered all the same, for as long as they may wait."""
    node = start_node(config={"queued.max.request.bytes": str(2 * MB)})
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(node.port)) for _ in range(8)]
        assert clients[0].create_topic("long-polls", partitions=1_100).error_code == 0
        for client in clients:
            client.send(ApiKey.FETCH, 12, long_fetch("long-polls", 1_100, wait_ms=3_600_000))
        streams = [client.stream for client in clients]
        wait_until(lambda: len(select.select(streams, [], [], 0)[0]) >= 4, "those that found no room are answered")
        with WireClient(node.port) as another:
            another.send(ApiKey.FETCH, 12, long_fetch("long-polls", 1_100, wait_ms=0))
            assert answered_partitions(another) == 1_100
    node.close()


def session_of(client: WireClient) -> tuple[Code, int]:
    """The error of a fetch that is answered, and its session; what is said of its partitions is left unread."""
    _, error_code, session_id = struct.unpack_from(">ihi", client.receive_body(ApiKey.FETCH, 12))
    return Code(error_code), session_id


def test_fetch_sessions_of_many_partitions(served: NodeProcess) -> None:
    """Few sessions, as slots go, but of more partitions than all may follow together: the last one gets none."""
    count, partitions = 11, 25_000
    pieces: list[Any] = encode_request(
        ApiKey.FETCH, 12, 1, "sessions", long_fetch("memory-bounds-unknown", partitions, session_epoch=0, wait_ms=0)
    )
    frame = b"".join(pieces)
    with attack(served) as stack:
        readers = [stack.enter_context(WireClient(served.port)) for _ in range(count)]
        for reader in readers:
            reader.stream.sendall(frame)
        sessions = [session_of(reader) for reader in readers]
        assert {error for error, _ in sessions} == {Code.NONE}
        kept = [(reader, session_id) for reader, (_, session_id) in zip(readers, sessions, strict=True) if session_id]
        assert len(kept) == SESSION_PARTITIONS_MAX // partitions
        for (reader, session_id), more in zip(kept, (0, 2_000), strict=False):
            request = long_fetch("memory-bounds-more", more, session_id=session_id, session_epoch=1, wait_ms=0)
            reader.send(ApiKey.FETCH, 12, request)
        (goes_on, first), (grows, _) = kept[:2]
        assert session_of(goes_on) == (Code.NONE, first)
        assert session_of(grows) == (Code.FETCH_SESSION_ID_NOT_FOUND, 0)  # there is no room for more: it begins anew


def answers_of_members(
    node: NodeProcess, stack: ExitStack, count: int, *, size_bytes: int, session_timeout_ms: int
) -> list[JoinGroupResponse]:
    """Of as many members, each with so much metadata and alone in a group; their connections stay in the stack."""
    clients = [stack.enter_context(WireClient(node.port)) for _ in range(count)]
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(size_bytes))
    for number, client in enumerate(clients):
        request = JoinGroupRequest(
            group_id=f"group-{number}",
            group_instance_id=f"instance-{number}",
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=session_timeout_ms,
            protocol_type="consumer",
            protocols=[protocol],
        )
        client.send(ApiKey.JOIN_GROUP, 5, request)
    return [client.receive(ApiKey.JOIN_GROUP, 5, JoinGroupResponse) for client in clients]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have rules of their own")
def test_what_members_took_is_given_back_once_they_are_gone(start_node: StartNode) -> None:
    node = start_node()

    def join(count: int) -> None:
        with ExitStack() as stack:
            answers_of_members(node, stack, count, size_bytes=4 * MB, session_timeout_ms=6_000)

    with WireClient(node.port) as client:
        wait_for_coordinator(client, "group-0")
    join(1)
    before = resident_bytes(node.pid)
    join(20)
    assert resident_bytes(node.pid) > before + 40 * MB
    wait_until(lambda: resident_bytes(node.pid) < before + 25 * MB, "it is given back", seconds=60)


def test_members_with_much_metadata(served: NodeProcess) -> None:
    """Each in a group of its own, who waits for its first generation."""
    with WireClient(served.port) as client:
        wait_for_coordinator(client, "group-0")
    with attack(served) as stack:
        answers = answers_of_members(served, stack, 150, size_bytes=5 * MB, session_timeout_ms=60_000)
    codes = Counter(answer.error_code for answer in answers)
    assert codes.keys() == {Code.NONE, Code.GROUP_MAX_SIZE_REACHED}
    assert codes[Code.NONE] < 20
