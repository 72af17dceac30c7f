"""One confluent-kafka producer, 100-byte values, acks=1: against a node, and against a server that only acknowledges.

The two take turns, so that both meet the same machine. The producer is driven by `produce_batch`, the fastest way there
is from Python. What limits is the thread that calls it, at about 0.5 µs a record (librdkafka copies each into a message
of its own); librdkafka's second thread, which builds the batches, takes most of another core, and on two cores the
broker has to live off the rest.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from harness import LONG, WireClient, cpu_seconds, figure, median, new_node, say

RECORD_SIZE_BYTES = 100
RECORDS = 5_000_000 if LONG else 2_000_000
ROUNDS = 7 if LONG else 5
TOPIC = "bench-produce"
QUEUED_MAX = 500_000
CHUNK = [{"value": os.urandom(RECORD_SIZE_BYTES)} for _ in range(10_000)]


@contextmanager
def acknowledge_only() -> Iterator[tuple[int, int]]:
    """(pid, port) of a server that only acknowledges."""
    path = Path(__file__).parent / "acknowledge_only.py"
    server = subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        fields = dict(field.split("=") for field in server.stdout.readline().decode().split())
        yield int(fields["pid"]), int(fields["port"])
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate()


def produce(port: int) -> float:
    """Records per second, from the first record given to the producer to the last acknowledgement."""
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "acks": 1,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * QUEUED_MAX,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(TOPIC, timeout=10)  # connected, and the topic known
    started = time.perf_counter()
    for _ in range(RECORDS // len(CHUNK)):
        queued = producer.produce_batch(TOPIC, CHUNK, partition=0, on_delivery=lambda error, _: failures.append(error))
        assert queued == len(CHUNK)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.005)
    left = producer.flush(60)
    seconds = time.perf_counter() - started
    assert not failures
    assert left == 0
    return RECORDS / seconds


def main() -> None:
    rates: dict[str, list[float]] = {"node": [], "peer": []}
    cpu: dict[str, list[float]] = {"node": [], "peer": []}
    with new_node() as node, acknowledge_only() as (peer_pid, peer_port):
        with WireClient(node.port) as client:
            client.create_topic(TOPIC)
        targets = {"node": (node.pid, node.port), "peer": (peer_pid, peer_port)}
        for number in range(ROUNDS):
            for name, (pid, port) in sorted(targets.items(), reverse=number % 2 == 1):  # no one always comes first
                os.sync()  # what a run left to be written must not burden the next one, which is the other's
                before = cpu_seconds(pid)
                rates[name].append(produce(port))
                cpu[name].append((cpu_seconds(pid) - before) * 1e6 / RECORDS)
            say(f"round {number + 1}: {rates['node'][-1]:,.0f} records/s, peer {rates['peer'][-1]:,.0f}")
        with WireClient(node.port) as client:
            assert client.log_end_offset(TOPIC) == RECORDS * ROUNDS
    peer = "acknowledge only"
    figure(
        "produce, 100-byte values, acks=1",
        median(rates["node"]),
        "records/s",
        peer=peer,
        peer_value=median(rates["peer"]),
        at_least=0.9,
        of_ratio=True,
    )
    figure(
        "produce: CPU of the broker",
        median(cpu["node"]),
        "CPU-s/million records",
        peer=peer,
        peer_value=median(cpu["peer"]),
        at_most=0.15,
    )


if __name__ == "__main__":
    main()
