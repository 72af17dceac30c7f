"""Pairs of growing numbers in a file: what the offset index and the time index have in common.

    file    | block 0: 512 entries | block 1 | ... | last, partly filled |        tail, not written yet
    memory  [ first of block 0      first of 1  ...  first of last      ]        | entry | entry |

A search looks at the first entries of the blocks, then reads one block: one small read however large the index, and
memory for one entry in 512. New entries gather in memory and are written a block at a time, before the next record is.
They need no sync: after a crash the segments beyond the recovery point get their indexes anew.

Kafka: `AbstractIndex`.
"""

from __future__ import annotations

import errno
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ports import Buffer, Disk, File
from tidelog.log.lookup import read_place

BLOCK_ENTRIES = 512

FIRST = 0
SECOND = 1


class CorruptIndexError(CorruptLogError):
    """An index that contradicts itself or its log. Never fatal: it is derived from the log, and built anew."""


class IndexFile:
    """A sorted list of `(first, second)`; both grow from entry to entry.

    Its file is open only between a search and the next `spill`, `release` or `close_file`.
    """

    __slots__ = (
        "_block_firsts",
        "_block_seconds",
        "_disk",
        "_entry",
        "_file",
        "_is_loaded",
        "_is_synced",
        "_tail",
        "_written_count",
        "last",
        "path",
    )

    def __init__(self, disk: Disk, path: str, entry: Struct) -> None:
        """An index without entries; no file is made before there is something to write."""
        self._disk = disk
        self.path = path
        self._entry = entry
        self._file: File | None = None
        self._tail = bytearray()
        self._written_count = 0
        self._block_firsts = array("q")
        self._block_seconds = array("q")
        self._is_loaded = True
        self._is_synced = True
        self.last: tuple[int, int] | None = None
        """The newest entry."""

    def open_existing(self) -> None:
        """Take over the file at `path`. Only its size and last entry are read now.

        Raises:
            CorruptIndexError: it is missing, or does not hold whole entries.
        """
        try:
            size = self._open().size()
        except DiskError as error:
            if error.errno != errno.ENOENT:
                raise
            raise CorruptIndexError(f"{self.path}: missing") from None
        if size % self._entry.size:
            raise CorruptIndexError(f"{self.path}: {size} bytes are not whole entries of {self._entry.size}")
        self._tail.clear()
        self._written_count = size // self._entry.size
        self._is_loaded = self._written_count == 0
        self._is_synced = True
        self._block_firsts = array("q")
        self._block_seconds = array("q")
        self.last = self._read_entry(self._written_count - 1) if self._written_count else None
        self._file = None  # few are searched

    def __len__(self) -> int:
        """The number of entries."""
        return self._written_count + len(self._tail) // self._entry.size

    @property
    def is_spill_due(self) -> bool:
        """Whether a block has gathered in memory."""
        return len(self._tail) >= BLOCK_ENTRIES * self._entry.size

    def append(self, first: int, second: int) -> None:
        """Add an entry, in memory. The caller sees to it that it lies after the last."""
        self._tail += self._entry.pack(first, second)
        self.last = (first, second)

    def spill(self) -> None:
        """Write what has gathered in memory; after a `DiskError` it still is there, and the file as before."""
        if not self._tail and self._disk.exists(self.path):
            self._file = None
            return
        self._load()
        file = self._open(create=True)
        self._is_synced = False
        written_bytes = self._written_count * self._entry.size
        file.write_at(written_bytes, self._tail)
        if file.size() != written_bytes + len(self._tail):  # something longer was there
            file.truncate(written_bytes + len(self._tail))
        self._note_blocks(self._tail, self._written_count)
        self._written_count += len(self._tail) // self._entry.size
        self._tail.clear()
        self._file = None

    def sync(self) -> None:
        """Return once what was written would survive a loss of power. May run on another thread."""
        if not self._is_synced:
            self._is_synced = True
            try:
                sync_file(self._disk, self.path, self._file)
            except DiskError:
                self._is_synced = False
                raise

    def release(self) -> None:
        """Write what there is, then let go of memory and descriptor; the next search gets them back."""
        if self._tail:
            self.spill()
        self._is_loaded = self._written_count == 0
        self._block_firsts = array("q")
        self._block_seconds = array("q")
        self._file = None  # closed once no reader holds it

    def close_file(self) -> None:
        """Let go of the descriptor, and of nothing else; the next search opens the file again."""
        self._file = None  # closed once no reader holds it

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        if count >= len(self):
            return
        self._load()
        if count >= self._written_count:
            del self._tail[(count - self._written_count) * self._entry.size :]
        else:
            self._open(create=True).truncate(count * self._entry.size)
            self._is_synced = False
            self._tail.clear()
            self._written_count = count
            blocks = -(-count // BLOCK_ENTRIES)
            del self._block_firsts[blocks:], self._block_seconds[blocks:]
        self.last = self._read_entry(count - 1) if count else None

    def clear(self) -> None:
        """Forget all entries, whatever the file holds, which is written anew."""
        self._is_loaded = True
        self._written_count = 0
        self._tail.clear()
        self._block_firsts = array("q")
        self._block_seconds = array("q")
        self.last = None
        if self._disk.exists(self.path):
            self._open().truncate(0)
            self._is_synced = False

    def remove(self) -> None:
        """Remove the file."""
        self._file = None
        self._disk.remove(self.path)

    def rename(self, target: str) -> None:
        """Move the file, if there is one."""
        self._file = None
        if self._disk.exists(self.path):
            self._disk.rename(self.path, target)
        self.path = target

    def floor(self, column: int, value: int) -> tuple[int, int] | None:
        """The last entry whose `FIRST` or `SECOND` is at most `value`; None if there is none.

        Raises:
            CorruptIndexError: the entries do not grow.
        """
        return self._search(column, value)[1]

    def count_up_to(self, column: int, value: int) -> int:
        """How many entries have a `FIRST` or `SECOND` of at most `value`."""
        return self._search(column, value)[0]

    def _search(self, column: int, value: int) -> tuple[int, tuple[int, int] | None]:
        last = self.last
        if last is None:
            return 0, None
        if last[column] <= value:
            return len(self), last
        if self._tail and self._entry.unpack_from(self._tail)[column] <= value:
            return self._search_in(self._tail, self._written_count, column, value)
        self._load()
        block = bisect_right(self._block_seconds if column else self._block_firsts, value)
        if block == 0:
            return 0, None
        start = (block - 1) * BLOCK_ENTRIES
        entries = self._read_entries(start, min(BLOCK_ENTRIES, self._written_count - start))
        return self._search_in(entries, start, column, value)

    def _search_in(self, data: Buffer, start: int, column: int, value: int) -> tuple[int, tuple[int, int]]:
        unpack_from, size = self._entry.unpack_from, self._entry.size

        def number_at(index: int) -> int:
            number: int = unpack_from(data, index * size)[column]
            return number

        count = bisect_right(range(len(data) // size), value, key=number_at)
        if count == 0:
            raise CorruptIndexError(f"{self.path}: its entries do not grow, near entry {start}")
        first, second = unpack_from(data, (count - 1) * size)
        return start + count, (first, second)

    def entries(self) -> Iterator[tuple[int, int]]:
        """All entries, in order."""
        for start in range(0, self._written_count, BLOCK_ENTRIES):
            data = self._read_entries(start, min(BLOCK_ENTRIES, self._written_count - start))
            yield from self._entry.iter_unpack(data)
        yield from self._entry.iter_unpack(self._tail)

    def _read_entry(self, index: int) -> tuple[int, int]:
        if index >= self._written_count:
            first, second = self._entry.unpack_from(self._tail, (index - self._written_count) * self._entry.size)
        else:
            first, second = self._entry.unpack(self._read_entries(index, 1))
        return first, second

    def _read_entries(self, start: int, count: int) -> Buffer:
        size = self._entry.size
        data = read_place(self._open(), start * size, count * size)
        if len(data) != count * size:
            raise CorruptIndexError(f"{self.path}: shorter than the {self._written_count} entries it had")
        return data

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._block_firsts = array("q")
        self._block_seconds = array("q")
        self._note_blocks(self._read_entries(0, self._written_count), 0)
        self._is_loaded = True

    def _note_blocks(self, data: Buffer, start: int) -> None:
        """Take the first entry of each block that begins in `data`, which begins at entry `start`."""
        size = self._entry.size
        firsts, seconds = self._block_firsts, self._block_seconds
        for index in range(-start % BLOCK_ENTRIES, len(data) // size, BLOCK_ENTRIES):
            first, second = self._entry.unpack_from(data, index * size)
            if firsts and (first <= firsts[-1] or second <= seconds[-1]):
                raise CorruptIndexError(f"{self.path}: entry {start + index} does not lie after those before it")
            firsts.append(first)
            seconds.append(second)

    def _open(self, *, create: bool = False) -> File:
        file = self._file  # another thread may let go of it meanwhile
        if file is None:
            file = self._file = self._disk.open(self.path, create=create)
        return file


def sync_file(disk: Disk, path: str, file: File | None) -> None:
    """Sync a file, by its descriptor if it is open: else none is left open. On any thread. Raises DiskError."""
    opened = disk.open(path) if file is None else file
    try:
        opened.sync()
    finally:
        if file is None:
            opened.close()
