"""Reading: which batches a slice holds, by offset, size and end; and what spoils a slice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from support.fixtures.logs import NOW_MS, append, make_batch, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import OffsetOutOfRangeError
from tidelog.base.ids import Offset
from tidelog.log import Log, LogSlice, StaleSliceError
from tidelog.records import split_batches

SIZE = len(make_batch("a"))


def filled(count: int = 100, *, per_batch: int = 3, **settings: Any) -> Log:
    """`count` batches of three records, of different sizes."""
    log = open_log(MemoryDisk(), **settings)
    for index in range(count):
        append(log, *("v" * (index % 7) for _ in range(per_batch)))
    return log


def read(log: Log, offset: int, *, size: int = 1 << 20, end: int | None = None, at_least_one: bool = True) -> LogSlice:
    end_offset = log.log_end_offset if end is None else Offset(end)
    return log.read(Offset(offset), size_bytes_max=size, end_offset=end_offset, at_least_one=at_least_one)


def offsets(found: LogSlice) -> list[int]:
    return [header.base_offset for _, header in split_batches(found.read_all())]


def test_what_lies_behind_an_offset_is_known_without_reading() -> None:
    log = filled(100, **LAYOUTS["many segments"])
    segments = log.segments
    assert len(segments) > 3
    assert segments.size_bytes_from(0) == segments.size_bytes
    assert segments.size_bytes_from(log.log_end_offset) == 0
    last = segments.active
    assert segments.size_bytes_from(last.base_offset) == last.size_bytes
    assert 0 < segments.size_bytes_from(last.base_offset + 1) < last.size_bytes
    assert open_log(MemoryDisk()).segments.size_bytes_from(0) == 0


LAYOUTS: dict[str, dict[str, Any]] = {
    "one segment": {"index_interval_bytes": 4096},
    "a dense index": {"index_interval_bytes": 0},
    "many segments": {"segment_size_bytes": 1000, "index_interval_bytes": 300},
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> dict[str, Any]:
    return LAYOUTS[request.param]


@pytest.fixture(params=["as appended", "cold", "opened again", "recovered"])
def log(request: pytest.FixtureRequest, layout: dict[str, Any]) -> Log:
    log = filled(**layout)
    if request.param == "cold":
        log.release()
    elif request.param != "as appended":
        clean = request.param == "opened again"
        disk = log.segments._disk
        if clean:
            log.close()
        log = open_log(disk, clean=clean, **layout)
    return log


def test_a_read_starts_with_the_batch_that_holds_the_offset(log: Log) -> None:
    for offset in range(300):
        found = read(log, offset, size=1)
        assert offsets(found) == [offset - offset % 3]
        assert (found.first_offset, found.next_offset) == (offset - offset % 3, offset - offset % 3 + 3)


def test_reading_on_from_next_offset_sees_everything_once(log: Log) -> None:
    for size in (1, 200, 997, 1 << 20):
        seen = []
        offset = Offset(0)
        while offset < log.log_end_offset:
            found = read(log, offset, size=size)
            seen += offsets(found)
            offset = found.next_offset
        assert seen == list(range(0, 300, 3))


def test_a_slice_is_no_larger_than_asked_and_not_much_smaller(log: Log) -> None:
    starts = [*log.segments.base_offsets, log.log_end_offset]
    for size in (200, 500, 900, 2000):
        for offset in range(0, 300, 3):
            found = read(log, offset, size=size)
            assert len(found) <= size
            left = sum(len(read(log, a, end=b)) for a, b in pairwise([offset, *(s for s in starts if s > offset)]))
            segment_left = len(read(log, offset, end=min(s for s in starts if s > offset)))
            largest_batch = SIZE + 60
            assert len(found) >= min(segment_left, size - largest_batch - size // 16)
            assert left >= segment_left


def test_the_end_offset_is_never_passed(log: Log) -> None:
    for end in range(301):
        seen = []
        offset = 0
        while offset < end and (found := read(log, offset, end=end)):
            seen += offsets(found)
            offset = found.next_offset
        assert seen == list(range(0, end - end % 3, 3))  # a batch that reaches beyond is left out


def test_the_first_batch_may_be_larger_than_asked_if_there_has_to_be_one(log: Log) -> None:
    assert len(read(log, 0, size=0)) > 0
    assert len(read(log, 0, size=0, at_least_one=False)) == 0
    assert len(read(log, 0, size=1, at_least_one=False)) == 0
    assert len(read(log, 0, size=0, end=2)) == 0  # but not one that may not be shown


def test_an_empty_read_says_where_to_go_on(log: Log) -> None:
    for offset, end in ((300, None), (150, 150), (299, 100), (150, 151)):
        found = read(log, offset, end=end)
        assert (len(found), found.next_offset, found.read_all(), list(found.pieces())) == (0, offset, b"", [])
        with pytest.raises(ValueError, match="no first offset"):
            _ = found.first_offset


def test_out_of_range(log: Log) -> None:
    for offset in (-1, 301):
        with pytest.raises(OffsetOutOfRangeError) as refused:
            read(log, offset)
        assert (refused.value.log_start_offset, refused.value.end_offset) == (0, 300)
    log.advance_log_start_offset(Offset(10))
    with pytest.raises(OffsetOutOfRangeError):
        read(log, 9)
    assert offsets(read(log, 10, size=1)) == [9]


def test_offsets_that_compaction_removed_are_passed_over() -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({"compact"}), segment_size_bytes=3 * SIZE)
    for base in (5, 10, 20, 40, 41, 90):
        log.append_as_follower(make_batch("a", base_offset=base, leader_epoch=0), now_ms=NOW_MS)
    assert len(log.segments.base_offsets) == 2
    for disk_state in (None, Log.release):
        if disk_state is not None:
            disk_state(log)
        for offset in range(91):
            expected = min(base for base in (5, 10, 20, 40, 41, 90) if base >= offset)
            assert offsets(read(log, offset, size=1)) == [expected]


def test_the_places_of_the_last_batches_are_known_without_reading() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for _ in range(2000):
        append(log, "a", "b")
    disk.read_count = 0
    for offset in range(4000 - 2 * 128, 4000):
        log.read(Offset(offset), size_bytes_max=1 << 20, end_offset=log.log_end_offset)
    assert disk.read_count == 0
    assert offsets(read(log, 1234, size=1)) == [1234]


def test_a_far_read_costs_a_few_small_reads() -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_interval_bytes=300)
    for _ in range(5000):
        append(log, "a", "b")
    disk.read_count = 0
    assert len(read(log, 5000, size=100_000, end=9000)) > 90_000
    assert disk.read_count <= 7  # the whole index once; then a block and a stretch of log for either end and the size


# Slices.


def test_pieces_are_of_the_size_asked_for_and_make_up_the_slice() -> None:
    log = filled()
    found = read(log, 0)
    whole = found.read_all()
    assert len(found) == len(whole)
    pieces = list(found.pieces(1000))
    assert {len(piece) for piece in pieces[:-1]} == {1000}
    assert b"".join(pieces) == whole
    assert found.read(10, 20) == whole[10:30]
    assert found.read(len(whole) - 3, 20) == whole[-3:]
    assert found.read(len(whole), 20) == b""


def test_a_slice_outlives_what_is_appended_rolled_closed_and_deleted() -> None:
    log = filled(segment_size_bytes=1000)
    found = read(log, 0)
    whole = found.read_all()
    append(log, "more")
    log.roll(NOW_MS)
    log.advance_log_start_offset(log.log_end_offset)
    log.delete_segments_before(log.log_end_offset)
    log.segments.remove_deleted_files()
    log.release()
    assert found.read_all() == whole


Cut = Callable[[Log], object]
CUTS: dict[str, tuple[Cut, bool]] = {
    "below its end": (lambda log: log.truncate_to(Offset(59)), True),
    "at its end": (lambda log: log.truncate_to(Offset(60)), False),
    "below its start": (lambda log: log.truncate_to(Offset(3)), True),
    "to nothing": (lambda log: log.truncate_fully_and_start_at(Offset(60)), True),
}


@pytest.mark.parametrize("where", CUTS)
@pytest.mark.parametrize("segment_size_bytes", [1000, 1 << 20])
def test_only_a_truncation_below_its_end_spoils_a_slice(where: str, segment_size_bytes: int) -> None:
    cut, spoils = CUTS[where]
    log = filled(segment_size_bytes=segment_size_bytes)
    found = read(log, 30, end=60, size=600)
    last = read(log, 54, end=60)
    whole = last.read_all()
    assert (found.first_offset, last.next_offset) == (30, 60)
    cut(log)
    for _ in range(20):
        append(log, "other", "records", "here")
    if spoils:
        with pytest.raises(StaleSliceError, match="truncated to"):
            last.read_all()
    else:
        assert last.read_all() == whole
        assert values_of(log)[60:63] == ["other", "records", "here"]
