"""Transactions beside Apache Kafka: a copy loop of librdkafka's, what `read_committed` costs, many open transactions.

python bench/bench_kafka_transactions.py [--only copy,isolation,open]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import confluent_kafka
from bench_kafka_produce import produce
from beside_kafka import PEER, QUICK, Target, both_brokers, in_turns, need_kafka, topic_on, values_of
from confluent_kafka import TopicPartition
from harness import WireClient, cpu_seconds, figure, median, new_node, say

from tidelog.wire import ApiKey
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.api_65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

RECORDS_EACH = 100
"""Of a transaction."""
TRANSACTIONS = 50 if QUICK else 300
SIZE_BYTES = 1_000
READ_BYTES = 20_000_000 if QUICK else 100_000_000
OPEN_TRANSACTIONS = 1_000 if QUICK else 10_000
TIMEOUT_SECONDS = 60
TRANSACTION_KEY_TYPE = 1


# A copy loop.


def copy(target: Target, source: str, sink: str, run: int) -> tuple[float, list[float]]:
    """Records a second, and the seconds of each transaction: from its beginning to the answer of its commit."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": f"copy-{run}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": f"copy-{run}", "linger.ms": 1}
    )
    took: list[float] = []
    try:
        producer.init_transactions(TIMEOUT_SECONDS)
        consumer.subscribe([source])
        batch = consumer.consume(RECORDS_EACH, TIMEOUT_SECONDS)
        started = time.perf_counter()
        for number in range(TRANSACTIONS):
            began = time.perf_counter()
            producer.begin_transaction()
            for message in batch:
                assert message.error() is None, message.error()
                producer.produce(sink, message.value(), partition=message.partition() or 0)
            positions = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
            producer.commit_transaction(TIMEOUT_SECONDS)
            took.append(time.perf_counter() - began)
            if number + 1 < TRANSACTIONS:
                batch = consumer.consume(RECORDS_EACH, TIMEOUT_SECONDS)
                assert len(batch) == RECORDS_EACH, f"{len(batch)} records came within {TIMEOUT_SECONDS} s"
        return TRANSACTIONS * RECORDS_EACH / (time.perf_counter() - started), took
    finally:
        consumer.close()


def measure_copy(targets: list[Target]) -> None:
    count = TRANSACTIONS * RECORDS_EACH
    runs = iter(range(1_000))
    with topic_on(targets, "copied-from", 4) as source, topic_on(targets, "copied-to", 4) as sink:
        for target in targets:
            produce(target, source, values_of(SIZE_BYTES, 10_000), count=max(count, 10_000), partitions=4,
                    compression="none")  # fmt: skip

        def run(target: Target) -> tuple[float, list[float], float]:
            before = cpu_seconds(target.pid)
            rate, took = copy(target, source, sink, next(runs))
            return rate, took, (cpu_seconds(target.pid) - before) * 1e6 / count

        results = in_turns(targets, run)
    node, peer = results["node"], results["peer"]
    say(f"copy: {[round(rate) for rate, _, _ in node]} beside {[round(rate) for rate, _, _ in peer]}")
    name = f"transactional copy, librdkafka, 1 KB records, {RECORDS_EACH} a transaction"
    pairs: list[tuple[str, str, Callable[[tuple[float, list[float], float]], float], dict[str, float]]] = [
        ("", "records/s", lambda ran: ran[0], {"at_least": 1.0}),
        (": a transaction, p50", "ms", lambda ran: at(ran[1], 0.5) * 1e3, {"at_most": 1.0}),
        (": a transaction, p99", "ms", lambda ran: at(ran[1], 0.99) * 1e3, {"at_most": 1.0}),
        (": CPU of the broker", "CPU-s/million records", lambda ran: ran[2], {"at_most": 0.7}),
    ]
    for what, unit, value, wanted in pairs:
        figure(
            f"{name}{what}",
            median([value(ran) for ran in node]),
            unit,
            peer=PEER,
            peer_value=median([value(ran) for ran in peer]),
            of_ratio=True,
            **wanted,  # type: ignore[arg-type]  # at_least or at_most
        )


