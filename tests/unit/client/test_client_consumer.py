"""Consumers against a cluster in memory that elects, truncates and recreates as told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.fixtures.loop_runner import on_a_loop_of_its_own
from support.fixtures.model_cluster import ModelCluster
from support.fixtures.scripted_broker import HANG_UP
from tidelog import (
    ClientClosedError,
    Consumer,
    ConsumerRecord,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    Position,
    PositionReset,
    RecordDeserializationError,
    ResetReason,
    TidelogError,
    TimedOutError,
    TopicPartition,
    TopicRecreatedError,
    UnknownTopicError,
    UnsupportedVersionError,
    aio,
)
from tidelog.base.errors import Code, ConfigError, MalformedBatchError
from tidelog.base.ids import Offset, PartitionIndex
from tidelog.client.arrow import ArrowReader
from tidelog.client.core.values import FetchedBatches
from tidelog.records.batch import split_batches
from tidelog.serialization import or_none
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchRequest, FetchResponse

FAST: dict[str, Any] = {
    "retry_backoff_ms": 2,
    "retry_backoff_max_ms": 10,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
    "fetch_max_wait_ms": 100,
    "default_api_timeout_ms": 5_000,
}
WAIT_MS = 5_000


def partition(index: int) -> TopicPartition:
    return TopicPartition("t", PartitionIndex(index))


P0, P1 = partition(0), partition(1)


def run(work: Callable[[ModelCluster], Coroutine[Any, Any, None]]) -> None:
    async def do() -> None:
        async with ModelCluster() as cluster:
            await work(cluster)

    asyncio.run(do())


@pytest.fixture
def cluster() -> Iterator[ModelCluster]:
    """A cluster on an event loop of its own, for clients that block."""
    with on_a_loop_of_its_own(ModelCluster()) as cluster:
        yield cluster


def numbered(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


async def read(consumer: aio.Consumer[Any, Any], count: int) -> list[ConsumerRecord[Any, Any]]:
    """Poll until so many records have come."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        records = await consumer.poll(WAIT_MS, count - len(found))
        assert records, f"only {len(found)} of {count} records came"
        found += records
    return found


def offsets(records: list[ConsumerRecord]) -> list[int]:
    return [record.offset for record in records]


def test_records_come_in_order_with_all_that_there_is_to_know() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 15))
        log.elect()
        log.append(*numbered(15, 25), timestamp=2_000)
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            records = await read(consumer, 25)
            assert [record.value for record in records] == numbered(0, 25)
            assert offsets(records) == list(range(25))
            assert [record.leader_epoch for record in records] == [0] * 15 + [1] * 10
            assert records[24] == ConsumerRecord("t", 0, 24, 1, 2_000, "CreateTime", None, b"24", ())
            assert await consumer.position(P0) == (25, 1)

    run(work)


def test_statistics_say_where_it_stands() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            assert consumer.statistics()[P0].lag is None
            await consumer.poll(WAIT_MS, 4)
            assert consumer.statistics() == {P0: (4, 0, 10, 10, 6, 0, 0)}
            assert consumer.lag(P0) == 6

    run(work)


def test_new_records_end_a_long_poll_at_once() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        options = {**FAST, "fetch_max_wait_ms": 60_000}
        async with aio.Consumer(cluster.address, auto_offset_reset="latest", **options) as consumer:
            consumer.assign([P0])
            assert await consumer.position(P0) == (0, None)
            waiting = asyncio.ensure_future(consumer.poll(60_000))
            while not cluster.messages(ApiKey.FETCH):
                await asyncio.sleep(0)
            log.append(b"new")
            cluster.tell()
            assert offsets(await waiting) == [0]

    run(work)


def test_a_seek_does_not_wait_behind_a_long_poll() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        options = {**FAST, "fetch_max_wait_ms": 60_000}
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **options) as consumer:
            consumer.assign([P0])
            for offset in (0, 4, 7):
                consumer.seek(P0, offset)
                assert offsets(await read(consumer, 10 - offset)) == list(range(offset, 10))
                while len(cluster.messages(ApiKey.FETCH)) < 2 * (offset // 3):
                    await asyncio.sleep(0)  # the next fetch waits at the end of the log

    run(work)


def test_polling_without_waiting_gets_somewhere() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(b"0")
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            async with asyncio.timeout(WAIT_MS / 1000):
                while not (records := await consumer.poll(0)):
                    pass
            assert offsets(records) == [0]

    run(work)


def test_polls_return_no_more_than_asked_and_all_partitions_get_their_turn() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t", 2)
        for log in cluster.topics["t"].partitions:
            log.append(*numbered(0, 50))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0, P1])
            seen = {0: 0, 1: 0}
            while sum(seen.values()) < 100:
                records = await consumer.poll(WAIT_MS, 7)
                assert len(records) <= 7
                for record in records:
                    assert record.offset == seen[record.partition]
                    seen[record.partition] += 1
            assert seen == {0: 50, 1: 50}

    run(work)


