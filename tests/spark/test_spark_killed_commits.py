"""A query that copies a topic exactly once, and dies at each step of a micro-batch in turn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.spark_query import NewTestTopic, Topic
from tidelog import Consumer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = (
    "a task has written nothing yet",
    "a task has written a part",
    "a task has prepared its transaction",
    "nothing is decided",
    "the batch is decided",
    "a part of it is committed",
    "all is committed, and Spark does not know",
)


def dying_source() -> type[Any]:
    """The format `dying`: as `tidelog`, but a process of Spark dies at the step that a file names, once.

    The classes are made in a function, so that Spark sends them to its processes as they are.
    """
    from tidelog.spark import exactly_once
    from tidelog.spark.decision_log import DecisionLog
    from tidelog.spark.options import sink_options
    from tidelog.spark.sink import ExactlyOnceStreamWriter
    from tidelog.spark.source import TidelogSource

    def die_at(path: str, step: str) -> None:
        import os

        named = Path(path)
        if named.exists() and named.read_text() == step:
            named.unlink()
            os._exit(1)

    class DyingWriter(ExactlyOnceStreamWriter):
        path: str

        def write(self, iterator: Any) -> Any:
            path = self.path

            def rows() -> Any:
                for batch in iterator:
                    for row in range(batch.num_rows):
                        yield batch.slice(row, 1)
                        die_at(path, "a task has written a part")

            die_at(path, "a task has written nothing yet")
            message = super().write(rows())
            die_at(path, "a task has prepared its transaction")
            return message

        def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
            path = self.path

            class DyingLog(DecisionLog):
                def commit(self, scope: str, state: Any) -> Any:
                    die_at(path, "the batch is decided")
                    for one in state.committables:
                        super().commit(scope, state.__class__("", (), 0, state.decided_run_id, (one,)))
                        die_at(path, "a part of it is committed")
                    return super().commit(scope, state)

            vars(exactly_once)["decision_log"] = DyingLog
            die_at(path, "nothing is decided")
            super().commit(messages, batchId)
            die_at(path, "all is committed, and Spark does not know")

    class Dying(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "dying"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            options = dict(self.options)
            path = options.pop("step")
            writer = DyingWriter(sink_options(options, streaming=True), schema)
            writer.path = path
            return writer

    return Dying


def committed_values(topic: Topic) -> list[str]:
    with Consumer(topic.node.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(topic.name, 0)
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition].offset
        found = []
        while consumer.position(partition).offset < end:
            found += [(record.value or b"").decode() for record in consumer.poll(timeout_ms=500)]
    return sorted(found)


def test_every_row_is_copied_once_whenever_spark_dies(
    spark: SparkSession, new_topic: NewTestTopic, tmp_path: Path
) -> None:
    source, target = new_topic(partitions=2), new_topic()
    spark.dataSource.register(dying_source())
    step = tmp_path / "step"

    def copy() -> None:
        rows = spark.readStream.format("tidelog").options(**source.options, startingOffsets="earliest").load()
        sink = rows.select("key", "value").writeStream.format("dying").options(**target.sink_options, step=str(step))
        sink = sink.option("delivery", "exactly-once").option("sinkId", target.name)
        query = sink.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    expected: list[str] = []
    for number, name in enumerate(STEPS):
        values = [f"{number}-{row}" for row in range(4)]
        source.send(*values[:2])
        source.send(*values[2:], partition=1)
        step.write_text(name)
        with pytest.raises(Exception, match=r"(?i)python|worker|EOF|commit|crash"):
            copy()
        assert not step.exists(), f"nothing died when {name}"
        copy()
        expected += values
        assert committed_values(target) == sorted(expected), name
