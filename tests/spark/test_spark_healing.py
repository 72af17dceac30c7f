"""A table that heals, on a node of the test's own: truncated at every moment of a micro-batch, and audited after each.

One long story, since each run of a query costs seconds: its parts are named where they begin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewTestTopic, Topic, lose_records
from tidelog import Admin, Consumer, TopicPartition
from tidelog.base.ids import PartitionIndex

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidelog.spark.table_audit import AuditReport

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from tidelog.spark import audit, healed_aggregate, healing_writer, read_table

SQL = """
SELECT topic, partition, offset, leaderEpoch, CAST(CAST(value AS STRING) AS BIGINT) AS number,
       explode(array('plain', 'squared')) AS kind
FROM records WHERE CAST(value AS STRING) NOT LIKE '%3'
"""
"""Some records give no row, and the others two."""


class CrashError(Exception):
    """The driver dies here."""


@dataclass
class Pipeline:
    """A query from a topic to a table, which may die before or after the table's commit."""

    spark: SparkSession
    topic: Topic
    folder: Path
    options: dict[str, str] = field(default_factory=dict)

    @property
    def table(self) -> str:
        return str(self.folder / "table")

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def run(self, *, dies: str | None = None, sql: str = SQL, **writer_options: Any) -> None:
        writer = healing_writer(self.table, self.checkpoint, **writer_options)
        options = {**self.topic.options, "startingOffsets": "earliest", "onTruncation": "rewind", **self.options}
        records = self.spark.readStream.format("tidelog").options(**options, includeLeaderEpoch="true").load()
        records.createOrReplaceTempView("records")
        rows = self.spark.sql(sql)

        def write(batch: DataFrame, batch_id: int) -> None:
            if dies == "before":
                raise CrashError("before the commit")
            writer(batch, batch_id)
            if dies == "after":
                raise CrashError("after the commit")

        stream = rows.writeStream.foreachBatch(write).option("checkpointLocation", self.checkpoint)
        query = stream.trigger(availableNow=True).start()
        try:
            if dies is None:
                query.awaitTermination()
            else:
                with pytest.raises(Exception, match=f"{dies} the commit"):
                    query.awaitTermination()
        finally:
            query.stop()

    def audit(self) -> AuditReport:
        return audit(self.spark, self.table, self.checkpoint, SQL, self.topic.options)

    def rows(self) -> list[tuple[Any, ...]]:
        found = read_table(self.spark, self.table).collect()
        return sorted((row.partition, row.offset, row.leaderEpoch, row.number, row.kind) for row in found)

    def expected(self) -> list[tuple[Any, ...]]:
        """From the log itself, without Spark."""
        with Consumer(self.topic.node.bootstrap, auto_offset_reset="none") as consumer:
            partitions = [TopicPartition(self.topic.name, index) for index in range(self.topic.partitions)]
            consumer.assign(partitions, start="earliest")
            records = [record for record in consumer.until_end() if not (record.value or b"").endswith(b"3")]
        return sorted(
            (one.partition, one.offset, one.leader_epoch, int(one.value or b""), kind)
            for one in records
            for kind in ("plain", "squared")
        )

    def truncations(self, *columns: str) -> list[tuple[Any, ...]]:
        rows = read_table(self.spark, f"{self.table}_truncations").orderBy("batchId", "partition")
        return [tuple(row) for row in rows.select("batchId", "cause", *columns).collect()]


def is_healed(pipeline: Pipeline) -> None:
    assert pipeline.rows() == pipeline.expected()


