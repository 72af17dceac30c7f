"""Start and memory beside Apache Kafka: to the first answer, and what each holds idle and after gigabytes went through.

python bench/bench_kafka_start.py [--gigabytes 10]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench_kafka_produce import produce
from beside_kafka import CONFIG, PEER, QUICK, ROUNDS, Target, both_brokers, need_kafka, new_kafka, topic_on, values_of
from harness import UpProcess, figure, median, resident_bytes, resident_bytes_peak, say

GIGABYTES = float(sys.argv[sys.argv.index("--gigabytes") + 1]) if "--gigabytes" in sys.argv else 1 if QUICK else 10
RECORD_SIZE_BYTES = 1_000
PARTITIONS = 12
# What goes through does not stay: the disk would fill.
RETENTION = {"retention_bytes": "67108864", "segment_bytes": "16777216"}


def time_starts() -> None:
    """Both on directories that were used before, as an operator restarts them; each round by turns."""
    ours: list[float] = []
    theirs: list[float] = []
    directory = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
    node = UpProcess(directory / "data", config=CONFIG)
    try:
        with new_kafka() as kafka:
            for number in range(-1, ROUNDS):
                for broker, times in ((node, ours), (kafka, theirs)):
                    started = time.perf_counter()
                    broker.start()
                    seconds = time.perf_counter() - started
                    broker.stop()
                    if number >= 0:  # the first was on an empty directory
                        times.append(seconds * 1e3)
    finally:
        node.close()
        shutil.rmtree(directory, ignore_errors=True)
    say(f"start: {ours} beside {theirs}")
    figure(
        "start: to the first answer, ours with `tidelog up` above it",
        median(ours),
        "ms",
        peer=PEER,
        peer_value=median(theirs),
        at_most=0.25,
        of_ratio=True,
    )


def show_memory(when: str, targets: list[Target]) -> None:
    node, peer = targets
    for what, of in (("RSS", resident_bytes), ("peak RSS", resident_bytes_peak)):
        figure(
            f"{what} {when}",
            of(node.pid) / 1e6,
            "MB",
            peer=PEER,
            peer_value=of(peer.pid) / 1e6,
            at_most=0.25,
            of_ratio=True,
        )


def main() -> None:
    need_kafka()
    time_starts()
    values = values_of(RECORD_SIZE_BYTES, 10_000)
    count = int(GIGABYTES * 1e9 / RECORD_SIZE_BYTES) // len(values) * len(values)
    with both_brokers() as targets:
        show_memory("idle", targets)
        with topic_on(targets, "through", PARTITIONS, **RETENTION) as topic:
            for target in targets:
                rate = produce(target, topic, values, count=count, partitions=PARTITIONS, compression="none")
                say(f"{GIGABYTES:g} GB through {target.name}: {rate:,.0f} records/s")
            show_memory(f"after {GIGABYTES:g} GB", targets)


if __name__ == "__main__":
    main()
