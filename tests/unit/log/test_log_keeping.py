"""Keeping a log: retention, the log start, syncing, closing."""

from __future__ import annotations

from typing import Any

import pytest

from support.fixtures.logs import DIRECTORY, NOW_MS, append, lineage_of, make_batch, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError, InvariantBrokenError, OffsetOutOfRangeError
from tidelog.base.ids import Offset
from tidelog.log import Log

SIZE = len(make_batch("0"))


def filled(disk: MemoryDisk, **settings: Any) -> Log:
    """Ten batches of one record, a second apart, three a segment, two a leader epoch."""
    log = open_log(disk, segment_size_bytes=3 * SIZE, index_interval_bytes=0, **settings)
    for index in range(10):
        append(log, str(index), epoch=index // 2, timestamp=NOW_MS - 10_000 + index * 1000)
    return log


# Retention.


def retain(log: Log, *, high_watermark: int = 10, now_ms: int = NOW_MS) -> int:
    if not log.apply_retention(high_watermark=Offset(high_watermark), now_ms=now_ms):
        return 0
    return log.delete_segments_before(log.log_start_offset)


def test_segments_go_when_their_youngest_record_is_too_old() -> None:
    log = filled(MemoryDisk(), retention_ms=5000)
    assert retain(log) == 1  # 0-2 is 8 to 10 s old, 3-5 is 5 to 7 s
    assert (log.log_start_offset, values_of(log)) == (3, list("3456789"))
    assert lineage_of(log) == [(1, 3), (2, 4), (3, 6), (4, 8)]
    assert retain(log) == 0
    assert retain(log, now_ms=NOW_MS + 1) == 1


def test_segments_go_while_enough_remains() -> None:
    log = filled(MemoryDisk(), retention_ms=None, retention_size_bytes=5 * SIZE)
    assert retain(log) == 1
    assert values_of(log) == list("3456789")
    assert log.segments.size_bytes == 7 * SIZE


def test_nothing_above_the_high_watermark_goes() -> None:
    log = filled(MemoryDisk(), retention_ms=1, retention_size_bytes=0)
    assert retain(log, high_watermark=5) == 1
    assert values_of(log) == list("3456789")


def test_even_the_last_segment_goes_once_it_is_too_old() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=1)
    assert retain(log) == 4
    assert (log.log_start_offset, log.log_end_offset, values_of(log)) == (10, 10, [])
    assert lineage_of(log) == [(4, 10)]  # the log still knows its epoch
    assert append(log, "new", epoch=4).first_offset == 10
    assert values_of(open_log(disk, clean=False)) == ["new"]


@pytest.mark.parametrize("policy", ["compact", ""])
def test_without_the_policy_delete_nothing_is_retained_by_time_or_size(policy: str) -> None:
    policies = frozenset({policy} - {""})
    log = filled(MemoryDisk(), retention_ms=1, retention_size_bytes=0, cleanup_policy=policies)
    assert retain(log) == 0
    log.advance_log_start_offset(Offset(7))
    assert retain(log) == 2
    assert values_of(log) == list("789")


def test_limits_of_none_keep_everything() -> None:
    log = filled(MemoryDisk(), retention_ms=None, retention_size_bytes=None)
    assert retain(log, now_ms=2 * NOW_MS) == 0


def test_deleted_segments_are_gone_for_a_restart_before_their_files_are() -> None:
    disk = MemoryDisk()
    log = filled(disk, retention_ms=5000)
    retain(log)
    assert disk.exists(f"{DIRECTORY}/00000000000000000000.log.deleted")
    again = open_log(disk, clean=False)
    assert (again.log_start_offset, again.log_end_offset) == (3, 10)
    assert not [path for path in disk.files if path.endswith(".deleted")]
    assert log.segments.remove_deleted_files() == 3


# The log start.


def test_the_log_start_moves_within_segments() -> None:
    log = filled(MemoryDisk())
    log.advance_log_start_offset(Offset(4))
    log.advance_log_start_offset(Offset(2))
    assert log.log_start_offset == 4
    assert lineage_of(log) == [(2, 4), (3, 6), (4, 8)]
    assert log.delete_segments_before(log.log_start_offset) == 1
    assert log.segments.base_offsets == (3, 6, 9)
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_log_start_offset(Offset(11))
    with pytest.raises(InvariantBrokenError):
        log.delete_segments_before(Offset(5))


