"""Truncation: what goes, what the lineage keeps, and what the recovery point may still promise."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from support.examples import examples
from support.fixtures.logs import DIRECTORY, NOW_MS, append, lineage_of, make_batch, open_log, values_of
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Disk
from tidelog.io.disk import RealDisk
from tidelog.log import Log, LogConfig
from tidelog.log.recovery import has_segment

SIZE = len(make_batch("a"))


def filled(disk: Disk, segment_size_bytes: int = 3 * SIZE, directory: str = DIRECTORY) -> Log:
    """Ten batches of one record, in leader epochs 0, 1, 2, ... of two each."""
    log = open_log(disk, segment_size_bytes=segment_size_bytes, index_interval_bytes=0, directory=directory)
    for index in range(10):
        append(log, str(index), epoch=index // 2, timestamp=NOW_MS + index)
    return log


@pytest.mark.parametrize("end_offset", range(11))
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("segment_size_bytes", [3 * SIZE, 1 << 20])
def test_everything_from_the_end_offset_on_goes(end_offset: int, reopened: bool, segment_size_bytes: int) -> None:
    disk = MemoryDisk()
    log = filled(disk, segment_size_bytes)
    if reopened:
        log.close()
        log = open_log(disk, segment_size_bytes=segment_size_bytes, index_interval_bytes=0)
    assert log.truncate_to(Offset(end_offset)) == (end_offset < 10)
    left = [str(index) for index in range(end_offset)]
    assert values_of(log) == left
    assert log.log_end_offset == end_offset
    assert lineage_of(log) == [(epoch, 2 * epoch) for epoch in range(5) if 2 * epoch < end_offset]
    newest = log.max_timestamp_offset()
    assert (newest.offset if newest else -1) == end_offset - 1
    for index in range(end_offset, end_offset + 5):
        append(log, "new", epoch=7, timestamp=NOW_MS + index)
    assert values_of(log) == [*left, *["new"] * 5]
    for index in range(end_offset + 5):
        found = log.offset_for_timestamp(NOW_MS + index, log.log_end_offset)
        assert found is not None
        assert found.offset == index
    assert not [path for path in disk.files if path.endswith(".deleted")]
    again = open_log(disk, clean=False, segment_size_bytes=segment_size_bytes)
    assert (again.recovery.lines(), values_of(again)) == ([], values_of(log))
    assert lineage_of(again) == lineage_of(log)


def open_files(directory: Path) -> list[str]:
    """The names of those that this process has open there."""
    links = [f"/proc/self/fd/{each}" for each in os.listdir("/proc/self/fd")]
    paths = [Path(os.readlink(link)) for link in links if os.path.lexists(link)]
    return sorted(path.name for path in paths if path.is_relative_to(directory))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files cannot be counted")
@pytest.mark.parametrize("end_offset", [2, 5, 9])
@pytest.mark.parametrize("segment_size_bytes", [3 * SIZE, 1 << 20])
def test_a_truncated_log_keeps_no_file_open_but_that_of_its_last_batches(
    end_offset: int, segment_size_bytes: int, tmp_path: Path
) -> None:
    """After an unclean election thousands are truncated at once, and each file counts against the process's limit."""
    directory = str(tmp_path / "flights-0")
    filled(RealDisk(), segment_size_bytes, directory=directory).close()
    log = open_log(RealDisk(), segment_size_bytes=segment_size_bytes, index_interval_bytes=0, directory=directory)
    log.truncate_to(Offset(end_offset))
    assert open_files(tmp_path) == [os.path.basename(log.segments.active.path)]
    assert values_of(log) == [str(index) for index in range(end_offset)]
    log.close()
    assert open_files(tmp_path) == []


def test_a_batch_goes_as_a_whole() -> None:
    log = open_log(MemoryDisk())
    append(log, "a", "b")
    append(log, "c", "d", "e")
    log.truncate_to(Offset(3))
    assert (values_of(log), log.log_end_offset) == (["a", "b"], 2)