def test_a_truncated_log_is_told_with_the_divergence_and_read_on_after_a_seek() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            await read(consumer, 10)
            log.truncate(6)
            log.elect()
            log.append(*[b"other"] * 20)  # so many that the offset alone would show nothing
            cluster.tell()
            for _ in range(2):  # until the caller does something about it
                with pytest.raises(LogTruncatedError) as error:
                    await consumer.poll(WAIT_MS)
                lost = error.value
                assert (lost.position, lost.divergent_offset, lost.leader_epoch) == (10, 6, 0)
                assert (lost.partition, lost.seek_to) == (P0, (6, 0))
                with pytest.raises(LogTruncatedError):
                    await consumer.position(P0)
            consumer.seek(lost.partition, lost.seek_to)
            assert await consumer.position(P0) == (6, 0)
            records = await read(consumer, 20)
            assert offsets(records) == list(range(6, 26))
            assert {record.value for record in records} == {b"other"}

    run(work)


def test_a_stored_position_is_checked_before_anything_is_read() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        log.truncate(4)
        log.elect()
        log.append(*[b"other"] * 20)
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 10, 0)
            with pytest.raises(LogTruncatedError) as error:
                await consumer.poll(WAIT_MS)
            assert error.value.divergent_offset == 4
            consumer.seek(P0, 12, 1)
            assert offsets(await read(consumer, 12)) == list(range(12, 24))

    run(work)


def test_an_offset_outside_the_log_is_told_with_what_there_is() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 500)
            with pytest.raises(OffsetOutOfRangeError) as error:
                await consumer.poll(WAIT_MS)
            lost = error.value
            assert (lost.partition, lost.offset, lost.log_start_offset, lost.end_offset) == (P0, 500, 0, 10)
            consumer.seek(lost.partition, lost.seek_to)
            assert await consumer.position(P0) == (10, None)

    run(work)


def test_records_say_where_their_partitions_go_on() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        log.elect()
        log.append(*numbered(10, 15))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            records = await consumer.poll(WAIT_MS, max_records=4)
            assert (len(records), records.next_offsets()) == (4, {P0: (4, 0)})
            at: Position | None = None
            while at is None or at.offset < 15:
                records = await consumer.poll(WAIT_MS)
                at = records.next_offsets()[P0]
            assert at == Position(15, 1)
            consumer.seek(P0, at)
            assert (await consumer.poll(0)).next_offsets() == {}

    run(work)


@pytest.mark.parametrize("per_poll", [3, 500])
def test_whoever_leaves_a_loop_goes_on_behind_the_last_record(per_poll: int) -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t", 2)
        log.append(*numbered(0, 20))
        async with aio.Consumer(
            cluster.address, auto_offset_reset="earliest", max_poll_records=per_poll, **FAST
        ) as consumer:
            consumer.assign([P0, P1])
            seen = []
            for _ in range(3):
                async for record in consumer:
                    seen.append(record.offset)
                    assert await consumer.position(P0) == (record.offset + 1, 0)
                    if len(seen) % 4 == 0:
                        break
                assert await consumer.position(P0) == (len(seen), 0)
            assert seen == list(range(12))
            assert offsets(await consumer.poll(WAIT_MS)) == list(range(12, min(12 + per_poll, 20)))

    run(work)


def test_a_seek_within_a_loop_counts_at_once() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            seen = []
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 2:
                    consumer.seek(P0, 7)
                if record.offset == 9:
                    break
            assert seen == [0, 1, 7, 8, 9]

    run(work)


@pytest.mark.parametrize("policy", ["none", "earliest"])
@pytest.mark.parametrize(("taken", "is_told"), [(4, False), (8, True)])
def test_what_a_loop_was_left_with_is_no_loss_unless_it_had_been_taken(policy: Any, taken: int, is_told: bool) -> None:
    """Ten records are fetched, and truncated to six. Whoever has taken four of them lost nothing; two are left."""

    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        resets: list[PositionReset] = []
        async with aio.Consumer(cluster.address, auto_offset_reset=policy, on_reset=resets.append, **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == taken:
                    break
            log.truncate(6)
            log.elect()
            log.append(b"other")
            cluster.tell()
            try:
                records = await read(consumer, 1 if is_told else 3)
                told = [(one.position.offset, one.divergent_offset) for one in resets]
            except LogTruncatedError as lost:
                told = [(Offset(lost.position), lost.divergent_offset)]
                consumer.seek(lost.partition, lost.seek_to)
                records = await read(consumer, 1)
            assert told == ([(8, 6)] if is_told else [])
            assert [record.value for record in records] == [*numbered(taken, 6), b"other"]

    run(work)


def test_a_topic_that_does_not_exist_is_told_after_a_while_and_read_once_it_is_there() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("u")
        options = {**FAST, "default_api_timeout_ms": 100}
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **options) as consumer:
            for nowhere in (P0, TopicPartition("u", 7)):
                consumer.assign([nowhere])
                with pytest.raises(UnknownTopicError, match="create it") as error:
                    await consumer.poll(WAIT_MS)
                assert error.value.partition == nowhere
            consumer.assign([P0])
            cluster.create("t").append(*numbered(0, 3))
            assert offsets(await read(consumer, 3)) == [0, 1, 2]

    run(work)


