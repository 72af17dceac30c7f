"""One record per request, pipelined on one connection: what a request costs a node beside its records.

The requests are built beforehand and the answers counted by their fixed size, so that the client's share is small. The
peer is a server that looks at nothing and stores nothing.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from bench_produce import acknowledge_only
from harness import LONG, WireClient, cpu_seconds, figure, median, new_node, receive_exactly, say

from support.clients.wire_client import batch_of
from tidelog.wire import ApiKey, ConsistencyState, decode, decode_response_header, encode_request
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

RECORD = os.urandom(100)
REQUESTS = 100_000 if LONG else 50_000
ROUNDS = 7 if LONG else 5
IN_FLIGHT = 64
VERSION = 9
TOPIC = "bench-one-record"


def requests(batches: Iterator[bytes], state: ConsistencyState | None = None) -> list[bytes]:
    """Whole produce requests, one batch in each.

    Args:
        state: a consistency token for each.
    """
    built = []
    for number, batch in enumerate(batches):
        data = [PartitionProduceData(index=0, records=batch)]
        request = ProduceRequest(
            acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
        )
        pieces: list[Any] = encode_request(ApiKey.PRODUCE, VERSION, number, "bench", request, consistency_state=state)
        built.append(b"".join(pieces))
    return built


def run(port: int, built: list[bytes]) -> float:
    """Requests per second, with up to IN_FLIGHT of them unanswered."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        stream.sendall(b"".join(built[:IN_FLIGHT]))
        sent = IN_FLIGHT
        # Every answer is as long as the first one: its numbers have fixed sizes.
        size = int.from_bytes(receive_exactly(stream, 4))
        answer = receive_exactly(stream, size)
        check(answer)
        size += 4
        error_code_at = bytes(answer).index(TOPIC.encode()) + len(TOPIC) + 1 + 4 + 4  # its size is in front
        answered, received = 1, bytearray(1 << 20)
        view, held = memoryview(received), 0
        while answered < len(built):
            held += stream.recv_into(view[held:])
            count, rest = divmod(held, size)
            if not count:
                continue
            codes = received[error_code_at : count * size : size], received[error_code_at + 1 : count * size : size]
            assert not any(map(any, codes)), "a request was refused"
            view[:rest] = view[count * size : held]
            held = rest
            answered += count
            stream.sendall(b"".join(built[sent : answered + IN_FLIGHT]))
            sent = min(answered + IN_FLIGHT, len(built))
        return len(built) / (time.perf_counter() - started)


def check(answer: memoryview) -> None:
    _, _, position = decode_response_header(answer, ApiKey.PRODUCE, VERSION)
    row = decode(ProduceResponse, answer, VERSION, position).responses[0].partition_responses[0]
    assert row.error_code == 0, (row.error_code, row.error_message)


def main() -> None:
    plain = requests(batch_of(RECORD) for _ in range(REQUESTS))
    rates: dict[str, list[float]] = {"node": [], "peer": [], "idempotent": []}
    cpu = []
    with new_node() as node, acknowledge_only() as (_, peer_port):
        with WireClient(node.port) as client:
            client.create_topic(TOPIC)
            producer = client.new_producer_id()
        idempotent = requests(
            batch_of(RECORD, producer=producer, base_sequence=number) for number in range(REQUESTS // 2 * ROUNDS)
        )
        for number in range(ROUNDS):
            before = cpu_seconds(node.pid)
            rates["node"].append(run(node.port, plain))
            cpu.append((cpu_seconds(node.pid) - before) * 1e6 / REQUESTS)
            rates["peer"].append(run(peer_port, plain))
            share = idempotent[number * (REQUESTS // 2) : (number + 1) * (REQUESTS // 2)]
            rates["idempotent"].append(run(node.port, share))
            say(f"round {number + 1}: " + ", ".join(f"{name} {rate[-1]:,.0f}/s" for name, rate in rates.items()))
        with WireClient(node.port) as client:
            assert client.log_end_offset(TOPIC) == ROUNDS * (REQUESTS + REQUESTS // 2)
    peer, peer_value = "acknowledge only", median(rates["peer"])
    figure(
        "one record per request", median(rates["node"]), "requests/s", peer=peer, peer_value=peer_value, at_least=25_000
    )
    figure("one record per request: CPU of the broker", median(cpu), "µs/request")
    figure(
        "one record per request, idempotent",
        median(rates["idempotent"]),
        "requests/s",
        peer=peer,
        peer_value=peer_value,
    )


if __name__ == "__main__":
    main()
