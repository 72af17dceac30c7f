"""A flush on another thread, with the log cut, rolled or shortened in the middle of it: stopped at its syncs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.fixtures.logs import append, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk, MemoryFile
from tidelog.base.errors import DiskError
from tidelog.base.ids import Offset
from tidelog.io.disk import RealDisk

Step = Callable[[], object]


class PausingDisk(MemoryDisk):
    """Does something else of the log's thread whenever a file is synced, as if that ran meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: list[Step] = []

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        file = super().open(path, create=create)
        sync = file.sync

        def pause() -> None:
            if self.meanwhile and path.endswith(".log"):
                self.meanwhile.pop(0)()
            sync()

        file.sync = pause  # type: ignore[method-assign]
        return file


def test_what_a_truncation_replaced_is_not_counted_as_synced() -> None:
    disk = PausingDisk()
    log = open_log(disk)
    for value in "abcdef":
        append(log, value)

    def replace() -> None:
        log.truncate_to(Offset(2))
        for value in "wxyz":
            append(log, value)

    disk.meanwhile = [replace]
    log.flush()
    assert log.log_end_offset == 6
    assert log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 6


def test_a_flush_that_began_before_a_truncation_takes_nothing_from_one_that_began_after() -> None:
    disk = PausingDisk()
    log = open_log(disk)
    for value in "abcdef":
        append(log, value)

    def replace() -> None:
        log.truncate_to(Offset(2))
        append(log, "x")
        log.flush()
        assert log.recovery_point == 3

    disk.meanwhile = [replace]
    log.flush()
    assert log.recovery_point <= 3
    log.flush()
    assert log.recovery_point == 3


def test_segments_that_are_deleted_during_a_flush_do_no_harm() -> None:
    disk = PausingDisk()
    log = open_log(disk, segment_size_bytes=300)
    for value in range(20):
        append(log, str(value))
    assert len(log.segments.base_offsets) > 4
    bases = log.segments.base_offsets

    def shorten() -> None:
        log.advance_log_start_offset(bases[3])
        assert log.delete_segments_before(bases[3]) == 3
        log.segments.remove_deleted_files()

    disk.meanwhile = [shorten]
    log.flush()
    assert log.recovery_point == 20
    unsynced = [path for path, each in disk.files.items() if path.endswith(".log") and each.synced != each.data]
    assert unsynced == []  # none was passed over
    assert log.segments.failure is None


def test_a_segment_that_is_rolled_during_a_flush_gets_its_name_synced_by_the_next() -> None:
    disk = PausingDisk()
    log = open_log(disk)
    append(log, "a")

    def roll() -> None:
        log.roll(0)
        append(log, "b")

    log.flush()
    append(log, "c")
    disk.meanwhile = [roll]
    log.flush(Offset(2))
    log.flush()
    name = f"{log.directory}/{2:020d}.log"
    assert name in disk._synced_names
    assert log.recovery_point == 3


@pytest.mark.parametrize("room", range(0, 120, 4))
def test_a_roll_that_finds_no_room_leaves_no_segment_in_the_midst_of_the_log(room: int) -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=1_000, index_interval_bytes=0)
    append(log, "x" * 600)
    append(log, "y")
    disk.free_write_bytes = room
    with pytest.raises(DiskError):
        append(log, "z" * 600)
    disk.free_write_bytes = None
    assert log.segments.failure is None
    append(log, "small")  # which fits where the other did not
    again = open_log(disk, clean=False)
    assert [value[:5] for value in values_of(again)] == ["xxxxx", "y", "small"]
    assert again.segments.base_offsets == log.segments.base_offsets


def test_flushes_go_on_beside_rolls_and_deletions(tmp_path: Path) -> None:
    log = open_log(RealDisk(), directory=f"{tmp_path}/t-0", segment_size_bytes=2_000)
    with ThreadPoolExecutor(2) as threads:
        flushes = []
        for index in range(2_000):
            append(log, str(index))
            if index % 10 == 9:
                flushes.append(threads.submit(log.flush))
            if index % 100 == 99:
                log.advance_log_start_offset(Offset(index - 50))
                log.delete_segments_before(log.log_start_offset)
                log.segments.remove_deleted_files()
        for flushed in flushes:
            flushed.result()
    log.flush()
    assert log.recovery_point == 2_000
    again = open_log(RealDisk(), directory=f"{tmp_path}/t-0", clean=False, recovery_point=2_000)
    assert values_of(again)[-1] == "1999"
