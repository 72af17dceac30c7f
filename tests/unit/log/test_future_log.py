"""The copy of a log that takes its place: the same batches, lineage, producers and log start, whatever the log has been
through.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from support.examples import examples
from support.fixtures.cleaning import clean, key_values
from support.fixtures.logs import NOW_MS, append, lineage_of, make_batch, open_log, records_of
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, begun, commit, entries_of, send
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log
from tidelog.log.files.future_mark import FutureMark, parse_future_mark, read_future_mark
from tidelog.log.future_log import FutureLog
from tidelog.records import Record
from tidelog.records.lineage import EpochEntry

COPY = "more/t-0"
SEEDS = 60


def copy_of(disk: MemoryDisk, log: Log) -> FutureLog:
    copy = Log.open(
        disk,
        COPY,
        log.topic_partition,
        log.config,
        topic_id=log.topic_id,
        clean_shutdown=False,
        now_ms=NOW_MS,
        log_start_offset=log.log_start_offset,
    )
    return FutureLog(disk, copy, log)


def copy_piece(future: FutureLog, size_bytes_max: int = 300) -> None:
    current = future.current
    data = future.find(size_bytes_max).read_all()
    future.take(data, current.log_start_offset, current.lineage.clone(), NOW_MS)


def copy_all(future: FutureLog) -> None:
    while not future.is_level:
        copy_piece(future)


def take_over(future: FutureLog) -> Log:
    assert future.catch_up(NOW_MS)
    future.adopt_producers()
    future.sync(future.log.producers.clone())
    return future.take_over()


def producers_of(log: Log) -> list[Any]:
    return sorted(
        (each.producer_id, each.producer_epoch, tuple(each.batches), each.transaction_first_offset)
        for each in log.producers
    )


def facts_of(log: Log) -> tuple[Any, ...]:
    bounds = log.log_start_offset, log.log_end_offset, log.producers.first_unstable_offset
    return bounds, lineage_of(log), producers_of(log)


def served_by(log: Log) -> list[Record]:
    return [record for record in records_of(log) if record.offset >= log.log_start_offset]


@pytest.mark.parametrize("seed", range(examples(SEEDS)))
def test_it_is_alike_after_whatever_happened_to_the_log_meanwhile(seed: int) -> None:
    random = Random(seed)
    disk = MemoryDisk()
    compacted = random.random() < 0.5
    policy = frozenset({"compact"}) if compacted else frozenset({"delete"})
    log = open_log(disk, segment_size_bytes=700, index_interval_bytes=0, cleanup_policy=policy)
    epoch, sequences = 0, {5: 0, 6: 0}
    future: FutureLog | None = None
    for _ in range(random.randrange(20, 80)):
        does = random.random()
        if does < 0.5:
            producer = random.choice((None, 5, 6))
            values = [str(random.random()).encode() for _ in range(random.randrange(1, 4))]
            settings: dict[str, Any] = {"key": random.choice((b"a", b"b", b"c"))}
            if producer is not None:
                settings |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
                sequences[producer] += len(values)
            log.append_as_leader(make_batch(*values, **settings), leader_epoch=LeaderEpoch(epoch), now_ms=NOW_MS)
        elif does < 0.6:
            epoch += random.randrange(1, 3)
            log.assign_leader_epoch(LeaderEpoch(epoch))
        elif does < 0.67 and log.log_end_offset > log.log_start_offset:
            end_offset = Offset(random.randrange(log.log_start_offset, log.log_end_offset))
            if future is not None:
                future.truncate_to(end_offset)
            log.truncate_to(end_offset)
            sequences = {
                each: state.batches[-1].last_sequence + 1 if (state := log.producers.get(each)) and state.batches else 0
                for each in sequences
            }
        elif does < 0.72:
            log.advance_log_start_offset(Offset(random.randint(log.log_start_offset, log.log_end_offset)))
            log.delete_segments_before(log.log_start_offset)
        elif does < 0.8 and compacted:
            log.flush()
            clean(log)
        elif future is None:
            future = copy_of(disk, log)
        else:
            copy_piece(future)
    if future is None:
        future = copy_of(disk, log)
    copy_all(future)
    before, records, table = facts_of(log), served_by(log), key_values(log)
    moved = take_over(future)
    assert facts_of(moved) == before
    # What was compacted after it was copied is superseded in the copy still, until that is compacted.
    assert served_by(moved) == records or (compacted and set(map(str, records)) < set(map(str, served_by(moved))))
    assert key_values(moved).items() >= table.items()
    kept = served_by(moved)
    moved.release()
    again = open_copy(disk, log)
    assert facts_of(again)[:2] == before[:2]
    assert [each[:2] for each in producers_of(again)] == [each[:2] for each in before[2]]
    assert served_by(again) == kept


def open_copy(disk: MemoryDisk, log: Log) -> Log:
    """At the next start, after a crash."""
    return Log.open(
        disk,
        COPY,
        log.topic_partition,
        log.config,
        topic_id=log.topic_id,
        clean_shutdown=False,
        now_ms=NOW_MS,
        log_start_offset=log.log_start_offset,
    )


def test_producers_whose_records_are_gone_are_known_still() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=200)
    batch = make_batch(b"a", producer_id=5, producer_epoch=3, base_sequence=0)
    log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    for number in range(5):
        append(log, f"{number}" * 100)
    log.advance_log_start_offset(Offset(3))
    log.delete_segments_before(Offset(3))
    future = copy_of(disk, log)
    copy_all(future)
    assert future.log.producers.get(5) is None, "no record of it was copied"
    moved = take_over(future)
    assert producers_of(moved) == producers_of(log) != []
    moved.release()
    again = open_copy(disk, log)
    assert again.producers.get(5) is not None
    assert again.producers.get(5).producer_epoch == 3  # type: ignore[union-attr]


def test_epochs_without_records_are_known_still() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a", epoch=1)
    log.assign_leader_epoch(LeaderEpoch(4))
    future = copy_of(disk, log)
    copy_all(future)
    moved = take_over(future)
    assert moved.lineage.entries == (EpochEntry(LeaderEpoch(1), Offset(0)), EpochEntry(LeaderEpoch(4), Offset(1)))
    assert moved.lineage is log.lineage, "who leads or follows holds on to it"
    moved.assign_leader_epoch(LeaderEpoch(5))
    moved.release()
    assert [each for each, _ in lineage_of(open_copy(disk, log))] == [1, 5]


def test_the_log_that_was_left_takes_nothing_more() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a")
    found = log.read(Offset(0), size_bytes_max=1000, end_offset=Offset(1))
    future = copy_of(disk, log)
    copy_all(future)
    take_over(future)
    with pytest.raises(DiskError):
        append(log, "b")
    assert found.read_all(), "who reads in it reads on"


def test_it_says_what_it_is_until_it_is_a_log_like_any_other() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a")
    future = copy_of(disk, log)
    copy_all(future)
    assert read_future_mark(disk, COPY) is None
    take_over(future)
    assert read_future_mark(disk, COPY) == FutureMark.LEVEL


@pytest.mark.parametrize("data", [b"", b"0\n", b"1\nlevel\n", b"0\nhalf\n", b"0\nlevel\nmore", b"\xff"])
def test_a_mark_that_was_never_written_so_is_none(data: bytes) -> None:
    with pytest.raises(CorruptLogError, match="version 0"):
        parse_future_mark(data, "x/future-log")


def test_the_copy_knows_what_was_aborted() -> None:
    disk = MemoryDisk()
    log = begun(disk, segment_size_bytes=300)
    future = copy_of(disk, log)
    copy_piece(future)
    abort(log, 6)
    copy_all(future)
    send(log, 6)
    copy = take_over(future)
    assert entries_of(copy) == entries_of(log)
    send(copy, 9)
    abort(copy, 6)
    commit(copy, 9)
    known = entries_of(copy)
    assert len(known) == len(entries_of(log)) + 1
    copy.close()
    again = Log.open(disk, COPY, log.topic_partition, log.config, topic_id=None, clean_shutdown=True, now_ms=NOW_MS)
    assert entries_of(again) == known
