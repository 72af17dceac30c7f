"""A checkpoint in HDFS: `losses`, the healing writer and the audit read it there, through the session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.clients.hdfs import missing_hdfs, running_hdfs
from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewTestTopic, lose_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from tidelog.spark import CheckpointError, QueryLoss, audit, healing_writer, losses, read_table

SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS name FROM records"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_checkpoint_in_hdfs_tells_of_losses(
    spark: SparkSession, node: NodeProcess, new_topic: NewTestTopic, tmp_path: Path
) -> None:
    if (reason := missing_hdfs()) is not None:
        pytest.skip(reason)
    topic = new_topic(node=node)
    table = str(tmp_path / "table")
    within: list[QueryLoss] = []
    with running_hdfs(tmp_path / "hdfs") as uri:
        checkpoint = f"{uri}/queries/copy"

        def run() -> None:
            reader = spark.readStream.format("tidelog").options(**topic.options, startingOffsets="earliest")
            reader = reader.options(includeLeaderEpoch="true", onTruncation="rewind")
            reader.load().createOrReplaceTempView("records")
            writer = healing_writer(table, checkpoint)

            def write(rows: DataFrame, batch_id: int) -> None:
                within.extend(losses(checkpoint, batch_id, spark=rows.sparkSession))
                writer(rows, batch_id)

            stream = spark.sql(SQL).writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
            stream.trigger(availableNow=True).start().awaitTermination()

        for value in "abcde":
            topic.send(value)
        run()
        lose_records(topic, 3)
        topic.send("x", "y", "z")
        run()
        (loss,) = losses(checkpoint, spark=spark)
        assert within == [loss]
        assert (loss.cause, loss.from_offset, loss.divergent_offset, loss.resumed_offset) == ("truncated", 5, 3, 3)
        assert losses(checkpoint, 0, spark=spark) == []
        assert [row.name for row in read_table(spark, table).orderBy("offset").collect()] == list("abcxyz")
        report = audit(spark, table, checkpoint, SQL, topic.options)
        assert (report.matching, report.differences) == (6, 0)
        # What the query's process cannot read by itself, it names, with what would help.
        with pytest.raises(CheckpointError, match=r"hadoop classpath --glob.*spark="):
            losses(checkpoint)
        with pytest.raises(CheckpointError, match="there is no checkpoint at"):
            losses(f"{uri}/queries/misspelt", spark=spark)
