"""Outcomes of sends: for threads, for event loops, for callbacks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tidelog.base.errors import KafkaError, TidelogError, TimedOutError
from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.client.core.accumulator import Delivered, PendingBatch
from tidelog.client.core.values import RecordMetadata
from tidelog.client.futures import BatchMetadata, ColumnsFuture, Future, Outcomes, RecordFuture


def pending(outcomes: Outcomes, number: int = 0, timestamps: tuple[int, ...] = (5, 6)) -> PendingBatch:
    batch = PendingBatch(number, TopicPartition("t", PartitionIndex(0)), 0, outcomes)
    batch.timestamps = list(timestamps)
    batch.record_count = len(timestamps)
    return batch


def finish(batch: PendingBatch, outcome: Delivered | TidelogError) -> None:
    batch.outcome = outcome
    assert isinstance(batch.ticket, Outcomes)
    batch.ticket.on_done(batch)


DONE = Delivered(10, None, LeaderEpoch(3))


def test_each_record_of_a_batch_has_an_offset_and_a_timestamp_of_its_own() -> None:
    batch = pending(Outcomes())
    futures = [RecordFuture(batch, index) for index in range(2)]
    assert not futures[0].done()
    finish(batch, DONE)
    assert [future.result() for future in futures] == [
        RecordMetadata("t", 0, 10, 5, 3),
        RecordMetadata("t", 0, 11, 6, 3),
    ]
    assert futures[0].exception() is None


def test_the_leaders_clock_wins_and_an_unknown_offset_is_none() -> None:
    batch = pending(Outcomes())
    finish(batch, Delivered(None, 99, None))
    assert RecordFuture(batch, 1).result() == RecordMetadata("t", 0, None, 99, None)


def test_waiting_ends_when_another_thread_delivers() -> None:
    batch = pending(Outcomes())
    future = RecordFuture(batch, 0)
    thread = threading.Thread(target=finish, args=(batch, DONE))
    with pytest.raises(TimedOutError, match="t-0: not delivered yet, after waiting 0 s"):
        future.result(0)
    thread.start()
    assert future.result(10).offset == 10
    thread.join()


def test_a_failure_is_raised_to_each_who_asks_and_counts_as_seen() -> None:
    batch = pending(Outcomes())
    error = KafkaError("no")
    finish(batch, error)
    assert not batch.is_observed
    for index in range(2):
        with pytest.raises(KafkaError, match="no"):
            RecordFuture(batch, index).result()
    assert batch.is_observed
    assert RecordFuture(batch, 0).exception() is error


def test_callbacks_are_called_once_and_a_broken_one_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    batch = pending(Outcomes())
    seen: list[Future[RecordMetadata]] = []
    future = RecordFuture(batch, 0)
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(seen.append)
    finish(batch, DONE)
    assert seen == [future]
    assert "a callback of a delivered batch failed" in caplog.text
    future.add_done_callback(seen.append)  # at once: it is done
    assert seen == [future, future]


def test_it_can_be_awaited_while_another_thread_delivers() -> None:
    batch = pending(Outcomes())

    async def work() -> None:
        thread = threading.Thread(target=finish, args=(batch, DONE))
        waiting = [asyncio.ensure_future(_await(RecordFuture(batch, index))) for index in range(2)]
        await asyncio.sleep(0)
        thread.start()
        assert [found.offset for found in await asyncio.gather(*waiting)] == [10, 11]
        assert (await RecordFuture(batch, 0)).offset == 10
        thread.join()

    asyncio.run(work())


async def _await(future: Future[RecordMetadata]) -> RecordMetadata:
    return await future


def test_columns_are_done_when_all_their_batches_are() -> None:
    outcomes = Outcomes()
    batches = tuple(pending(outcomes, number) for number in range(2))
    future = ColumnsFuture.joined([ColumnsFuture(batches[:1]), ColumnsFuture(batches[1:])])
    seen: list[object] = []
    future.add_done_callback(seen.append)
    finish(batches[0], DONE)
    assert not future.done()
    assert not seen
    finish(batches[1], DONE)
    assert future.result() == [BatchMetadata("t", 0, 10, 2, 3)] * 2
    assert seen == [future]


def test_columns_fail_if_any_of_their_batches_did() -> None:
    outcomes = Outcomes()
    batches = tuple(pending(outcomes, number) for number in range(2))
    finish(batches[0], DONE)
    finish(batches[1], KafkaError("no"))
    with pytest.raises(KafkaError, match="no"):
        ColumnsFuture(batches).result()


def test_no_columns_are_done_at_once() -> None:
    assert ColumnsFuture(()).result() == []
