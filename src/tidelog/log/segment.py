"""A stretch of a log: one file of batches, two sparse indexes into it, and a list of what was aborted.

    00000000000000000042.log         the batches, as they travel
    00000000000000000042.index       offset -> position          (offset_index.py)
    00000000000000000042.timeindex   timestamp -> offset         (time_index.py)
    00000000000000000042.txnindex    aborted transactions, if there are any (transaction_index.py)

The name is the base offset: no record in it lies below. Only the last segment of a log grows, and the places of its
last batches are held in memory, so that those who read at the end of a log find their place without reading.

Kafka: `LogSegment`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer, Disk, File
from tidelog.log.config import LogConfig
from tidelog.log.files.index_file import CorruptIndexError, sync_file
from tidelog.log.files.offset_index import OffsetIndex
from tidelog.log.files.time_index import MaxTimestamp, TimeIndex
from tidelog.log.files.transaction_index import AbortedEntry, TransactionIndex
from tidelog.log.index_repair import IndexRepair
from tidelog.log.lookup import read_place, waiting
from tidelog.log.scan import find_boundary, find_offset, scan_headers
from tidelog.log.slice import LogSlice
from tidelog.records.batch import BatchHeader

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"

RECENT_MAX = 256
"""Batches at the end of a segment whose places are in memory; half of them are dropped at a time."""

NO_TIMESTAMP = -1
TIMESTAMP_MAX = 2**63 - 1
OFFSET_DELTA_MAX = 2**31 - 1

_BASE_OFFSET = Struct(">q")


def file_name(offset: int, suffix: str) -> str:
    """20 digits, so that names sort as offsets do."""
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str, suffix: str) -> Offset | None:
    """The offset in a name that `file_name` made; None for any other."""
    digits = name.removesuffix(suffix)
    if name.endswith(suffix) and len(digits) == 20 and digits.isascii() and digits.isdigit():
        return Offset(int(digits))
    return None


class Segment:
    """One segment. It knows its own batches; what they mean for the log is the log's affair."""

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_index_interval_bytes",
        "_is_damaged",
        "_is_spill_due",
        "_recent_base_offset",
        "_recent_last_offsets",
        "_recent_positions",
        "_repair",
        "_size_since_index_entry",
        "_truncations",
        "base_offset",
        "created_ms",
        "end_offset",
        "first_timestamp",
        "holds_markers",
        "holds_producers",
        "is_index_full",
        "is_retired",
        "is_synced",
        "max_timestamp",
        "offset_index",
        "path",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> None:
        """Name a segment; `create` or `open_existing` it next. A `suffix` to its files' names hides it from the log."""
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self.path = self._path(base_offset, LOG_SUFFIX + suffix)
        self.base_offset = base_offset
        self.end_offset = base_offset
        """Exclusive: what follows the last batch, or where the next segment starts."""
        self.size_bytes = 0
        self.created_ms = now_ms
        self.is_synced = False
        self.is_retired = False
        """Whether its files have other names by now, or are about to have."""
        self.offset_index = OffsetIndex(
            disk, self._path(base_offset, INDEX_SUFFIX + suffix), base_offset, config.index_size_bytes_max
        )
        self.time_index = TimeIndex(
            disk, self._path(base_offset, TIME_INDEX_SUFFIX + suffix), base_offset, config.index_size_bytes_max
        )
        self.transaction_index = TransactionIndex(disk, self._path(base_offset, TRANSACTION_INDEX_SUFFIX + suffix))
        self.max_timestamp: MaxTimestamp | None = None
        self.first_timestamp: int | None = None
        """The largest timestamp of the first batch, by which segments roll; None if there is no batch."""
        self._index_interval_bytes = config.index_interval_bytes
        self._size_since_index_entry = 0
        self.holds_producers = True
        """Whether there may be batches with a producer id in it."""
        self.holds_markers = False
        """Whether `note_indexed` was told of a batch that decides a transaction."""
        self.is_index_full = False
        """Whether `segment.index.bytes` asks for a new segment."""
        self._is_spill_due = False
        self._is_damaged = False
        self._repair = IndexRepair()
        self._truncations: list[int] = []
        self._recent_base_offset = base_offset
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

    def _path(self, offset: int, suffix: str) -> str:
        return f"{self._directory}/{file_name(offset, suffix)}"

    @property
    def file(self) -> File:
        """Opened when first needed."""
        file = self._file  # another thread may let go of it meanwhile
        if file is None:
            file = self._file = self._disk.open(self.path)
        return file

    def create(self) -> None:
        """Make an empty file; whatever had the name is emptied."""
        self._file = self._disk.open(self.path, create=True)
        if self._file.size():
            self._file.truncate(0)
        self.offset_index.remove()
        self.time_index.remove()
        self.transaction_index.remove()

    def open_existing(self, end_offset: Offset) -> None:
        """Take over the files that are there, indexes included.

        Args:
            end_offset: what follows its last batch, or the base offset of the next segment; the segment's own base
                offset if that is not known yet: `resume` finds it then.

        Raises:
            CorruptIndexError: an index is missing, or does not fit the log: `rebuild_indexes` is the cure.
        """
        self.size_bytes = self.file.size()
        self.end_offset = end_offset
        self._forget_recent()
        self.offset_index.open_existing()
        self.offset_index.check(self.size_bytes)
        self.time_index.open_existing()
        if end_offset > self.base_offset:
            self.time_index.check(end_offset)
        if self.size_bytes and self.time_index.last is None and self._has_timestamps():
            raise CorruptIndexError(f"{self.time_index.path}: empty, though its log is not")
        self.max_timestamp = self.time_index.newest()

    def _has_timestamps(self) -> bool:
        return any(header.record_count and header.max_timestamp >= 0 for _, header in self.headers(0, 1))

    # Growing.

    def resume(self) -> None:
        """Make ready to grow: learn what the batches beyond the last index entry say.

        Raises:
            CorruptLogError: the batches do not end where the file does, or an index does not fit them.
        """
        self._forget_recent()
        self.max_timestamp = self.time_index.newest()
        self.first_timestamp = None
        for position, header in self.headers(0, min(1, self.size_bytes)):
            self._note_timestamps(position, header)
        last = self.offset_index.last
        end = 0
        for position, header in self.headers(last[1] if last is not None else 0):
            self._note_timestamps(position, header)
            end = position + header.size_bytes
            self.end_offset = Offset(header.next_offset)
        if end != self.size_bytes:
            raise CorruptLogError(f"{self.path}: its last batch ends at {end}, the file at {self.size_bytes}")
        self.time_index.check(self.end_offset)

    def spill_indexes(self) -> None:
        """Write index blocks that have gathered in memory: before `append`, when failing does no harm yet."""
        if self._is_spill_due:
            self.offset_index.spill()
            self.time_index.spill()
            self.transaction_index.spill()
            self._is_spill_due = False

    def append(self, data: Buffer) -> None:
        """Write whole batches with one call of the system; each is then to be `note`d, in order.

        Raises:
            DiskError: nothing counts as appended; `withdraw` has to remove what was written.
        """
        self.is_synced = False
        self.holds_producers = True
        self.file.append(data)

    def withdraw(self) -> None:
        """Truncate what was written but not noted. Raises `DiskError` if the disk refuses that too."""
        self._truncations.append(self.size_bytes)
        self.file.truncate(self.size_bytes)

    def note(self, base_offset: int, last_offset: int, max_timestamp: int, size_bytes: int) -> None:
        """Take in a batch that was written at the end.

        Args:
            base_offset: of the batch.
            last_offset: inclusive.
            max_timestamp: of its records, in ms; -1 for none.
            size_bytes: of the whole batch.
        """
        position = self.size_bytes
        if not position:
            self.first_timestamp = max_timestamp
        newest = self.max_timestamp
        if max_timestamp > (NO_TIMESTAMP if newest is None else newest[0]):
            self.max_timestamp = MaxTimestamp(max_timestamp, last_offset)
        if self._size_since_index_entry > self._index_interval_bytes:
            self._note_index_entries(last_offset, position)
        self._size_since_index_entry += size_bytes
        self.size_bytes = position + size_bytes
        self.end_offset = Offset(last_offset + 1)
        recent = self._recent_last_offsets
        if not recent:
            self._recent_base_offset = Offset(base_offset)
        elif len(recent) >= RECENT_MAX:
            self._recent_base_offset = Offset(recent[RECENT_MAX // 2 - 1] + 1)
            del recent[: RECENT_MAX // 2], self._recent_positions[: RECENT_MAX // 2]
        recent.append(last_offset)
        self._recent_positions.append(position)

    def note_aborted(self, entry: AbortedEntry) -> None:
        """Take in that an abort marker was written, which decides a transaction."""
        self.transaction_index.note(entry)
        try:
            self.transaction_index.spill()
        except DiskError:  # the marker is in the log; the next batch is refused if this cannot be made good
            self._is_spill_due = True

    def _note_index_entries(self, last_offset: int, position: int) -> None:
        self.offset_index.note(last_offset, position)
        if self.max_timestamp is not None and not self._is_damaged:
            self.time_index.note(*self.max_timestamp)
        self._size_since_index_entry = 0
        self._is_spill_due |= self.offset_index.is_spill_due or self.time_index.is_spill_due
        self.is_index_full = self.offset_index.is_full or self.time_index.is_full

    def _forget_recent(self) -> None:
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")
        self._size_since_index_entry = 0

    def can_hold(self, last_offset: int) -> bool:
        """Whether an index entry can tell the offset."""
        return last_offset - self.base_offset <= OFFSET_DELTA_MAX

    # Reading.

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from `position`, where one starts, with their positions. Raises CorruptLogError."""
        end_offset = self.end_offset if self.end_offset > self.base_offset else self.base_offset + 2**31
        return scan_headers(
            self.file,
            position,
            self.size_bytes if end is None else end,
            first_offset=self.base_offset,
            end_offset=end_offset,
        )

    def knows_place_of(self, offset: int) -> bool:
        """Whether the batch that holds `offset` is one of the last, whose places are known without reading."""
        return bool(self._recent_last_offsets) and offset >= self._recent_base_offset

    def position_of(self, offset: int) -> int:
        """Where the first batch that holds `offset` or a higher one starts; the size if there is none.

        Raises:
            CorruptLogError: something between the nearest index entry and that batch is none.
        """
        recent = self._recent_last_offsets
        if recent and offset >= self._recent_base_offset:
            index = bisect_left(recent, offset)
            return self._recent_positions[index] if index < len(recent) else self.size_bytes
        if offset <= self.base_offset:
            return 0
        return self._repair.look_up(self, lambda: self._find(offset))

    def position_of_time(self, timestamp: int, start_offset: int) -> int:
        """Where to begin looking for the first record of `timestamp` or later that is not below `start_offset`."""
        try:
            entry = self.time_index.entry_before(timestamp)
        except CorruptIndexError:
            self._repair.await_scan(self)
            waiting(self.rebuild_indexes)
            entry = self.time_index.entry_before(timestamp)
        return self.position_of(start_offset if entry is None else max(entry.last_offset, start_offset))

    def _find(self, offset: int) -> int:
        nearest = self.offset_index.batch_before(offset)
        if nearest is None:
            return find_offset(self.file, 0, self.size_bytes, offset)
        return find_offset(self.file, nearest.position, self.size_bytes, offset, first_last_offset=nearest.last_offset)

    def read(self, offset: int, *, size_bytes_max: int, end_offset: int, at_least_one: bool) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on; None if all lie below it.

        Args:
            offset: to start at.
            size_bytes_max: of the slice.
            end_offset: exclusive. No batch that reaches beyond it is returned.
            at_least_one: the first batch may be larger than `size_bytes_max`.
        """
        start = self.position_of(offset)
        stop = self.size_bytes if end_offset >= self.end_offset else self.position_of(end_offset)
        if stop - start > size_bytes_max:
            stop = self._repair.look_up(self, lambda: self._cut(start, size_bytes_max, at_least_one))
        if start == self.size_bytes:
            return None
        return LogSlice(self.file, start, max(stop - start, 0), self._truncations, self.offset_at)

    def _cut(self, start: int, size_bytes_max: int, at_least_one: bool) -> int:
        limit = start + max(size_bytes_max, 0)
        boundary = self.offset_index.boundary_before(limit)
        stop, size = find_boundary(self.file, max(boundary, start), limit)
        if stop + size > self.size_bytes:
            raise CorruptLogError(f"{self.path}: the batch at position {stop} reaches beyond the end of the file")
        return stop + size if stop == start and at_least_one else stop

    def offset_at(self, position: int) -> Offset:
        """The base offset of the batch that starts at `position`; the end offset at the end."""
        if position >= self.size_bytes:
            return self.end_offset
        return Offset(_BASE_OFFSET.unpack(read_place(self.file, position, _BASE_OFFSET.size))[0])

    # Repairing, cutting, leaving.

    def rebuild_indexes(self) -> None:
        """Derive both indexes from the batches' headers, up to the first place that holds none.

        Raises:
            CorruptLogError: there is such a place. What lies below it can be found from now on. No time index is
                left, so that the next start looks again, and says so again.
        """
        self.begin_indexes()
        try:
            for position, header in self.headers():
                self.note_indexed(position, header)
        except CorruptLogError:
            self._is_damaged = True
            self.time_index.clear()
            self.time_index.remove()
            self.max_timestamp = MaxTimestamp(TIMESTAMP_MAX, self.end_offset - 1)  # who looks for a time must look here
            self.holds_producers = True
            raise
        finally:
            self.finish_indexes()

    def begin_indexes(self) -> None:
        """Forget both indexes, to derive them anew with `note_indexed` and `finish_indexes`."""
        self.offset_index.clear()
        self.time_index.clear()
        self._is_damaged = False
        self.holds_producers = self.holds_markers = False
        self.max_timestamp = None
        self.first_timestamp = None
        self._forget_recent()

    def note_indexed(self, position: int, header: BatchHeader) -> None:
        """Take in a batch that is in the file already."""
        self._note_timestamps(position, header)
        if header.producer_id >= 0:
            self.holds_producers = True
            self.holds_markers |= header.is_control
        if self._size_since_index_entry > self._index_interval_bytes:
            self._note_index_entries(header.last_offset, position)
            self.spill_indexes()
        self._size_since_index_entry += header.size_bytes

    def _note_timestamps(self, position: int, header: BatchHeader) -> None:
        if not position:
            self.first_timestamp = header.max_timestamp
        newest = self.max_timestamp
        if not header.record_count:
            return  # all were removed by compaction: no record has the time
        if header.max_timestamp > (NO_TIMESTAMP if newest is None else newest.timestamp):
            self.max_timestamp = MaxTimestamp(header.max_timestamp, header.last_offset)

    def finish_indexes(self) -> None:
        """Write the indexes that were derived from the records."""
        self.offset_index.spill()
        self.transaction_index.spill()
        if self._is_damaged:
            return
        if self.max_timestamp is not None:
            self.time_index.note(*self.max_timestamp)
        self.time_index.spill()

    def truncate(self, position: int, end_offset: Offset) -> None:
        """Truncate the file at `position`, where the batch that would have held `end_offset` starts or started."""
        self._truncations.append(position)
        self.is_synced = False
        self.file.truncate(position)
        self.size_bytes = position
        self.end_offset = end_offset
        try:
            self.offset_index.truncate_to(position)
            self.time_index.truncate_to(end_offset)
        except CorruptIndexError:
            self.rebuild_indexes()
        self.transaction_index.truncate_to(end_offset)
        self.is_index_full = False
        self.resume()
        self.end_offset = end_offset

    def spoil_slices(self) -> None:
        """What is about to go was truncated, not merely deleted: nobody may read on in it."""
        self._truncations.append(0)

    def seal(self) -> None:
        """No batch comes after this: the indexes are completed and written."""
        self.finish_indexes()
        self._forget_recent()

    def release(self) -> None:
        """Let go of descriptors and memory; the next read gets back what it needs."""
        self._forget_recent()
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()
        self._file = None  # closed once no slice holds it

    def sync(self, *, with_indexes: bool) -> None:
        """Return once the batches (and, for a segment that is complete, its indexes) would survive a loss of power.

        What was aborted is synced in any case: the other indexes are found out by the next start if they are not whole.
        """
        if not self.is_synced:
            sync_file(self._disk, self.path, self._file)
        self.transaction_index.sync()
        if with_indexes:
            self.offset_index.sync()
            self.time_index.sync()
            self.is_synced = True

    def remove(self) -> None:
        """Remove what there is of the files, at once."""
        self._file = None
        self.offset_index.remove()
        self.time_index.remove()
        self.transaction_index.remove()
        self._disk.remove(self.path)

    def retire(self) -> list[str]:
        """Rename the files so that no recovery takes them up. Returns the new names, to be removed at leisure.

        Whoever holds a slice of it reads on in its file, though its name may soon be that of another.
        """
        self.is_retired = True
        self._file = self.file
        retired = []
        for index in (self.offset_index, self.time_index):
            index.rename(f"{index.path}{DELETED_SUFFIX}")
            retired.append(index.path)
        if self.transaction_index.rename(f"{self.transaction_index.path}{DELETED_SUFFIX}"):
            retired.append(self.transaction_index.path)
        self._rename_log(f"{self.path}{DELETED_SUFFIX}")
        retired.append(self.path)
        return retired

    def _rename_log(self, path: str) -> None:
        self._disk.rename(self.path, path)
        self.path = path

    def rename_log(self, suffix: str) -> None:
        """Give the file of batches another suffix behind its name; an empty one makes it a part of the log."""
        self._file = None
        self._rename_log(self._path(self.base_offset, LOG_SUFFIX) + suffix)

    def take_names(self) -> None:
        """Drop the suffix that it was made with: the file of batches last, for it is what recovery goes by."""
        for index, suffix in ((self.offset_index, INDEX_SUFFIX), (self.time_index, TIME_INDEX_SUFFIX)):
            index.rename(self._path(self.base_offset, suffix))
        self.transaction_index.rename(self._path(self.base_offset, TRANSACTION_INDEX_SUFFIX))
        self.rename_log("")
