"""Share groups beside Apache Kafka: Java's performance tool for share consumers, one member, implicit acknowledgement.

The time in which the member joins counts, as the tool measures it: it depends on the interval between heartbeats, which
is the same at both brokers.
"""

from __future__ import annotations

import subprocess
from itertools import count as numbers

from bench_kafka_produce import PERFORMANCE_FLAGS, produce
from beside_kafka import QUICK, Target, both_brokers, compare, need_kafka, topic_on, values_of

from support.clients.kafka_peer import java_command
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import ConfigResource

BYTES_A_RUN = 20_000_000 if QUICK else 200_000_000
INTERVALS = {"group.share.min.heartbeat.interval.ms": "500", "group.share.heartbeat.interval.ms": "500"}
GROUPS = numbers()


def share(target: Target, topic: str, count: int) -> float:
    """Records in a second."""
    group = f"share-{next(GROUPS)}"
    with Admin(target.bootstrap) as admin:
        admin.alter_configs({ConfigResource("group", group): {"share.auto.offset.reset": "earliest"}})
    arguments = ["org.apache.kafka.tools.ShareConsumerPerformance", "--bootstrap-server", target.bootstrap]
    arguments += ["--topic", topic, "--group", group, "--num-records", str(count), "--timeout", "60000"]
    command = java_command(arguments, flags=PERFORMANCE_FLAGS)
    ran = subprocess.run(command, capture_output=True, check=True, text=True, timeout=180)
    columns, values = (line.split(", ") for line in ran.stdout.splitlines()[-2:])
    found = dict(zip(columns, values, strict=True))
    assert int(found["data.consumed.in.nMsg"]) >= count, ran
    return float(found["nMsg.sec"])


def measure(targets: list[Target], size_bytes: int, partitions: int) -> None:
    values = values_of(size_bytes, 10_000)
    count = BYTES_A_RUN // size_bytes
    size = "1 KB" if size_bytes == 1_000 else f"{size_bytes}-byte"
    case = f"{size} records, {partitions} partition{'s' * (partitions > 1)}"
    with topic_on(targets, f"share-{size_bytes}-{partitions}", partitions) as topic:
        for target in targets:
            produce(target, topic, values, count=count, partitions=partitions, compression="none")
        compare(
            f"share group, Java, {case}",
            "records",
            targets,
            lambda target: share(target, topic, count),
            count=count,
            at_least=0.8,
        )


def main() -> None:
    need_kafka()
    with both_brokers(INTERVALS) as targets:
        for size_bytes in (100, 1_000):
            for partitions in (1, 12):
                measure(targets, size_bytes, partitions)


if __name__ == "__main__":
    main()
