"""One record per request beside Apache Kafka, and how long a record waits for its acknowledgement at a steady rate.

The requests are built beforehand, so that the client's share is small. A connection may have several unanswered; both
brokers take the requests of one connection one after the other, so there is a figure for many connections too. For the
latency the records are sent when they are due, whether the earlier ones were answered or not: a broker that stalls
delays all that became due meanwhile, and all of that counts.
"""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from beside_kafka import PEER, QUICK, Target, both_brokers, compare, in_turns, need_kafka, topic_on
from harness import figure, median, receive_exactly, say

from support.clients.wire_client import batch_of
from tidelog.wire import ApiKey, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

RECORD = os.urandom(100)
REQUESTS = 10_000 if QUICK else 40_000
IN_FLIGHT = 64
CONNECTIONS_MANY = 16
VERSION = 9
TOPIC = "one-record"
LATENCY_SECONDS = 2.0 if QUICK else 5.0


def request_of(records: int) -> bytes:
    """A whole Produce request; the answer to every copy of it has the same size."""
    data = [PartitionProduceData(index=0, records=batch_of(*[RECORD] * records, timestamp_ms=int(time.time() * 1e3)))]
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    pieces: list[Any] = encode_request(ApiKey.PRODUCE, VERSION, 1, "bench", request)
    return b"".join(pieces)


@dataclass(slots=True)
class Connection:
    """A socket on which answers of one size come back."""

    stream: socket.socket
    answer_size_bytes: int
    error_code_at: int
    to_send: int = 0
    due: deque[float] = field(default_factory=deque)
    received: bytearray = field(default_factory=bytearray)

    def take_answers(self) -> int:
        """Read what is there; how many answers were completed.

        Raises:
            ConnectionError: the broker hung up.
        """
        data = self.stream.recv(1 << 18)
        if not data:
            raise ConnectionError("the broker hung up")
        self.received += data
        size, count = self.answer_size_bytes, len(self.received) // self.answer_size_bytes
        first, second = (self.received[self.error_code_at + at : count * size : size] for at in (0, 1))
        assert not any(first), "a request was refused"
        assert not any(second), "a request was refused"
        del self.received[: count * size]
        return count


def connect(target: Target, request: bytes) -> Connection:
    """A connection that has sent the request once, to see the answer."""
    stream = socket.create_connection(("127.0.0.1", target.port), timeout=30)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.sendall(request)
    answer = receive_exactly(stream, int.from_bytes(receive_exactly(stream, 4)))
    _, _, position = decode_response_header(answer, ApiKey.PRODUCE, VERSION)
    row = decode(ProduceResponse, answer, VERSION, position).responses[0].partition_responses[0]
    assert row.error_code == 0, (row.error_code, row.error_message)
    error_code_at = 4 + bytes(answer).index(TOPIC.encode()) + len(TOPIC) + 1 + 4  # its size is in front
    return Connection(stream, 4 + len(answer), error_code_at)


def rate(target: Target, connections: int) -> float:
    """Requests per second, with up to IN_FLIGHT of them unanswered on all connections together."""
    request = request_of(1)
    opened = [connect(target, request) for _ in range(connections)]
    try:
        with selectors.DefaultSelector() as selector:
            started = time.perf_counter()
            for connection in opened:
                selector.register(connection.stream, selectors.EVENT_READ, connection)
                connection.stream.sendall(request * (IN_FLIGHT // connections))
            sent, answered = IN_FLIGHT // connections * connections, 0
            while answered < REQUESTS:
                for key, _ in selector.select(30):
                    connection = key.data
                    count = connection.take_answers()
                    answered += count
                    more = min(count, REQUESTS - sent)
                    if more > 0:
                        connection.stream.sendall(request * more)
                        sent += more
            return REQUESTS / (time.perf_counter() - started)
    finally:
        for connection in opened:
            connection.stream.close()


def latencies_ms(target: Target, *, per_second: int, records: int, connections: int) -> list[float]:
    """From when a request was due to when its answer was here; requests are due at equal distances.

    Args:
        per_second: requests, each with `records`, over all connections in turn.
    """
    request = request_of(records)
    opened = [connect(target, request) for _ in range(connections)]
    found: list[float] = []
    count = int(per_second * LATENCY_SECONDS)
    try:
        with selectors.DefaultSelector() as selector:
            for connection in opened:
                selector.register(connection.stream, selectors.EVENT_READ, connection)
            started = time.perf_counter()
            sent = 0
            while len(found) < count:
                now = time.perf_counter()
                while sent < count and (due := started + sent / per_second) <= now:
                    connection = opened[sent % connections]
                    connection.stream.sendall(request)
                    connection.due.append(due)
                    sent += 1
                # epoll waits whole milliseconds: nearer than one, ask again and again.
                wait = 30.0 if sent == count else started + sent / per_second - time.perf_counter()
                for key, _ in selector.select(wait if wait > 0.002 else 0):
                    connection = key.data
                    answers = connection.take_answers()
                    now = time.perf_counter()
                    found += [(now - connection.due.popleft()) * 1e3 for _ in range(answers)]
    finally:
        for connection in opened:
            connection.stream.close()
    return found


def measure_latency(targets: list[Target], name: str, *, per_second: int, records: int, connections: int) -> None:
    def quantiles(target: Target) -> tuple[float, float]:
        found = sorted(latencies_ms(target, per_second=per_second, records=records, connections=connections))
        return found[len(found) // 2], found[len(found) * 99 // 100]

    results = in_turns(targets, quantiles)
    say(f"latency at {name}: {results}")
    for place, quantile in enumerate(("p50", "p99")):
        figure(
            f"latency at {name}, {quantile}",
            median([result[place] for result in results["node"]]),
            "ms",
            peer=PEER,
            peer_value=median([result[place] for result in results["peer"]]),
            at_most=1.0,
            of_ratio=True,
        )


def main() -> None:
    need_kafka()
    with both_brokers() as targets, topic_on(targets, TOPIC, 1):
        for connections in (1, CONNECTIONS_MANY):
            name = f"one record per request, {connections} connection{'s' * (connections > 1)}"
            compare(name, "requests", targets, lambda target: rate(target, connections), count=REQUESTS, at_least=0.5)  # noqa: B023
        measure_latency(targets, "1,000 records/s, one a request", per_second=1_000, records=1, connections=1)
        measure_latency(targets, "20,000 records/s, 20 a request", per_second=1_000, records=20, connections=1)
        measure_latency(targets, "20,000 records/s, one a request", per_second=20_000, records=1, connections=16)


if __name__ == "__main__":
    main()
