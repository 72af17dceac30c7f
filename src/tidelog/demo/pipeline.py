"""The pipeline itself, in Spark's own words: flights into the topic, and delays by carrier and day out of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.base.errors import TidelogError
from tidelog.demo.flights import SCHEMA, Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TOPIC = "flights"
PARTITIONS = 4
CONFIGS = {"retention.ms": "-1"}
"""The flights bear the time of their departure, in 2013: by default they would be deleted within five minutes."""
RECORDS_PER_TRIGGER = 24_000
PROGRESS_PAUSE_SECONDS = 0.1


class PipelineFailedError(TidelogError):
    """The streaming query ended, again and again, or stood still. Carries Spark's last words."""


def write_flights(spark: SparkSession, csv_path: Path, bootstrap: str) -> None:
    """Write the file into the topic: by scheduled departure, then carrier and flight; a carrier to one partition."""
    from pyspark.sql import functions as f

    flights = spark.read.csv(str(csv_path), header=True, schema=SCHEMA, nullValue="NA")
    departure = f.make_timestamp("year", "month", "day", "hour", "minute", f.lit(0), f.lit("America/New_York"))
    rows = flights.select(
        f.col("carrier").alias("key"),
        f.to_json(f.struct(*flights.columns)).alias("value"),
        departure.alias("timestamp"),
        "carrier",
        "flight",
    )
    # One task, since several would each write in order, but in turns.
    ordered = rows.repartition(1).sortWithinPartitions("timestamp", "carrier", "flight")
    (
        ordered.select("key", "value", "timestamp")
        .write.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", TOPIC)
        .option("useTimestamp", "true")
        .mode("append")
        .save()
    )


def delays(spark: SparkSession, bootstrap: str) -> DataFrame:
    """The stream of flights, counted and summed by carrier and day."""
    from pyspark.sql import functions as f

    records = (
        spark.readStream.format("tidelog")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_TRIGGER)
        .schema("value binary")
        .load()
    )
    flights = records.select(f.from_json(f.col("value").cast("string"), SCHEMA).alias("flight")).select("flight.*")
    identity = f.concat_ws("|", "time_hour", "carrier", f.col("flight").cast("string"))
    return flights.groupBy("carrier", f.make_date("year", "month", "day").cast("string").alias("day")).agg(
        f.count(f.lit(1)).alias("flights"),
        f.count("dep_delay").alias("departed"),
        f.coalesce(f.sum("dep_delay"), f.lit(0)).alias("departure_delay"),
        f.count("arr_delay").alias("arrived"),
        f.coalesce(f.sum("arr_delay"), f.lit(0)).alias("arrival_delay"),
        f.sum(f.crc32(identity.cast("binary"))).alias("identities"),
    )


class DelaysQuery:
    """The streaming query, which writes the groups that each batch changed to `results/batch=<id>/`.

    A batch that runs again overwrites its folder; the latest batch of a group counts. It lives through outages of
    nodes; should it fail nevertheless, it is started again from its checkpoint, and that is counted.

    Args:
        spark: the session.
        bootstrap: of the nodes.
        results: the folder of the results.
        checkpoint: Spark's.
    """

    RESTARTS_MAX = 5

    planning_seconds_max: float = 0.0
    """The longest that a batch waited for what the cluster says of offsets and leaders, before Spark could begin it."""

    def __init__(self, spark: SparkSession, bootstrap: str, results: Path, checkpoint: Path) -> None:
        self.restarts = 0
        self.records = 0
        self._spark = spark
        self._bootstrap = bootstrap
        self._results = results
        self._checkpoint = checkpoint
        self._query: StreamingQuery | None = None
        self._counted: dict[int, int] = {}

    def start(self) -> None:
        self._query = (
            delays(self._spark, self._bootstrap)
            .writeStream.outputMode("update")
            .foreachBatch(self._write_batch)
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("delays")
            .start()
        )

    def _write_batch(self, groups: DataFrame, batch_id: int) -> None:
        groups.coalesce(1).write.mode("overwrite").parquet(str(self._results / f"batch={batch_id}"))

    def run_until(self, records: int, *, seconds_max: float, on_progress: Callable[[int], None]) -> None:
        """Return when so many records went through.

        Raises:
            PipelineFailedError: nothing went through for `seconds_max`, or the query failed too often.
        """
        deadline = time.monotonic() + seconds_max
        while self.records < records:
            self._restart_if_it_failed()
            if self._take_progress():
                deadline = time.monotonic() + seconds_max
                on_progress(self.records)
            elif time.monotonic() > deadline:
                raise PipelineFailedError(f"the query stood still at {self.records} records for {seconds_max:.0f} s")
            else:
                time.sleep(PROGRESS_PAUSE_SECONDS)

    def _take_progress(self) -> bool:
        assert self._query is not None
        for progress in self._query.recentProgress:
            if progress["numInputRows"]:
                # A batch that ran twice counts once.
                self._counted[progress["batchId"]] = progress["numInputRows"]
            planning_ms = progress["durationMs"].get("latestOffset", 0)
            self.planning_seconds_max = max(self.planning_seconds_max, planning_ms / 1000)
        before, self.records = self.records, sum(self._counted.values())
        return self.records > before

    def _restart_if_it_failed(self) -> None:
        assert self._query is not None
        if self._query.isActive:
            return
        error = self._query.exception()
        if self.restarts >= self.RESTARTS_MAX:
            raise PipelineFailedError(f"the query failed {self.restarts + 1} times, the last time with: {error}")
        self.restarts += 1
        self._take_progress()
        self.start()

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def books(self) -> dict[tuple[str, str], Totals]:
        """What the results say: of each carrier and day, what the latest batch wrote."""
        import pyarrow.parquet as pq

        books: dict[tuple[str, str], Totals] = {}
        folders = {int(path.name.removeprefix("batch=")): path for path in self._results.glob("batch=*")}
        for _, folder in sorted(folders.items()):
            for file in sorted(folder.glob("*.parquet")):
                for row in pq.ParquetFile(file).read().to_pylist():
                    key = row["carrier"], row["day"]
                    books[key] = Totals(*(row[name] for name in Totals._fields))
        return books