def test_keys_and_values_are_made_of_their_bytes() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 3))
        async with aio.Consumer(
            cluster.address,
            auto_offset_reset="earliest",
            key_deserializer=lambda key: key is None,
            value_deserializer=int,
            **FAST,
        ) as consumer:
            consumer.assign([P0])
            total = 0
            for record in await consumer.poll(WAIT_MS):
                total += record.value  # which type-checks
                assert record.key is True
            assert total == 3
        with pytest.raises(ConfigError, match="something to call"):
            aio.Consumer(cluster.address, value_deserializer="json")  # type: ignore[arg-type]

    run(work)


def test_what_cannot_be_deserialized_is_told_in_its_place_and_passed_over_by_a_seek() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(b"0", b"1", b"two", b"3", b"")
        async with aio.Consumer(
            cluster.address, auto_offset_reset="earliest", value_deserializer=int, **FAST
        ) as consumer:
            consumer.assign([P0])
            assert [record.value for record in await consumer.poll(WAIT_MS)] == [0, 1]
            for _ in range(2):
                with pytest.raises(RecordDeserializationError, match="value_deserializer raised ValueError") as error:
                    await consumer.poll(WAIT_MS)
                assert (error.value.partition, error.value.offset, error.value.what) == (P0, 2, "value")
                assert isinstance(error.value.__cause__, ValueError)
            consumer.seek(P0, 3)
            assert [record.value for record in await consumer.poll(WAIT_MS)] == [3]
            with pytest.raises(RecordDeserializationError):
                await consumer.poll(WAIT_MS)

    run(work)


def test_a_null_is_none_only_where_the_deserializer_says_so() -> None:
    """`int` returns an int, as `record.value` says: it cannot be None."""

    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(b"0", None, b"2")
        async with aio.Consumer(
            cluster.address, auto_offset_reset="earliest", value_deserializer=int, **FAST
        ) as consumer:
            consumer.assign([P0])
            assert [record.value for record in await consumer.poll(WAIT_MS)] == [0]
            told = r"offset 1: value_deserializer raised TypeError.*; the value is a null, and .*or_none\(value_deser"
            with pytest.raises(RecordDeserializationError, match=told):
                await consumer.poll(WAIT_MS)
        async with aio.Consumer(
            cluster.address, auto_offset_reset="earliest", value_deserializer=or_none(int), **FAST
        ) as consumer:
            consumer.assign([P0])
            assert [record.value for record in await consumer.poll(WAIT_MS)] == [0, None, 2]

    run(work)


def test_a_paused_partition_gives_no_records_and_keeps_its_place() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t", 2)
        log.append(*numbered(0, 6))
        cluster.topics["t"].partitions[1].append(*numbered(0, 4))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0, P1])
            seen: list[int] = []
            async for record in consumer:  # more of both may have been fetched
                if record.partition == 0:
                    seen.append(record.offset)
                    break
            consumer.pause([P0])
            assert consumer.paused() == [P0]
            consumer.seek_to_beginning([P1])
            assert [(one.partition, one.offset) for one in await read(consumer, 4)] == [(1, at) for at in range(4)]
            assert await consumer.poll(20) == []
            consumer.resume()
            assert consumer.paused() == []
            assert seen + [record.offset for record in await read(consumer, 5)] == list(range(6))
            with pytest.raises(TidelogError, match="not assigned"):
                consumer.pause([TopicPartition("u", 0)])
            consumer.pause()
            consumer.assign([P1])
            assert consumer.paused() == [P1]

    run(work)


def test_a_truncation_of_a_paused_partition_is_told() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            await read(consumer, 10)
            while len(cluster.messages(ApiKey.FETCH)) < 2:
                await asyncio.sleep(0)  # the next fetch waits at the end of the log, and is answered that it moved
            consumer.pause()
            log.truncate(6)
            log.elect()
            cluster.tell()
            with pytest.raises(LogTruncatedError):
                await consumer.poll(WAIT_MS)

    run(work)


def told_of(consumer: aio.Consumer) -> Callable[[], bool]:
    """Whether a partition has stopped, though the caller has not asked yet."""
    return lambda: consumer._subscription.error() is not None


async def until(happened: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_MS / 1_000):
        while not happened():
            await asyncio.sleep(0.001)


