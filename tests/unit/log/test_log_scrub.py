"""What a scrub finds in a segment: rot of every kind, where it begins and where it ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from struct import Struct

import pytest

from support.fixtures.logs import NOW_MS, append, open_log
from support.fixtures.memory_disk import MemoryDisk, MemoryFile
from tidelog.base.errors import DiskError
from tidelog.base.ids import Offset
from tidelog.log import Log, unreadable
from tidelog.log.scrub import CANDIDATES_PER_STEP, DAMAGES_MAX, PIECE_BYTES, SegmentScrub
from tidelog.log.segment import Segment
from tidelog.log.unreadable import PAGE_BYTES

BATCHES, RECORDS = 60, 10
INT64, INT32 = Struct(">q"), Struct(">i")


def make_log(disk: MemoryDisk, *, interval: int = 0, batches: int = BATCHES) -> Log:
    """A closed segment with batches of three leader epochs, and an active one."""
    log = open_log(disk, index_interval_bytes=interval)
    for index in range(batches):
        append(
            log,
            *(f"{index}-{each}" for each in range(RECORDS)),
            epoch=3 * (index * 3 // batches),
        )
    log.roll(NOW_MS)
    append(log, "active", epoch=9)
    log.flush()
    return log


def scrub(disk: MemoryDisk, log: Log) -> SegmentScrub:
    found = SegmentScrub(
        disk, log.segments.first, log.lineage.clone(), cleaned_end_offset=log.compaction.mark.end_offset
    )
    steps = 0
    while found.step() is not None:
        steps += 1
    assert steps > 0
    return found


def positions(segment: Segment) -> list[int]:
    return [position for position, _ in segment.headers()]


def add_int64(offset: int, by: int) -> Callable[[bytearray, int], None]:
    def rot(data: bytearray, at: int) -> None:
        INT64.pack_into(data, at + offset, INT64.unpack_from(data, at + offset)[0] + by)

    return rot


def add_int32(offset: int, by: int) -> Callable[[bytearray, int], None]:
    def rot(data: bytearray, at: int) -> None:
        INT32.pack_into(data, at + offset, INT32.unpack_from(data, at + offset)[0] + by)

    return rot


def flip(offset: int, bit: int) -> Callable[[bytearray, int], None]:
    def rot(data: bytearray, at: int) -> None:
        data[at + offset] ^= 1 << bit

    return rot


KINDS: dict[str, Callable[[bytearray, int], None]] = {
    "base offset + 1": add_int64(0, 1),
    "base offset + 16": add_int64(0, 16),
    "base offset - 10": add_int64(0, -10),
    "base offset below zero": add_int64(0, -(1 << 62)),
    "length + 64": add_int32(8, 64),
    "length - 16": add_int32(8, -16),
    "length below zero": add_int32(8, -(1 << 30)),
    "length of gigabytes": add_int32(8, 1 << 30),
    "leader epoch + 1": add_int32(12, 1),
    "leader epoch + 3": add_int32(12, 3),
    "leader epoch - 3": add_int32(12, -3),
    "magic": flip(16, 2),
    "checksum": flip(18, 0),
    "attributes": flip(22, 4),
    "record count": flip(60, 1),
    "a record": flip(70, 6),
}


def test_a_segment_without_rot_is_read_in_steps_and_nothing_is_found() -> None:
    disk = MemoryDisk()
    log = make_log(disk, batches=6000)
    found = SegmentScrub(disk, log.segments.first, log.lineage.clone(), cleaned_end_offset=Offset(0))
    pieces = []
    while (size := found.step()) is not None:
        pieces.append(size)
    assert sum(pieces) == log.segments.first.size_bytes
    assert len(pieces) > 10
    assert (found.damages, found.index_fault) == ((), None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interval", [0, 4096])
@pytest.mark.parametrize("index", [0, 1, 19, 20, 35, BATCHES - 1])
def test_a_damage_is_the_batch_that_rotted(kind: str, interval: int, index: int) -> None:
    disk = MemoryDisk()
    log = make_log(disk, interval=interval)
    segment = log.segments.first
    starts = [*positions(segment), segment.size_bytes]
    KINDS[kind](disk.files[segment.path].data, starts[index])
    (damage,) = scrub(disk, log).damages
    assert (damage.position, damage.start_offset, damage.is_located) == (starts[index], index * RECORDS, True)
    assert damage.end_position in starts
    assert damage.end_offset == starts.index(damage.end_position) * RECORDS
    if not kind.startswith(("length", "magic")) or not interval:
        assert damage.end_offset == (index + 1) * RECORDS
    else:
        assert damage.size_bytes < 4096 + 2 * (starts[1] - starts[0]) + 4096


@pytest.mark.parametrize("seed", range(150))
def test_any_bit_is_missed_by_nobody(seed: int) -> None:
    """Several at once. What is not in a damage is as it was."""
    random = Random(seed)
    disk = MemoryDisk()
    log = make_log(disk, interval=random.choice([0, 300, 4096]))
    segment = log.segments.first
    before = bytes(disk.files[segment.path].data)
    starts = positions(segment)
    flipped = [disk.rot(segment.path, random) for _ in range(random.choice([1, 1, 2, 5]))]
    damages = scrub(disk, log).damages
    assert damages
    for at in flipped:
        assert any(one.position <= at < one.end_position for one in damages)
    end = 0
    for one in damages:
        assert end <= one.position < one.end_position
        assert one.position in starts
        assert one.end_position in (*starts, segment.size_bytes)
        assert one.start_offset == starts.index(one.position) * RECORDS
        after = disk.files[segment.path].data
        assert after[end : one.position] == before[end : one.position]
        end = one.end_position
    assert after[end:] == before[end:]


def test_two_neighbours_whose_base_offsets_rotted_are_both_damaged() -> None:
    disk = MemoryDisk()
    log = make_log(disk)
    segment = log.segments.first
    starts = positions(segment)
    for index in (30, 31):
        add_int64(0, 4)(disk.files[segment.path].data, starts[index])
    damages = scrub(disk, log).damages
    assert damages[0].start_offset == 300
    assert damages[-1].end_offset == 320


def test_what_is_missing_at_the_end_of_the_file_is_a_damage() -> None:
    disk = MemoryDisk()
    log = make_log(disk)
    segment = log.segments.first
    start = positions(segment)[-2]
    del disk.files[segment.path].data[start + 20 :]
    (damage,) = scrub(disk, log).damages
    assert (damage.position, damage.start_offset, damage.end_offset) == (start, 580, 600)


def test_an_index_that_names_what_is_not_there_is_found() -> None:
    disk = MemoryDisk()
    log = make_log(disk, interval=300)
    path = log.segments.first.indexes.offsets.path
    disk.rot(path, Random(3))
    found = scrub(disk, log)
    assert found.damages == ()
    assert found.index_fault is not None


def test_where_a_large_damage_ends_is_looked_for_in_steps() -> None:
    disk = MemoryDisk()
    log = make_log(disk, batches=6000)
    segment = log.segments.first
    data = disk.files[segment.path].data
    data[len(data) // 10 : -1000] = bytes(len(data) - len(data) // 10 - 1000)
    found = SegmentScrub(disk, segment, log.lineage.clone(), cleaned_end_offset=Offset(0))
    steps, reads = 0, [disk.read_count]
    while found.step() is not None:
        steps += 1
        reads.append(disk.read_count)
    (damage,) = found.damages
    assert damage.end_offset == 59_950
    assert steps > 5400 // CANDIDATES_PER_STEP
    assert max(after - before for before, after in pairwise(reads)) < 3 * CANDIDATES_PER_STEP


def test_of_so_many_damages_the_last_is_all_that_follows() -> None:
    disk = MemoryDisk()
    log = make_log(disk, batches=4 * DAMAGES_MAX)
    segment = log.segments.first
    for position in positions(segment)[::3]:
        disk.files[segment.path].data[position + 70] ^= 1
    damages = scrub(disk, log).damages
    assert len(damages) == DAMAGES_MAX
    assert damages[-1].end_position == segment.size_bytes
    assert damages[-1].end_offset == segment.end_offset


def test_a_length_that_rotted_has_no_segment_read_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    log = make_log(disk, batches=6000, interval=4096)
    segment = log.segments.first
    start = positions(segment)[20]
    add_int32(8, 1 << 20)(disk.files[segment.path].data, start)
    sizes: list[int] = []
    read_at = MemoryFile.read_at

    def noted(file: MemoryFile, position: int, size: int) -> bytes:
        sizes.append(size)
        return read_at(file, position, size)

    monkeypatch.setattr(MemoryFile, "read_at", noted)
    (damage,) = scrub(disk, log).damages
    assert damage.start_offset == 200
    assert damage.size_bytes < 4096 + 1024
    assert max(sizes) == PIECE_BYTES


@pytest.mark.parametrize("interval", [0, 4096])
@pytest.mark.parametrize("index", [0, 20, 35, BATCHES - 1])
def test_what_the_disk_cannot_read_is_a_damage(interval: int, index: int) -> None:
    disk = MemoryDisk()
    log = make_log(disk, interval=interval)
    segment = log.segments.first
    starts = [*positions(segment), segment.size_bytes]
    contents = disk.files[segment.path]
    contents.bad_pages = {starts[index] // 512}
    found = scrub(disk, log)
    assert found.is_unreadable
    (damage,) = found.damages
    assert damage.is_unreadable
    assert damage.reason == "the disk cannot read it"
    assert damage.position <= starts[index]
    assert damage.end_position >= starts[index + 1]
    assert damage.size_bytes <= 3 * PAGE_BYTES + 2 * interval
    contents.bad_pages = set()
    again = scrub(disk, log)
    assert (again.damages, again.is_unreadable) == ((), False)


def test_a_disk_that_reads_nothing_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreadable, "PAGES_MAX", 3)
    disk = MemoryDisk()
    log = make_log(disk, batches=600)
    disk.files[log.segments.first.path].bad_pages = set(range(1000))
    with pytest.raises(DiskError, match="cannot read"):
        scrub(disk, log)
