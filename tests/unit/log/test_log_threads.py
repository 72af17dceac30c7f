"""A real disk, with flushes and slices on other threads while one appends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.fixtures.logs import append, open_log, values_of
from tidelog.base.ids import Offset
from tidelog.io.disk import RealDisk
from tidelog.records import split_batches

COUNT = 3000


def test_flushing_and_reading_go_on_beside_appends(tmp_path: Path) -> None:
    log = open_log(RealDisk(), directory=f"{tmp_path}/t-0", segment_size_bytes=20_000, index_interval_bytes=500)
    flushes, reads = [], []
    with ThreadPoolExecutor(2) as threads:
        for index in range(COUNT):
            append(log, str(index))
            if index % 300 == 299:
                flushes.append(threads.submit(log.flush))
            if index % 50 == 49:
                start = Offset(index // 2)
                found = log.read(start, size_bytes_max=5000, end_offset=log.log_end_offset)
                reads.append((start, threads.submit(found.read_all)))
        for flushed in flushes:
            flushed.result()
        for start, read in reads:
            offsets = [header.base_offset for _, header in split_batches(read.result())]
            assert offsets == list(range(start, start + len(offsets)))
    assert log.recovery_point >= COUNT - 300
    log.flush()
    assert log.recovery_point == COUNT
    assert len(log.segments.base_offsets) > 5
    again = open_log(RealDisk(), directory=f"{tmp_path}/t-0", clean=False, recovery_point=COUNT)
    assert values_of(again) == [str(index) for index in range(COUNT)]
    assert again.recovery.lines() == []