def test_whoever_asks_for_the_position_within_a_loop_is_told_of_no_loss_of_what_was_not_taken() -> None:
    """Ten records are fetched, three taken, and the log is cut to five: two are left, and nothing is lost."""

    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            taken: list[bytes | None] = []
            async for record in consumer:
                taken.append(record.value)
                if len(taken) == 3:
                    break
            log.truncate(5)
            log.elect()
            log.append(b"other")
            cluster.tell()
            await until(told_of(consumer))
            assert await consumer.position(P0) == (3, 0)
            taken += [record.value for record in await read(consumer, 3)]
            assert taken == [*numbered(0, 5), b"other"]

    run(work)


def test_a_loop_hands_out_nothing_of_what_a_reset_has_undone() -> None:
    """Ten records are fetched, seven taken, and the log is cut to five."""

    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        state: dict[int, bytes | None] = {}
        undone = asyncio.Event()

        def undo(reset: PositionReset) -> None:
            assert (reset.position, reset.divergent_offset) == ((7, 0), 5)
            for offset in [offset for offset in state if offset >= 5]:
                del state[offset]
            undone.set()

        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", on_reset=undo, **FAST) as consumer:
            consumer.assign([P0])
            async for record in consumer:
                state[record.offset] = record.value
                if len(state) == 7 and not undone.is_set():
                    log.truncate(5)
                    log.elect()
                    log.append(b"other")
                    cluster.tell()
                    await asyncio.wait_for(undone.wait(), WAIT_MS / 1_000)
                if record.value == b"other":
                    break
            assert state == {**dict(enumerate(numbered(0, 5))), 5: b"other"}

    run(work)


def test_two_that_loop_lose_nothing() -> None:
    """The first leaves its loop while the second waits in its own."""

    async def work(cluster: ModelCluster) -> None:
        logs = [cluster.create("t", 2), cluster.topics["t"].partitions[1]]
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0, P1])
            loops = [aiter(consumer), aiter(consumer)]
            firsts = [asyncio.ensure_future(anext(loop)) for loop in loops]
            await consumer.position(P0)
            logs[0].append(*numbered(0, 5))
            cluster.tell()
            await until(lambda: any(first.done() for first in firsts))
            logs[1].append(*numbered(0, 5))
            cluster.tell()
            seen = list(await asyncio.gather(*firsts))
            for loop in loops:
                await loop.aclose()  # type: ignore[attr-defined]
            seen += await read(consumer, 8)
            assert sorted((one.partition, one.offset) for one in seen) == [
                (part, at) for part in (0, 1) for at in range(5)
            ]

    run(work)


def test_what_a_loop_was_left_with_stands_on_the_epoch_that_was_looked_up() -> None:
    """Nothing was taken of the second partition, whose end was looked up at 5. It is cut to 3, and grows again."""

    async def work(cluster: ModelCluster) -> None:
        first, second = cluster.create("t", 2), cluster.topics["t"].partitions[1]
        second.append(*numbered(0, 5))
        resets: list[PositionReset] = []
        async with aio.Consumer(
            cluster.address, auto_offset_reset="latest", on_reset=resets.append, **FAST
        ) as consumer:
            consumer.assign([P0, P1])
            for partition in (P0, P1):
                await consumer.position(partition)
            first.append(*numbered(0, 5))
            second.append(*numbered(5, 10))
            cluster.tell()
            await until(lambda: all(reader.held for reader in consumer._subscription.readers.values()))
            async for record in consumer:
                left = second if record.partition == 0 else first
                break
            before = 5 if left is second else 0
            left.truncate(max(before - 2, 0))
            left.elect()
            left.append(*[b"other"] * 9)
            cluster.tell()
            if left is second:
                await until(lambda: resets)
                assert (resets[0].topic_partition, resets[0].divergent_offset) == (P1, 3)

    run(work)


def test_a_seek_to_the_beginning_outlives_a_topic_that_is_not_there() -> None:
    async def work(cluster: ModelCluster) -> None:
        options = {**FAST, "default_api_timeout_ms": 50}
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **options) as consumer:
            consumer.assign([P0])
            consumer.seek_to_beginning([P0])
            with pytest.raises(UnknownTopicError):
                await consumer.poll(WAIT_MS)
            cluster.create("t").append(*numbered(0, 5))
            await until(lambda: not told_of(consumer)())
            assert offsets(await read(consumer, 5)) == list(range(5))

    run(work)


def test_a_refusal_that_passes_stops_nothing_for_ever() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 3))
        is_refused = True

        def answer(request: Any, version: int) -> Any:
            found = cluster.answer_metadata(request, version)
            for topic in found.topics if is_refused else ():
                topic.error_code, topic.partitions = Code.TOPIC_AUTHORIZATION_FAILED, []
            return found

        cluster.on(ApiKey.METADATA, answer)
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
                await consumer.poll(WAIT_MS)
            is_refused = False
            await until(lambda: not told_of(consumer)())
            assert offsets(await read(consumer, 3)) == [0, 1, 2]

    run(work)


