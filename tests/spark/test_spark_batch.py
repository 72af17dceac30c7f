from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.spark_query import NewTestTopic, Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WRITABLE = (
    "key binary, value binary, partition int, timestamp timestamp, headers array<struct<key:string,value:binary>>"
)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123_000)


def read(spark: SparkSession, topic: Topic, schema: str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("tidelog").options(**{**topic.options, **options})
    return (reader if schema is None else reader.schema(schema)).load()


def values(frame: DataFrame) -> list[str]:
    rows = frame.selectExpr("partition", "offset", "cast(value as string) as value").collect()
    return [row.value for row in sorted(rows)]


def test_what_is_written_is_read(spark: SparkSession, new_topic: NewTestTopic) -> None:
    topic = new_topic(partitions=2)
    written: list[tuple[Any, ...]] = [
        (b"k", b"v", 1, NOON, [("h", b"x"), ("h", None)]),
        (None, b"", 1, NOON, []),
        (b"", None, 0, None, None),
    ]
    frame = spark.createDataFrame(written, WRITABLE).coalesce(1)
    frame.write.format("tidelog").options(**topic.sink_options, useTimestamp="true").mode("append").save()
    found = read(spark, topic, includeHeaders="true", includeLeaderEpoch="true").collect()
    rows = [tuple(row) for row in sorted(found, key=lambda row: (row.partition, row.offset))]
    assert [row[:5] + row[6:] for row in rows] == [
        (bytearray(b""), None, topic.name, 0, 0, 0, None, 0),
        (bytearray(b"k"), bytearray(b"v"), topic.name, 1, 0, 0, [("h", bytearray(b"x")), ("h", None)], 0),
        (None, bytearray(b""), topic.name, 1, 1, 0, None, 0),
    ]
    # A row without a time has that of its writing.
    assert rows[0][5] > NOON
    assert [row[5] for row in rows[1:]] == [NOON, NOON]


def test_rows_say_where_they_go(spark: SparkSession, new_topic: NewTestTopic) -> None:
    one, two = new_topic(), new_topic(partitions=3)
    frame = spark.range(90).selectExpr(
        f"if(id % 3 = 0, '{one.name}', '{two.name}') as topic",
        "cast(id as string) as value",
        "cast(id % 7 as string) as key",
    )
    frame.write.format("tidelog").option("kafka.bootstrap.servers", one.node.bootstrap).mode("append").save()
    assert read(spark, one).count() == 30
    found = read(spark, two, "value binary, key binary, partition int").collect()
    assert sorted(int(row.value) for row in found) == [number for number in range(90) if number % 3]
    # All of a key in one partition.
    assert len({(bytes(row.key), row.partition) for row in found}) == 7


def test_a_topic_is_copied_by_writing_what_was_read(spark: SparkSession, new_topic: NewTestTopic) -> None:
    source, target = new_topic(), new_topic()
    source.send("a", "b")
    rows = read(spark, source).selectExpr("*", "'x' as carrier")
    rows.write.format("tidelog").options(**target.sink_options, useTimestamp="true").mode("append").save()
    columns = ("value", "partition", "offset", "timestamp")
    assert read(spark, target).select(*columns).collect() == read(spark, source).select(*columns).collect()


def test_a_schema_of_ones_own_is_a_projection(spark: SparkSession, topic: Topic) -> None:
    topic.send("a", "b")
    frame = read(spark, topic, "offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    assert [tuple(row) for row in frame.collect()] == [(0, bytearray(b"a")), (1, bytearray(b"b"))]
    assert [tuple(row) for row in read(spark, topic, "partition int, leaderEpoch int").collect()] == [(0, 0), (0, 0)]


def test_ranges(spark: SparkSession, new_topic: NewTestTopic) -> None:
    topic = new_topic(partitions=2)
    for number in range(6):
        topic.send(f"{number}", partition=number % 2)
    assert values(read(spark, topic)) == ["0", "2", "4", "1", "3", "5"]
    start = f'{{"{topic.name}": {{"0": 1, "1": -2}}}}'
    end = f'{{"{topic.name}": {{"0": -1, "1": 2}}}}'
    assert values(read(spark, topic, startingOffsets=start, endingOffsets=end)) == ["2", "4", "1", "3"]
    everything = {"kafka.bootstrap.servers": topic.node.bootstrap}
    one = spark.read.format("tidelog").options(**everything, assign=f'{{"{topic.name}": [1]}}').load()
    assert values(one) == ["1", "3", "5"]
    matching = spark.read.format("tidelog").options(**everything, subscribePattern=f"{topic.name}$|nothing").load()
    assert matching.count() == 6
    cut = read(spark, topic, minPartitions="4")
    assert values(cut) == ["0", "2", "4", "1", "3", "5"]
    assert cut.selectExpr("spark_partition_id() as task").distinct().count() == 4


def test_timestamps_are_places_to_start(spark: SparkSession, topic: Topic) -> None:
    frame = spark.range(10).selectExpr("cast(id as string) as value", "timestamp_millis(id * 1000) as timestamp")
    frame.coalesce(1).write.format("tidelog").options(**topic.sink_options, useTimestamp="true").mode("append").save()
    found = read(spark, topic, startingTimestamp="3000", endingTimestamp="6500")
    assert values(found) == ["3", "4", "5", "6"]
    with pytest.raises(Exception, match="holds no record at or after timestamp 99999"):
        read(spark, topic, startingTimestamp="99999").count()


def test_an_empty_topic_has_no_rows(spark: SparkSession, topic: Topic) -> None:
    assert read(spark, topic).count() == 0


def test_errors_reach_the_user(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets"):
        read(spark, topic, startingOffset="earliest")
    with pytest.raises(Exception, match="there is no column valeu"):
        read(spark, topic, "valeu binary").count()
    rows = spark.range(3).selectExpr("'x' as value", "cast(null as string) as topic")
    broker = {"kafka.bootstrap.servers": topic.node.bootstrap}
    with pytest.raises(Exception, match=r"^[^\n]*\n?[^\n]*SinkError: a row has no topic"):  # and no traceback before it
        rows.write.format("tidelog").options(**broker).mode("append").save()
    with pytest.raises(Exception, match="cannot be overwritten"):
        rows.write.format("tidelog").options(**topic.sink_options).mode("overwrite").save()


def test_it_can_be_used_from_sql(spark: SparkSession, topic: Topic) -> None:
    topic.send("a", "b")
    spark.sql(
        f"CREATE TEMPORARY VIEW flights USING tidelog OPTIONS ('kafka.bootstrap.servers' '{topic.node.bootstrap}', "
        f"subscribe '{topic.name}')"
    )
    assert spark.sql("SELECT count(*) AS n FROM flights").collect()[0].n == 2
    spark.catalog.dropTempView("flights")


def test_filters_leave_out_what_need_not_be_read(spark: SparkSession, new_topic: NewTestTopic) -> None:
    topic = new_topic(partitions=2)
    frame = spark.range(20).selectExpr(
        "cast(id as string) as value", "int(id % 2) as partition", "timestamp_millis(id * 1000) as timestamp"
    )
    frame.coalesce(1).write.format("tidelog").options(**topic.sink_options, useTimestamp="true").mode("append").save()
    tasks = []
    for enabled in ("false", "true"):
        spark.conf.set("spark.sql.python.filterPushdown.enabled", enabled)
        found = read(spark, topic, minPartitions="20").where(
            "partition in (1, 7) and offset >= 2 and offset < 6 and timestamp >= timestamp_millis(6000) and key is null"
        )
        assert values(found) == ["7", "9", "11"]
        tasks.append(found.rdd.getNumPartitions())
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert tasks == [20, 3]


def test_bad_rows_go_where_they_are_told(spark: SparkSession, new_topic: NewTestTopic) -> None:
    topic, dead = new_topic(partitions=2), new_topic()
    bad = f"case id when 1 then null when 2 then 'a b' else '{topic.name}' end as topic"
    rows = spark.range(5).selectExpr("cast(id as string) as value", bad, "if(id = 3, 7, 0) as partition")
    options = {"kafka.bootstrap.servers": topic.node.bootstrap, "onBadRow": f"topic:{dead.name}"}
    rows.write.format("tidelog").options(**options).mode("append").save()
    assert values(read(spark, topic)) == ["0", "4"]
    letters = read(spark, dead, includeHeaders="true").collect()
    told = {row.value.decode(): {pair.key: bytes(pair.value).decode() for pair in row.headers} for row in letters}
    assert {value: headers["tidelog.bad-row.reason"] for value, headers in told.items()} == {
        "1": "it has no topic",
        "2": "its topic's name is illegal",
        "3": "its topic has no such partition",
    }
    assert told["3"]["tidelog.bad-row.topic"] == topic.name
