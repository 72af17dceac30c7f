"""Compaction beside Apache Kafka's cleaner: how fast a log of many keys, each written ten times, is cleaned.

The log is written with `cleanup.policy=delete`. The time runs from the moment when that becomes `compact` until the
files stop to shrink; both cleaners look every 100 ms, with one thread.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import confluent_kafka
from beside_kafka import QUICK, Target, both_brokers, compare, need_kafka, topic_on, values_of
from harness import WireClient

from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import ConfigResource
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

RECORDS = 40_000 if QUICK else 200_000
KEYS = RECORDS // 10
VALUE_BYTES = 1_000
SEGMENT_BYTES = 16 << 20
LEFT_MAX = 0.35
"""Of the bytes: a tenth of the records, and the active segment, which is not cleaned."""
QUIET_SECONDS = 1.0
SECONDS_MAX = 120.0
CLEANERS = {"log.cleaner.backoff.ms": "100"}


def fill(target: Target, topic: str) -> None:
    """Write the log: values that compress, uncompressed, of keys in random order."""
    dice, values = random.Random(7), values_of(VALUE_BYTES, 1_000)
    producer = confluent_kafka.Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 20, "batch.size": 200_000})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], b"key-%d" % dice.randrange(KEYS), partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


def directory(target: Target, topic: str) -> Path:
    with WireClient(target.port) as client:
        answer = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
    return Path(answer.results[0].log_dir) / f"{topic}-0"


def size_bytes(log: Path) -> int:
    """Of the segments that count."""
    total = 0
    for path in log.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:  # it was cleaned meanwhile
            continue
    return total


def clean(target: Target) -> float:
    """Bytes cleaned in a second, in MB."""
    topic = f"compaction-{time.monotonic_ns()}"
    with topic_on([target], topic, 1, segment_bytes=str(SEGMENT_BYTES)):
        fill(target, topic)
        log = directory(target, topic)
        before = last = size_bytes(log)
        with Admin(target.bootstrap) as admin:
            settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
            admin.alter_configs({ConfigResource("topic", topic): settings})
            began = changed = time.monotonic()
            while last > LEFT_MAX * before or time.monotonic() < changed + QUIET_SECONDS:
                assert time.monotonic() < began + SECONDS_MAX, f"{target.name}: {last:,} of {before:,} bytes are left"
                time.sleep(0.01)
                size = size_bytes(log)
                if size != last:
                    last, changed = size, time.monotonic()
        return before / 1e6 / (changed - began)


def main() -> None:
    need_kafka()
    with both_brokers(CLEANERS) as targets:
        megabytes = RECORDS * VALUE_BYTES / 1e6
        compare("compaction", "MB", targets, clean, count=round(megabytes), at_least=1.0)


if __name__ == "__main__":
    main()