def test_what_is_written_while_the_end_is_looked_up_is_not_missed() -> None:
    """No record is so young as the reset asks for, until one is written just behind that answer."""

    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        answer = cluster._list_offsets

        def racing(request: Any, version: int) -> Any:
            found = answer(request, version)
            if not log.records:
                log.append(b"young", timestamp=time.time_ns() // 1_000_000)
            return found

        cluster.on(ApiKey.LIST_OFFSETS, racing)
        async with aio.Consumer(cluster.address, auto_offset_reset=timedelta(hours=1), **FAST) as consumer:
            consumer.assign([P0])
            assert offsets(await read(consumer, 1)) == [0]

    run(work)


def test_behind_what_cannot_be_deserialized_a_truncation_is_told() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(b"0", b"1", b"x", b"3")
        async with aio.Consumer(cluster.address, auto_offset_reset="none", value_deserializer=int, **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            with pytest.raises(RecordDeserializationError) as refused:
                await read(consumer, 4)
            assert tuple(refused.value.seek_to) == (3, 0)
            log.truncate(1)
            log.elect()
            log.append(*numbered(11, 20))
            cluster.tell()
            consumer.seek(refused.value.partition, refused.value.seek_to)
            with pytest.raises(LogTruncatedError) as lost:
                await read(consumer, 1)
            assert lost.value.seek_to == (1, 0)

    run(work)


def test_what_can_never_be_answered_is_refused() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 3))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            with pytest.raises(ValueError, match="1 or more"):
                await consumer.poll(WAIT_MS, max_records=0)
            consumer.pause([])
            assert consumer.paused() == []

    run(work)


def test_what_has_no_position_says_of_which_partition_that_is() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            with pytest.raises(KafkaError, match="seek, or say where") as error:
                await consumer.poll(WAIT_MS)
            assert error.value.partition == P0
            with pytest.raises(TidelogError, match="not assigned") as other:
                consumer.seek(TopicPartition("u", 1), 0)
            assert other.value.partition == ("u", 1)

    run(work)


@pytest.mark.parametrize("reset", [timedelta(hours=1), "by_duration:PT1H"])
def test_a_reader_begins_so_long_ago(reset: Any) -> None:
    async def work(cluster: ModelCluster) -> None:
        now_ms = time.time_ns() // 1_000_000
        log = cluster.create("t")
        for age_minutes in (120, 61, 59, 1):
            log.append(b"aged", timestamp=now_ms - age_minutes * 60_000)
        async with aio.Consumer(cluster.address, auto_offset_reset=reset, **FAST) as consumer:
            consumer.assign([P0])
            assert offsets(await read(consumer, 2)) == [2, 3]

    run(work)


@pytest.mark.parametrize("policy", ["earliest", "latest", "closest"])
def test_by_policy_a_truncated_log_is_read_on_from_the_divergence_and_reported(policy: Any) -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        resets: list[PositionReset] = []
        async with aio.Consumer(cluster.address, auto_offset_reset=policy, on_reset=resets.append, **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            await read(consumer, 10)
            log.truncate(6)
            log.elect()
            log.append(b"other", b"other")
            cluster.tell()
            assert offsets(await read(consumer, 2)) == [6, 7]
            [reset] = resets
            assert (reset.reason, reset.position, reset.divergent_offset, reset.new_offset) == (
                ResetReason.TRUNCATED, (10, 0), 6, 6,
            )  # fmt: skip

    run(work)


def test_a_callback_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        log.delete_before(5)

        def fail(reset: PositionReset) -> None:
            raise ZeroDivisionError

        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", on_reset=fail, **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            assert offsets(await read(consumer, 5)) == [5, 6, 7, 8, 9]

    run(work)
    assert "on_reset failed" in caplog.text


def test_retention_that_overtook_a_reader_is_told() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        log.delete_before(5)
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            with pytest.raises(OffsetOutOfRangeError, match=r"t-0: offset 0 is outside \[5, ") as error:
                await consumer.poll(WAIT_MS)
            assert error.value.log_start_offset == 5

    run(work)


def test_a_recreated_topic_is_told_and_read_after_a_seek() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 0)
            await read(consumer, 10)
            cluster.create("t").append(*[b"new"] * 12)
            cluster.tell()
            with pytest.raises(TopicRecreatedError, match="the topic was recreated"):
                await consumer.poll(WAIT_MS)
            consumer.seek_to_beginning()
            assert offsets(await read(consumer, 12)) == list(range(12))

    run(work)


def test_an_election_with_nothing_lost_costs_no_record_and_no_repetition() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            found: list[int] = []
            for round_ in range(5):
                log.append(*numbered(0, 10))
                cluster.tell()
                found += offsets(await read(consumer, 3 if round_ % 2 else 10))
                log.elect()
                cluster.tell()
            found += offsets(await read(consumer, 50 - len(found)))
            assert found == list(range(50))

    run(work)


