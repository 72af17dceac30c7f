"""What a task makes of the consumer it is lent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

import pytest

from tidelog import Consumer
from tidelog.base.errors import TopicRecreatedError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.core.values import FetchedBatches
from tidelog.records.batch import BatchBuilder
from tidelog.spark.options import source_options
from tidelog.spark.plan import Range

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tidelog[spark]'")
pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

from tidelog.spark import reading
from tidelog.spark.reading import TaskTruncatedError, read_range
from tidelog.spark.rows import arrow_schema, spark_schema

T0 = TopicPartition("t", PartitionIndex(0))
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


class LentConsumer:
    """One that says so often, first, that the topic was recreated; then it gives what there is."""

    def __init__(self, surprises: int, new_topic_id: str) -> None:
        self.surprises = surprises
        self.new_topic_id = new_topic_id
        self.sought: list[tuple[int, int | None]] = []

    def assign(self, partitions: list[TopicPartition]) -> None:
        pass

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None) -> None:
        self.sought.append((offset, leader_epoch))

    def poll_batches(self, timeout_ms: int) -> list[FetchedBatches]:
        if self.surprises:
            self.surprises -= 1
            raise TopicRecreatedError("t-0", position=0, old_topic_id=OLD, new_topic_id=self.new_topic_id)
        builder = BatchBuilder()
        for _ in range(3):
            builder.append(0, None, b"v")
        data = memoryview(builder.build(0, 0))
        return [FetchedBatches(T0, data, 0, 3, 3, 3, 0, 0, self.new_topic_id)]


def read(consumer: LentConsumer, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many rows a task gives."""

    @contextmanager
    def lend(settings: Mapping[str, object]) -> Iterator[Consumer]:
        yield cast(Consumer, consumer)

    monkeypatch.setattr(reading, "borrowed_consumer", lend)
    options = source_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, streaming=False)
    piece = Range(T0, NEW, Offset(0), Offset(3), None, None, LeaderEpoch(0))
    return sum(
        batch.num_rows for batch in read_range(piece, options, arrow_schema(spark_schema(include_headers=False)))
    )


def test_a_consumer_that_knew_the_topic_before_this_one_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = LentConsumer(1, NEW)
    assert read(consumer, monkeypatch) == 3
    assert consumer.sought == [(0, None)] * 2


@pytest.mark.parametrize(("surprises", "new_topic_id"), [(2, NEW), (1, OLD)])
def test_a_topic_that_is_not_the_planned_one_fails_the_task(
    surprises: int, new_topic_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TaskTruncatedError, match="recreated"):
        read(LentConsumer(surprises, new_topic_id), monkeypatch)
