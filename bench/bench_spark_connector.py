"""The source and the sink beside Spark's own Kafka connector, in one Spark, on one node.

Batch reads and writes take turns, ours and theirs, with the noop sink and with rows that Spark makes; 100-byte values,
8-byte keys. Then the exactly-once sink beside our own at-least-once one; a query of AvailableNow, its start included;
and queries that run while a producer writes 20 records a second.

python bench/bench_spark_connector.py [--quick | --long] [--cores=2]
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from harness import LONG, figure, median, new_node, say, skip

from support.clients.kafka_peer import SPARK_JARS, missing_peers
from tidelog import Admin, NewTopic, Producer
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUICK = "--quick" in sys.argv[1:]
CORES = next((int(argument[8:]) for argument in sys.argv[1:] if argument.startswith("--cores=")), 1)
TOPIC = "bench"
ROWS = 300_000 if QUICK else 6_000_000 if LONG else 3_000_000
WRITTEN_ROWS = 50_000 if QUICK else 500_000
FEW_ROWS = 1_000
ROUNDS = 1 if QUICK else 7 if LONG else 3
BATCH_ROWS = 10_000
TRICKLE_SECONDS = 5 if QUICK else 30
TRICKLE_PER_SECOND = 20
CONNECTOR = "Spark's Kafka connector"
FORMATS = ("tidelog", "kafka")
_numbers = count()


class Bench:
    """A Spark, a node, and what runs between them."""

    def __init__(self, spark: SparkSession, bootstrap: str, directory: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.directory = directory

    def new_topic(self) -> str:
        name = f"bench-{next(_numbers)}"
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, num_partitions=CORES, replication_factor=1)])
        return name

    def checkpoint(self) -> str:
        return str(self.directory / f"checkpoint-{next(_numbers)}")

    def read(self, kind: str, *, projected: bool = False, **options: str) -> DataFrame:
        frame = self.spark.read.format(kind).options(**options, subscribe=TOPIC)
        frame = frame.option("kafka.bootstrap.servers", self.bootstrap)
        if projected and kind == "tidelog":
            return frame.schema("key binary, value binary").load()
        return frame.load().select("key", "value") if projected else frame.load()

    def write(self, kind: str, rows: int, **options: str) -> float:
        """Seconds that a batch write takes."""
        made = self.spark.range(0, rows, 1, CORES).selectExpr("cast(id as string) as key", "repeat('v', 100) as value")
        given = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.new_topic(), **options}
        return seconds(lambda: made.write.format(kind).mode("append").options(**given).save())

    def available_now(self, kind: str) -> float:
        """Seconds that a query takes to read the topic, from its start to its end."""

        def run() -> None:
            given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": TOPIC, "startingOffsets": "earliest"}
            rows = self.spark.readStream.format(kind).options(**given).load()
            query = rows.writeStream.format("noop").option("checkpointLocation", self.checkpoint())
            query.trigger(availableNow=True).start().awaitTermination()

        return seconds(run)

    def trickle(self, kind: str) -> tuple[list[float], list[float]]:
        """What micro-batches take, in ms, while few records come; and records, from when they were sent until seen."""
        topic = self.new_topic()
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
        rows = self.spark.readStream.format(kind).options(**given).load()
        seen: list[float] = []

        def keep(frame: DataFrame, _: int) -> None:
            sent = [float(row[0]) for row in frame.selectExpr("cast(value as string)").collect()]
            now = time.time()
            seen.extend((now - at) * 1e3 for at in sent)

        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", self.checkpoint()).start()
        with Producer(self.bootstrap, linger_ms=0) as producer:
            producer.send(topic, str(time.time()))
            query.processAllAvailable()
            ends_at = time.time() + TRICKLE_SECONDS
            while time.time() < ends_at:
                producer.send(topic, str(time.time()))
                time.sleep(1 / TRICKLE_PER_SECOND)
        query.processAllAvailable()
        batches = [
            float(progress["durationMs"]["triggerExecution"])
            for progress in (dict(one) for one in query.recentProgress)
            if progress["numInputRows"]
        ]
        query.stop()
        # The first batches find everything cold, with both.
        return sorted(batches[len(batches) // 5 :]), sorted(seen[len(seen) // 5 :])


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fill(bootstrap: str) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"%08d" % number for number in range(BATCH_ROWS)], pa.binary()),
            "value": pa.array([b"v" * 100] * BATCH_ROWS, pa.binary()),
        }
    )
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=CORES, replication_factor=1)])
    with Producer(bootstrap, batch_size=900_000, max_request_size=1_000_000) as producer:
        for number in range(ROWS // BATCH_ROWS):
            producer.send_arrow(TOPIC, rows, partition=number % CORES)


def in_turns(of: Callable[[str], float]) -> tuple[float, float]:
    """The medians of ours and theirs, of which each goes first in turn; the first round warms up."""
    found: dict[str, list[float]] = {kind: [] for kind in FORMATS}
    for number in range(ROUNDS + 1):
        for kind in FORMATS if number % 2 else FORMATS[::-1]:
            value = of(kind)
            if number or QUICK:
                found[kind].append(value)
    return median(found["tidelog"]), median(found["kafka"])


def reads(bench: Bench) -> None:
    def noop(frame: DataFrame) -> float:
        return ROWS / seconds(lambda: frame.write.format("noop").mode("overwrite").save())

    for what, options, least in (
        ("all columns", {}, 3.5),
        ("with headers", {"includeHeaders": "true"}, 3.0),
        ("key and value", {"projected": True}, 4.0),
    ):
        ours, theirs = in_turns(lambda kind, given=options: noop(bench.read(kind, **given)))  # type: ignore[misc]
        name = f"Spark, local[{CORES}], batch read, {what}"
        figure(name, ours, "rows/s", peer=CONNECTOR, peer_value=theirs, at_least=least, of_ratio=True)


def writes(bench: Bench) -> None:
    ours, theirs = in_turns(lambda kind: WRITTEN_ROWS / bench.write(kind, WRITTEN_ROWS))
    name = f"Spark, local[{CORES}], batch write, at least once"
    figure(name, ours, "rows/s", peer=CONNECTOR, peer_value=theirs, at_least=2.5, of_ratio=True)
    for rows in (WRITTEN_ROWS, FEW_ROWS):
        plain, exact = [], []
        for _ in range(ROUNDS):
            plain.append(bench.write("tidelog", rows))
            number = str(next(_numbers))
            exact.append(bench.write("tidelog", rows, delivery="exactly-once", sinkId=f"bench-{number}", txnId=number))
        if rows == WRITTEN_ROWS:
            name = f"Spark, local[{CORES}], batch write, exactly once, {rows:,} rows"
            once = rows / median(plain)
            figure(
                name, rows / median(exact), "rows/s", peer="at least once", peer_value=once, at_least=0.8, of_ratio=True
            )
        else:
            cost_ms = (median(exact) - median(plain)) * 1e3
            figure(f"Spark, local[{CORES}], exactly once, what it adds to {rows:,} rows", cost_ms, "ms")


def streams(bench: Bench) -> None:
    ours, theirs = in_turns(lambda kind: ROWS / bench.available_now(kind))
    name = f"Spark, local[{CORES}], AvailableNow of {ROWS:,} records, start included"
    figure(name, ours, "rows/s", peer=CONNECTOR, peer_value=theirs, at_least=2.0, of_ratio=True)
    bench.trickle("tidelog")
    found = {kind: bench.trickle(kind) for kind in FORMATS}
    for index, what in ((0, "micro-batch"), (1, "from sent to foreachBatch")):
        for quantile, share, most in (("p50", 0.5, 1.0), ("p99", 0.99, 0.4 if index == 0 else None)):
            mine, other = (values[min(int(len(values) * share), len(values) - 1)] for values in
                           (found["tidelog"][index], found["kafka"][index]))  # fmt: skip
            name = f"Spark, {TRICKLE_PER_SECOND} records/s, {what}, {quantile}"
            figure(name, mine, "ms", peer=CONNECTOR, peer_value=other, at_most=most, of_ratio=most is not None)
    gaps = {kind: statistics.mean(values[0]) for kind, values in found.items()}
    say(f"micro-batches took {gaps} ms on average")


@contextmanager
def started() -> Iterator[Bench]:
    directory = Path(tempfile.mkdtemp(prefix="spark-bench-"))
    settings: dict[str, Any] = {
        "spark.log.level": "ERROR",
        "spark.jars": ",".join(str(jar) for jar in SPARK_JARS.glob("*.jar")),
    }
    spark = None
    try:
        with new_node() as node:
            say(f"writing {ROWS:,} records ...")
            fill(node.bootstrap)
            say("starting Spark ...")
            spark = local_session("bench", cores=CORES, heap="1g", settings=settings)
            yield Bench(spark, node.bootstrap, directory)
            spark.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    if (reason := missing_peers(jars=SPARK_JARS)) is not None:
        skip(reason)
    with started() as bench:
        for part in (reads, writes, streams):
            part(bench)


if __name__ == "__main__":
    main()