def test_a_broker_that_restarts_is_found_again() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            await read(consumer, 10)
            await cluster.stop()
            assert await consumer.poll(20) == []
            log.elect()
            log.append(*numbered(10, 12))
            await cluster.start()
            assert offsets(await read(consumer, 2)) == [10, 11]

    run(work)


@pytest.mark.parametrize(("fetch", "others"), [(4, 1), (8, 3), (11, 5), (12, 7), (13, 10), (18, 10)])
def test_it_speaks_with_brokers_of_every_age(fetch: int, others: int) -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 10))
        cluster.versions[ApiKey.FETCH] = (0, fetch)
        cluster.versions[ApiKey.LIST_OFFSETS] = (0, others)
        cluster.versions[ApiKey.METADATA] = (0, 6 if fetch < 9 else 13)
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            assert offsets(await read(consumer, 10)) == list(range(10))
            [version] = {version for key, version, _ in cluster.requests if key == ApiKey.FETCH}
            assert version == (min(fetch, 12) if fetch < 9 else fetch)
            request = cluster.messages(ApiKey.FETCH)[-1]
            assert (request.session_id, request.session_epoch) == (0, -1)
            assert request.topics[0].partitions[0].current_leader_epoch == (0 if fetch >= 9 else -1)

    run(work)


def test_a_broker_too_old_to_fetch_from_is_said_to_be() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t")
        cluster.versions[ApiKey.FETCH] = (0, 3)
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            with pytest.raises(UnsupportedVersionError, match="is too old: it serves Fetch in versions 0-3"):
                await consumer.poll(WAIT_MS)

    run(work)


def test_a_damaged_batch_stops_the_partition_until_the_caller_skips_it() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 20))
        intact = cluster._handlers[ApiKey.FETCH]

        async def damage(request: FetchRequest, version: int) -> FetchResponse:
            answer = intact(request, version)
            assert not isinstance(answer, FetchResponse)
            response: FetchResponse = await answer
            data = response.responses[0].partitions[0]
            assert isinstance(data.records, bytes)
            if request.topics[0].partitions[0].fetch_offset == 0:
                data.records = data.records[:-1] + b"\xff"
            return response

        cluster.on(ApiKey.FETCH, damage)
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            with pytest.raises(
                KafkaError, match=r"t-0: fetched from offset 0: .* has CRC .*; to skip it, seek"
            ) as error:
                await consumer.poll(WAIT_MS)
            assert error.value.code is Code.CORRUPT_MESSAGE
            consumer.seek(P0, 10)
            assert offsets(await read(consumer, 10)) == list(range(10, 20))

    run(work)


def test_whole_batches_are_handed_on_as_they_came() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 35))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 3)
            [found] = await consumer.poll_batches(WAIT_MS)
            assert (found.topic_partition, found.fetch_offset, found.next_offset) == (P0, 3, 35)
            assert (found.high_watermark, found.log_start_offset, found.leader_epoch) == (35, 0, 0)
            assert found.topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"
            assert [header.base_offset for _, header in split_batches(found.buffer)] == [0, 10, 20, 30]
            assert await consumer.position(P0) == (35, 0)
            consumer.seek(P0, 5)
            assert offsets(await read(consumer, 8)) == list(range(5, 13))
            [rest] = await consumer.poll_batches(WAIT_MS)  # goes on within the batch that poll began
            assert (rest.fetch_offset, rest.next_offset) == (13, 35)

    run(work)


def test_records_are_read_as_arrow() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t", 2)
        for index, log in enumerate(cluster.topics["t"].partitions):
            log.append(*numbered(100 * index, 100 * index + 35))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0, P1])
            consumer.seek(P0, 3)
            rows: list[dict[str, Any]] = []
            while len(rows) < 67:
                batch = await consumer.poll_arrow(WAIT_MS, ["partition", "offset", "value"])
                assert batch.num_rows
                rows += batch.to_pylist()
            for index, start in ((0, 3), (1, 0)):
                assert [(row["offset"], row["value"]) for row in rows if row["partition"] == index] == [
                    (offset, b"%d" % (100 * index + offset)) for offset in range(start, 35)
                ]
            assert (await consumer.poll_arrow(1)).num_rows == 0

    run(work)


def test_what_arrow_could_not_return_for_a_damaged_batch_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    add = ArrowReader.add

    def add_but_the_second(reader: ArrowReader, fetched: FetchedBatches) -> None:
        if reader.row_count:
            raise MalformedBatchError("as a test says", position=0)
        add(reader, fetched)

    async def work(cluster: ModelCluster) -> None:
        cluster.create("t", 2)
        for log in cluster.topics["t"].partitions:
            log.append(*numbered(0, 5))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0, P1])
            while not all(reader.held for reader in consumer._subscription.readers.values()):
                await asyncio.sleep(0)
            monkeypatch.setattr(ArrowReader, "add", add_but_the_second)
            with pytest.raises(MalformedBatchError):
                await consumer.poll_arrow(WAIT_MS)
            assert [(await consumer.position(key)).offset for key in (P0, P1)] == [0, 0]

    run(work)


