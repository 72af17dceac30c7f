"""Rot that no checksum covers is not served: a base offset, a length, a magic."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

import pytest

from support.fixtures.logs import NOW_MS, append, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.log import Log, LogSlice
from tidelog.log.damage import Damage, DamagedRecordsError
from tidelog.log.scrub import SegmentScrub
from tidelog.records import split_batches
from tidelog.records._choose import kernel

BATCHES, RECORDS, ROTTEN = 40, 10, 17
INT64 = Struct(">q")
INT32 = Struct(">i")
Rot = Callable[[bytearray, int], None]


def base_offset(by: int) -> Rot:
    def rot(data: bytearray, at: int) -> None:
        INT64.pack_into(data, at, INT64.unpack_from(data, at)[0] + by)

    return rot


def length(by: int) -> Rot:
    def rot(data: bytearray, at: int) -> None:
        INT32.pack_into(data, at + 8, INT32.unpack_from(data, at + 8)[0] + by)

    return rot


def magic(data: bytearray, at: int) -> None:
    data[at + 16] ^= 4


KINDS: dict[str, Rot] = {
    "a base offset too high by one": base_offset(1),
    "a base offset too high by 16": base_offset(16),
    "a base offset far too high": base_offset(1 << 40),
    "a base offset too low": base_offset(-6),
    "a base offset below zero": base_offset(-(1 << 62)),
    "a length too large": length(64),
    "a length too small": length(-32),
    "a length below zero": length(-(1 << 30)),
    "a magic": magic,
}


def rotten(rot: Rot, *, index_interval_bytes: int = 4096) -> Log:
    """Two segments, the first of which has a batch with a header that rotted while nobody looked."""
    disk = MemoryDisk()
    log = open_log(disk, index_interval_bytes=index_interval_bytes)
    for index in range(BATCHES):
        append(log, *(f"{index}-{each}" for each in range(RECORDS)))
    log.roll(NOW_MS)
    append(log, "in the next segment")
    log.flush()
    segment = log.segments.first
    position = segment.position_of(ROTTEN * RECORDS)
    segment.release()
    rot(disk.files[segment.path].data, position)
    return log


def read(log: Log, offset: int, size: int = 1 << 20) -> LogSlice:
    return log.read(Offset(offset), size_bytes_max=size, end_offset=log.log_end_offset)


@pytest.mark.parametrize("piece_bytes", [1 << 20, 700, 61, 13])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interval", [0, 4096])
def test_no_byte_behind_a_rotten_header_is_served(kind: str, interval: int, piece_bytes: int) -> None:
    log = rotten(KINDS[kind], index_interval_bytes=interval)
    found = read(log, 0)
    with pytest.raises(CorruptLogError):
        list(found.pieces(piece_bytes))
    # From now on what lies before it is served, and what lies there is refused at once: from the batch before on,
    # whose length may be what rotted.
    (damage,) = log.segments.first.damages
    start = damage.start_offset
    assert start // RECORDS in (ROTTEN - 1, ROTTEN)
    assert not damage.is_located
    before = read(log, 0)
    assert [header.base_offset for _, header in split_batches(before.read_all())] == list(range(0, start, RECORDS))
    assert before.next_offset == start
    for offset in (ROTTEN * RECORDS, ROTTEN * RECORDS + 5, (ROTTEN + 1) * RECORDS):
        with pytest.raises(DamagedRecordsError, match=f"records from offset {start} to 399 are damaged"):
            read(log, offset)
    assert read(log, BATCHES * RECORDS).first_offset == BATCHES * RECORDS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interval", [0, 4096])
@pytest.mark.parametrize("size_bytes", [1, 1 << 20])
@pytest.mark.parametrize("within", range(RECORDS))
def test_who_reads_from_the_rotten_batch_on_is_refused(kind: str, interval: int, size_bytes: int, within: int) -> None:
    log = rotten(KINDS[kind], index_interval_bytes=interval)
    with pytest.raises(CorruptLogError):
        read(log, ROTTEN * RECORDS + within, size_bytes).read_all()


def test_what_is_at_the_end_of_the_log_is_found_and_served_without_a_look_at_it() -> None:
    log = open_log(MemoryDisk())
    for index in range(10):
        append(log, str(index))
    assert read(log, 3)._chain is None


def test_offsets_may_be_missing_below_the_mark_of_the_cleaner_alone() -> None:
    log = rotten(base_offset(0))
    data = read(log, 0).read_all()
    first, second, third = (position for position, _ in split_batches(data)[:3])
    gap = data[first:second] + data[third:]
    assert kernel.follow_offsets(gap, 0, 0, 0) == (second, 10, first, 0, False)
    assert kernel.follow_offsets(gap, 0, 0, 20)[::4] == (len(gap), True)
    assert kernel.follow_offsets(gap, 0, 0, 19)[::4] == (second, False)
    assert kernel.follow_offsets(gap, len(gap) + 5, 7, 0) == (len(gap) + 5, 7, -1, -1, True)


def test_rot_before_a_damage_that_is_known_is_remembered_as_well() -> None:
    log = rotten(base_offset(16))
    segment = log.segments.first
    position, end_position = segment.position_of(300), segment.position_of(310)
    known = Damage(position, end_position, Offset(300), Offset(310), "a checksum", is_located=True, is_lost=True)
    segment.damages = (known,)
    with pytest.raises(CorruptLogError):
        read(log, 0).read_all()
    first, *others = log.segments.first.damages
    assert others == [known]
    assert (first.end_position, first.end_offset, first.is_located) == (position, 300, False)
    assert first.start_offset in (160, 170)
    assert read(log, 0).next_offset == first.start_offset
    with pytest.raises(DamagedRecordsError, match="to 299 are damaged"):
        read(log, 200)
    assert read(log, 310).first_offset == 310


def test_what_lay_in_a_lost_segment_is_refused_as_a_damage_once_it_is_located() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    for index in range(30):
        append(log, *(f"{index}-{each}" for each in range(RECORDS)))
        if index % 10 == 9:
            log.roll(NOW_MS)
    append(log, "active")
    log.close()
    for path in list(disk.files):
        if "/00000000000000000100." in path:
            del disk.files[path]
    log = open_log(disk)
    with pytest.raises(CorruptLogError):
        read(log, 150)
    scrub = SegmentScrub(disk, log.segments.first, log.lineage.clone(), cleaned_end_offset=Offset(0))
    while scrub.step() is not None:
        pass
    log.segments.first.damages = scrub.damages
    for offset in (100, 150, 199):
        with pytest.raises(DamagedRecordsError, match="from offset 100 to 199 are damaged"):
            read(log, offset)
    assert read(log, 0).next_offset == 100
    assert read(log, 200).first_offset == 200


@pytest.mark.parametrize("by", [1, 16, 1 << 40, -6])
@pytest.mark.parametrize("interval", [0, 4096])
def test_no_time_is_looked_up_in_a_batch_whose_base_offset_rotted(by: int, interval: int) -> None:
    """Who begins at a time would begin behind its first records, and never learn of them."""
    disk = MemoryDisk()
    log = open_log(disk, index_interval_bytes=interval)
    for index in range(BATCHES):
        append(log, *(f"{index}-{each}" for each in range(RECORDS)), timestamp=NOW_MS + 100 * index)
    log.roll(NOW_MS)
    append(log, "in the next segment", timestamp=NOW_MS + 10_000)
    log.flush()
    found = log.offset_for_timestamp(NOW_MS + 100 * ROTTEN, log.log_end_offset)
    assert found is not None
    assert found.offset == ROTTEN * RECORDS
    segment = log.segments.first
    position = segment.position_of(ROTTEN * RECORDS)
    segment.release()
    base_offset(by)(disk.files[segment.path].data, position)
    with pytest.raises(CorruptLogError):
        log.offset_for_timestamp(NOW_MS + 100 * ROTTEN, log.log_end_offset)
