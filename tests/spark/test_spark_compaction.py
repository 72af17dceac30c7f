"""Compacted topics: what compaction removed is missing, and nobody calls it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from support.nodes.spark_query import NewQuery, Topic
from tidelog import Admin, NewTopic, Producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLEANER = {"log.cleaner.backoff.ms": "50"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
}


def write(node: NodeProcess, topic: str, numbers: range) -> dict[str, str]:
    """Twenty keys, again and again, in batches of a few. Returns the last value of each."""
    with Producer(node.bootstrap, linger_ms=0, batch_size=200) as producer:
        for number in numbers:
            producer.send(topic, f"value {number}", key=f"key {number % 20}")
    return {f"key {number % 20}": f"value {number}" for number in numbers}


def wait_until_compacted(node: NodeProcess, topic: str, offset: int) -> None:
    def is_so() -> bool:
        done = [line for line in node.log.splitlines() if f"{topic}-0: compacted up to offset " in line]
        return bool(done) and int(done[-1].partition("up to offset ")[2].partition(":")[0]) >= offset

    wait_until(is_so, lambda: f"{topic} is compacted up to offset {offset}: {node.log[-2000:]}", seconds=30)


@pytest.mark.timeout(120)
def test_a_compacted_topic_is_read_whole_though_offsets_are_missing(
    spark: SparkSession, start_node: StartNode, new_query: NewQuery
) -> None:
    node = start_node(config=CLEANER)
    topic = Topic(node, "table", 1)
    with Admin(node.bootstrap) as admin:
        admin.create_topics([NewTopic("table", num_partitions=1, replication_factor=1, configs=COMPACTED)])
    query = new_query(topic)
    expected = write(node, "table", range(300))
    query.run()
    expected |= write(node, "table", range(300, 3_000))
    wait_until_compacted(node, "table", 2_800)

    # Many tasks, most of whose ranges hold nothing any more.
    frame = spark.read.format("tidelog").options(**topic.options, minPartitions="8").load()
    rows = frame.selectExpr("offset", "cast(key as string) as key", "cast(value as string) as value").collect()
    assert len(rows) < 1_000
    assert {row.key: row.value for row in sorted(rows)} == expected

    # A query whose checkpoint lies in what was compacted since.
    query.run(maxOffsetsPerTrigger="1000")
    assert set(expected.values()) <= set(query.values)
