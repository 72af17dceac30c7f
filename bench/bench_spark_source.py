"""Reading a topic with Spark, against Spark alone: the same query on Arrow batches that were there before it began.

100-byte values, 8-byte keys, all seven columns, local[1], the noop sink. The peer hands over one prepared batch of
10,000 rows again and again, so its rate is what Spark can take in, and the ratio what reading a log costs on top.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from harness import LONG, figure, median, new_node, say
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from tidelog import Admin, NewTopic, Producer
from tidelog.spark.columns import spark_schema
from tidelog.spark.rows import arrow_schema
from tidelog.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TOPIC = "bench"
ROWS = 12_000_000 if LONG else 4_000_000
ROUNDS = 9 if LONG else 5
BATCH_ROWS = 10_000
KEY_SIZE_BYTES, VALUE_SIZE_BYTES = 8, 100
RATIO_MIN = 0.6


class SyntheticReader(DataSourceReader):
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(ROWS // BATCH_ROWS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([b"k" * KEY_SIZE_BYTES] * BATCH_ROWS, pa.binary()),
                "value": pa.array([b"v" * VALUE_SIZE_BYTES] * BATCH_ROWS, pa.binary()),
                "topic": pa.array([TOPIC] * BATCH_ROWS),
                "partition": pa.array([0] * BATCH_ROWS, pa.int32()),
                "offset": pa.array(range(BATCH_ROWS), pa.int64()),
                "timestamp": pa.array([0] * BATCH_ROWS, pa.timestamp("us", tz="UTC")),
                "timestampType": pa.array([0] * BATCH_ROWS, pa.int32()),
            },
            schema=self.schema,
        )
        for _ in range(partition.value):
            yield batch


class SyntheticSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "synthetic"

    def schema(self) -> StructType:
        return spark_schema(include_headers=False)

    def reader(self, schema: StructType) -> SyntheticReader:
        return SyntheticReader(arrow_schema(schema))


def fill(bootstrap: str) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([b"%08d" % number for number in range(BATCH_ROWS)], pa.binary()),
            "value": pa.array([b"v" * VALUE_SIZE_BYTES] * BATCH_ROWS, pa.binary()),
        }
    )
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
    with Producer(bootstrap, batch_size=900_000, max_request_size=1_000_000) as producer:
        for _ in range(ROWS // BATCH_ROWS):
            producer.send_arrow(TOPIC, rows, partition=0)


def rows_per_second(frame: DataFrame) -> float:
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return ROWS / (time.perf_counter() - began)


def synthetic(spark: SparkSession) -> Any:
    return spark.read.format("synthetic").load()


def from_topic(spark: SparkSession, bootstrap: str) -> Any:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
    return spark.read.format("tidelog").options(**options).load()


def main() -> None:
    with new_node() as node:
        say(f"writing {ROWS:,} records ...")
        fill(node.bootstrap)
        say("starting Spark ...")
        spark = local_session("bench", heap="1g", settings={"spark.log.level": "ERROR"})
        spark.dataSource.register(SyntheticSource)
        try:
            if from_topic(spark, node.bootstrap).count() != ROWS:  # the first run warms up as well
                raise AssertionError("the source did not read all records")
            rows_per_second(synthetic(spark))
            ours, theirs = [], []
            for number in range(ROUNDS):
                theirs.append(rows_per_second(synthetic(spark)))
                ours.append(rows_per_second(from_topic(spark, node.bootstrap)))
                say(f"round {number + 1}: {ours[-1] / 1e6:.2f} M rows/s, synthetic {theirs[-1] / 1e6:.2f} M rows/s")
        finally:
            spark.stop()
    figure(
        "spark_source",
        median(ours),
        "rows/s",
        peer="the same query on prepared Arrow batches",
        peer_value=median(theirs),
        at_least=RATIO_MIN,
        of_ratio=True,
    )


if __name__ == "__main__":
    main()
