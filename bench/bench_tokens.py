"""Consistency tokens (KIP-1243): what one costs a request, and how soon a read is answered that waits for its metadata.

The same pipelined requests with a token in their headers and without, turn by turn, at one node; both get a token in
their answers. Then reads that wait, many at once, for a topic that somebody else makes: how long after the answer to
that, which leaves when this broker's metadata shows the topic, the last of them has its own.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack
from typing import Any

from bench_one_record_requests import RECORD, requests, run
from harness import LONG, WireClient, cpu_seconds, figure, median, new_node, receive_exactly, say

from support.clients.wire_client import batch_of
from tidelog.wire import ApiKey, ConsistencyState, decode_response_header, encode_request
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic

REQUESTS = 50_000 if LONG else 25_000
ROUNDS = 21 if LONG else 11
TOPIC = "bench-one-record"
WAITERS = 100
WAITS = 40 if LONG else 20
METADATA_VERSION = 12


def asked(topic: str, state: ConsistencyState | None) -> bytes:
    """A whole Metadata request of one topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    pieces: list[Any] = encode_request(ApiKey.METADATA, METADATA_VERSION, 1, "bench", request, consistency_state=state)
    return b"".join(pieces)


def answered(stream: socket.socket) -> tuple[ConsistencyState, float]:
    """The token of an answer, and when it was here."""
    (size,) = struct.unpack(">i", receive_exactly(stream, 4))
    frame = receive_exactly(stream, size)
    now = time.perf_counter()
    _, state, _ = decode_response_header(frame, ApiKey.METADATA, METADATA_VERSION)
    assert state is not None
    return state, now


def latest_state(client: WireClient, topic: str) -> ConsistencyState:
    client.stream.sendall(asked(topic, None))
    return answered(client.stream)[0]


def measure_cost(port: int, pid: int, state: ConsistencyState) -> None:
    """Requests that bear a token beside those that bear none."""
    built = {
        "without": requests(batch_of(RECORD) for _ in range(REQUESTS)),
        "with": requests((batch_of(RECORD) for _ in range(REQUESTS)), state),
    }
    rates: dict[str, list[float]] = {name: [] for name in built}
    cpu = dict.fromkeys(built, 0.0)
    for number in range(ROUNDS):
        for name in sorted(built, reverse=bool(number % 2)):
            before = cpu_seconds(pid)
            rates[name].append(run(port, built[name]))
            cpu[name] += cpu_seconds(pid) - before  # in ticks of 10 ms: only all rounds together are exact enough
        say(f"round {number + 1}: " + ", ".join(f"{name} a token {rate[-1]:,.0f}/s" for name, rate in rates.items()))
    figure(
        "requests with a consistency token",
        median(rates["with"]),
        "requests/s",
        peer="the same without",
        peer_value=median(rates["without"]),
        at_least=0.98,
        of_ratio=True,
    )
    figure(
        "requests with a consistency token: CPU of the broker",
        cpu["with"] * 1e6 / REQUESTS / ROUNDS,
        "µs/request",
        peer="the same without",
        peer_value=cpu["without"] * 1e6 / REQUESTS / ROUNDS,
        at_most=1.02,
        of_ratio=True,
    )


def measure_waits(client: WireClient, port: int) -> None:
    """Reads that wait for a topic that is not there yet."""
    delays: list[float] = []
    with ExitStack() as stack:
        waiters = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(WAITERS)
        ]
        for number in range(WAITS):
            topic = f"waited-for-{number}"
            state = latest_state(client, topic)
            assert state.token is not None
            question = asked(topic, state._replace(token=state.token + 1))
            for stream in waiters:
                stream.sendall(question)
            latest_state(client, topic)  # what was sent before has been read by now
            client.create_topic(topic)
            arrived = time.perf_counter()
            last = max(answered(stream)[1] for stream in waiters)
            delays.append(max(last - arrived, 0.0) * 1e3)
    delays.sort()
    note = f"p50 {median(delays):.2f} ms, of {WAITERS} that wait at once, read one after the other"
    figure("the last answer after the metadata came, p99", delays[int(len(delays) * 0.99)], "ms", at_most=5, note=note)


def main() -> None:
    with new_node() as node, WireClient(node.port) as client:
        client.create_topic(TOPIC)
        measure_cost(node.port, node.pid, latest_state(client, TOPIC))
        measure_waits(client, node.port)


if __name__ == "__main__":
    main()
