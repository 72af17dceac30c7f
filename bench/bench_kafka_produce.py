"""Producing beside Apache Kafka: librdkafka and Java's performance tool, two sizes of records, acks=1.

What limits on two cores is mostly the client: the ratio of the CPU tells more about the brokers than that of the rates.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping

import confluent_kafka
from beside_kafka import QUICK, HasBootstrap, Target, both_brokers, compare, need_kafka, topic_on, values_of

from support.clients.kafka_peer import java_command

BYTES_A_RUN = 50_000_000 if QUICK else 200_000_000
QUEUED_MAX = 200_000
PERFORMANCE_FLAGS = ["-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]  # as Kafka's script starts it


def produce(
    target: HasBootstrap,
    topic: str,
    values: list[bytes],
    *,
    count: int,
    partitions: int,
    compression: str,
    acks: int | str = 1,
    security: Mapping[str, str] | None = None,
) -> float:
    """Records per second, from the first that librdkafka is given to the last acknowledgement.

    Args:
        security: librdkafka's settings for a listener that asks for more than PLAINTEXT.
    """
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "acks": acks,
            "linger.ms": 5,
            "compression.type": compression,
            "queue.buffering.max.messages": 2 * QUEUED_MAX,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            **(security or {}),
        }
    )
    producer.list_topics(topic, timeout=10)  # connected, and the topic known
    chunk = [{"value": value} for value in values]
    partition = 0 if partitions == 1 else -1
    started = time.perf_counter()
    for _ in range(count // len(chunk)):
        queued = producer.produce_batch(topic, chunk, partition, on_delivery=lambda error, _: failures.append(error))
        assert queued == len(chunk)
        while len(producer) > QUEUED_MAX:
            producer.poll(0.005)
    left = producer.flush(60)
    seconds = time.perf_counter() - started
    assert not failures, failures[:3]
    assert left == 0
    return count / seconds


def produce_with_java(target: Target, topic: str, size_bytes: int, count: int, compression: str) -> float:
    """What the tool says of itself; the start of its JVM is not in it."""
    arguments = ["org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", target.bootstrap]
    arguments += ["--topic", topic, "--num-records", str(count), "--record-size", str(size_bytes), "--throughput", "-1"]
    arguments += ["--command-property", "acks=1", "--command-property", f"compression.type={compression}"]
    ran = subprocess.run(
        java_command(arguments, flags=PERFORMANCE_FLAGS), capture_output=True, check=True, text=True, timeout=120
    )
    last = ran.stdout.splitlines()[-1]
    found = re.match(rf"{count} records sent, ([\d.]+) records/sec", last)
    assert found is not None, ran
    return float(found[1])


def measure(targets: list[Target], size_bytes: int, partitions: int, compression: str) -> None:
    values = values_of(size_bytes, 10_000)
    count = BYTES_A_RUN // size_bytes
    size = "1 KB" if size_bytes == 1_000 else f"{size_bytes}-byte"
    case = f"{size} records, {partitions} partition{'s' * (partitions > 1)}, {compression}"

    def with_librdkafka(target: Target) -> float:
        return produce(target, topic, values, count=count, partitions=partitions, compression=compression)

    def with_java(target: Target) -> float:
        return produce_with_java(target, topic, size_bytes, count, compression)

    with topic_on(targets, f"produce-{size_bytes}-{partitions}-{compression}", partitions) as topic:
        for client, run in (("librdkafka", with_librdkafka), ("Java", with_java)):
            compare(f"produce, {client}, {case}", "records", targets, run, count=count, at_least=1.0)


def main() -> None:
    need_kafka()
    with both_brokers() as targets:
        for size_bytes in (100, 1_000):
            for partitions in (1, 12):
                for compression in ("none", "lz4"):
                    measure(targets, size_bytes, partitions, compression)


if __name__ == "__main__":
    main()
