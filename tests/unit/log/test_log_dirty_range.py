"""What of a log is worth compacting, and when."""

from __future__ import annotations

from typing import Any

import pytest

from support.fixtures.logs import NOW_MS, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.log import Log
from tidelog.log.compaction.cleaner_checkpoint import read_cleaner_offsets, write_cleaner_offsets
from tidelog.log.compaction.cleaner_range import DirtyRange

SIZE = len(make_batch("0"))
SECOND = 1000


def filled(**settings: Any) -> Log:
    """Ten segments of one record, a second apart, the last one being active."""
    log = open_log(
        MemoryDisk(),
        cleanup_policy=frozenset({"compact"}),
        segment_size_bytes=SIZE,
        message_timestamp_after_ms_max=None,
        **settings,
    )
    for number in range(10):
        batch = make_batch("0", timestamp=NOW_MS + number * SECOND)
        log.append_as_leader(batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    log.flush()
    log.compaction.mark.set(Offset(9))
    return log


def dirty(log: Log, first_dirty: int = 0, end_max: int = 10, now_ms: int = NOW_MS) -> DirtyRange | None:
    return log.compaction.dirty_range(
        log.config, first_dirty_offset=Offset(first_dirty), end_offset_max=Offset(end_max), now_ms=now_ms
    )


def test_all_but_the_active_segment_is_in_range() -> None:
    found = dirty(filled())
    assert found is not None
    assert (len(found.segments), found.first_dirty_offset, found.end_offset) == (9, 0, 9)
    assert (found.ratio, found.is_overdue) == (1.0, False)


@pytest.mark.parametrize(("first_dirty", "is_worth_it"), [(0, True), (4, True), (5, False), (8, False), (9, False)])
def test_more_than_the_ratio_has_to_be_dirty(first_dirty: int, is_worth_it: bool) -> None:
    assert (dirty(filled(), first_dirty) is not None) == is_worth_it


def test_it_ends_where_a_segment_is_not_committed_or_not_synced() -> None:
    found = dirty(filled(), end_max=4)
    assert found is not None
    assert found.end_offset == 4
    assert dirty(filled(), end_max=0) is None


def test_what_is_young_waits() -> None:
    log = filled(min_compaction_lag_ms=5 * SECOND)
    found = dirty(log, now_ms=NOW_MS + 9 * SECOND)
    assert found is not None
    assert found.end_offset == 5  # the record at 4 s is just old enough
    assert dirty(log, now_ms=NOW_MS) is None
    assert dirty(log, first_dirty=6, now_ms=NOW_MS + 9 * SECOND) is None


def test_what_is_old_does_not_wait_for_others() -> None:
    log = filled(max_compaction_lag_ms=5 * SECOND, min_cleanable_dirty_ratio=1.0)
    assert dirty(log, now_ms=NOW_MS + 5 * SECOND) is None
    found = dirty(log, now_ms=NOW_MS + 5 * SECOND + 1)
    assert found is not None
    assert found.is_overdue
    assert dirty(log, first_dirty=8, now_ms=NOW_MS + 13 * SECOND) is None


def test_an_active_segment_is_closed_in_time_for_it() -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=SECOND)
    for timestamp in (NOW_MS, NOW_MS + SECOND, NOW_MS + SECOND + 1):
        log.append_as_leader(make_batch("0", timestamp=timestamp), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    assert log.segments.base_offsets == (0, 2)


def test_a_checkpoint_of_an_earlier_topic_of_the_name_does_not_count() -> None:
    log = filled()
    log.compaction.mark.set(Offset(0))  # never compacted
    found = dirty(log, first_dirty=9)
    assert found is not None
    assert found.first_dirty_offset == 0


def test_the_checkpoint_is_kafkas_and_one_that_cannot_be_read_is_none() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    assert read_cleaner_offsets(disk, "data") == {}
    offsets = {TopicPartition("t", PartitionIndex(3)): Offset(7)}
    write_cleaner_offsets(disk, "data", offsets)
    assert disk.read_bytes("data/cleaner-offset-checkpoint") == b"0\n1\nt 3 7\n"
    assert read_cleaner_offsets(disk, "data") == offsets
    disk.files["data/cleaner-offset-checkpoint"].data[:] = b"?"
    assert read_cleaner_offsets(disk, "data") == {}
