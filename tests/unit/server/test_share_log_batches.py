"""The batches that a share fetch looks at: their headers alone, markers and aborted records passed over."""

from __future__ import annotations

import pytest

from support.fixtures.logs import NOW_MS, append, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import abort, commit, send
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.log import Log, LogSlice
from tidelog.server.share_fetching.log_batches import BATCHES_MAX, LogBatches
from tidelog.share import AcquiredRecords, LogBatch


def read(log: Log, offset: int = 0) -> LogSlice:
    return log.read(Offset(offset), size_bytes_max=1 << 30, end_offset=log.log_end_offset)


def test_markers_are_delivered_to_nobody() -> None:
    log = open_log(MemoryDisk())
    send(log, 1, "a", "b")
    commit(log, 1)
    append(log, "c")
    batches = LogBatches(read(log), 0, 100)
    assert batches.batches == [LogBatch(0, 1), LogBatch(2, 2, False), LogBatch(3, 3)]


def test_records_of_aborted_transactions_are_passed_over_where_committed_ones_are_wanted() -> None:
    log = open_log(MemoryDisk())
    send(log, 1, "a")
    send(log, 2, "b")
    append(log, "c")
    send(log, 1, "d")
    abort(log, 1)
    commit(log, 2)
    send(log, 1, "e")
    commit(log, 1)
    records = read(log)
    aborted = log.aborted_transactions(Offset(0), records.next_offset)
    delivered = [one.first for one in LogBatches(records, 0, 100, aborted).batches if one.is_delivered]
    assert delivered == [1, 2, 6]
    delivered = [one.first for one in LogBatches(records, 0, 100).batches if one.is_delivered]
    assert delivered == [0, 1, 2, 3, 6]


def test_a_transaction_that_began_before_what_is_read_is_known_all_the_same() -> None:
    log = open_log(MemoryDisk())
    send(log, 1, "a")
    send(log, 1, "b")
    abort(log, 1)
    records = read(log, 1)
    aborted = log.aborted_transactions(Offset(1), records.next_offset)
    assert [one.is_delivered for one in LogBatches(records, 1, 100, aborted).batches] == [False, False]


def test_no_more_is_looked_at_than_is_wanted_nor_than_one_turn_allows() -> None:
    log = open_log(MemoryDisk())
    for _ in range(BATCHES_MAX + 10):
        append(log, "a", "b")
    assert len(LogBatches(read(log), 0, 5).batches) == 3
    assert len(LogBatches(read(log), 1, 4).batches) == 3
    assert len(LogBatches(read(log), 0, 1 << 30).batches) == BATCHES_MAX


def test_whole_batches_are_answered_and_no_others() -> None:
    log = open_log(MemoryDisk())
    for size in (1, 2, 3):
        append(log, *"x" * size)
    batches = LogBatches(read(log), 0, 100)
    assert (
        batches.part(1, 1).read_all() == log.read(Offset(1), size_bytes_max=1, end_offset=log.log_end_offset).read_all()
    )
    assert batches.part(0, 5).read_all() == read(log).read_all()
    assert batches.part(2, 4).first_offset == 1


def test_large_batches_are_not_read_for_their_headers() -> None:
    log = open_log(MemoryDisk())
    for _ in range(3):
        append(log, "x" * 100_000)
    records = read(log)
    sizes: list[int] = []
    look_up = records.look_up

    class Watched(LogSlice):
        """Notes how much is looked at."""

        def look_up(self, position: int, size: int) -> bytes:
            sizes.append(size)
            return bytes(look_up(position, size))

    watched = Watched.__new__(Watched)
    for name in LogSlice.__slots__:
        setattr(watched, name, getattr(records, name))
    assert len(LogBatches(watched, 0, 100).batches) == 3
    assert sum(sizes) < 1_000


def test_acquired_records_are_divided_where_batches_end() -> None:
    log = open_log(MemoryDisk())
    for _ in range(4):
        append(log, "a", "b", "c")
    batches = LogBatches(read(log), 0, 100)
    whole = AcquiredRecords(1, 11, 1)
    assert batches.grouped([whole], 0) == [whole]
    assert batches.grouped([whole], 500) == [whole]
    assert batches.grouped([whole], 3) == [
        AcquiredRecords(1, 5, 1),
        AcquiredRecords(6, 8, 1),
        AcquiredRecords(9, 11, 1),
    ]
    parts = [AcquiredRecords(0, 1, 2), AcquiredRecords(4, 11, 1)]
    assert batches.grouped(parts, 1) == [
        AcquiredRecords(0, 1, 2),
        AcquiredRecords(4, 5, 1),
        AcquiredRecords(6, 8, 1),
        AcquiredRecords(9, 11, 1),
    ]


@pytest.mark.parametrize("size", [10, 2_000])
@pytest.mark.parametrize("rotten", [3, 20])
def test_what_a_rotten_base_offset_hides_is_not_passed_over(rotten: int, size: int) -> None:
    """Where no batch lies, a share group has nothing to wait for: what it passed over never comes again."""
    disk = MemoryDisk()
    log = open_log(disk)
    for index in range(40):
        append(log, str(index), "x" * size)
    log.roll(NOW_MS)
    append(log, "in the next segment")
    log.flush()
    segment = log.segments.first
    position = segment.position_of(2 * rotten)
    segment.release()
    disk.files[segment.path].data[position + 7] ^= 64
    with pytest.raises(CorruptLogError):
        LogBatches(read(log), 0, 1000)
    (damage,) = segment.damages
    batches = LogBatches(read(log), 0, 1000).batches
    assert [one.first for one in batches] == list(range(0, damage.start_offset, 2))
    assert damage.start_offset <= 2 * rotten
