"""What is cut off a log and kept is read again, page by page."""

from __future__ import annotations

import pytest

from support.fixtures.logs import DIRECTORY, append, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.losses import LossId, ReplicaFate, ReplicaLoss
from tidelog.log import Log
from tidelog.log.lost_records import (
    LostTail,
    copy_kept,
    keep_lost_tail,
    kept_files,
    kept_size_bytes,
    read_kept,
    remove_notes,
)
from tidelog.records import read_records, split_batches
from tidelog.wire.primitives import ZERO_UUID

EPOCH = LeaderEpoch(17)
SIZE = len(make_batch("0"))


def keep(disk: MemoryDisk, log: Log, start: int, end: int) -> ReplicaLoss:
    loss_id = LossId(TopicId(ZERO_UUID), PartitionIndex(0), EPOCH)
    replica = ReplicaLoss(BrokerId(1), ReplicaFate.CUT, Offset(end), Offset(start))
    return keep_lost_tail(disk, log, LostTail(loss_id, replica, 1_000_000))


def filled(disk: MemoryDisk) -> Log:
    log = open_log(disk)
    for index in range(10):
        append(log, str(index), epoch=3)
    return log


def read_all(disk: MemoryDisk, size_bytes_max: int) -> tuple[list[str], int]:
    """All values, and in how many pages they came."""
    values, position, pages = [], 0, 0
    while (page := read_kept(disk, DIRECTORY, EPOCH, position, size_bytes_max)) is not None and page.data:
        for at, header in split_batches(page.data):
            values += [(one.value or b"").decode() for one in read_records(page.data, at, header)]
        position += len(page.data)
        pages += 1
    assert page is not None
    assert position == page.size_bytes
    return values, pages


def test_what_was_cut_off_in_two_steps_is_read_by_offset() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    assert keep(disk, log, 7, 10).kept_size_bytes == 3 * SIZE
    log.truncate_to(Offset(7))
    assert keep(disk, log, 4, 7).kept_size_bytes == 3 * SIZE
    assert read_all(disk, 1_000_000) == (list("456789"), 2)
    assert read_all(disk, 2 * SIZE + 5) == (list("456789"), 4)


def test_a_batch_that_is_larger_than_a_page_is_read_whole() -> None:
    disk = MemoryDisk()
    keep(disk, filled(disk), 4, 10)
    assert read_all(disk, 1) == (list("456789"), 6)


def test_nothing_is_kept_of_another_loss() -> None:
    disk = MemoryDisk()
    keep(disk, filled(disk), 4, 10)
    assert read_kept(disk, DIRECTORY, LeaderEpoch(7), 0, 100) is None


def test_what_is_damaged_is_said() -> None:
    disk = MemoryDisk()
    keep(disk, filled(disk), 8, 10)
    (path,) = kept_files(disk, DIRECTORY, EPOCH)
    file = disk.open(path)
    file.truncate(2 * SIZE - 1)
    file.close()
    page = read_kept(disk, DIRECTORY, EPOCH, 0, 1_000)
    assert page is not None
    assert len(page.data) == SIZE
    with pytest.raises(CorruptLogError, match=f"the batch at byte {SIZE} is cut short"):
        read_kept(disk, DIRECTORY, EPOCH, SIZE, 1_000)
    with pytest.raises(CorruptLogError, match="at byte 5"):
        read_kept(disk, DIRECTORY, EPOCH, 5, 1_000)


def test_what_was_kept_outlasts_a_second_try_to_cut_the_log() -> None:
    """The log was cut, and the disk had no room for the checkpoint that comes after it."""
    disk = MemoryDisk()
    log = filled(disk)
    first = keep(disk, log, 7, 10)
    log.truncate_to(Offset(7))
    assert keep(disk, log, 7, 10) == first
    assert first.kept_size_bytes == 3 * SIZE
    assert read_all(disk, 1_000_000) == (list("789"), 1)


COPY = "other/flights-0"


def kept_in(disk: MemoryDisk, directory: str) -> dict[str, bytes]:
    names = (name for name in disk.list(directory) if ".lost" in name or ".loss" in name)
    return {name: disk.read_bytes(f"{directory}/{name}") for name in names}


def test_a_copy_of_a_log_holds_what_the_log_keeps_however_often_it_is_copied() -> None:
    disk = MemoryDisk()
    log = filled(disk)
    keep(disk, log, 7, 10)
    log.truncate_to(Offset(7))
    disk.make_dirs(COPY)
    assert copy_kept(disk, DIRECTORY, COPY) > 3 * SIZE
    assert kept_in(disk, COPY) == kept_in(disk, DIRECTORY)
    assert copy_kept(disk, DIRECTORY, COPY) == 0
    keep(disk, log, 4, 7)
    remove_notes(disk, DIRECTORY, EPOCH, from_offset=Offset(7))
    copy_kept(disk, DIRECTORY, COPY)
    assert kept_in(disk, COPY) == kept_in(disk, DIRECTORY)
    assert len(kept_in(disk, COPY)) == 3
    assert kept_size_bytes(disk, COPY, EPOCH) == 6 * SIZE


def test_what_an_ended_copy_left_is_copied_anew() -> None:
    disk = MemoryDisk()
    keep(disk, filled(disk), 7, 10)
    (path,) = kept_files(disk, DIRECTORY, EPOCH)
    name = path.rpartition("/")[2]
    disk.make_dirs(COPY)
    for left in (name, f"{name}.tmp", f"{3:020d}-9.lost.tmp"):
        disk.open(f"{COPY}/{left}", create=True).append(b"half")
    copy_kept(disk, DIRECTORY, COPY)
    assert kept_in(disk, COPY) == kept_in(disk, DIRECTORY)


def test_what_the_disk_of_the_log_refuses_is_left_out_and_that_of_the_copy_ends_it() -> None:
    disk = MemoryDisk()
    keep(disk, filled(disk), 7, 10)
    (path,) = kept_files(disk, DIRECTORY, EPOCH)
    disk.make_dirs(COPY)
    disk.broken.add(path)
    copy_kept(disk, DIRECTORY, COPY)
    assert kept_size_bytes(disk, COPY, EPOCH) == 0
    assert len(kept_in(disk, COPY)) == 1
    disk.broken.clear()
    disk.refusals.add(f"{COPY}/{path.rpartition('/')[2]}.tmp")
    with pytest.raises(DiskError):
        copy_kept(disk, DIRECTORY, COPY)
