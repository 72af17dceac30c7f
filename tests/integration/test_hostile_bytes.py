"""Whatever arrives at the port, the node stays up, closes what is garbage, and serves the next one."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from support.nodes.node import NodeProcess, StartNode

TIMEOUT_SECONDS = 60.0
FRAME_SIZE_BYTES_MAX = 100 * 1024 * 1024

API_VERSIONS_V0 = struct.pack(">hhih", 18, 0, 7, -1)


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@pytest.fixture(scope="module")
def victim(shared_node: NodeProcess) -> Iterator[NodeProcess]:
    pid = shared_node.pid
    yield shared_node
    assert shared_node.is_running
    assert shared_node.pid == pid


def connect(node: NodeProcess) -> socket.socket:
    return socket.create_connection(("127.0.0.1", node.port), timeout=TIMEOUT_SECONDS)


def read_frame(stream: socket.socket) -> bytes:
    size = struct.unpack(">i", read_exactly(stream, 4))[0]
    return read_exactly(stream, size)


def read_exactly(stream: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = stream.recv(size - len(data))
        assert piece, "the node closed the connection"
        data += piece
    return data


def is_closed_by_the_node(stream: socket.socket) -> bool:
    """Whether the node hangs up (with or without a reset); answers before that are skipped."""
    try:
        while stream.recv(65_536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def assert_serves(node: NodeProcess) -> None:
    with connect(node) as stream:
        stream.sendall(frame(API_VERSIONS_V0))
        correlation_id, error_code = struct.unpack(">ih", read_frame(stream)[:6])
        assert (correlation_id, error_code) == (7, 0)


def tls_hello() -> bytes:
    body = b"\x03\x03" + bytes(32) + b"\x00\x00\x02\x13\x01\x01\x00"
    handshake = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(handshake).to_bytes(2, "big") + handshake


GARBAGE: dict[str, Callable[[], bytes]] = {
    "http": lambda: b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls hello": tls_hello,
    "negative length": lambda: struct.pack(">i", -1) + bytes(10),
    "length of two gigabytes": lambda: struct.pack(">i", 2**31 - 1) + bytes(10),
    "one byte too long": lambda: struct.pack(">i", FRAME_SIZE_BYTES_MAX + 1),
    "empty frame": lambda: frame(b""),
    "header cut short": lambda: frame(b"\x00\x12\x00"),
    "unknown api": lambda: frame(struct.pack(">hhih", 999, 0, 1, -1)),
    "negative api": lambda: frame(struct.pack(">hhih", -5, 0, 1, -1)),
    "controller-only api": lambda: frame(struct.pack(">hhih", 52, 0, 1, -1)),
    "metadata of a version from the future": lambda: frame(struct.pack(">hhih", 3, 99, 1, -1)),
    "produce before v3": lambda: frame(struct.pack(">hhihhii", 0, 2, 1, -1, 1, 1000, 0)),
    "array count that lies": lambda: frame(struct.pack(">hhihi", 3, 1, 1, -1, 2**31 - 1)),
    "string length that lies": lambda: frame(struct.pack(">hhihih", 3, 1, 1, -1, 1, 32_000)),
    "ten million topics": lambda: frame(struct.pack(">hhihi", 3, 1, 1, -1, 10_000_000) + bytes(20_000_000)),
    "client id that lies": lambda: frame(struct.pack(">hhih", 18, 0, 1, 32_000)),
    "endless varint": lambda: frame(struct.pack(">hhih", 18, 3, 1, -1) + b"\xff" * 40),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_its_own_connection_only(victim: NodeProcess, name: str) -> None:
    with connect(victim) as neighbour, connect(victim) as stream:
        with suppress(ConnectionError):  # it may be hung up on before all of it is sent
            stream.sendall(GARBAGE[name]())
        assert is_closed_by_the_node(stream), f"{name}: the node kept the connection"
        neighbour.sendall(frame(API_VERSIONS_V0))
        read_frame(neighbour)
    assert_serves(victim)


def test_garbage_at_the_other_listeners(start_node: StartNode) -> None:
    """Those between brokers, of controllers and of metrics."""
    node = start_node(config={"metrics.listener": "HTTP://127.0.0.1:0"})
    others = node.ports - {node.port}
    assert len(others) == 3
    for port in others:
        for name, garbage in GARBAGE.items():
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as stream:
                with suppress(ConnectionError):
                    stream.sendall(garbage())
                    stream.shutdown(socket.SHUT_WR)
                assert is_closed_by_the_node(stream), f"{name}: the node kept the connection"
    assert_serves(node)
    assert "Traceback" not in node.log
    node.stop()


def test_random_bytes(victim: NodeProcess) -> None:
    rng = random.Random(320)
    for _ in range(50):
        with connect(victim) as stream:
            stream.sendall(frame(rng.randbytes(rng.randrange(1, 2_000))))
            stream.shutdown(socket.SHUT_WR)
            is_closed_by_the_node(stream)
    assert_serves(victim)


def test_the_reason_is_in_the_log(victim: NodeProcess) -> None:
    with connect(victim) as stream:
        stream.sendall(GARBAGE["http"]())
        assert is_closed_by_the_node(stream)
        host, port = stream.getsockname()
    said = [line for line in victim.log.splitlines() if f"{host}:{port}" in line]
    assert said
    assert "socket.request.max.bytes" in said[-1] or "frame" in said[-1]


def test_a_request_cut_short_does_no_harm(victim: NodeProcess) -> None:
    with connect(victim) as stream:
        stream.sendall(frame(API_VERSIONS_V0)[:-3])
    assert_serves(victim)


def test_a_request_sent_a_byte_at_a_time_is_answered(victim: NodeProcess) -> None:
    with connect(victim) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(API_VERSIONS_V0):
            stream.sendall(bytes([byte]))
        assert struct.unpack(">i", read_frame(stream)[:4]) == (7,)


def test_bytes_behind_a_request_are_ignored_as_kafka_does(victim: NodeProcess) -> None:
    with connect(victim) as stream:
        stream.sendall(frame(API_VERSIONS_V0 + b"more"))
        assert struct.unpack(">ih", read_frame(stream)[:6]) == (7, 0)


def test_api_versions_from_the_future_is_answered_in_version_0(victim: NodeProcess) -> None:
    with connect(victim) as stream:
        stream.sendall(frame(struct.pack(">hhih", 18, 99, 5, -1) + b"\x00\x00\x00"))
        answer = read_frame(stream)
        correlation_id, error_code, count = struct.unpack(">ihi", answer[:10])
        assert (correlation_id, error_code) == (5, 35)
        keys = {struct.unpack_from(">hhh", answer, 10 + 6 * i) for i in range(count)}
        assert any(key == 18 for key, _, _ in keys)
        stream.sendall(frame(API_VERSIONS_V0))  # the connection lives on: the client may try again
        read_frame(stream)


def test_pipelined_requests_are_answered_in_order(victim: NodeProcess) -> None:
    with connect(victim) as stream:
        stream.sendall(b"".join(frame(struct.pack(">hhih", 18, 0, i, -1)) for i in range(500)))
        assert [struct.unpack(">i", read_frame(stream)[:4])[0] for _ in range(500)] == list(range(500))
