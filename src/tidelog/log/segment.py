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
from tidelog.log.batch_chain import BatchChain
from tidelog.log.config import LogConfig
from tidelog.log.damage import Damage, DamagedRecordsError
from tidelog.log.files.index_file import CorruptIndexError, sync_file
from tidelog.log.index_repair import IndexRepair
from tidelog.log.lookup import read_place, waiting
from tidelog.log.placed import Placed
from tidelog.log.scan import find_boundary, find_offset, scan_headers
from tidelog.log.segment_indexes import IndexPaths, SegmentIndexes
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

OFFSET_DELTA_MAX = 2**31 - 1

_BASE_OFFSET = Struct(">q")
OFFSET_DIGITS = 20


def file_name(offset: int, suffix: str) -> str:
    """20 digits, so that names sort as offsets do."""
    return f"{offset:0{OFFSET_DIGITS}d}{suffix}"


def parse_file_name(name: str, suffix: str) -> Offset | None:
    """The offset in a name that `file_name` made; None for any other."""
    if name[OFFSET_DIGITS:] != suffix:
        return None
    digits = name[:OFFSET_DIGITS]
    return Offset(int(digits)) if len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit() else None


class Segment:
    """One segment. It knows its own batches; what they mean for the log is the log's affair.

    Attributes:
        damages: stretches of the file that cannot be believed, by position; they are refused to readers.
        has_index_fault: whether its offset index was found to name what is not there.
        indexes: what is known of the batches without reading them.
        offset_max: the largest that an index entry can tell.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_recent_base_offset",
        "_recent_last_offsets",
        "_recent_positions",
        "_repair",
        "_truncations",
        "base_offset",
        "created_ms",
        "damages",
        "end_offset",
        "has_index_fault",
        "indexes",
        "is_retired",
        "is_synced",
        "offset_max",
        "path",
        "size_bytes",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: Offset, config: LogConfig, *, now_ms: int, suffix: str = ""
    ) -> None:
        """Name a segment; `create` or `open_existing` it next. A `suffix` to its files' names hides it from the log."""
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self.base_offset = base_offset
        self.path = self._path(LOG_SUFFIX + suffix)
        self.end_offset = base_offset
        """Exclusive: what follows the last batch, or where the next segment starts."""
        self.size_bytes = 0
        self.created_ms = now_ms
        self.is_synced = False
        self.is_retired = False
        """Whether its files have other names by now, or are about to have."""
        self.indexes = SegmentIndexes(disk, self._index_paths(suffix), base_offset, config)
        self.offset_max = base_offset + OFFSET_DELTA_MAX
        self.damages: tuple[Damage, ...] = ()
        self.has_index_fault = False
        self._repair = IndexRepair()
        self._truncations: list[int] = []
        self._recent_base_offset = base_offset
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}"

    def _index_paths(self, suffix: str = "") -> IndexPaths:
        return IndexPaths(*(self._path(each + suffix) for each in INDEX_SUFFIXES))

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
        self.indexes.remove()

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
        self.indexes.open_existing(self.size_bytes, end_offset if end_offset > self.base_offset else None)
        times = self.indexes.times
        if self.size_bytes and times.last is None and self._has_timestamps():
            raise CorruptIndexError(f"{times.path}: empty, though its log is not")

    def _has_timestamps(self) -> bool:
        return any(header.record_count and header.max_timestamp >= 0 for _, header in self.headers(0, 1))

    # Growing.

    def resume(self) -> None:
        """Make ready to grow: learn what the batches beyond the last index entry say.

        Raises:
            CorruptLogError: the batches do not end where the file does, or an index does not fit them.
        """
        self._forget_recent()
        indexes = self.indexes
        indexes.resume()
        for position, header in self.headers(0, min(1, self.size_bytes)):
            indexes.note_times(position, header)
        last = indexes.offsets.last
        end = 0
        for position, header in self.headers(last[1] if last is not None else 0):
            indexes.note_times(position, header)
            end = position + header.size_bytes
            self.end_offset = Offset(header.next_offset)
        if end != self.size_bytes:
            raise CorruptLogError(f"{self.path}: its last batch ends at {end}, the file at {self.size_bytes}")
        indexes.times.check(self.end_offset)

    def append(self, data: Buffer) -> None:
        """Write whole batches with one call of the system; each is then to be `note`d, in order.

        Raises:
            DiskError: nothing counts as appended; `withdraw` has to remove what was written.
        """
        self.is_synced = False
        self.indexes.holds_producers = True
        self.file.append(data)

    def withdraw(self) -> None:
        """Truncate what was written but not noted. Raises `DiskError` if the disk refuses that too."""
        self._truncations.append(self.size_bytes)
        self.file.truncate(self.size_bytes)

    def note(self, written: list[Placed]) -> None:
        """Take in batches that were written at the end, one after the other."""
        first_position, _, first_offset, _, _ = written[0]
        position = self.size_bytes
        self.size_bytes = self.indexes.note(written, position)
        self.end_offset = Offset(written[-1][3] + 1)
        recent, positions = self._recent_last_offsets, self._recent_positions
        if not recent:
            self._recent_base_offset = Offset(first_offset)
        ahead = position - first_position
        recent.extend([one[3] for one in written])
        positions.extend([ahead + one[0] for one in written])
        if len(recent) > RECENT_MAX:
            dropped = max(len(recent) - RECENT_MAX, RECENT_MAX // 2)
            self._recent_base_offset = Offset(recent[dropped - 1] + 1)
            del recent[:dropped], positions[:dropped]

    @property
    def version(self) -> tuple[int, int]:
        """The size, and how often it was truncated: while both are as they were, so are the bytes."""
        return self.size_bytes, len(self._truncations)

    def _forget_recent(self) -> None:
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

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

    def position_of(self, offset: int, cleaned_end_offset: int | None = None) -> int:
        """Where the first batch that holds `offset` or a higher one starts; the size if there is none.

        A damage counts as one batch, which holds all of its offsets.

        Args:
            cleaned_end_offset: where given, batches are compared with the one before; see `find_offset`.

        Raises:
            CorruptLogError: something between the nearest index entry and that batch is none.
        """
        recent = self._recent_last_offsets
        if recent and offset >= self._recent_base_offset:
            index = bisect_left(recent, offset)
            return self._recent_positions[index] if index < len(recent) else self.size_bytes
        if offset <= self.base_offset:
            return 0
        return self._repair.look_up(self, lambda: self._find(offset, cleaned_end_offset))

    def position_of_time(self, timestamp: int, start_offset: int, cleaned_end_offset: int) -> int:
        """Where to begin looking for the first record of `timestamp` or later that is not below `start_offset`."""
        try:
            entry = self.indexes.times.entry_before(timestamp)
        except CorruptIndexError:
            self._repair.await_scan(self)
            waiting(self.rebuild_indexes)
            entry = self.indexes.times.entry_before(timestamp)
        offset = start_offset if entry is None else max(entry.last_offset, start_offset)
        return self.position_of(offset, cleaned_end_offset)

    def _find(self, offset: int, cleaned_end_offset: int | None) -> int:
        nearest = self.indexes.offsets.batch_before(offset)
        position, last_offset, next_offset = 0, None, self.base_offset
        if nearest is not None:
            last_offset, position = nearest
        end = self.size_bytes
        for damage in self.damages:
            if damage.start_offset <= offset < damage.end_offset:
                return damage.position
            if offset < damage.start_offset:
                end = min(end, damage.position)
            elif position < damage.end_position:
                position, last_offset, next_offset = damage.end_position, None, damage.end_offset
        return find_offset(
            self.file,
            position,
            end,
            offset,
            first_last_offset=last_offset,
            next_offset=None if last_offset is not None else next_offset,
            cleaned_end_offset=cleaned_end_offset,
        )

    def read(
        self, offset: int, *, size_bytes_max: int, end_offset: int, at_least_one: bool, cleaned_end_offset: int
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset` on; None if all lie below it.

        Args:
            offset: to start at.
            size_bytes_max: of the slice.
            end_offset: exclusive. No batch that reaches beyond it is returned.
            at_least_one: the first batch may be larger than `size_bytes_max`.
            cleaned_end_offset: up to here offsets may be missing, since compaction removed their records (exclusive).

        Raises:
            DamagedRecordsError: `offset` lies in a known damage.
            CorruptLogError: something between the nearest index entry and that batch is none.
        """
        is_recent = self.knows_place_of(offset)
        start = self.position_of(offset, cleaned_end_offset)
        stop = self.size_bytes if end_offset >= self.end_offset else self.position_of(end_offset)
        for damage in self.damages:
            if damage.position <= start < damage.end_position or damage.start_offset <= offset < damage.end_offset:
                raise DamagedRecordsError(self.path, damage)  # it has no bytes where a whole segment is lost
            if start < damage.position < stop:
                stop = damage.position
        if stop - start > size_bytes_max:
            stop = self._repair.look_up(self, lambda: self._cut(start, size_bytes_max, at_least_one))
        if start == self.size_bytes:
            return None
        size_bytes = max(stop - start, 0)
        if is_recent:
            return LogSlice(
                self.file, start, size_bytes, self._truncations, self.offset_at, on_unreadable=self._on_unreadable
            )
        end = start + size_bytes
        chain = BatchChain(
            self.path,
            start,
            None if start else self.base_offset,
            end=(end, self.offset_at(end) if end < self.size_bytes else None) if size_bytes else None,
            cleaned_end_offset=cleaned_end_offset,
            on_rotten=self._on_rotten,
        )
        return LogSlice(
            self.file,
            start,
            size_bytes,
            self._truncations,
            self.offset_at,
            chain=chain,
            on_unreadable=self._on_unreadable,
        )

    def _on_unreadable(self, error: DiskError) -> None:
        """The disk cannot read some place: nobody is served from here until it is located. On any thread."""
        if not self.is_retired and all(one.is_located for one in self.damages):
            self.damages = (Damage(0, self.size_bytes, self.base_offset, self.end_offset, str(error)),)

    def _on_rotten(self, position: int, start_offset: Offset | None, reason: str) -> None:
        """Whoever was served found something: nobody is served from there on until it is located. On any thread."""
        known = self.damages
        if start_offset is None or self.is_retired or any(one.position <= position < one.end_position for one in known):
            return
        end = next(((one.position, one.start_offset) for one in known if one.position > position), None)
        end_position, end_offset = (self.size_bytes, self.end_offset) if end is None else end
        self.damages = tuple(sorted((*known, Damage(position, end_position, start_offset, end_offset, reason))))

    def _cut(self, start: int, size_bytes_max: int, at_least_one: bool) -> int:
        limit = start + max(size_bytes_max, 0)
        boundary = self.indexes.offsets.boundary_before(limit)
        stop, size = find_boundary(self.file, max(boundary, start), limit)
        if stop + size > self.size_bytes:
            raise CorruptLogError(f"{self.path}: the batch at position {stop} reaches beyond the end of the file")
        return stop + size if stop == start and at_least_one else stop

    def offset_at(self, position: int) -> Offset:
        """The base offset of the batch that starts at `position`; the end offset at the end.

        Raises:
            CorruptLogError: the file ends before it.
        """
        for damage in self.damages:
            if position == damage.position:
                return damage.start_offset
        if position >= self.size_bytes:
            return self.end_offset
        data = read_place(self.file, position, _BASE_OFFSET.size)
        if len(data) < _BASE_OFFSET.size:
            raise CorruptLogError(f"{self.path}: it ends before the batch at position {position}")
        return Offset(_BASE_OFFSET.unpack(data)[0])

    # Repairing, cutting, leaving.

    def rebuild_indexes(self) -> None:
        """Derive both indexes from the batches' headers, up to the first place that holds none.

        Raises:
            CorruptLogError: there is such a place. What lies below it can be found from now on. No time index is
                left, so that the next start looks again, and says so again.
        """
        indexes = self.indexes
        indexes.begin()
        self._forget_recent()
        try:
            for position, header in self.headers():
                indexes.note_header(position, header)
        except CorruptLogError:
            indexes.give_up(self.end_offset)
            raise
        finally:
            indexes.finish()

    def truncate(self, position: int, end_offset: Offset) -> None:
        """Truncate the file at `position`, where the batch that would have held `end_offset` starts or started."""
        self._truncations.append(position)
        self.damages = tuple(one for one in self.damages if one.end_position <= position)
        self.is_synced = False
        self.file.truncate(position)
        self.size_bytes = position
        self.end_offset = end_offset
        try:
            self.indexes.truncate_to(position, end_offset)
        except CorruptIndexError:
            self.rebuild_indexes()
        self.indexes.transactions.truncate_to(end_offset)
        self.indexes.is_full = False
        self.resume()
        self.end_offset = end_offset

    def spoil_slices(self) -> None:
        """What is about to go was truncated, not merely deleted: nobody may read on in it."""
        self._truncations.append(0)

    def seal(self) -> None:
        """No batch comes after this: the indexes are completed and written."""
        self.indexes.finish()
        self._forget_recent()

    def release(self) -> None:
        """Let go of descriptors and memory; the next read gets back what it needs."""
        self._forget_recent()
        self.indexes.release()
        self._file = None  # closed once no slice holds it

    def sync(self, *, with_indexes: bool) -> None:
        """Return once the batches (and, for a segment that is complete, its indexes) would survive a loss of power.

        What was aborted is synced in any case: the other indexes are found out by the next start if they are not whole.
        """
        if not self.is_synced:
            sync_file(self._disk, self.path, self._file)
        self.indexes.sync(are_complete=with_indexes)
        if with_indexes:
            self.is_synced = True

    def remove(self) -> None:
        """Remove what there is of the files, at once."""
        self._file = None
        self.indexes.remove()
        self._disk.remove(self.path)

    def retire(self) -> list[str]:
        """Rename the files so that no recovery takes them up. Returns the new names, to be removed at leisure.

        Whoever holds a slice of it reads on in its file, though its name may soon be that of another.
        """
        self.is_retired = True
        self._file = self.file
        retired = self.indexes.retire(DELETED_SUFFIX)
        self._rename_log(f"{self.path}{DELETED_SUFFIX}")
        retired.append(self.path)
        return retired

    def _rename_log(self, path: str) -> None:
        self._disk.rename(self.path, path)
        self.path = path

    def rename_log(self, suffix: str) -> None:
        """Give the file of batches another suffix behind its name; an empty one makes it a part of the log."""
        self._file = None
        self._rename_log(self._path(LOG_SUFFIX) + suffix)

    def take_names(self) -> None:
        """Drop the suffix that it was made with: the file of batches last, for it is what recovery goes by."""
        self.indexes.rename(self._index_paths())
        self.rename_log("")