def test_the_log_start_moves_without_waiting_for_the_disk_and_is_found_again() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    syncs = disk.sync_count
    log.advance_log_start_offset(Offset(4))
    assert disk.sync_count == syncs
    again = open_log(disk, clean=False, log_start_offset=Offset(4))
    assert lineage_of(again) == lineage_of(log) == [(2, 4), (3, 6), (4, 8)]


def test_the_active_segment_is_never_deleted() -> None:
    log = filled(MemoryDisk())
    log.advance_log_start_offset(Offset(10))
    assert log.delete_segments_before(Offset(10)) == 3
    assert (log.segments.base_offsets, log.log_end_offset, values_of(log)) == ((9,), 10, [])


# Syncing.


def test_flush_moves_the_recovery_point() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    assert log.recovery_point == 0
    log.flush(Offset(5))
    assert log.recovery_point == 5
    log.flush()
    assert log.recovery_point == 10
    for path, contents in disk.files.items():
        if path.endswith(".log"):
            assert contents.synced == contents.data
    disk.sync_count = 0
    log.flush()
    assert disk.sync_count == 0


def test_flush_by_number_of_records() -> None:
    log = open_log(MemoryDisk(), flush_messages=3)
    seen = []
    for _ in range(7):
        append(log, "a")
        log.maybe_flush(NOW_MS)
        seen.append(log.recovery_point)
    assert seen == [0, 0, 3, 3, 3, 6, 6]


def test_flush_by_age() -> None:
    log = open_log(MemoryDisk(), flush_ms=1000)
    assert not log.maybe_flush(0)
    assert not log.maybe_flush(5000)
    append(log, "a")
    assert not log.is_flush_due(5999)
    assert log.maybe_flush(6000)
    assert log.recovery_point == 1
    assert not log.maybe_flush(9000)
    append(log, "a")
    assert not log.maybe_flush(9999)
    assert log.maybe_flush(10_000)


def test_closed_segments_are_due_without_any_setting() -> None:
    log = filled(MemoryDisk())
    assert log.is_flush_due(0)
    assert log.maybe_flush(0)
    assert log.recovery_point == 9
    assert not log.maybe_flush(1 << 60)


def test_a_sync_that_fails_promises_nothing() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.refusals.add("sync")
    with pytest.raises(DiskError, match="refused to sync"):
        log.flush()
    assert log.recovery_point == 0
    disk.refusals.clear()
    with pytest.raises(DiskError, match="earlier failure"):
        log.flush()  # the system may have dropped what it could not write: a sync that succeeds now proves nothing
    assert log.recovery_point == 0


def test_a_segments_name_is_synced_with_it() -> None:
    from random import Random

    for seed in range(20):
        disk = MemoryDisk()
        log = filled(disk)
        log.flush()
        append(log, "x", epoch=4)
        disk.lose_power(Random(seed))
        again = open_log(disk, clean=False, recovery_point=10)
        assert values_of(again)[:10] == list("0123456789")


# Closing.


def test_a_clean_close_syncs_everything() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.close()
    assert log.recovery_point == 10
    unsynced = [path for path, each in disk.files.items() if each.synced != each.data]
    assert [path for path in unsynced if not path.endswith(".snapshot")] == []


def test_a_close_that_fails_is_no_clean_stop() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.refusals.add("sync")
    with pytest.raises(DiskError):
        log.close()


def test_a_log_that_nobody_touched_is_closed_without_a_write() -> None:
    """Thousands of idle partitions must not make a stop take minutes."""
    from random import Random

    disk = MemoryDisk()
    open_log(disk).close()  # a new one is written, empty as it is
    filled_log = filled(disk)
    filled_log.close()
    before = {path: bytes(contents.data) for path, contents in disk.files.items()}
    disk.sync_count = disk.append_count = 0
    for _ in range(2):
        open_log(disk, clean=True).close()
    assert (disk.sync_count, disk.append_count) == (0, 0)
    assert {path: bytes(contents.data) for path, contents in disk.files.items()} == before
    disk.lose_power(Random(1))
    again = open_log(disk, clean=True)
    assert values_of(again) == list("0123456789")
    append(again, "more", epoch=4)
    again.close()
    assert disk.sync_count > 0
    assert values_of(open_log(disk, clean=True))[-1] == "more"