def test_at_or_beyond_the_log_end_only_epochs_go() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.assign_leader_epoch(LeaderEpoch(9))
    assert lineage_of(log)[-1] == (9, 10)
    assert not log.truncate_to(Offset(11))
    assert lineage_of(log)[-1] == (9, 10)
    assert not log.truncate_to(Offset(10))
    assert lineage_of(log)[-1] == (4, 8)
    assert disk.files[f"{DIRECTORY}/leader-epoch-checkpoint"].synced.endswith(b"4 8\n")
    assert len(values_of(log)) == 10


def test_below_the_first_segment_the_log_starts_anew() -> None:
    log = filled(MemoryDisk())
    log.advance_log_start_offset(Offset(6))
    log.delete_segments_before(Offset(6))
    assert log.truncate_to(Offset(4))
    assert (log.log_start_offset, log.log_end_offset, lineage_of(log)) == (4, 4, [])
    assert append(log, "a", epoch=6).first_offset == 4


def test_below_the_log_start_the_start_goes_with_it() -> None:
    log = filled(MemoryDisk())
    log.advance_log_start_offset(Offset(5))
    log.truncate_to(Offset(4))
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)


def test_a_log_may_start_anew_elsewhere() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.flush()
    lineage = log.lineage
    log.truncate_fully_and_start_at(Offset(1000))
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (1000, 1000, 10)
    assert (log.lineage is lineage, lineage_of(log), len(log.producers)) == (True, [], 0)
    append(log, "a", epoch=9)
    assert lineage_of(log) == [(9, 1000)]
    assert not [path for path in disk.files if path.endswith((".deleted", ".snapshot"))]
    again = open_log(disk, clean=False)
    assert (values_of(again), again.log_start_offset, again.recovery.lines()) == (["a"], 1000, [])


