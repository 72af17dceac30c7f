"""A query whose processes die between the plan of a micro-batch, the write-ahead log, the ranges and the reading.

What comes meanwhile, or is lost meanwhile, must not make the batch that runs again another one than it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewTestTopic, Topic, lose_records
from tidelog import Consumer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = {
    "the end is planned": False,
    "the end is in the write-ahead log": True,
    "the ranges are planned": True,
    "a task begins to read": True,
    "a task has read": True,
}
"""Of each step, whether Spark has written down by then where the batch ends."""


def dying_reader(step: Path) -> type[Any]:
    """The format `dyingreader`: as `tidelog`, but a process of Spark dies at the step that a file names, once.

    The classes are made in a function, so that Spark sends them to its processes as they are.
    """
    from tidelog.spark.readers import StreamReader
    from tidelog.spark.source import TidelogSource

    def die_at(name: str) -> None:
        import os

        if step.exists() and step.read_text() == name:
            step.unlink(missing_ok=True)
            os._exit(1)

    class DyingReader(StreamReader):
        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            end = super().latestOffset(start, limit)
            if end != start:
                die_at("the end is planned")
            return end

        def partitions(self, start: Any, end: Any) -> Any:
            die_at("the end is in the write-ahead log")
            found = super().partitions(start, end)
            die_at("the ranges are planned")
            return found

        def read(self, partition: Any) -> Any:
            die_at("a task begins to read")
            yield from super().read(partition)
            die_at("a task has read")

    class DyingSource(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "dyingreader"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            return DyingReader(self.options, schema)

    return DyingSource


def killed(run: Callable[[], None], step: Path, name: str, checkpoint: Path) -> None:
    """Run until the process dies where `name` says, and nowhere else."""
    planned = len(list(checkpoint.glob("offsets/[0-9]*")))
    step.write_text(name)
    with pytest.raises(Exception, match="STREAM_FAILED"):
        run()
    assert not step.exists(), f"nothing died when {name}"
    assert len(list(checkpoint.glob("offsets/[0-9]*"))) == planned + STEPS[name], name
    assert len(list(checkpoint.glob("commits/[0-9]*"))) == planned, name


def records_of(topic: Topic, **options: Any) -> list[Any]:
    partitions = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    with Consumer(topic.node.bootstrap, auto_offset_reset="none", **options) as consumer:
        consumer.assign(partitions, start="earliest")
        return list(consumer.until_end())


def ended(stream: Any, checkpoint: Path) -> None:
    query = stream.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


@pytest.mark.timeout(900)
def test_every_row_is_copied_once_wherever_the_reading_dies(
    spark: SparkSession, new_topic: NewTestTopic, tmp_path: Path
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    step, checkpoint = tmp_path / "step", tmp_path / "copy"
    spark.dataSource.register(dying_reader(step))

    def copy() -> None:
        options = {**source.options, "startingOffsets": "earliest"}
        rows = spark.readStream.format("dyingreader").options(**options).load().select("key", "value")
        sink = rows.writeStream.format("tidelog").options(**target.sink_options, sinkId=target.name)
        ended(sink.option("delivery", "exactly-once"), checkpoint)

    expected: list[str] = []
    for number, name in enumerate(STEPS):
        values = [f"{number}-{row}" for row in range(6)]
        source.send(*values[:2])
        source.send(*values[2:4], partition=1)
        killed(copy, step, name, checkpoint)
        source.send(*values[4:])  # in the batch that was not written down yet, else in the next
        copy()
        expected += values
        committed = records_of(target, isolation_level="read_committed")
        assert sorted((record.value or b"").decode() for record in committed) == sorted(expected), name


@pytest.mark.timeout(900)
def test_a_table_is_exact_where_the_log_is_truncated_after_the_reading_died(
    spark: SparkSession, node: NodeProcess, new_topic: NewTestTopic, tmp_path: Path
) -> None:
    pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")
    from tidelog.spark import audit, healing_writer, read_table

    topic, sent = new_topic(node=node), 0
    step, checkpoint, table = tmp_path / "step", tmp_path / "checkpoint", str(tmp_path / "table")
    spark.dataSource.register(dying_reader(step))
    sql = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS name FROM records"

    def send(count: int) -> int:
        """In a batch of its own. Returns how many were sent before."""
        nonlocal sent
        before, sent = sent, sent + count
        topic.send(*map(str, range(before, sent)))
        return before

    def write() -> None:
        options = {**topic.options, "startingOffsets": "earliest", "onTruncation": "rewind"}
        reader = spark.readStream.format("dyingreader").options(**options, includeLeaderEpoch="true")
        reader.option("checkpoint", str(checkpoint)).load().createOrReplaceTempView("records")
        ended(spark.sql(sql).writeStream.foreachBatch(healing_writer(table, str(checkpoint))), checkpoint)

    for name in STEPS:
        send(3)
        end = len(records_of(topic))
        send(3)
        killed(write, step, name, checkpoint)
        lose_records(topic, end)
        send(5)  # past where it was: an offset alone would look well
        write()
        rows = read_table(spark, table).collect()
        expected = [(one.offset, one.leader_epoch, (one.value or b"").decode()) for one in records_of(topic)]
        assert sorted((row.offset, row.leaderEpoch, row.name) for row in rows) == sorted(expected), name
    report = audit(spark, table, str(checkpoint), sql, topic.options)
    assert (report.differences, report.unverifiable, report.matching) == (0, 0, len(records_of(topic)))
