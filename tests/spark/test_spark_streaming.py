from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.nodes.spark_query import NewQuery, NewTestTopic, Topic
from tidelog import Admin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_goes_on_from_its_checkpoint(new_topic: NewTestTopic, new_query: NewQuery) -> None:
    topic = new_topic(partitions=2)
    topic.send("a", "b", "c")
    topic.send("d", partition=1)
    query = new_query(topic, maxOffsetsPerTrigger="3")
    query.run()
    assert sorted(query.values) == ["a", "b", "c", "d"]
    assert [len(rows) for _, rows in sorted(query.batches.items())] == [3, 1]
    with Admin(topic.node.bootstrap) as admin:
        topic_id = admin.describe_topics([topic.name])[topic.name].topic_id
    assert query.offset(1) == {
        "topics": {
            topic.name: {
                "id": topic_id,
                "p": {"0": {"leaderEpoch": 0, "offset": 3}, "1": {"leaderEpoch": 0, "offset": 1}},
            }
        },
        "v": 1,
    }
    assert set(query.offset(0)) == {"begin", "topics", "v"}
    topic.send("e")
    query.run()
    assert query.batches[2] == [(0, 3, "e")]
    query.run()
    assert sorted(query.batches) == [0, 1, 2]


def test_a_batch_that_runs_again_reads_the_same(topic: Topic, new_query: NewQuery) -> None:
    topic.send("before")
    query = new_query(topic, startingOffsets="latest")
    query.run()
    assert query.batches == {0: []}
    for values in (("a", "b"), ("c", "d")):
        # The last batch was planned, it ran, and the query crashed. Then there are more records.
        assert query.forget_commit() == max(query.batches)
        known = dict(query.batches)
        query.batches.clear()
        topic.send(*values)
        query.run()
        replayed = max(known)
        assert query.batches[replayed] == known[replayed]
        query.batches.update(known)
    assert query.values == ["a", "b", "c", "d"]


def test_lag_is_reported(topic: Topic, new_query: NewQuery) -> None:
    topic.send(*"abcdefgh")
    query = new_query(topic, maxOffsetsPerTrigger="3")
    running = query.start()
    try:
        running.processAllAvailable()
        sources = [progress["sources"][0] for progress in running.recentProgress if progress["numInputRows"]]
        lags = [json.loads(source["latestOffset"])["maxOffsetsBehindLatest"] for source in sources]
    finally:
        running.stop()
    assert query.values == list("abcdefgh")
    assert lags == [5, 2, 0]


def test_from_topic_to_topic(spark: SparkSession, new_topic: NewTestTopic, new_query: NewQuery, tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    source.send("a", "b")
    for expected in (["a", "b"], ["a", "b", "c"]):
        frame = spark.readStream.format("tidelog").options(**source.options, startingOffsets="earliest").load()
        sink = frame.select("key", "value").writeStream.format("tidelog").options(**target.sink_options)
        copying = sink.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
        copying.awaitTermination()
        query = new_query(target)
        query.run()
        assert query.values == expected
        source.send("c")


def test_a_stream_that_cannot_be_meant_does_not_start(topic: Topic, new_query: NewQuery) -> None:
    with pytest.raises(Exception, match="a stream has no end") as error:
        new_query(topic, endingOffsets="latest").run()
    assert "ConfigError: option endingOffsets: a stream has no end" in str(error.value).splitlines()[0]
