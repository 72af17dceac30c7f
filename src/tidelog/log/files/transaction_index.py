"""Which transactions were aborted in a segment: the .txnindex file, by which readers of committed records skip theirs.

    version int16 = 0 | producer id int64 | first offset int64 | last offset int64 | last stable offset int64     ...

An entry belongs to the segment that holds the abort marker, whose offset is the last offset; entries lie in the order
of their markers. The last stable offset is what it became once this transaction was decided: all transactions that
begin below it are decided by then, so whoever reads below it needs no later entry. Most segments have no such file.

The format has no checksum. A file that contradicts itself or its segment is not read: recovery derives it anew.

Kafka: `TransactionIndex`, `AbortedTxn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from tidelog.base.ids import Offset, ProducerId
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer, Disk, File
from tidelog.log.files.index_file import CorruptIndexError, sync_file
from tidelog.log.lookup import read_place

VERSION = 0
ENTRY = Struct(">hqqqq")
BLOCK_ENTRIES = 120
"""What a search reads at once: 4 KiB."""


class AbortedTransaction(NamedTuple):
    """A transaction whose records a reader of committed records skips."""

    producer_id: ProducerId
    first_offset: Offset
    """Of the transaction in this log."""


class AbortedEntry(NamedTuple):
    """An entry of the file."""

    producer_id: ProducerId
    first_offset: Offset
    """Of the transaction."""
    last_offset: Offset
    """Of its abort marker."""
    last_stable_offset: Offset
    """Exclusive; once the transaction is decided."""


class AbortedFile(NamedTuple):
    """The aborted transactions of a segment at one moment, to be read at leisure."""

    path: str | None
    """None if no file was written yet."""
    size_bytes: int
    """What of the file counts."""
    tail: bytes
    """Entries that are not written yet."""
    fault: str | None

    def read(self, disk: Disk) -> list[AbortedEntry]:
        """The entries. On any thread.

        Raises:
            CorruptIndexError: they are not known.
            DiskError: the disk refused, or the segment is gone.
        """
        if self.fault is not None:
            raise CorruptIndexError(self.fault)
        data = b"" if self.path is None else disk.read_bytes(self.path)[: self.size_bytes]
        if len(data) != (self.size_bytes if self.path is not None else 0):
            raise CorruptIndexError(f"{self.path}: {len(data)} bytes, where there were {self.size_bytes}")
        return list(parse_entries(data + self.tail, self.path or "transaction index"))


class TransactionIndex:
    """The aborted transactions of one segment, in the order of their markers.

    Its file is open only between a search and `release` or `close_file`. Entries that could not be written wait in
    memory.
    """

    __slots__ = (
        "_disk",
        "_file",
        "_has_file",
        "_has_synced_name",
        "_is_synced",
        "_last_offset",
        "_tail",
        "_written_count",
        "fault",
        "path",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        """An index without entries; no file is made before there is one."""
        self._disk = disk
        self.path = path
        self._file: File | None = None
        self._has_file = False
        self._has_synced_name = True
        self._is_synced = True
        self._tail = bytearray()
        self._written_count = 0
        self._last_offset = -1
        self.fault: str | None = None
        """Why nothing can be said of the segment's aborted transactions: there is a file, and it is not to be read."""

    def open_existing(self, base_offset: Offset, end_offset: Offset) -> None:
        """Take over the file at `path`, which is there, and read all of it once.

        Args:
            base_offset: of the segment.
            end_offset: of the segment, exclusive.

        Raises:
            CorruptIndexError: it contradicts itself, or the segment. It has a `fault` until `replace`.
        """
        self._has_file = True
        data = self._disk.read_bytes(self.path)
        try:
            self._last_offset = _check(self.path, data, base_offset, end_offset)
        except CorruptIndexError as error:
            self.fault = str(error)
            raise
        self._written_count = len(data) // ENTRY.size
        self.fault = None

    def on_lost(self) -> str:
        """There was a file, and it is gone. Returns the `fault` that it has until `replace`."""
        self.fault = f"{self.path}: missing, though its segment has aborted transactions"
        return self.fault

    def __len__(self) -> int:
        """The number of entries."""
        return self._written_count + len(self._tail) // ENTRY.size

    @property
    def is_telling(self) -> bool:
        """Whether a search has to look here."""
        return self._written_count > 0 or bool(self._tail) or self.fault is not None

    def note(self, entry: AbortedEntry) -> None:
        """Add an entry, in memory. `spill` next."""
        invariant(entry.last_offset > self._last_offset, "{}: {} after offset {}", self.path, entry, self._last_offset)
        self._tail += ENTRY.pack(VERSION, *entry)
        self._last_offset = entry.last_offset

    def spill(self) -> None:
        """Write what waits in memory; after a `DiskError` it still does. A file with a fault is left as it is."""
        if not self._tail or self.fault is not None:
            return
        if not self._has_file:
            self._has_synced_name = False
        file = self._open(create=True)
        self._has_file = True
        self._is_synced = False
        written_bytes = self._written_count * ENTRY.size
        file.write_at(written_bytes, self._tail)
        if file.size() != written_bytes + len(self._tail):  # something longer was there
            file.truncate(written_bytes + len(self._tail))
        self._written_count += len(self._tail) // ENTRY.size
        self._tail = bytearray()

    @property
    def unwritten_offset(self) -> Offset | None:
        """The first marker whose entry waits in memory, though it should have been written; None as a rule."""
        tail = self._tail
        return Offset(ENTRY.unpack_from(tail)[3]) if tail else None

    def sync(self) -> None:
        """Return once what was written would survive a loss of power, and the file's name too. On any thread.

        No later start could tell that an entry is missing: this is called before the recovery point passes a marker.
        """
        if not self._is_synced:
            self._is_synced = True
            try:
                sync_file(self._disk, self.path, self._file)
            except BaseException:
                self._is_synced = False
                raise
        if not self._has_synced_name:
            self._disk.sync_dir(self.path.rpartition("/")[0] or ".")
            self._has_synced_name = True

    def release(self) -> None:
        """Write what there is, then let go of the descriptor."""
        self.spill()
        self._file = None  # closed once no reader holds it

    def close_file(self) -> None:
        """Let go of the descriptor, and of nothing else."""
        self._file = None  # closed once no reader holds it

    def replace(self, entries: Iterable[AbortedEntry]) -> None:
        """Put what was derived from the segment in place of whatever the file says; synced, once the directory is.

        A stop in the midst of it leaves the old file or the new one: half of one might look like a whole one.
        """
        data = b"".join(ENTRY.pack(VERSION, *entry) for entry in entries)
        self._file = None
        self._tail = bytearray()
        if data:
            self._disk.write_atomically(self.path, data)
        else:
            self._disk.remove(self.path)
        self._has_file = bool(data)
        self._is_synced = True
        self._written_count = len(data) // ENTRY.size
        self._last_offset = _last_offset(data) if data else -1
        self.fault = None

    def truncate_to(self, end_offset: Offset) -> None:
        """Drop the transactions whose marker does not lie below `end_offset`: they are not decided any more."""
        if self._last_offset < end_offset:
            return
        count = self._count_below(end_offset)
        if count >= self._written_count:
            del self._tail[(count - self._written_count) * ENTRY.size :]
        else:
            self._open(create=True).truncate(count * ENTRY.size)
            self._is_synced = False
            self._tail = bytearray()
            self._written_count = count
        self._last_offset = self._read_entry(count - 1).last_offset if count else -1

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self._file = None
        self._disk.remove(self.path)

    def rename(self, target: str) -> bool:
        """Move the file. Returns whether there is one."""
        self._file = None
        if self._has_file:
            self._disk.rename(self.path, target)
        self.path = target
        return self._has_file

    # Reading.

    def file_now(self) -> AbortedFile:
        """What is to be read of it on another thread."""
        path = self.path if self._written_count else None
        return AbortedFile(path, self._written_count * ENTRY.size, bytes(self._tail), self.fault)

    def collect(self, found: list[AbortedTransaction], start_offset: int, end_offset: int) -> bool:
        """Take those that reach into [start_offset, end_offset) into `found`.

        Returns:
            Whether that is all: no later segment holds one.

        Raises:
            CorruptIndexError: the segment's aborted transactions are not known.
        """
        for entry in self.entries(start_offset):
            if entry.first_offset < end_offset:
                found.append(AbortedTransaction(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                return True
        return False

    def entries(self, start_offset: int = 0) -> Iterator[AbortedEntry]:
        """Those whose marker lies at `start_offset` or beyond, in order. Raises CorruptIndexError."""
        if self.fault is not None:
            raise CorruptIndexError(self.fault)
        if self._last_offset < start_offset:
            return
        index = self._count_below(start_offset) if start_offset else 0
        while index < self._written_count:
            for fields in ENTRY.iter_unpack(self._read(index, min(BLOCK_ENTRIES, self._written_count - index))):
                yield _entry(fields)
            index = min(index + BLOCK_ENTRIES, self._written_count)
        for fields in ENTRY.iter_unpack(self._tail[(index - self._written_count) * ENTRY.size :]):
            yield _entry(fields)

    def _count_below(self, offset: int) -> int:
        """How many markers lie below `offset`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self._read_entry(middle).last_offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def _read_entry(self, index: int) -> AbortedEntry:
        if index >= self._written_count:
            return _entry(ENTRY.unpack_from(self._tail, (index - self._written_count) * ENTRY.size))
        return _entry(ENTRY.unpack(self._read(index, 1)))

    def _read(self, index: int, count: int) -> Buffer:
        data = read_place(self._open(), index * ENTRY.size, count * ENTRY.size)
        if len(data) != count * ENTRY.size:
            raise CorruptIndexError(f"{self.path}: shorter than the {self._written_count} entries it had")
        return data

    def _open(self, *, create: bool = False) -> File:
        file = self._file  # another thread may let go of it meanwhile
        if file is None:
            file = self._file = self._disk.open(self.path, create=create)
        return file


def _entry(fields: tuple[int, ...]) -> AbortedEntry:
    _, producer_id, first_offset, last_offset, last_stable_offset = fields
    return AbortedEntry(ProducerId(producer_id), Offset(first_offset), Offset(last_offset), Offset(last_stable_offset))


def _last_offset(data: bytes) -> int:
    last: int = ENTRY.unpack_from(data, len(data) - ENTRY.size)[3]
    return last


def parse_entries(data: bytes, path: str) -> Iterator[AbortedEntry]:
    """The entries of a file, in order.

    Raises:
        CorruptIndexError: what comes next is no whole entry, or one of another version.
    """
    whole_bytes = len(data) - len(data) % ENTRY.size
    for fields in ENTRY.iter_unpack(memoryview(data)[:whole_bytes]):
        if fields[0] != VERSION:
            raise CorruptIndexError(f"{path}: an entry has version {fields[0]}, not {VERSION}")
        yield _entry(fields)
    if whole_bytes != len(data):
        raise CorruptIndexError(f"{path}: {len(data)} bytes are not whole entries of {ENTRY.size}")


def _check(path: str, data: bytes, base_offset: int, end_offset: int) -> int:
    """The last marker's offset; -1 if there is none. Raises CorruptIndexError: nobody wrote such a file."""
    last_offset = base_offset - 1
    for entry in parse_entries(data, path):
        if not (
            0 <= entry.first_offset < entry.last_offset
            and last_offset < entry.last_offset < end_offset
            and 0 <= entry.last_stable_offset <= entry.last_offset + 1  # compaction may leave one below another's
            and entry.producer_id >= 0
        ):
            raise CorruptIndexError(f"{path}: {entry} does not lie after offset {last_offset}, below {end_offset}")
        last_offset = entry.last_offset
    return last_offset if data else -1
