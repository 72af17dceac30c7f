"""Look-ups that must not wait for the disk: they name what is missing, change nothing, and find the same in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from support.fixtures.logs import DIRECTORY, append, open_log
from support.fixtures.memory_disk import MemoryDisk, MemoryFile
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import Offset
from tidelog.log import Log, NotCachedError, without_waiting
from tidelog.log.files.offset_index import ENTRY
from tidelog.records import split_batches

T = TypeVar("T")

PAGE_BYTES = 4096
BATCHES = 200


class ColdFile(MemoryFile):
    """Read once, a page stays in memory."""

    def __init__(self, disk: ColdDisk, path: str) -> None:
        super().__init__(disk, path, disk.files[path])
        self._pages = disk.pages.setdefault(path, set())

    def read_at(self, position: int, size: int) -> bytes:
        self._pages.update(self._pages_of(position, size))
        return super().read_at(position, size)

    def read_cached_at(self, position: int, size: int) -> bytes:
        if not self._pages_of(position, size) <= self._pages:
            return None  # type: ignore[return-value]
        return super().read_at(position, size)

    def _pages_of(self, position: int, size: int) -> set[int]:
        end = min(position + size, self.size())
        return set(range(position // PAGE_BYTES, -(-end // PAGE_BYTES)))


class ColdDisk(MemoryDisk):
    """A disk with nothing of it in memory: what is written is not kept there either."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, set[int]] = {}

    def forget(self) -> None:
        """The system wanted the memory for something else."""
        for pages in self.pages.values():
            pages.clear()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        super().open(path, create=create)
        return ColdFile(self, path)


def look_up(ask: Callable[[], T]) -> tuple[T, int]:
    """What it found without waiting, and how often something had to be brought into memory before."""
    for brought in range(100):
        try:
            return without_waiting(ask), brought
        except NotCachedError as missing:
            missing.fetch()
    raise AssertionError("it comes to no end")


@pytest.fixture
def log() -> Log:
    disk = ColdDisk()
    log = open_log(disk, segment_size_bytes=20_000, index_interval_bytes=500)
    for number in range(BATCHES):
        append(log, f"{number}" * 100, timestamps=[1_000 + number])
    assert len(log.segments.base_offsets) > 2
    log.close()
    log = open_log(disk, segment_size_bytes=20_000, index_interval_bytes=500)
    disk.forget()
    return log


def test_whoever_may_wait_never_hears_of_it(log: Log) -> None:
    found = log.read(Offset(3), size_bytes_max=1_000, end_offset=log.log_end_offset)
    assert found.first_offset == 3


def test_a_place_in_the_log_is_found(log: Log) -> None:
    def read() -> int:
        found = log.read(Offset(17), size_bytes_max=2_000, end_offset=log.log_end_offset)
        assert 0 < len(found) <= 2_000
        return found.first_offset

    first_offset, brought = look_up(read)
    assert first_offset == 17
    assert brought > 0
    assert look_up(read) == (17, 0)


@pytest.mark.parametrize("timestamp", [0, 1_017, 1_000 + BATCHES - 1])
def test_a_time_is_found(log: Log, timestamp: int) -> None:
    found, brought = look_up(lambda: log.offset_for_timestamp(timestamp, log.log_end_offset))
    assert found is not None
    assert found.offset == max(timestamp - 1_000, 0)
    assert brought > 0


def test_the_largest_time_is_found(log: Log) -> None:
    found, _ = look_up(log.max_timestamp_offset)
    assert found is not None
    assert found.offset == BATCHES - 1


def test_the_end_of_the_log_takes_no_disk(log: Log) -> None:
    append(log, "the last")
    end_offset = log.log_end_offset
    slice_, brought = look_up(lambda: log.read(Offset(end_offset - 1), size_bytes_max=1_000, end_offset=end_offset))
    assert len(slice_) > 0
    assert brought == 0


def test_an_index_that_lies_is_built_anew_all_the_same(log: Log) -> None:
    disk = log.segments._disk
    assert isinstance(disk, ColdDisk)
    index = disk.files[f"{DIRECTORY}/{0:020d}.index"].data
    for at in range(0, len(index), ENTRY.size):
        offset, position = ENTRY.unpack_from(index, at)
        ENTRY.pack_into(index, at, offset, position + 1)
    disk.forget()
    first_offset, _ = look_up(
        lambda: log.read(Offset(17), size_bytes_max=2_000, end_offset=log.log_end_offset).first_offset
    )
    assert first_offset == 17


Misled = Callable[[int, int], tuple[int, int]]


def mislead(log: Log, misled: Misled, *, but_the_last: bool = True) -> None:
    """Change the entries of the first segment's offset index, which no longer are in memory."""
    disk = log.segments._disk
    assert isinstance(disk, ColdDisk)
    index = disk.files[f"{DIRECTORY}/{0:020d}.index"].data
    count = len(index) // ENTRY.size
    assert count > 8
    for number in range(count - but_the_last):
        ENTRY.pack_into(index, number * ENTRY.size, *misled(*ENTRY.unpack_from(index, number * ENTRY.size)))
    disk.forget()


@pytest.mark.parametrize(
    "misled",
    [
        lambda offset, position: (offset, position + 1),
        lambda offset, position: (offset, position + 1_000_000),
        lambda offset, position: (offset, position - 1_000_000),
        lambda offset, position: (offset + 1, position),
    ],
    ids=["into the midst of a batch", "beyond the end", "before the start", "to another batch"],
)
@pytest.mark.parametrize("waits", [True, False])
def test_an_index_that_leads_nowhere_is_built_anew_before_records_count_as_missing(
    log: Log, misled: Misled, waits: bool
) -> None:
    disk = log.segments._disk
    assert isinstance(disk, ColdDisk)
    index = bytes(disk.files[f"{DIRECTORY}/{0:020d}.index"].data)
    mislead(log, misled)

    def read() -> int:
        return log.read(Offset(17), size_bytes_max=2_000, end_offset=log.log_end_offset).first_offset

    if waits:
        assert read() == 17
    else:
        first_offset, brought = look_up(read)
        assert first_offset == 17
        assert 0 < brought < 8
    assert bytes(disk.files[f"{DIRECTORY}/{0:020d}.index"].data) == index


@pytest.mark.parametrize("waits", [True, False])
def test_where_a_read_ends_an_index_that_lies_is_built_anew_too(log: Log, waits: bool) -> None:
    mislead(log, lambda offset, position: (offset, position + 1), but_the_last=False)

    def read() -> list[int]:
        found = log.read(Offset(0), size_bytes_max=5_000, end_offset=log.log_end_offset).read_all()
        return [header.base_offset for _, header in split_batches(found)]

    offsets = read() if waits else look_up(read)[0]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) > 5


def test_a_log_that_is_damaged_keeps_its_index_and_says_where(log: Log) -> None:
    disk = log.segments._disk
    assert isinstance(disk, ColdDisk)
    mislead(log, lambda offset, position: (offset, position + 1_000_000))
    index = bytes(disk.files[f"{DIRECTORY}/{0:020d}.index"].data)
    position = log.read(Offset(1), size_bytes_max=1, end_offset=log.log_end_offset).position
    disk.files[f"{DIRECTORY}/{0:020d}.log"].data[position + 16] = 99
    disk.forget()
    for _ in range(2):
        with pytest.raises(CorruptLogError, match=r"\.log: .*position"):
            look_up(lambda: log.read(Offset(17), size_bytes_max=2_000, end_offset=log.log_end_offset))
    assert bytes(disk.files[f"{DIRECTORY}/{0:020d}.index"].data) == index
