"""Peers that make a node keep what they send: it keeps a bounded amount, and serves the others meanwhile."""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import wait_for_coordinator
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse

TOPIC = "memory-bounds"
RESIDENT_BYTES_MAX = 512 << 20
REQUEST_SIZE_BYTES_MAX = 104_857_600
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


def test_members_with_much_metadata(served: NodeProcess) -> None:
    """Each in a group of its own, who waits for its first generation."""
    clients = []
    with WireClient(served.port) as client:
        wait_for_coordinator(client, "group-0")
    with attack(served) as stack:
        for number in range(150):
            client = stack.enter_context(WireClient(served.port))
            protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(5 * MB))
            request = JoinGroupRequest(
                group_id=f"group-{number}",
                group_instance_id=f"instance-{number}",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[protocol],
            )
            client.send(ApiKey.JOIN_GROUP, 5, request)
            clients.append(client)
        codes = Counter(client.receive(ApiKey.JOIN_GROUP, 5, JoinGroupResponse).error_code for client in clients)
    assert codes.keys() == {Code.NONE, Code.GROUP_MAX_SIZE_REACHED}
    assert codes[Code.NONE] < 20