class CutDisk(MemoryDisk):
    """Stops at the `stop_at`-th change of anything."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0
        self.stop_at: int | None = None

    def admit(self, path: str, operation: str) -> None:
        super().admit(path, operation)
        self.changes += 1
        if self.changes == self.stop_at:
            self.stop_at = None
            raise KilledError(path, operation)


class KilledError(BaseException):
    """The process, or the machine, stops here. Nobody catches it."""


@pytest.mark.parametrize("power_seed", [None, *range(4)])
@pytest.mark.parametrize("start_at", [1000, 4, 3, 0])
def test_a_log_that_was_to_start_anew_as_the_process_ended_has_not_lost_all_its_files(
    start_at: int, power_seed: int | None
) -> None:
    """Whether it is the old log, the beginning of it or the new one: there is one, as there was before."""
    stop_at, is_done = 1, False
    while not is_done:
        disk = CutDisk()
        log = filled(disk)
        log.flush()
        disk.changes, disk.stop_at = 0, stop_at
        try:
            log.truncate_fully_and_start_at(Offset(start_at))
            is_done = True
        except KilledError:
            pass
        disk.stop_at = None
        disk.crash()
        if power_seed is not None:
            disk.lose_power(Random(100 * stop_at + power_seed))
        assert has_segment(disk.list(DIRECTORY)), f"killed at change {stop_at}"
        again = open_log(disk, clean=False, segment_size_bytes=3 * SIZE)
        assert again.recovery.truncation is None
        assert again.recovery.damages == []
        begins = again.log_start_offset, again.log_end_offset
        is_new = begins == (start_at, start_at)
        assert is_new or (begins[0] == 0 and "0123456789".startswith("".join(values_of(again))))
        assert is_new or not is_done
        log = open_log(disk, clean=False, segment_size_bytes=3 * SIZE)
        assert (log.log_start_offset, log.log_end_offset) == begins
        append(log, "a", epoch=9)
        assert values_of(open_log(disk, clean=False, segment_size_bytes=3 * SIZE))[-1] == "a"
        stop_at += 1
    assert stop_at > 10


@pytest.mark.parametrize("killed_at", [3, 8, 12])
def test_a_start_anew_that_was_announced_is_completed_however_often_that_is_interrupted(killed_at: int) -> None:
    disk = CutDisk()
    log = filled(disk)
    disk.changes, disk.stop_at = 0, killed_at
    with pytest.raises(KilledError):
        log.truncate_fully_and_start_at(Offset(4))
    stop_at = 1
    while True:
        disk.changes, disk.stop_at = 0, stop_at
        try:
            log = open_log(disk, clean=False)
        except KilledError:
            assert has_segment(disk.list(DIRECTORY))
            disk.lose_power(Random(stop_at))
            stop_at += 1
            continue
        break
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert [path for path in disk.files if ".log" in path] == [f"{DIRECTORY}/{4:020d}.log"]


def test_the_recovery_point_goes_back_with_the_records() -> None:
    log = filled(MemoryDisk())
    log.flush()
    assert log.recovery_point == 10
    log.truncate_to(Offset(4))
    assert log.recovery_point == 4


def test_a_flush_under_way_does_not_count_for_what_comes_after_a_truncation() -> None:
    """While another thread waits for the disk, the log is cut and written again: none of that is synced."""
    disk = MemoryDisk()
    log = filled(disk, 1 << 20)
    file = log.segments.active.file
    sync = file.sync

    class SlowFile:
        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def sync(self) -> None:
            sync()
            log.truncate_to(Offset(4))
            for _ in range(10):
                append(log, "new", epoch=9)

    log.segments.active._file = SlowFile()  # type: ignore[assignment]
    log.flush()
    assert log.recovery_point == 0


@pytest.mark.parametrize("operation", ["truncate", "rename", "sync"])
def test_a_truncation_that_fails_puts_the_log_out_of_use(operation: str) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    disk.refusals.add(operation)
    with pytest.raises(DiskError, match=f"refused to {operation}"):
        log.truncate_to(Offset(4))
    disk.refusals.clear()
    with pytest.raises(DiskError, match="out of use"):
        append(log, "a", epoch=9)
    again = open_log(disk, clean=False, segment_size_bytes=3 * SIZE)
    assert "0123456789".startswith("".join(values_of(again)))
    again.truncate_to(Offset(4))
    append(again, "a", epoch=9)
    assert values_of(again) == ["0", "1", "2", "3", "a"]


def test_truncation_in_a_gap_leaves_the_end_where_it_was_asked_for() -> None:
    log = open_log(MemoryDisk(), cleanup_policy=frozenset({"compact"}))
    for base in (0, 10, 20):
        log.append_as_follower(make_batch("a", base_offset=base, leader_epoch=1), now_ms=NOW_MS)
    log.truncate_to(Offset(15))
    assert log.log_end_offset == 15
    assert append(log, "b", epoch=2).first_offset == 15


@pytest.mark.parametrize("seed", range(examples(30)))
@pytest.mark.parametrize("segment_size_bytes", [3 * SIZE, 1 << 20])
def test_what_was_truncated_does_not_come_back_with_the_power(seed: int, segment_size_bytes: int) -> None:
    """Recovery does not look below the recovery point: what stands there has to be what was left."""
    disk = MemoryDisk()
    log = filled(disk, segment_size_bytes)
    log.flush()
    log.truncate_to(Offset(4))
    log.roll(NOW_MS)
    log.assign_leader_epoch(LeaderEpoch(9))
    disk.lose_power(Random(seed))
    again = open_log(disk, clean=False, recovery_point=4, segment_size_bytes=segment_size_bytes)
    assert values_of(again) == ["0", "1", "2", "3"]
    append(again, "new", epoch=9)
    assert values_of(again) == ["0", "1", "2", "3", "new"]
    assert again.recovery.damages == []


@pytest.mark.parametrize("seed", range(examples(10)))
def test_segments_that_truncation_removed_do_not_come_back_with_the_power(seed: int) -> None:
    disk = MemoryDisk()
    log = filled(disk)
    log.flush()
    log.truncate_to(Offset(4))
    log.configure(LogConfig())
    for _ in range(8):
        append(log, "new", epoch=9)
    log.flush()
    disk.lose_power(Random(seed))
    again = open_log(disk, clean=False, recovery_point=12)
    assert values_of(again) == ["0", "1", "2", "3", *["new"] * 8]
    assert again.segments.base_offsets == (0, 3)
