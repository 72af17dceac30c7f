"""Our clients beside confluent-kafka: what one process of Python takes in and gives out, and the CPU that it costs.

Both read the same topic and write to the same node, in turns. `poll_batches` hands out whole batches, and `poll_arrow`
columns, which is what the Spark source lives on. Our `send` returns a future for each record, so confluent-kafka is
given a callback for each. CPU is that of all threads of the process, without the node's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import confluent_kafka
import pyarrow as pa
from harness import LONG, MEGABYTE, WireClient, figure, median, new_node, say

from support.clients.wire_client import batch_of
from tidelog import Consumer, Producer, TopicPartition
from tidelog.base.ids import PartitionIndex

VALUE_SIZE_BYTES = 100
READ, WRITTEN, SENT = "bench-read", "bench-written", "bench-sent"
RECORDS = 4_000_000 if LONG else 1_000_000
RECORDS_SENT = 1_000_000 if LONG else 300_000
ROUNDS = 5 if LONG else 3
MICROSECONDS = 1e6
FETCH_BYTES = 16 * 1024 * 1024
PARTITION = TopicPartition(READ, PartitionIndex(0))
SENDING = ("confluent produce", "confluent produce with callbacks", "send")
CONFLUENT_PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": RECORDS_SENT,
    "queue.buffering.max.kbytes": 1_048_576,
}


def fill(port: int) -> None:
    batch = batch_of(*[os.urandom(VALUE_SIZE_BYTES) for _ in range(5_000)])
    with WireClient(port) as client:
        for topic in (READ, WRITTEN, SENT):
            client.create_topic(topic)
        for _ in range(RECORDS // 5_000):
            assert client.produce(READ, batch).error_code == 0


def consume_with_confluent(bootstrap: str) -> float:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": FETCH_BYTES,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(READ, 0, 0)])
    count = warm = len(consumer.consume(1, timeout=10))  # it is connected, and knows the leader
    started = time.perf_counter()
    while count < RECORDS:
        for message in consumer.consume(10_000, timeout=0.5):
            assert message.error() is None
            assert message.value() is not None
            count += 1
    seconds = time.perf_counter() - started
    consumer.close()
    return (RECORDS - warm) / seconds


def consume(bootstrap: str, take: Callable[[Consumer], int]) -> float:
    """Records per second; `take` polls once and says how many came."""
    with Consumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=FETCH_BYTES) as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 0)
        count = warm = take(consumer)
        started = time.perf_counter()
        while count < RECORDS:
            count += take(consumer)
        return (RECORDS - warm) / (time.perf_counter() - started)


def iterate(bootstrap: str, group_id: str | None = None) -> float:
    with Consumer(
        bootstrap_servers=bootstrap,
        max_partition_fetch_bytes=FETCH_BYTES,
        max_poll_records=10_000,
        group_id=group_id,
        auto_offset_reset="none",
    ) as consumer:
        if group_id is None:
            consumer.assign([PARTITION], start="earliest")
        else:
            consumer.subscribe([READ], start="earliest")
        records = consumer.until_end()
        next(records)  # it is connected, and knows the leader
        started = time.perf_counter()
        count = sum(1 for _ in records)
        return count / (time.perf_counter() - started)


def take_records(consumer: Consumer) -> int:
    return len(consumer.poll(timeout_ms=5_000, max_records=10_000))


def take_batches(consumer: Consumer) -> int:
    return sum(each.next_offset - each.fetch_offset for each in consumer.poll_batches(timeout_ms=5_000))


def take_columns(consumer: Consumer) -> int:
    return int(consumer.poll_arrow(timeout_ms=5_000).num_rows)


def produce_with_confluent(bootstrap: str) -> float:
    value = os.urandom(VALUE_SIZE_BYTES)
    producer = confluent_kafka.Producer(CONFLUENT_PRODUCER | {"bootstrap.servers": bootstrap})
    producer.produce(WRITTEN, value, partition=0)
    assert producer.flush(10) == 0  # it has its producer id
    started = time.perf_counter()
    for _ in range(RECORDS_SENT):
        producer.produce(WRITTEN, value, partition=0)
    assert producer.flush(60) == 0
    return RECORDS_SENT / (time.perf_counter() - started)


def produce_with_callbacks(bootstrap: str) -> float:
    """As confluent-kafka's documentation has it: a callback a record, which `poll` calls."""
    value = os.urandom(VALUE_SIZE_BYTES)
    producer = confluent_kafka.Producer(CONFLUENT_PRODUCER | {"bootstrap.servers": bootstrap})
    delivered = failed = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal delivered, failed
        delivered += error is None
        failed += error is not None

    producer.produce(WRITTEN, value, partition=0, on_delivery=on_delivery)
    assert producer.flush(10) == 0
    started = time.perf_counter()
    for _ in range(RECORDS_SENT):
        producer.produce(WRITTEN, value, partition=0, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    seconds = time.perf_counter() - started
    assert (delivered, failed) == (RECORDS_SENT + 1, 0)
    return RECORDS_SENT / seconds


def produce_records(bootstrap: str) -> float:
    value = os.urandom(VALUE_SIZE_BYTES)
    with Producer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=1_000_000) as producer:
        producer.send(SENT, value, partition=0).result(10)
        started = time.perf_counter()
        for _ in range(RECORDS_SENT):
            producer.send(SENT, value, partition=0)
        producer.flush(60)
        return RECORDS_SENT / (time.perf_counter() - started)


