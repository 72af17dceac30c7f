"""Consuming beside Apache Kafka: librdkafka with its partitions assigned, and Java's performance tool in a group.

What the busiest thread of librdkafka's process takes says how far the client limits the rate: at 100 % of a core no
broker could be faster.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Mapping

import confluent_kafka
from bench_kafka_produce import PERFORMANCE_FLAGS, produce
from beside_kafka import PEER, QUICK, Target, both_brokers, compare, need_kafka, topic_on, values_of
from harness import cpu_seconds_by_thread, figure, median

from support.clients.kafka_peer import java_command

BYTES_A_RUN = 50_000_000 if QUICK else 200_000_000

busiest_shares: defaultdict[str, list[float]] = defaultdict(list)
"""By target: what the busiest thread of the client took of a core, in each run."""


def consume(
    target: Target, topic: str, partitions: int, count: int, *, security: Mapping[str, str] | None = None
) -> float:
    """Records per second, from the first that came to the last. `security` is as that of `produce`."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "assigned",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 10,
            "check.crcs": False,
            **(security or {}),
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
        while not (first := consumer.consume(1, timeout=10)):
            raise AssertionError("nothing came within 10 s")
        assert first[0].error() is None, first[0].error()
        started, before = time.perf_counter(), cpu_seconds_by_thread(os.getpid())
        found, deadline = 1, time.monotonic() + 60
        while found < count:
            assert time.monotonic() < deadline, f"{found} of {count} records came within 60 s"
            found += len(consumer.consume(min(10_000, count - found), timeout=1.0))
        seconds = time.perf_counter() - started
        used = cpu_seconds_by_thread(os.getpid()).items()
        busiest_shares[target.name].append(max(cpu - before.get(thread, 0.0) for thread, cpu in used) / seconds)
        return count / seconds
    finally:
        consumer.close()


def consume_with_java(target: Target, topic: str, count: int) -> float:
    """What the tool says of itself without the time in which it joined its group."""
    arguments = ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", target.bootstrap, "--topic", topic]
    arguments += ["--num-records", str(count), "--timeout", "20000"]
    command = java_command(arguments, flags=PERFORMANCE_FLAGS)
    ran = subprocess.run(command, capture_output=True, check=True, text=True, timeout=120)
    columns, values = (line.split(", ") for line in ran.stdout.splitlines()[-2:])
    found = dict(zip(columns, values, strict=True))
    assert int(found["data.consumed.in.nMsg"]) >= count, ran
    return float(found["fetch.nMsg.sec"])


def measure(targets: list[Target], size_bytes: int, partitions: int, compression: str) -> None:
    values = values_of(size_bytes, 10_000)
    count = BYTES_A_RUN // size_bytes
    size = "1 KB" if size_bytes == 1_000 else f"{size_bytes}-byte"
    case = f"{size} records, {partitions} partition{'s' * (partitions > 1)}, {compression}"
    with topic_on(targets, f"consume-{size_bytes}-{partitions}-{compression}", partitions) as topic:
        for target in targets:
            produce(target, topic, values, count=count, partitions=partitions, compression=compression)
        busiest_shares.clear()
        for client, run in (
            ("librdkafka", lambda target: consume(target, topic, partitions, count)),
            ("Java", lambda target: consume_with_java(target, topic, count)),
        ):
            compare(f"consume, {client}, {case}", "records", targets, run, count=count, at_least=1.0)
        figure(
            f"consume, librdkafka, {case}: the busiest thread of the client",
            median(busiest_shares["node"]) * 100,
            "% of a core",
            peer=PEER,
            peer_value=median(busiest_shares["peer"]) * 100,
        )


def main() -> None:
    need_kafka()
    with both_brokers() as targets:
        for size_bytes in (100, 1_000):
            for partitions, compression in ((1, "none"), (12, "none"), (1, "lz4")):
                measure(targets, size_bytes, partitions, compression)


if __name__ == "__main__":
    main()