def test_offsets_are_looked_up_with_their_epochs() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t", 2)
        log.append(*numbered(0, 5), timestamp=1_000)
        log.elect()
        log.append(*numbered(5, 8), timestamp=2_000)
        async with aio.Consumer(cluster.address, **FAST) as consumer:
            assert await consumer.beginning_offsets([P0, P1]) == {P0: (0, 0, None), P1: (0, 0, None)}
            assert await consumer.end_offsets([P0, P1]) == {P0: (8, 1, None), P1: (0, 0, None)}
            found = await consumer.offsets_for_times({P0: 1_500, P1: 0})
            assert found == {P0: (5, 1, 2_000), P1: None}
            assert await consumer.partitions_for("t") == [0, 1]
            assert await consumer.partitions_for("nope") == []
            with pytest.raises(UnknownTopicError, match="there is no partition nope-0"):
                await consumer.end_offsets([TopicPartition("nope", PartitionIndex(0))])
            with pytest.raises(ValueError, match="timestamp -1 is negative"):
                await consumer.offsets_for_times({P0: -1})

    run(work)


def test_a_position_in_what_nobody_knows_is_refused_as_soon_as_an_offset_is() -> None:
    """And not when the time for a call is up, which is longer than a test may take."""

    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(*numbered(0, 5))
        options = {**FAST, "default_api_timeout_ms": 600_000}
        async with aio.Consumer(cluster.address, auto_offset_reset="latest", **options) as consumer:
            nowhere, beyond = TopicPartition("nope", PartitionIndex(0)), TopicPartition("t", PartitionIndex(7))
            consumer.assign([nowhere, beyond, P0])
            for partition in (nowhere, beyond):
                with pytest.raises(UnknownTopicError, match=f"there is no partition {partition}") as error:
                    await consumer.position(partition)
                assert error.value.partition == partition
            assert (await consumer.position(P0)).offset == 5
            cluster.create("nope").append(*numbered(0, 3))
            assert (await consumer.position(nowhere)).offset == 3

    run(work)


def test_assigning_anew_keeps_positions_and_forgets_others() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t", 2)
        for log in cluster.topics["t"].partitions:
            log.append(*numbered(0, 10))
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
            consumer.assign([P0])
            await read(consumer, 4)
            consumer.assign([P1, P0])
            assert consumer.assignment() == [P0, P1]
            assert await consumer.position(P0) == (4, 0)
            records = await read(consumer, 16)
            assert {record.partition: record.offset for record in reversed(records)} == {0: 4, 1: 0}
            consumer.assign([])
            assert await consumer.poll(1) == []
            with pytest.raises(TidelogError, match="t-0 is not assigned to this consumer"):
                consumer.seek(P0, 1)
            with pytest.raises(ValueError, match="offset -1 is negative"):
                consumer.seek(P0, -1)

    run(work)


def test_without_a_policy_the_first_position_is_the_callers() -> None:
    async def work(cluster: ModelCluster) -> None:
        cluster.create("t").append(b"0")
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            with pytest.raises(KafkaError, match="auto_offset_reset='none' gives none: seek, or say where"):
                await consumer.poll(WAIT_MS)
            with pytest.raises(KafkaError, match="seek, or say where"):
                await consumer.position(P0)
            consumer.seek_to_beginning([P0])
            assert await consumer.position(P0) == (0, None)

    run(work)


def test_nobody_there_is_no_record_and_a_position_says_why() -> None:
    async def work(cluster: ModelCluster) -> None:
        await cluster.stop()
        options = {**FAST, "default_api_timeout_ms": 1_000}
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **options) as consumer:
            consumer.assign([P0])
            assert await consumer.poll(10) == []
            with pytest.raises(TimedOutError, match=r"t-0: no position within 1000 ms; last: .*connection refused"):
                await consumer.position(P0)
            with pytest.raises(
                TimedOutError, match=r"list offsets: not done within 1000 ms; last: .*connection refused"
            ):
                await consumer.end_offsets([P0])

    run(work)


def test_hanging_up_in_the_middle_of_everything_loses_nothing() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 200))
        served = 0
        for key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.METADATA):
            intact = cluster._handlers[key]

            def moody(request: Any, version: int, intact: Any = intact) -> Any:
                nonlocal served
                served += 1
                return HANG_UP if served % 3 == 0 else intact(request, version)

            cluster.on(key, moody)
        options = {**FAST, "max_partition_fetch_bytes": 300}
        async with aio.Consumer(cluster.address, auto_offset_reset="earliest", **options) as consumer:
            consumer.assign([P0])
            assert offsets(await read(consumer, 200)) == list(range(200))

    run(work)