def produce_columns(bootstrap: str) -> float:
    rows = 50_000
    data = pa.RecordBatch.from_pydict({"value": pa.array([os.urandom(VALUE_SIZE_BYTES)] * rows, pa.binary())})
    with Producer(bootstrap_servers=bootstrap, linger_ms=5, batch_size=1_000_000) as producer:
        producer.send(SENT, b"first", partition=0).result(10)
        started = time.perf_counter()
        for _ in range(RECORDS // rows):
            producer.send_arrow(SENT, data, partition=0)
        producer.flush(60)
        return RECORDS / (time.perf_counter() - started)


def main() -> None:
    with new_node() as node:
        fill(node.port)
        ways: dict[str, Callable[[str], float]] = {
            "confluent consume": consume_with_confluent,
            "poll": lambda bootstrap: consume(bootstrap, take_records),
            "iterated": iterate,
            "iterated in a group": lambda bootstrap: iterate(bootstrap, f"bench-{uuid4()}"),
            "poll_arrow": lambda bootstrap: consume(bootstrap, take_columns),
            "poll_batches": lambda bootstrap: consume(bootstrap, take_batches),
            "confluent produce": produce_with_confluent,
            "confluent produce with callbacks": produce_with_callbacks,
            "send": produce_records,
            "send_arrow": produce_columns,
        }
        rates: dict[str, list[float]] = {name: [] for name in ways}
        costs: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(ROUNDS):
            for name, run in ways.items():
                os.sync()
                before = time.process_time()
                rates[name].append(run(node.bootstrap))
                count = RECORDS_SENT if name in SENDING else RECORDS
                costs[name].append((time.process_time() - before) / count * MICROSECONDS)
            say(f"round {number + 1}: " + ", ".join(f"{name} {rate[-1]:,.0f}/s" for name, rate in rates.items()))
    reached = {name: median(rate) for name, rate in rates.items()}
    cost = {name: median(each) for name, each in costs.items()}

    def beside(name: str, peer: str, **target: Any) -> None:
        at = f"{'Consumer' if peer == 'confluent consume' else 'Producer'}.{name}"
        figure(at, reached[name], "records/s", peer=peer, peer_value=reached[peer], of_ratio=True, **target)
        figure(f"{at}, CPU", cost[name], "µs a record", peer=peer, peer_value=cost[peer])

    beside("poll", "confluent consume")
    for name in ("iterated", "iterated in a group"):
        beside(name, "confluent consume", at_least=1.0)
    beside("poll_arrow", "confluent consume")
    in_megabytes = VALUE_SIZE_BYTES / MEGABYTE
    figure(
        "Consumer.poll_batches, values alone",
        reached["poll_batches"] * in_megabytes,
        "MB/s",
        peer="confluent-kafka consume",
        peer_value=reached["confluent consume"] * in_megabytes,
    )
    beside("send", "confluent produce")
    beside("send", "confluent produce with callbacks", at_least=1.0)
    beside("send_arrow", "confluent produce")


if __name__ == "__main__":
    main()
