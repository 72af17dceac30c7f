"""A file that somebody cut while its log is open: readers are refused what is not there, and given what is."""

from __future__ import annotations

import pytest

from support.fixtures.logs import NOW_MS, append, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.log.damage import DamagedRecordsError
from tidelog.log.slice import StaleSliceError
from tidelog.records import split_batches

BATCHES = 12


@pytest.mark.parametrize("index_interval_bytes", [1, 4096])
@pytest.mark.parametrize("size_bytes_max", [1, 300, 1 << 20])
def test_wherever_it_is_cut_every_read_is_right_or_refused(index_interval_bytes: int, size_bytes_max: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, index_interval_bytes=index_interval_bytes)
    for index in range(BATCHES):
        append(log, f"{index}-a", f"{index}-b")
    log.roll(NOW_MS)
    append(log, "in the next segment")
    log.flush()
    segment = log.segments.first
    data = disk.files[segment.path].data
    whole = bytes(data)
    starts = [segment.position_of(2 * index) for index in range(BATCHES)]
    for size_bytes in range(len(whole) - 1, 0, -7):
        segment.release()
        del data[size_bytes:]
        refused = 0
        for offset in range(2 * BATCHES):
            start = starts[offset // 2]
            try:
                found = log.read(
                    Offset(offset), size_bytes_max=size_bytes_max, end_offset=log.log_end_offset
                ).read_all()
            except (CorruptLogError, StaleSliceError):
                refused += 1
                continue
            assert found == whole[start : start + len(found)]
            assert split_batches(found)[0][1].base_offset == offset // 2 * 2
        assert refused >= sum(
            2 for start, end in zip(starts, [*starts[1:], len(whole)], strict=True) if end > size_bytes
        )
    end = log.log_end_offset
    assert log.read(Offset(end - 1), size_bytes_max=1 << 20, end_offset=end).read_all()


@pytest.mark.parametrize("is_cut_by", [1, 40, 1_000])
@pytest.mark.parametrize("piece_bytes", [37, 100, 1 << 20])
@pytest.mark.parametrize("start", [0, 3])
def test_what_is_before_the_end_is_served_once_somebody_came_upon_it(
    is_cut_by: int, piece_bytes: int, start: int
) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for index in range(BATCHES):
        append(log, f"{index}" * 200)
    log.roll(NOW_MS)
    append(log, "in the next segment")
    log.flush()
    segment = log.segments.first
    data = disk.files[segment.path].data
    whole = bytes(data)
    starts = [segment.position_of(index) for index in range(BATCHES)]
    segment.release()
    del data[-is_cut_by:]
    kept = max(one for one, end in enumerate([*starts[1:], len(whole)]) if end <= len(data)) + 1

    def read(offset: int) -> bytes:
        found = log.read(Offset(offset), size_bytes_max=1 << 20, end_offset=log.log_end_offset)
        return b"".join(found.pieces(piece_bytes))

    with pytest.raises(CorruptLogError):
        read(start)
    assert read(start) == whole[starts[start] : starts[kept]]
    with pytest.raises(DamagedRecordsError):
        log.read(Offset(kept), size_bytes_max=1 << 20, end_offset=log.log_end_offset)
    assert [damage.start_offset for damage in segment.damages] == [kept]
    assert read(BATCHES)
