"""A table that heals: a topic into it; local[2], 100-byte values. `bench_spark_audit.py` measures its audit.

The peer of the writing hands the same batch to the driver, which writes it with `write_deltalake`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import write_deltalake
from harness import LONG, figure, median, new_node, say

from tidelog import Admin, NewTopic, Producer
from tidelog.spark import audit, healing_writer
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.table_audit import Derive

TOPIC = "bench"
PARTITIONS = 4
ROWS = 8_000_000 if LONG else 2_000_000
BATCH_ROWS = 10_000
ROUNDS = 5 if LONG else 3
SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS text FROM records"
"""The same as `derive`."""


def fill(bootstrap: str) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"%0100d" % number for number in range(BATCH_ROWS)])})
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    with Producer(bootstrap, batch_size=900_000, max_request_size=1_000_000) as producer:
        for number in range(ROWS // BATCH_ROWS):
            producer.send_arrow(TOPIC, rows, partition=number % PARTITIONS)


def derive(records: DataFrame) -> DataFrame:
    return records.selectExpr("topic", "partition", "offset", "leaderEpoch", "cast(value as string) as text")


class Pipeline:
    """A query of one batch, each time into a table of its own, which is timed within `foreachBatch`."""

    def __init__(self, spark: SparkSession, bootstrap: str, folder: Path) -> None:
        self.spark = spark
        self.source = {"kafka.bootstrap.servers": bootstrap}
        self.folder = folder

    def run(self, name: str, write: Any) -> float:
        """Rows per second."""
        took: list[float] = []

        def timed(batch: DataFrame, batch_id: int) -> None:
            began = time.perf_counter()
            write(batch, batch_id)
            took.append(time.perf_counter() - began)

        records = self.spark.readStream.format("tidelog").options(**self.source, subscribe=TOPIC)
        frame = records.options(startingOffsets="earliest", includeLeaderEpoch="true").load()
        query = derive(frame).writeStream.foreachBatch(timed).option("checkpointLocation", self.checkpoint(name))
        query.trigger(availableNow=True).start().awaitTermination()
        return ROWS / took[0]

    def checkpoint(self, name: str) -> str:
        return str(self.folder / f"{name}-checkpoint")

    def table(self, name: str) -> str:
        return str(self.folder / name)

    def heal(self, name: str) -> float:
        return self.run(name, healing_writer(self.table(name), self.checkpoint(name)))

    def collect(self, name: str) -> float:
        return self.run(name, lambda batch, _: write_deltalake(self.table(name), batch.toArrow()))

    def audit(self, name: str, how: Derive) -> float:
        """Records per second."""
        began = time.perf_counter()
        report = audit(self.spark, self.table(name), self.checkpoint(name), how, self.source)
        took = time.perf_counter() - began
        if (report.matching, report.differences) != (ROWS, 0):
            raise AssertionError(report)
        return ROWS / took


def main() -> None:
    with new_node() as node, tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        say(f"writing {ROWS:,} records ...")
        fill(node.bootstrap)
        say("starting Spark ...")
        spark = local_session("bench", cores=2, heap="2g", settings={"spark.log.level": "ERROR"})
        try:
            pipeline = Pipeline(spark, node.bootstrap, Path(folder))
            pipeline.heal("warm")
            ours, collected = [], []
            for number in range(ROUNDS):
                ours.append(pipeline.heal(f"ours-{number}"))
                collected.append(pipeline.collect(f"collected-{number}"))
                say(
                    f"round {number + 1}: written {ours[-1] / 1e6:.2f} M rows/s, through the driver "
                    f"{collected[-1] / 1e6:.2f} M"
                )
        finally:
            spark.stop()
    figure(
        "spark_healing_write",
        median(ours),
        "rows/s",
        peer="write_deltalake in the driver",
        peer_value=median(collected),
    )


if __name__ == "__main__":
    main()
