"""The sparse indexes: a list of growing pairs in a file, of which a search reads one block."""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import Offset
from tidelog.log.files.index_file import BLOCK_ENTRIES, FIRST, SECOND, CorruptIndexError, IndexFile
from tidelog.log.files.offset_index import OffsetIndex
from tidelog.log.files.time_index import TimeIndex

PATH = "x.index"


def make(disk: MemoryDisk, count: int, *, spill_every: int = 0) -> IndexFile:
    """Entries (10, 100), (20, 200), ..."""
    index = IndexFile(disk, PATH, Struct(">ii"))
    for number in range(1, count + 1):
        index.append(10 * number, 100 * number)
        if spill_every and number % spill_every == 0:
            index.spill()
    return index


COUNTS = [0, 1, 2, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES + 1, 3 * BLOCK_ENTRIES + 7]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("state", ["in memory", "spilled at once", "spilled in parts", "released", "opened"])
def test_searches_find_what_a_plain_list_would(count: int, state: str) -> None:
    disk = MemoryDisk()
    index = make(disk, count, spill_every=100 if state == "spilled in parts" else 0)
    if state in ("spilled at once", "opened"):
        index.spill()
    if state == "released":
        index.release()
    if state == "opened":
        index = IndexFile(disk, PATH, Struct(">ii"))
        index.open_existing()
    plain = [(10 * number, 100 * number) for number in range(1, count + 1)]
    assert list(index.entries()) == plain
    assert (len(index), index.last) == (count, plain[-1] if plain else None)
    for value in {0, 9, 10, 11, 5120, 5125, 10_240, 10 * count - 1, 10 * count, 10 * count + 1}:
        expected = bisect_right([first for first, _ in plain], value)
        assert index.count_up_to(FIRST, value) == expected
        assert index.floor(FIRST, value) == (plain[expected - 1] if expected else None)
        assert index.count_up_to(SECOND, 10 * value + 5) == expected


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 700)),
            st.tuples(st.just("truncate"), st.integers(0, 2000)),
            st.tuples(st.sampled_from(["spill", "release", "open", "clear"]), st.just(0)),
        ),
        max_size=12,
    )
)
def test_any_order_of_operations(steps: list[tuple[str, int]]) -> None:
    disk = MemoryDisk()
    index = make(disk, 0)
    plain: list[tuple[int, int]] = []
    for step, argument in steps:
        if step == "append":
            for _ in range(argument):
                first, second = plain[-1] if plain else (0, 0)
                plain.append((first + 3, second + 7))
                index.append(*plain[-1])
        elif step == "truncate":
            index.truncate(argument)
            del plain[argument:]
        elif step == "clear":
            index.clear()
            plain.clear()
        else:
            index.release() if step == "release" else index.spill()
            if step == "open":
                index = IndexFile(disk, PATH, Struct(">ii"))
                index.open_existing()
        assert list(index.entries()) == plain
        assert index.last == (plain[-1] if plain else None)
        for value in (0, 3, 1500, 3 * len(plain) - 1, 3 * len(plain)):
            assert index.count_up_to(FIRST, value) == min(max(value // 3, 0), len(plain))
    index.spill()
    entry = Struct(">ii")
    assert disk.read_bytes(PATH) == b"".join(entry.pack(*each) for each in plain)


def test_a_search_reads_one_block() -> None:
    disk = MemoryDisk()
    index = make(disk, 5000)
    index.spill()
    index.floor(FIRST, 7777)
    disk.read_count = 0
    assert index.floor(FIRST, 23_456) == (23_450, 234_500)
    assert disk.read_count == 1


def test_appending_writes_nothing_until_it_is_asked_to() -> None:
    disk = MemoryDisk()
    index = make(disk, 0)
    for number in range(BLOCK_ENTRIES):
        assert not index.is_spill_due
        index.append(number, number)
    assert index.is_spill_due
    assert not disk.exists(PATH)
    index.spill()
    assert not index.is_spill_due
    assert len(disk.read_bytes(PATH)) == 8 * BLOCK_ENTRIES


def test_a_write_that_fails_may_be_repeated() -> None:
    disk = MemoryDisk()
    index = make(disk, 700, spill_every=300)
    disk.free_write_bytes = 33
    with pytest.raises(DiskError):
        index.spill()
    disk.free_write_bytes = None
    index.append(7010, 70_100)
    index.spill()
    assert list(index.entries()) == [(10 * n, 100 * n) for n in range(1, 702)]
    assert len(disk.read_bytes(PATH)) == 8 * 701


def test_a_longer_file_of_the_same_name_is_cut() -> None:
    disk = MemoryDisk()
    make(disk, 100).spill()
    make(disk, 3).spill()
    assert len(disk.read_bytes(PATH)) == 24


def test_an_empty_index_leaves_an_empty_file() -> None:
    disk = MemoryDisk()
    make(disk, 0).release()
    assert not disk.exists(PATH)
    make(disk, 0).spill()
    assert disk.read_bytes(PATH) == b""


@pytest.mark.parametrize("position", [0, 8 * BLOCK_ENTRIES, 8 * (BLOCK_ENTRIES + 2)])
def test_entries_that_do_not_grow_are_found_out_where_they_matter(position: int) -> None:
    disk = MemoryDisk()
    make(disk, 3 * BLOCK_ENTRIES).spill()
    disk.files[PATH].data[position : position + 4] = b"\x7f\xff\xff\xff"
    index = IndexFile(disk, PATH, Struct(">ii"))
    index.open_existing()
    if position == 8 * (BLOCK_ENTRIES + 2):
        assert index.floor(FIRST, 10) == (10, 100)  # within a block: whoever follows the entry checks what it finds
    else:
        with pytest.raises(CorruptIndexError, match="does not lie after"):
            index.floor(FIRST, 10)


def test_a_file_that_grew_shorter_is_found_out() -> None:
    disk = MemoryDisk()
    make(disk, 100).spill()
    index = IndexFile(disk, PATH, Struct(">ii"))
    index.open_existing()
    del disk.files[PATH].data[80:]
    with pytest.raises(CorruptIndexError, match="shorter than the 100 entries"):
        index.floor(FIRST, 50)


def test_the_time_index_takes_only_what_grows() -> None:
    disk = MemoryDisk()
    index = TimeIndex(disk, PATH, Offset(1000), 1 << 20)
    for timestamp, last_offset in ((-1, 1000), (50, 1002), (50, 1004), (40, 1006), (60, 1008), (70, 1008)):
        index.note(timestamp, last_offset)
    assert list(index.entries()) == [(50, 2), (60, 8)]
    assert index.newest() == (60, 1008)
    assert index.entry_before(49) is None
    assert index.entry_before(59) == (50, 1002)
    index.truncate_to(1008)
    assert index.newest() == (50, 1002)


def test_the_offset_index_speaks_of_offsets() -> None:
    disk = MemoryDisk()
    index = OffsetIndex(disk, PATH, Offset(1000), 24)
    for last_offset, position in ((1004, 500), (1009, 900), (1020, 1700)):
        assert not index.is_full
        index.note(last_offset, position)
    assert index.is_full
    assert index.batch_before(1008) == (1004, 500)
    assert index.batch_before(1003) is None
    assert [index.boundary_before(position) for position in (0, 499, 500, 1000, 5000)] == [0, 0, 500, 900, 1700]
    index.check(1701)
    with pytest.raises(CorruptIndexError, match="points to 1700 in a log of 1700 bytes"):
        index.check(1700)
    index.truncate_to(900)
    assert list(index.entries()) == [(4, 500)]
