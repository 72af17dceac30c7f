"""What a task makes of the consumer it is lent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID

import pytest

from support.fixtures.modelled_admin import FAST
from support.fixtures.scripted_broker import ScriptedBroker
from tidelog import Consumer
from tidelog.base.errors import Code, OffsetOutOfRangeError, TopicRecreatedError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.core.values import FetchedBatches
from tidelog.records.batch import BatchBuilder
from tidelog.spark import find_tag
from tidelog.spark.options import source_options
from tidelog.spark.plan import Range
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_01_fetch as fetch
from tidelog.wire.messages import api_02_list_offsets as list_offsets
from tidelog.wire.messages import api_03_metadata as metadata

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tidelog[spark]'")
pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

from tidelog.spark import reading
from tidelog.spark.columns import spark_schema
from tidelog.spark.range_check import RangeNotReadError
from tidelog.spark.reading import TaskTruncatedError, read_range
from tidelog.spark.rows import arrow_schema

T0 = TopicPartition("t", PartitionIndex(0))
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def records_at(base_offset: int, count: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.append(0, None, b"v")
    return builder.build(base_offset, 0)


def three_records() -> bytes:
    return records_at(0, 3)


class LentConsumer:
    """One that says so often, first, that the topic was recreated; then it gives what there is."""

    def __init__(self, surprises: int, new_topic_id: str) -> None:
        self.surprises = surprises
        self.new_topic_id = new_topic_id
        self.sought: list[tuple[int, int | None]] = []
        self.fetch_end_offsets: list[int] = []

    def assign(self, partitions: list[TopicPartition]) -> None:
        pass

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None, *, fetch_end_offset: int) -> None:
        self.sought.append((offset, leader_epoch))
        self.fetch_end_offsets.append(fetch_end_offset)

    def poll_batches(self, timeout_ms: int) -> list[FetchedBatches]:
        if self.surprises:
            self.surprises -= 1
            raise TopicRecreatedError(T0, position=0, old_topic_id=OLD, new_topic_id=self.new_topic_id)
        return [FetchedBatches(T0, memoryview(three_records()), 0, 3, 3, 3, 0, 0, self.new_topic_id)]


def read(
    consumer: LentConsumer, monkeypatch: pytest.MonkeyPatch, *, skips_removed: bool = False, end_offset: int = 3
) -> int:
    """How many rows a task gives."""

    @contextmanager
    def lend(settings: Mapping[str, object]) -> Iterator[Consumer]:
        yield cast(Consumer, consumer)

    monkeypatch.setattr(reading, "borrowed_consumer", lend)
    options = source_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, streaming=False)
    piece = Range(T0, NEW, Offset(0), Offset(end_offset), None, None, LeaderEpoch(0))
    schema = arrow_schema(spark_schema(include_headers=False))
    return sum(batch.num_rows for batch in read_range(piece, options, schema, skips_removed=skips_removed))


def test_a_consumer_that_knew_the_topic_before_this_one_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = LentConsumer(1, NEW)
    assert read(consumer, monkeypatch) == 3
    assert consumer.sought == [(0, None)] * 2
    assert consumer.fetch_end_offsets == [3, 3]  # the end of the range


def test_what_comes_with_one_answer_is_read_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class TwiceAsked(LentConsumer):
        def poll_batches(self, timeout_ms: int) -> list[FetchedBatches]:
            threads.append(threading.current_thread().name)
            start = len(threads) * 3 - 3 if is_long else 0
            return [FetchedBatches(T0, memoryview(records_at(start, 3)), start, start + 3, 9, 9, 0, 0, NEW)]

    threads: list[str] = []
    is_long = False
    assert read(TwiceAsked(0, NEW), monkeypatch) == 3
    assert threads == ["MainThread"]
    threads.clear()
    is_long = True
    monkeypatch.setattr(reading, "ROWS_MAX", 3)
    assert read(TwiceAsked(0, NEW), monkeypatch, end_offset=9) == 9
    assert threads == ["MainThread", "MainThread", "tidelog-read"]


def test_what_retention_removes_before_it_is_read_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    class RetainingConsumer(LentConsumer):
        def poll_batches(self, timeout_ms: int) -> list[FetchedBatches]:
            raise OffsetOutOfRangeError(T0, offset=0, log_start_offset=2, end_offset=9)

    with pytest.raises(TaskTruncatedError) as error:
        read(RetainingConsumer(0, NEW), monkeypatch)
    tagged = find_tag(error.value, "LOG_TRUNCATION")
    assert tagged is not None
    assert tagged.details["losses"] == [
        {
            "cause": "retention",
            "divergentOffset": None,
            "leaderEpoch": None,
            "logStartOffset": 2,
            "offset": 0,
            "partition": 0,
            "topic": "t",
            "topicId": NEW,
        }
    ]


@pytest.mark.parametrize(("start", "rows"), [(2, 1), (3, 0), (9, 0)])
def test_a_batch_that_goes_on_after_retention_says_so(
    start: int, rows: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class RetainingConsumer(LentConsumer):
        def poll_batches(self, timeout_ms: int) -> list[FetchedBatches]:
            if self.sought[-1] == (start, None):
                return [FetchedBatches(T0, memoryview(records_at(start, 1)), start, 3, 3, 3, 0, 0, NEW)]
            raise OffsetOutOfRangeError(T0, offset=0, log_start_offset=start, end_offset=9)

    assert read(RetainingConsumer(0, NEW), monkeypatch, skips_removed=True) == rows
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("t-0 lost records to retention while a batch read them: it goes on at offset ")
    tagged = find_tag(said, "LOG_TRUNCATION")
    assert tagged is not None
    losses: Any = tagged.details["losses"]
    assert [(loss["cause"], loss["skippedCount"]) for loss in losses] == [("retention", 3 - rows)]


@pytest.mark.parametrize(("surprises", "new_topic_id"), [(2, NEW), (1, OLD)])
def test_a_topic_that_is_not_the_planned_one_fails_the_task(
    surprises: int, new_topic_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TaskTruncatedError, match="recreated"):
        read(LentConsumer(surprises, new_topic_id), monkeypatch)


class Replica(ScriptedBroker):
    """Of two brokers, in a cluster whose metadata tells no leader epochs: the second leads, the first lacks it all."""

    def __init__(self, brokers: list[Replica]) -> None:
        super().__init__()
        self.brokers = brokers
        self.on(ApiKey.METADATA, self._metadata)
        self.on(ApiKey.FETCH, self._fetch)
        self.on(ApiKey.LIST_OFFSETS, self._list_offsets)

    @property
    def leads(self) -> bool:
        return self is self.brokers[1]

    def _metadata(self, request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
        is_refuted = bool(self.brokers[0].messages(ApiKey.LIST_OFFSETS))
        row = metadata.MetadataResponsePartition(
            partition_index=0, leader_id=int(is_refuted), leader_epoch=-1, replica_nodes=[0, 1]
        )
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(number, "127.0.0.1", one.port)
                for number, one in enumerate(self.brokers)
            ],
            cluster_id="one",
            controller_id=1,
            topics=[metadata.MetadataResponseTopic(name="t", topic_id=UUID(int=2), partitions=[row])],
        )

    def _fetch(self, request: fetch.FetchRequest, version: int) -> fetch.FetchResponse:
        row = fetch.PartitionData(
            partition_index=0, error_code=Code.OFFSET_OUT_OF_RANGE, high_watermark=-1, records=b""
        )
        if self.leads:
            row = fetch.PartitionData(partition_index=0, high_watermark=3, records=three_records())
        return fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic="t", topic_id=UUID(int=2), partitions=[row])]
        )

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest, version: int) -> list_offsets.ListOffsetsResponse:
        code = Code.NONE if self.leads else Code.NOT_LEADER_OR_FOLLOWER
        row = list_offsets.ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=0)
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("t", [row])])


class LackingBroker(ScriptedBroker):
    """Holds records 0 and 1, and the one at 5."""

    def __init__(self) -> None:
        super().__init__()
        self.on(ApiKey.METADATA, self._metadata)
        self.on(ApiKey.FETCH, self._fetch)

    def _metadata(self, request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
        row = metadata.MetadataResponsePartition(partition_index=0, leader_id=0, leader_epoch=0, replica_nodes=[0])
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(0, "127.0.0.1", self.port)],
            cluster_id="one",
            controller_id=0,
            topics=[metadata.MetadataResponseTopic(name="t", topic_id=UUID(int=2), partitions=[row])],
        )

    def _fetch(self, request: fetch.FetchRequest, version: int) -> fetch.FetchResponse:
        records = records_at(0, 2) + records_at(5, 1)
        row = fetch.PartitionData(partition_index=0, high_watermark=6, records=records)
        return fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse(topic="t", topic_id=UUID(int=2), partitions=[row])]
        )


@pytest.mark.parametrize("end", [3, 5, 6])
def test_records_that_are_missing_at_the_end_of_a_range_fail_the_task(
    end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def lend(settings: Mapping[str, object]) -> Iterator[Consumer]:
        options: dict[str, Any] = {**FAST, **settings}
        with Consumer(**options, auto_offset_reset="none") as consumer:
            yield consumer

    async def main() -> None:
        async with LackingBroker() as broker:
            options = source_options({"kafka.bootstrap.servers": broker.address, "subscribe": "t"}, streaming=False)
            piece = Range(T0, NEW, Offset(0), Offset(end), None, None, LeaderEpoch(0))
            schema = arrow_schema(spark_schema(include_headers=False))
            with pytest.raises(RangeNotReadError, match=r"t-0: there are no records at \[2, 5\)"):
                await asyncio.to_thread(lambda: list(read_range(piece, options, schema)))

    monkeypatch.setattr(reading, "borrowed_consumer", lend)
    asyncio.run(main())


def test_out_of_range_at_a_follower_is_asked_of_the_leader_and_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def lend(settings: Mapping[str, object]) -> Iterator[Consumer]:
        options: dict[str, Any] = {**FAST, **settings}
        with Consumer(**options, auto_offset_reset="none") as consumer:
            yield consumer

    async def main() -> None:
        brokers: list[Replica] = []
        async with Replica(brokers) as first, Replica(brokers) as second:
            brokers += [first, second]
            options = source_options({"kafka.bootstrap.servers": first.address, "subscribe": "t"}, streaming=False)
            piece = Range(T0, NEW, Offset(0), Offset(3), None, None, LeaderEpoch(0))
            schema = arrow_schema(spark_schema(include_headers=False))
            found = await asyncio.to_thread(lambda: list(read_range(piece, options, schema)))
            assert sum(batch.num_rows for batch in found) == 3
            assert first.messages(ApiKey.FETCH)
            assert second.messages(ApiKey.LIST_OFFSETS)

    monkeypatch.setattr(reading, "borrowed_consumer", lend)
    asyncio.run(main())