@pytest.mark.timeout(600)
def test_a_table_heals_whenever_the_log_was_truncated(
    spark: SparkSession, node: NodeProcess, new_topic: NewTestTopic, tmp_path: Path
) -> None:
    topic = new_topic(partitions=2, node=node)
    pipeline = Pipeline(spark, topic, tmp_path)
    totals = healed_aggregate(
        pipeline.table,
        tmp_path / "totals",
        keys=["partition", "kind"],
        aggregates={"rows": "count(*)", "total": "sum(number)"},
    )

    def send(*batches: range) -> None:
        for numbers in batches:  # a log is cut between two batches
            topic.send(*map(str, numbers))

    def totals_are_right() -> None:
        groups = read_table(spark, tmp_path / "totals").collect()
        found = {(row.partition, row.kind): (row.rows, row.total) for row in groups}
        wanted: dict[tuple[int, str], tuple[int, int]] = {}
        for partition, _, _, number, kind in pipeline.expected():
            count, total = wanted.get((partition, kind), (0, 0))
            wanted[partition, kind] = count + 1, total + number
        assert found == wanted

    send(range(6), range(6, 10))
    topic.send("100", partition=1)
    pipeline.run()
    is_healed(pipeline)
    assert pipeline.truncations("readFrom", "withdrawnRows") == [(0, "started", 0, 0)] * 2
    assert totals(spark) == 4
    totals_are_right()

    # Truncated after all was done. Records 6 to 9 gave 8 rows.
    lose_records(topic, 6)
    send(range(20, 29))
    pipeline.run()
    is_healed(pipeline)
    assert pipeline.truncations("fromOffset", "toOffset", "readFrom", "lostLeaderEpochs", "withdrawnRows")[2:] == [
        (1, "truncated", 6, 10, 6, [0], 8)
    ]
    assert totals(spark) == 2  # those of partition 0
    totals_are_right()

    # The batch runs again, as it does when Spark died before it had noted its end.
    commits = sorted((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    pipeline.run()
    assert len(pipeline.truncations()) == 3

    # Died before the table's commit; then a part of the planned batch is lost.
    send(range(30, 33), range(33, 36))
    pipeline.run(dies="before")
    lose_records(topic, 18)
    send(range(40, 49))
    pipeline.run()
    is_healed(pipeline)
    assert pipeline.truncations("fromOffset", "toOffset", "withdrawnRows")[3:] == [(3, "truncated", 18, 21, 0)]

    # Died after the table's commit; then a part of what is in the table is lost.
    send(range(50, 52), range(52, 56))
    topic.send("101", partition=1)
    pipeline.run(dies="after")
    lose_records(topic, 29)
    send(range(60, 69))
    pipeline.run()
    is_healed(pipeline)
    assert pipeline.truncations("fromOffset", "toOffset", "withdrawnRows")[4:] == [(5, "truncated", 29, 33, 6)]
    assert totals(spark) == 4
    totals_are_right()

    report = pipeline.audit()
    assert (report.differences, report.unverifiable, report.batch_id) == (0, 0, 5)
    assert report.matching == len(pipeline.expected())
    with Admin(node.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic.name, PartitionIndex(0)): 2})
    plant_errors(pipeline.table)
    assert_planted_are_found(pipeline)


def plant_errors(table: str) -> None:
    """Three rows go, two come twice, one is changed, four are of records that there are not."""
    import pyarrow as pa
    from deltalake import DeltaTable, write_deltalake

    there = DeltaTable(table)
    rows = pa.table(there.to_pyarrow_table())

    def row(offset: int, partition: int = 0) -> dict[str, Any]:
        (found,) = (
            one
            for one in rows.to_pylist()
            if (one["partition"], one["offset"], one["kind"]) == (partition, offset, "plain")
        )
        return dict(found)

    there.delete(
        "partition = 0 AND offset IN (4, 5) AND kind = 'plain' OR partition = 1 AND offset = 0 AND kind = 'plain'"
    )
    DeltaTable(table).update({"number": "-1"}, predicate="partition = 0 AND offset = 2 AND kind = 'plain'")
    planted = [
        row(7),
        row(7),
        {**row(8), "leaderEpoch": 0},  # an epoch that ended before
        {**row(8), "offset": 99},  # beyond what was read
        {**row(8), "topicId": "AAAAAAAAAAAAAAAAAAAAAQ"},  # of another topic of the name
        {**row(8), "kind": "cubed"},  # the record is there, and gives no such row
    ]
    write_deltalake(table, pa.Table.from_pylist(planted, rows.schema), mode="append")


def assert_planted_are_found(pipeline: Pipeline) -> None:
    report = pipeline.audit()
    found = {
        (line.partition, line.leader_epoch): (
            line.missing,
            line.duplicated,
            line.phantom,
            line.changed,
            line.first_offset,
        )
        for line in report.lines
        if line.differences and line.topic_id != "AAAAAAAAAAAAAAAAAAAAAQ"
    }
    epoch = next(line for line in pipeline.expected() if line[:2] == (0, 8))[2]
    assert found == {(0, 0): (2, 0, 1, 1, 2), (0, epoch): (0, 2, 2, 0, 7), (1, 0): (1, 0, 0, 0, 0)}
    assert [line.phantom for line in report.lines if line.topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"] == [1]
    # The rows of records 0 and 1, which were deleted by request.
    assert (report.differences, report.unverifiable, report.is_clean) == (10, 4, False)