def at(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


# What read_committed costs.


def read(target: Target, topic: str, isolation_level: str, count: int) -> float:
    """Records per second, from the first that came to the last."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "read",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 10,
            "check.crcs": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first = consumer.consume(1, timeout=TIMEOUT_SECONDS)
        assert first, f"nothing came within {TIMEOUT_SECONDS} s"
        started, found = time.perf_counter(), 1
        while found < count:
            messages = consumer.consume(min(10_000, count - found), timeout=TIMEOUT_SECONDS)
            assert messages, f"{found} of {count} records came"
            found += len(messages)
        return count / (time.perf_counter() - started)
    finally:
        consumer.close()


def measure_isolation(targets: list[Target]) -> None:
    """One transaction in ten is aborted; who reads what is uncommitted reads those as well."""
    count = READ_BYTES // SIZE_BYTES
    with topic_on(targets, "isolated", 1) as topic:
        for target in targets:
            write_in_transactions(target, topic, count)
        rates = {
            level: in_turns(targets, lambda target: read(target, topic, level, count))  # noqa: B023 - run at once
            for level in ("read_uncommitted", "read_committed")
        }
    ratios = {
        target.name: median(rates["read_committed"][target.name]) / median(rates["read_uncommitted"][target.name])
        for target in targets
    }
    for level, found in rates.items():
        say(f"{level}: {[round(rate) for rate in found['node']]} beside {[round(rate) for rate in found['peer']]}")
    figure(
        "read_committed as a share of read_uncommitted, 1 KB records, 100 a transaction, 1 in 10 aborted",
        ratios["node"],
        "of its rate",
        peer=PEER,
        peer_value=ratios["peer"],
        at_least=0.95,
    )
    figure(
        "consume with read_committed, librdkafka, 1 KB records",
        median(rates["read_committed"]["node"]),
        "records/s",
        peer=PEER,
        peer_value=median(rates["read_committed"]["peer"]),
        at_least=1.0,
        of_ratio=True,
    )


def write_in_transactions(target: Target, topic: str, count: int) -> None:
    """So many records that are committed, and a ninth of that which are not."""
    values = values_of(SIZE_BYTES, RECORDS_EACH)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": "writes", "linger.ms": 5}
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    written = number = 0
    while written < count:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=0)
        number += 1
        if number % 10 == 0:
            producer.flush(TIMEOUT_SECONDS)
            producer.abort_transaction(TIMEOUT_SECONDS)
        else:
            producer.commit_transaction(TIMEOUT_SECONDS)
            written += RECORDS_EACH


# Many open transactions.


def measure_open() -> None:
    """How long a node takes to serve every one of them again after a clean stop."""
    ids = [f"open-{number}" for number in range(OPEN_TRANSACTIONS)]
    with new_node({}) as node:
        with WireClient(node.port, timeout_seconds=TIMEOUT_SECONDS) as client:
            client.create_topic("open")
            begin_all(client, ids)
        node.stop()
        started = time.perf_counter()
        node.start()
        ready = time.perf_counter()
        with WireClient(node.port, timeout_seconds=TIMEOUT_SECONDS) as client:
            wait_for_all(client, ids)
        served = time.perf_counter()
    say(f"ready after {ready - started:.3f} s, all described after {served - started:.3f} s")
    figure(f"{OPEN_TRANSACTIONS:,} open transactions: all served, after `ready`", served - ready, "s", at_most=1.0)


def begin_all(client: WireClient, ids: list[str]) -> None:
    """A transaction of each id, with a partition in it."""
    find = FindCoordinatorRequest(key=ids[0], key_type=TRANSACTION_KEY_TYPE)
    while client.ask(ApiKey.FIND_COORDINATOR, 2, find, FindCoordinatorResponse).error_code:
        time.sleep(0.05)  # its topic is being made
    for transactional_id in ids:
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
        while (made := client.ask(ApiKey.INIT_PRODUCER_ID, 4, init, InitProducerIdResponse)).error_code:
            time.sleep(0.01)
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="open", partitions=[0])],
        )
        added = client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add, AddPartitionsToTxnResponse)
        codes = [one.partition_error_code for row in added.results_by_topic_v3_and_below
                 for one in row.results_by_partition]  # fmt: skip
        assert codes == [0], added


def wait_for_all(client: WireClient, ids: list[str]) -> None:
    """Until each is described as ongoing."""
    left = ids
    while left:
        rows = []
        for start in range(0, len(left), 1_000):
            request = DescribeTransactionsRequest(transactional_ids=left[start : start + 1_000])
            answer = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request, DescribeTransactionsResponse)
            rows += answer.transaction_states
        left = [row.transactional_id for row in rows if row.transaction_state != "Ongoing"]


def main() -> None:
    only = next((arguments for flag, arguments in zip(sys.argv, sys.argv[1:], strict=False) if flag == "--only"), None)
    chosen = ("copy", "isolation", "open") if only is None else only.split(",")
    need_kafka()
    if "open" in chosen:
        measure_open()
    if "copy" in chosen or "isolation" in chosen:
        with both_brokers() as targets:
            if "copy" in chosen:
                measure_copy(targets)
            if "isolation" in chosen:
                measure_isolation(targets)


if __name__ == "__main__":
    main()
