"""What tasks do, without Spark around them: reading ranges of a real node, through its death and its losses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewTestTopic, Topic, lose_records
from tidelog import Admin, Producer, TopicPartition
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.spark.cluster import RealCluster
from tidelog.spark.columns import spark_schema
from tidelog.spark.options import SourceOptions, source_options
from tidelog.spark.plan import Range
from tidelog.spark.planner import batch_ranges
from tidelog.spark.range_check import RangeNotReadError
from tidelog.spark.reading import TaskTruncatedError, read_range
from tidelog.spark.rows import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tidelog[spark]'")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

RECORDS = 300_000


def fill(topic: Topic, *, compression: str = "none") -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(range(RECORDS), pa.int64()).cast(pa.string())})
    with Producer(topic.node.bootstrap, compression_type=compression) as producer:  # type: ignore[arg-type]
        producer.send_arrow(topic.name, rows)


def planned(topic: Topic, **options: str) -> tuple[SourceOptions, list[Range]]:
    parsed = source_options({**topic.options, **options}, streaming=False)
    cluster = RealCluster(parsed)
    with closing(cluster):
        return parsed, batch_ranges(parsed, cluster)


@contextmanager
def reading(piece: Range, options: SourceOptions) -> Iterator[Iterator[Any]]:
    schema = arrow_schema(spark_schema(include_headers=False))
    batches = read_range(piece, options, schema)
    try:
        yield batches
    finally:
        batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert not [thread for thread in threading.enumerate() if thread.name == "tidelog-read"]


def values_of(batches: list[Any]) -> list[int]:
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


def test_a_task_lives_through_the_death_of_the_broker(node: NodeProcess, new_topic: NewTestTopic) -> None:
    topic = new_topic(node=node)
    fill(topic)
    options, (piece,) = planned(topic, **{"kafka.max.partition.fetch.bytes": "100000"})
    with reading(piece, options) as batches:
        first = next(batches)
        node.kill()
        node.start()
        rest = list(batches)
    assert first.num_rows > 1_000
    assert len(rest) > 5  # most of it was read after the restart
    assert values_of([first, *rest]) == list(range(RECORDS))


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_pieces_of_compressed_batches_make_up_the_whole(new_topic: NewTestTopic, compression: str) -> None:
    topic = new_topic()
    fill(topic, compression=compression)
    options, pieces = planned(topic, maxRecordsPerPartition="70000")
    found = []
    for piece in pieces:
        with reading(piece, options) as batches:
            found += values_of(list(batches))
    assert len(pieces) == 5
    assert found == list(range(RECORDS))


def test_a_reader_that_is_left_early_leaves_nothing_behind(topic: Topic) -> None:
    fill(topic)
    options, (piece,) = planned(topic)
    with reading(piece, options) as batches:
        next(batches)


def test_a_task_that_cannot_go_on_fails(node: NodeProcess, new_topic: NewTestTopic) -> None:
    topic = new_topic(node=node)
    for value in "12345":
        topic.send(value)
    options, (piece,) = planned(topic, **{"kafkaConsumer.pollTimeoutMs": "1200"})
    beyond = piece._replace(end_offset=Offset(6))
    with reading(beyond, options) as batches, pytest.raises(RangeNotReadError, match="nothing came from offset 5 on"):
        list(batches)
    lose_records(topic, 3)
    topic.send("6", "7", "8")
    resumed = piece._replace(start_offset=Offset(5), end_offset=Offset(6), leader_epoch_before=LeaderEpoch(0))
    for lost in (piece, resumed):
        with reading(lost, options) as batches, pytest.raises(TaskTruncatedError) as error:
            list(batches)
        told = json.loads(str(error.value).split("[LOG_TRUNCATION]")[1].splitlines()[0])
        assert [loss["divergentOffset"] for loss in told["losses"]] == [3]


def test_a_batch_goes_on_after_what_retention_removed_if_it_may(spark: SparkSession, topic: Topic) -> None:
    """As Spark's connector does under failOnDataLoss=false. The removal comes between the plan and the reading."""
    for value in "01234":
        topic.send(value)
    frames = {
        may: spark.read.format("tidelog").options(**topic.options, failOnDataLoss=may).load()
        for may in ("false", "true")
    }
    plans = {may: frame.selectExpr("cast(value as string) as value").rdd for may, frame in frames.items()}
    assert {may: plan.getNumPartitions() for may, plan in plans.items()} == {"false": 1, "true": 1}  # planned now
    with Admin(topic.node.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic.name, 0): 3})
    assert sorted(row.value for row in plans["false"].collect()) == ["3", "4"]
    with pytest.raises(Exception, match=r'\[LOG_TRUNCATION\]\{"losses": \[\{"cause": "retention"'):
        plans["true"].collect()


def test_an_end_of_a_transaction_may_lie_between_plain_records(topic: Topic) -> None:
    """The transaction's records were read before: within the range nothing says that there are transactions."""
    with Producer(topic.node.bootstrap, transactional_id=topic.name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic.name, b"0", partition=0).result()
        topic.send("1")
        producer.commit_transaction()
    topic.send("3")
    options, (piece,) = planned(topic, startingOffsets=json.dumps({topic.name: {"0": 1}}))
    assert (piece.start_offset, piece.end_offset) == (1, 4)
    with reading(piece, options) as batches:
        assert values_of(list(batches)) == [1, 3]