def test_a_blocking_consumer_reads_iterates_and_closes(cluster: ModelCluster) -> None:
    log = cluster.create("t")
    log.append(*numbered(0, 30))
    with Consumer(cluster.address, auto_offset_reset="earliest", **FAST) as consumer:
        consumer.assign([P0])
        assert consumer.assignment() == [P0]
        assert offsets(consumer.poll(WAIT_MS, 5)) == [0, 1, 2, 3, 4]
        found = [record.offset for record, _ in zip(consumer, range(20), strict=False)]
        assert found == list(range(5, 25))
        consumer.seek(P0, 28)
        [rest] = consumer.poll_batches(WAIT_MS)
        assert rest.next_offset == 30
        consumer.seek_to_end([P0])
        assert consumer.position(P0) == (30, None)
        consumer.seek_to_beginning()
        assert consumer.poll_arrow(WAIT_MS).num_rows >= 10
        assert consumer.end_offsets([P0])[P0].offset == 30
        assert consumer.beginning_offsets([P0])[P0].offset == 0
        assert consumer.offsets_for_times({P0: 5_000}) == {P0: None}
        assert consumer.partitions_for("t") == [0]
    with pytest.raises(ClientClosedError):
        consumer.poll(0)
    consumer.close()


def test_a_blocking_consumer_raises_truncation_in_the_callers_thread(cluster: ModelCluster) -> None:
    log = cluster.create("t")
    log.append(*numbered(0, 10))
    with Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        assert len(consumer.poll(WAIT_MS)) == 10
        log.truncate(3)
        log.elect()
        with pytest.raises(LogTruncatedError) as error:
            consumer.poll(WAIT_MS)
        assert error.value.divergent_offset == 3


def test_it_goes_to_so_many_offsets_before_the_end_but_not_before_the_start() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t", partitions=2)
        log.append(*numbered(0, 10))
        log.delete_before(6)
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            for before, expected in ((0, 10), (3, 7), (4, 6), (5, 6), (99, 6)):
                consumer.seek_to_end(before=before)
                assert (await consumer.position(P0)).offset == expected
            with pytest.raises(ValueError, match="0 or more"):
                consumer.seek_to_end(before=-1)

    run(work)


def test_it_goes_to_a_time_and_to_the_end_where_nothing_is_so_late() -> None:
    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 3), timestamp=1_000)
        log.append(*numbered(3, 6), timestamp=2_000)
        async with aio.Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
            consumer.assign([P0])
            for when, expected in ((0, 0), (1_500, 3), (datetime.fromtimestamp(2, tz=UTC), 3), (2_001, 6)):
                consumer.seek_to_time(when)
                assert (await consumer.position(P0)).offset == expected
            with pytest.raises(ValueError, match="negative"):
                consumer.seek_to_time(-1)

    run(work)


def test_without_a_position_it_starts_where_the_call_says(cluster: ModelCluster) -> None:
    cluster.create("t").append(*numbered(0, 10))
    with Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
        consumer.assign([P0], start="earliest")
        assert consumer.position(P0).offset == 0
        consumer.assign([P0], start="latest")
        assert consumer.position(P0).offset == 0, "it keeps the position that it had"
        consumer.assign([])
        consumer.assign([P0], start="latest")
        assert consumer.position(P0).offset == 10


def test_it_reads_up_to_the_end_as_it_is_and_stops(cluster: ModelCluster) -> None:
    log = cluster.create("t")
    log.append(*numbered(0, 7))
    with Consumer(cluster.address, auto_offset_reset="none", **FAST) as consumer:
        consumer.assign([P0], start="earliest")
        assert [record.value for record in consumer.until_end()] == numbered(0, 7)
        assert list(consumer.until_end()) == []
        log.append(*numbered(7, 9))
        assert offsets(list(consumer.until_end())) == [7, 8]
        consumer.seek(P0, 99)
        with pytest.raises(OffsetOutOfRangeError):
            list(consumer.until_end())


def test_what_no_deserializer_should_raise_loses_no_record() -> None:
    """Such as pyo3's PanicException, or pytest.fail: it passes through, and what was taken before it is read again."""

    class Panic(BaseException):
        pass

    panics = [b"3"]

    def parse(data: bytes | None) -> bytes | None:
        if data in panics:
            panics.clear()
            raise Panic
        return data

    async def work(cluster: ModelCluster) -> None:
        log = cluster.create("t")
        log.append(*numbered(0, 2))
        log.elect()  # what follows is another batch
        log.append(*numbered(2, 5))
        async with aio.Consumer(
            cluster.address, auto_offset_reset="earliest", value_deserializer=parse, **FAST
        ) as consumer:
            consumer.assign([P0])
            with pytest.raises(Panic):
                await consumer.poll(WAIT_MS)
            assert offsets(await read(consumer, 5)) == list(range(5))

    run(work)
