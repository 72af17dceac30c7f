"""Throw requests at a real node: `python tests/fuzz/fuzz_node.py SECONDS [SEED]`.

Requests of every API that is served, in every version, made from their declarations out of names and numbers that mean
something to the node; some are damaged on the way. Each is answered, waits, or closes its connection. Whatever comes,
the node stays up, reports no bug of its own, keeps no file or memory for those who left, and serves from the same
directory after a stop and a `kill -9`.
"""

from __future__ import annotations

import random
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import UUID

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.fuzz_requests import damaged
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from support.nodes.server_process import ServerProcess
from tidelog.records import BatchBuilder
from tidelog.server.api.apis import advertised
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER
from tidelog.wire import encode_request
from tidelog.wire.api import ApiKey, api
from tidelog.wire.schema import FieldSpec, Layout, WireType, layout_of

CONNECTIONS = 24
ANSWER_SECONDS_MAX = 0.05  # who waits for members or records is left waiting, or is hung up on
FILES_GROWN_MAX = 600  # topics have files, and there are some dozens of topics
MEMORY_GROWN_BYTES_MAX = 300 << 20
SIGNS_OF_A_BUG = ("Traceback", "a bug in Tidelog", "unexpected way", "Task exception", "never retrieved", "CRITICAL")

_WORDS: tuple[str, ...] = (
    "", "a", "orders", "orders", "clicks", "__consumer_offsets", "__cluster_metadata", "..", "a b", "ü" * 300,
    "x" * 249,
    "group-1", "group-1", "group-2", "member", "consumer", "range", "cooperative-sticky", "1", "-1", "0", "1000",
    "broker", "retention.ms", "cleanup.policy", "compact", "delete", "compact,delete", "max.message.bytes",
    "segment.bytes", "compression.type", "log.retention.ms", "Stable", "Empty", "\0", "\N{FIRE}",
)  # fmt: skip
_NUMBERS = (-(1 << 63), -(1 << 31), -6, -5, -4, -3, -2, -1, 0, 0, 0, 1, 1, 2, 3, 4, 7, 50, 1000, 30_000, (1 << 31) - 1)
_SMALL = (-2, -1, 0, 1, 1, 2, 3)
_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}


