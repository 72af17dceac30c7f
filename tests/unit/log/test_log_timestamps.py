"""Offsets by time."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.logs import NOW_MS, append, make_batch, open_log, records_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log, TimestampOffset

LAYOUTS: dict[str, dict[str, Any]] = {
    "one segment": {},
    "a dense index": {"index_interval_bytes": 0},
    "many segments": {"segment_size_bytes": 400, "index_interval_bytes": 100},
}


def expected_first(log: Log, timestamp: int, end_offset: int) -> TimestampOffset | None:
    for record in records_of(log):
        if record.timestamp >= timestamp and log.log_start_offset <= record.offset < end_offset:
            return TimestampOffset(record.timestamp, Offset(record.offset), record.leader_epoch)
    return None


def expected_newest(log: Log, end_offset: int) -> TimestampOffset | None:
    seen = [r for r in records_of(log) if r.timestamp >= 0 and log.log_start_offset <= r.offset < end_offset]
    newest = max(seen, key=lambda record: (record.timestamp, -record.offset), default=None)
    return newest and TimestampOffset(newest.timestamp, Offset(newest.offset), newest.leader_epoch)


times = st.lists(st.lists(st.integers(-1, 60), min_size=1, max_size=4), max_size=25)


@given(batches=times, layout=st.sampled_from(sorted(LAYOUTS)), start=st.integers(0, 40), state=st.integers(0, 2))
def test_any_order_of_timestamps(batches: list[list[int]], layout: str, start: int, state: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, **LAYOUTS[layout])
    for number, timestamps in enumerate(batches):
        compression = ("none", "gzip")[number % 2]
        append(log, *("v" for _ in timestamps), timestamps=timestamps, epoch=number // 3, compression=compression)
    if state == 1:
        log.close()
    if state:
        log = open_log(disk, clean=state == 1, **LAYOUTS[layout])
    if start <= log.log_end_offset:
        log.advance_log_start_offset(Offset(start))
    boundaries = {header + 1 for header in range(-1, log.log_end_offset)}
    for timestamp in range(0, 62, 7):
        for end_offset in [*sorted(boundaries)[::5], log.log_end_offset]:
            found = log.offset_for_timestamp(timestamp, Offset(end_offset))
            assert found == expected_first(log, timestamp, end_offset)
    assert log.max_timestamp_offset() == expected_newest(log, log.log_end_offset)


@given(batches=times, end=st.integers(0, 30))
def test_the_largest_timestamp_below_an_end(batches: list[list[int]], end: int) -> None:
    log = open_log(MemoryDisk(), segment_size_bytes=300)
    for timestamps in batches:
        append(log, *("v" for _ in timestamps), timestamps=timestamps)
    ends = [0]
    for timestamps in batches:
        ends.append(ends[-1] + len(timestamps))
    end_offset = ends[min(end, len(ends) - 1)]  # high watermarks lie between batches
    assert log.max_timestamp_offset(Offset(end_offset)) == expected_newest(log, end_offset)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_record_is_found_within_its_batch(compression: str) -> None:
    log = open_log(MemoryDisk())
    append(log, *"abcd", timestamps=[10, 40, 20, 40], epoch=3, compression=compression)
    assert log.offset_for_timestamp(11, Offset(4)) == (40, 1, 3)
    assert log.offset_for_timestamp(41, Offset(4)) is None
    assert log.max_timestamp_offset() == (40, 1, 3)


def test_log_append_time_is_that_of_every_record_in_the_batch() -> None:
    log = open_log(MemoryDisk(), message_timestamp_type="LogAppendTime")
    clock = count(NOW_MS, 10)
    for _ in range(3):
        log.append_as_leader(make_batch("a", "b", timestamp=5), leader_epoch=LeaderEpoch(0), now_ms=next(clock))
    assert log.offset_for_timestamp(NOW_MS + 1, Offset(6)) == (NOW_MS + 10, 2, 0)
    assert log.max_timestamp_offset() == (NOW_MS + 20, 4, 0)


def test_records_without_a_timestamp_have_no_time() -> None:
    log = open_log(MemoryDisk())
    append(log, "a", timestamp=-1)
    assert log.max_timestamp_offset() is None
    assert log.offset_for_timestamp(0, Offset(1)) is None
    append(log, "b", timestamp=7)
    assert log.offset_for_timestamp(0, Offset(2)) == (7, 1, 0)
