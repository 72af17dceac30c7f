"""Compaction of one log: of each key the last record stays.

1. The keys of the dirty part are read into a map, key -> offset of its last record, up to a bound of bytes.
2. From the log start on, segments are rewritten into new ones, as many neighbours into one as fit, without the records
   that the map supersedes, and without marks of deleted keys that are old enough (cleaner_batch.py).
   Records of aborted transactions supersede nothing, and go (cleaner_transactions.py).
3. Each new segment takes the place of those it was made of (cleaner_swap.py), before the next is begun: wherever this
   is broken off, every key still has its last record, and every mark of a deleted key outlives what it marks.

Who may touch what: a `LogCleaner` runs on another thread than the log. It reads closed segments through files that it
opens itself, and writes files that only it knows, ending in `.cleaned`. All that others can see is changed by
`Compaction`, on the log's own thread. If segments go or change meanwhile, `Compaction` finds out, and nothing is.

Kafka: `Cleaner`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer, Disk
from tidelog.log.append import DECOMPRESSED_SIZE_FACTOR
from tidelog.log.compaction.cleaner_batch import BatchCleaner, note_keys
from tidelog.log.compaction.cleaner_mark import CleanedMark
from tidelog.log.compaction.cleaner_range import DirtyRange
from tidelog.log.compaction.cleaner_transactions import CleanedTransactions
from tidelog.log.config import INT64_MAX, LogConfig
from tidelog.log.continuity import BatchFaultError, check_batch_crc, whole_batches
from tidelog.log.files.leftovers import CLEANED_SUFFIX
from tidelog.log.files.transaction_index import AbortedFile
from tidelog.log.segment import OFFSET_DELTA_MAX, SNAPSHOT_SUFFIX, Segment, file_name
from tidelog.records._choose import kernel_clean
from tidelog.records.batch import DECOMPRESSED_SIZE_BYTES_MAX, BatchHeader, read_header

DEDUPE_SIZE_BYTES = 128 * 1024 * 1024
"""What the map of keys may take, unless told otherwise: 1.1 million keys of 20 bytes."""

PIECE_WEIGHT = 2 * 1024 * 1024
"""What one step does at most, about 1 ms of computing: bytes read, and"""
BATCH_WEIGHT = 16 * 1024
"""so much for each batch, and"""
RECORD_WEIGHT = 512
"""so much for each record in it."""

WRITE_SIZE_BYTES = 1024 * 1024
SEGMENT_SIZE_BYTES_MAX = 0x7FFFFFFF
GROUP_SIZE_MAX = 64
"""So many segments give way to one at most: their files are renamed while others wait, in a millisecond or two."""


class CleanedGroup(NamedTuple):
    """A new segment that is complete and synced, and those whose place it is to take."""

    replaced: tuple[Segment, ...]
    versions: tuple[tuple[int, int], ...]
    """Of those, before they were read: see `Segment.version`."""
    cleaned: Segment


class CleanerStep(NamedTuple):
    """The outcome of one step of the cleaner."""

    size_bytes: int
    """Read and written."""
    ready: CleanedGroup | None
    """To be put into its place before the next step."""
    is_done: bool


class LogCleaner:
    """Compacts one range, step by step.

    Args:
        disk: where the log lies.
        directory: of the log.
        mark: of the log; only staged here.
        dirty: what to compact.
        config: of the log.
        last_offsets: see `BatchCleaner`.
        marker_epochs: see `BatchCleaner`.
        first_unstable_offset: from here on transactions are not decided; None if all are.
        aborted: the transaction indexes of the log, from the first segment of the range up to the log end.
        dedupe_size_bytes: what the map of keys may take. Once it is full, the range ends there.
        now_ms: since 1970.

    Attributes:
        end_offset: up to where the log is clean when all is done. Exclusive; it may come back during the first steps.
        removed_count: records that are gone.
        read_size_bytes, written_size_bytes: of segments, before and after.
        why_shortened: why the range ends earlier than asked for, if it does.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        mark: CleanedMark,
        dirty: DirtyRange,
        config: LogConfig,
        *,
        last_offsets: Mapping[int, Offset],
        marker_epochs: Mapping[int, int],
        first_unstable_offset: Offset | None,
        aborted: Sequence[AbortedFile],
        dedupe_size_bytes: int = DEDUPE_SIZE_BYTES,
        now_ms: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._mark = mark
        self._segments = dirty.segments
        self._versions = {segment.base_offset: segment.version for segment in dirty.segments}
        self._dirty = dirty._replace(segments=())
        self._config = config
        self._last_offsets = last_offsets
        self._marker_epochs = marker_epochs
        self._first_unstable_offset = INT64_MAX if first_unstable_offset is None else first_unstable_offset
        self._aborted = aborted
        self._dedupe_size_bytes = dedupe_size_bytes
        self._now_ms = now_ms
        self._decompressed_size_bytes_max = max(
            DECOMPRESSED_SIZE_FACTOR * config.message_size_bytes_max, DECOMPRESSED_SIZE_BYTES_MAX
        )
        self._latest = kernel_clean.KeyOffsets()
        self._unfinished: Segment | None = None
        self._work = self._run()
        self.end_offset = dirty.end_offset
        self.removed_count = 0
        self.read_size_bytes = 0
        self.written_size_bytes = 0
        self.why_shortened: str | None = None

    def step(self) -> CleanerStep:
        """Do a little. On another thread than the log's, one step at a time.

        Raises:
            CorruptLogError: a segment is damaged: it must not be rewritten, or nobody would find out any more.
            DiskError: the disk refused, or the log is gone. `abandon` in either case.
        """
        try:
            return next(self._work)
        except StopIteration:
            return CleanerStep(0, None, True)

    def abandon(self) -> None:
        """Remove what is not finished. Raises nothing: what stays behind goes at the next start."""
        self._work.close()
        unfinished, self._unfinished = self._unfinished, None
        try:
            self._mark.unstage()
            if unfinished is not None and unfinished.path.endswith(CLEANED_SUFFIX):  # else it is the log's affair
                unfinished.remove()
        except DiskError:
            pass

    def _run(self) -> Generator[CleanerStep, None, None]:
        yield from self._note_keys()
        if self.end_offset <= self._dirty.first_dirty_offset:
            return
        if self.end_offset > self._mark.end_offset:
            self._mark.stage(self.end_offset)
        cleaner = BatchCleaner(
            self._latest,
            end_offset=self.end_offset,
            last_offsets=self._last_offsets if self._sync_producers() else None,
            marker_epochs=self._marker_epochs,
            delete_retention_ms=self._config.delete_retention_ms,
            now_ms=self._now_ms,
            decompressed_size_bytes_max=self._decompressed_size_bytes_max,
        )
        in_range = [segment for segment in self._segments if segment.base_offset < self.end_offset]
        self._segments = ()  # what is replaced is let go of at once: its space comes back with its descriptor
        last = max((segment for segment in in_range if segment.size_bytes), key=_base_offset, default=None)
        transactions = CleanedTransactions(self._disk, self._aborted)
        while in_range:
            yield from self._rewrite(in_range, cleaner, transactions, last)
            self.removed_count = cleaner.removed_count

    def _sync_producers(self) -> bool:
        """Whether what is known of producers at the end of the range would survive a loss of power.

        A producer's last batch may lie beyond the range, where nothing is synced: if that is lost, its snapshot alone
        remembers the batches that went before.
        """
        path = f"{self._directory}/{file_name(self._dirty.end_offset, SNAPSHOT_SUFFIX)}"
        if not self._disk.exists(path):
            return False
        snapshot = self._disk.open(path)
        try:
            snapshot.sync()
        finally:
            snapshot.close()
        return True

    # The map.

    def _note_keys(self) -> Generator[CleanerStep, None, None]:
        room = self._dedupe_size_bytes
        first_dirty_offset = self._dirty.first_dirty_offset
        weight = size_bytes = 0
        transactions = CleanedTransactions(self._disk, self._aborted)
        for segment in self._segments:
            if segment.end_offset <= first_dirty_offset:
                continue
            for position, header, window, at in self._batches(segment):
                if header.next_offset <= first_dirty_offset:
                    continue
                if header.next_offset > self._first_unstable_offset:
                    self._shorten(segment, header, f"not all is stable from {self._first_unstable_offset} on")
                    return
                if room <= 0:
                    self._shorten(segment, header, "log.cleaner.dedupe.buffer.size is used up")
                    return
                try:
                    if not transactions.is_void(window, at, header):
                        room -= note_keys(self._latest, window, at, header, self._decompressed_size_bytes_max)
                except KafkaError as error:
                    raise _damaged(segment, position, str(error)) from None
                size_bytes += header.size_bytes
                weight += _weight(header)
                if weight >= PIECE_WEIGHT:
                    yield CleanerStep(size_bytes, None, False)
                    weight = size_bytes = 0
        yield CleanerStep(size_bytes, None, False)

    def _shorten(self, segment: Segment, header: BatchHeader, why: str) -> None:
        """End before a batch: with the segment before it, if a dirty one lies there, or else within this one."""
        is_within = segment.base_offset <= self._dirty.first_dirty_offset
        self.end_offset = Offset(header.base_offset) if is_within else segment.base_offset
        self.why_shortened = f"it ends at offset {self.end_offset}: {why}"

    def _batches(self, segment: Segment) -> Iterator[tuple[int, BatchHeader, bytes, int]]:
        """Every batch of a segment, checked. Raises `CorruptLogError`."""
        file = self._disk.open(segment.path)
        next_offset: int = segment.base_offset
        position = 0
        try:
            for position, header, window, at in whole_batches(file, segment.size_bytes):
                check_batch_crc(position, header, window, at)
                if not next_offset <= header.base_offset <= header.last_offset < segment.end_offset:
                    why = f"the batch has offsets {header.base_offset} to {header.last_offset}, {next_offset} is next"
                    raise _damaged(segment, position, why)
                next_offset = header.next_offset
                yield position, header, window, at
        except BatchFaultError as fault:
            raise _damaged(segment, fault.position, fault.reason) from None
        finally:
            file.close()

    # The new segments.

    def _rewrite(
        self,
        in_range: list[Segment],
        cleaner: BatchCleaner,
        transactions: CleanedTransactions,
        last: Segment | None,
    ) -> Generator[CleanerStep, None, None]:
        """Make one new segment of the first of the range, and of as many more as are sure to fit; take those out."""
        group: list[Segment] = []
        new = Segment(
            *(self._disk, self._directory, in_range[0].base_offset, self._config),
            now_ms=self._now_ms,
            suffix=CLEANED_SUFFIX,
        )
        self._unfinished = new
        new.create()
        new.indexes.begin()
        is_changed = False
        pieces: list[Buffer] = []
        weight = read = pending = 0
        while in_range and (not group or self._fits(new, in_range[0], len(group))):
            segment = in_range.pop(0)
            group.append(segment)
            for position, header, window, at in self._batches(segment):
                is_last = segment is last and position + header.size_bytes == segment.size_bytes
                try:
                    is_void = transactions.is_void(window, at, header)
                    left = cleaner.clean(window, at, header, is_void=is_void, is_last=is_last)
                except KafkaError as error:
                    raise _damaged(segment, position, str(error)) from None
                read += header.size_bytes
                weight += _weight(header)
                if left is None:
                    is_changed = True
                else:
                    if not isinstance(left, memoryview):
                        is_changed = True
                        header = read_header(left)  # noqa: PLW2901 - of what is written
                    self._place(new, header)
                    pieces.append(left)
                    pending += len(left)
                if pending >= WRITE_SIZE_BYTES:
                    new.file.append(b"".join(pieces))
                    pieces, pending = [], 0
                if weight >= PIECE_WEIGHT:
                    yield CleanerStep(2 * read, None, False)
                    self.read_size_bytes += read
                    weight = read = 0
        for entry in transactions.take_kept():
            new.indexes.transactions.note(entry)
        self.read_size_bytes += read
        self.written_size_bytes += new.size_bytes
        if not is_changed and len(group) == 1:
            new.remove()
            self._unfinished = None
            yield CleanerStep(2 * read, None, False)
            return
        new.file.append(b"".join(pieces))
        new.end_offset = group[-1].end_offset
        new.indexes.finish()
        new.sync(with_indexes=True)
        new.release()
        versions = tuple(self._versions[segment.base_offset] for segment in group)
        yield CleanerStep(2 * read, CleanedGroup(tuple(group), versions, new), False)
        self._unfinished = None

    def _fits(self, new: Segment, segment: Segment, group_size: int) -> bool:
        size_bytes_max = min(self._config.segment_size_bytes, SEGMENT_SIZE_BYTES_MAX)
        if segment.end_offset - 1 - new.base_offset > OFFSET_DELTA_MAX or group_size >= GROUP_SIZE_MAX:
            return False
        return new.size_bytes + segment.size_bytes <= size_bytes_max

    def _place(self, new: Segment, header: BatchHeader) -> None:
        if new.size_bytes + header.size_bytes > SEGMENT_SIZE_BYTES_MAX:
            raise CorruptLogError(f"{new.path}: rewritten, its batches would outgrow a segment of 2 GiB")
        new.indexes.note_header(new.size_bytes, header)
        new.size_bytes += header.size_bytes


def _base_offset(segment: Segment) -> Offset:
    return segment.base_offset


def _weight(header: BatchHeader) -> int:
    return header.size_bytes + BATCH_WEIGHT + RECORD_WEIGHT * header.record_count


def _damaged(segment: Segment, position: int, why: str) -> CorruptLogError:
    return CorruptLogError(f"{segment.path}: damaged at position {position}: {why}")