class Thrower:
    """Makes requests, and remembers what the node told that is worth saying again."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.words = list(_WORDS)
        self.uuids = [UUID(int=0), UUID(int=1), UUID(int=(1 << 128) - 1)]
        self.batches = [self._batch(count) for count in (1, 1, 2, 30)]

    def _batch(self, count: int) -> bytes:
        builder = BatchBuilder()
        for number in range(count):
            builder.append(1_700_000_000_000 + number, b"key-%d" % (number % 3), b"value")
        return bytes(builder.build())

    def request(self, role: str) -> tuple[ApiKey, int, bytes]:
        """An API, a version, and a frame with its size."""
        return self.request_of(ApiKey(self.rng.choice([key for key, _, _ in advertised(role)])))

    def request_of(self, key: ApiKey) -> tuple[ApiKey, int, bytes]:
        """The same, of this API."""
        known = api(key)
        version = self.rng.randrange(known.min_version, known.max_version + 1)
        message = self._struct(layout_of(known.request), version)
        client_id = self.rng.choice((None, "", "fuzz", "x" * 1000))
        pieces: list[Any] = encode_request(key, version, self.rng.randrange(1 << 31), client_id, message)
        return key, version, b"".join(pieces)

    def _struct(self, layout: Layout, version: int) -> Any:
        return layout.cls(
            **{
                spec.name: self._field(spec, version) if version in spec.versions else spec.make_default()
                for spec in layout.fields
            }
        )

    def _field(self, spec: FieldSpec, version: int) -> Any:
        if version in spec.nullable and self.rng.random() < 0.15:
            return None
        if spec.is_tagged_in(version) and self.rng.random() < 0.5:
            return spec.make_default()
        if spec.name in ("num_partitions", "count"):
            return self.rng.choice(_SMALL)  # what is asked for is made
        if spec.name.endswith("_ms") and spec.type.kind == "fixed" and self.rng.random() < 0.5:
            return self.rng.choice((0, 1, 10, 6_000))
        return self._value(spec.type, version)

    def _value(self, wire_type: WireType[Any], version: int) -> Any:
        rng = self.rng
        if wire_type.kind == "struct":
            assert wire_type.layout is not None
            return self._struct(wire_type.layout, version)
        if wire_type.kind == "array":
            assert wire_type.element is not None
            return [self._value(wire_type.element, version) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        if wire_type.kind == "fixed":
            if wire_type.code == "?":
                return rng.random() < 0.5
            if wire_type.code == "d":
                return rng.random()
            if wire_type.code in "HI":
                return rng.randrange(3)
            half = 1 << (_BITS[wire_type.code] - 1)
            return max(-half, min(half - 1, rng.choice(_NUMBERS)))
        if wire_type.kind == "uuid":
            return rng.choice(self.uuids)
        if wire_type.kind == "string":
            return rng.choice(self.words)
        if wire_type.kind == "records":
            return rng.choice(self.batches)
        return rng.choice((b"", b"\0", b"\0\1\0\0\0\1\0\6orders\0\0\0\0", rng.randbytes(9), bytes(5_000)))

    def remember(self, answer: bytes) -> None:
        """Member ids are made up by the node, behind the client id that was given."""
        at = answer.find(b"fuzz-")
        if at >= 0 and len(self.words) < len(_WORDS) + 40:
            self.words.append(answer[at : at + 41].decode("ascii", errors="replace"))


class Line:
    """One connection, made anew whenever the node has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stream: socket.socket | None = None

    def throw(self, frame: bytes, seconds_max: float) -> bytes | None:
        """What came back within that time; None if the node hung up."""
        try:
            if self._stream is None:
                self._stream = socket.create_connection(("127.0.0.1", self._port), timeout=10.0)
                self._stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream.settimeout(10.0)
            self._stream.sendall(frame)
            self._stream.settimeout(seconds_max)
            answer = self._stream.recv(1 << 16)
        except TimeoutError:
            return b""
        except ConnectionError:
            answer = b""
        if not answer:
            self.close()
            return None
        return answer

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def main(seconds: float, seed: int, *, requests_min: int = 0) -> int:
    """Throw for that long, and at least so many; return how many requests were thrown.

    Raises:
        AssertionError: a finding; it says what was thrown last, and the seed.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        config = {"group.min.session.timeout.ms": "1", "offsets.topic.num.partitions": "3"}
        if rng.random() < 0.5:
            config["slow.request.log.ms"] = "1"  # requests are timed and counted
        node = NodeProcess(Path(directory) / "node", config=config, is_open=True)
        node.start()
        try:
            count = _throw(node, Thrower(rng), seconds, requests_min)
            _check_restarts(node)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            node.close()
    return count


def _throw(node: NodeProcess, thrower: Thrower, seconds: float, requests_min: int) -> int:
    rng = thrower.rng
    with WireClient(node.port) as client:
        for topic in ("orders", "clicks"):
            client.create_topic(topic, partitions=3)
            thrower.uuids.append(client.describe_topic(topic).topic_id)
    (controller_port,) = node.ports - {node.port}
    ports = {BROKER: node.port, CONTROLLER: controller_port}
    lines = [(role, Line(ports[role])) for role in [BROKER] * (CONNECTIONS - 2) + [CONTROLLER] * 2]
    files, memory_bytes = open_files(node.pid), resident_bytes(node.pid)
    count, recent = 0, bytearray()
    deadline = time.monotonic() + seconds
    while count < requests_min or time.monotonic() < deadline:
        role, line = rng.choice(lines)
        key, version, frame = thrower.request(role)
        if rng.random() < 0.15:
            body = damaged(rng, [frame[4:]])
            frame = struct.pack(">i", len(body)) + body
        answer = line.throw(frame, ANSWER_SECONDS_MAX)
        if answer:
            thrower.remember(answer)
        elif answer == b"" and rng.random() < 0.5:
            line.close()  # somebody who does not wait for the answer
        count += 1
        recent = bytearray(frame)
        if count % 200 == 0:
            check_log(node, f"{key.name} v{version} {recent.hex()}")
    for _, line in lines:
        line.close()
    check_log(node, recent.hex())
    wait_until(
        lambda: open_files(node.pid) <= files + FILES_GROWN_MAX,
        lambda: f"files are closed: {open_files(node.pid)} are open, {files} were before",
    )
    grown = resident_bytes(node.pid) - memory_bytes
    assert grown < MEMORY_GROWN_BYTES_MAX, f"{grown} bytes of memory were kept"
    return count


def _check_restarts(node: NodeProcess) -> None:
    """Whatever was written, a node starts with it: after a clean stop and after none."""
    for end in (node.stop, node.kill):
        end()
        node.start()
        with WireClient(node.port) as client:
            assert client.describe_topic("__consumer_offsets") is not None
    check_log(node, "a restart")


def check_log(node: NodeProcess | ServerProcess, last: str) -> None:
    assert node.is_running, f"the node ended, after {last}:\n{node.log[-3_000:]}"
    log = node.log
    for sign in SIGNS_OF_A_BUG:
        at = log.find(sign)
        assert at < 0, f"the log tells of {sign!r}, about {last}:\n{log[max(0, at - 1_000) : at + 4_000]}"


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    run_seconds = given[0] if given else 10.0
    run_seed = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"{main(run_seconds, run_seed)} requests, seed {run_seed}: nothing found")
