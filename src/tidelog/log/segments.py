"""The segments of one log: where batches are written, found, rolled, cut off and deleted.

What the batches mean (leader epochs, producers, what is committed) is the affair of `log.py`.

Kafka: `LogSegments`, `LocalLog`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Disk, Rng
from tidelog.log.compaction.cleaner_mark import CleanedMark
from tidelog.log.config import LogConfig
from tidelog.log.files.leftovers import START_SUFFIX
from tidelog.log.files.transaction_index import AbortedEntry, AbortedFile, AbortedTransaction
from tidelog.log.placed import Placed
from tidelog.log.segment import OFFSET_DELTA_MAX, Segment
from tidelog.log.slice import LogSlice
from tidelog.records.batch import BATCH_OVERHEAD, BatchHeader

WARM_MAX = 4
"""Closed segments whose descriptors and index blocks are kept after a read. The last segment's always are."""


class Segments:
    """Sorted by base offset, never empty. The last one is `active`: it grows.

    Attributes:
        active: the last segment.
        config: may be replaced.
        mark: up to where offsets may be missing, since compaction removed their records.
        is_touched: whether there is anything that was not as it is when the log was last closed.
        failure: set once the disk refused in a way that leaves the files in doubt: nothing is to be done any more until
            the log is opened anew.
        on_written: called with the batches that reached a segment, their buffer, and the time.
        on_roll: called with the base offset of each new segment, before it gets its first batch.
    """

    __slots__ = (
        "_aborted",
        "_base_offsets",
        "_deleted_paths",
        "_directory",
        "_disk",
        "_jitter",
        "_jitter_of",
        "_name_changes",
        "_name_changes_synced",
        "_rng",
        "_segments",
        "_warm",
        "active",
        "config",
        "failure",
        "is_touched",
        "mark",
        "on_roll",
        "on_written",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: list[Segment],
        mark: CleanedMark,
        *,
        rng: Rng | None,
    ) -> None:
        """`rng` is for `segment.jitter.ms`; without one segments have no jitter."""
        self._disk = disk
        self._rng = rng
        self._jitter_of: Segment | None = None
        self._jitter = 0.0
        self._directory = directory
        self.config = config
        self.mark = mark
        self._segments = segments
        self._base_offsets = [segment.base_offset for segment in segments]
        self._warm: list[Segment] = []
        self._aborted: list[Segment] | None = None  # those with aborted transactions; None: to be found anew
        self._deleted_paths: list[str] = []
        self._name_changes = 1  # counted by the log's thread; `sync`, on another, notes which of them it covered
        self._name_changes_synced = 0
        self.active = segments[-1]
        self.failure: DiskError | None = None
        self.is_touched = True
        self.on_written: Callable[[list[Placed], memoryview, int], None] = _on_nothing_written
        self.on_roll: Callable[[Offset], None] = _on_no_roll

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        """Of the batches in all of them."""
        return sum(segment.size_bytes for segment in self._segments)

    def size_bytes_from(self, offset: int) -> int:
        """About how many bytes of batches lie at `offset` or beyond. Reads nothing: within a segment, all offsets weigh
        alike.
        """
        first, *others = self._segments[self._index_of(offset) :]
        span = first.end_offset - first.base_offset
        left = min(max(first.end_offset - offset, 0), span)
        size_bytes = sum(segment.size_bytes for segment in others)
        return size_bytes + (first.size_bytes * left // span if span else 0)

    @property
    def base_offsets(self) -> tuple[Offset, ...]:
        """Where they start, in order."""
        return tuple(self._base_offsets)

    def _index_of(self, offset: int) -> int:
        return max(bisect_right(self._base_offsets, offset) - 1, 0)

    def overlapping(self, start_offset: int, end_offset: int) -> list[Segment]:
        """Those that may hold an offset in [start_offset, end_offset). May be called on another thread."""
        segments = tuple(self._segments)  # at one moment: the list may change meanwhile
        start = max(bisect_right(segments, start_offset, key=_base_offset) - 1, 0)
        return list(segments[start : bisect_left(segments, end_offset, key=_base_offset)])

    # Writing.

    def append(self, view: memoryview, placed: list[Placed], now_ms: int) -> None:
        """Write batches, rolling where they do not fit: one call of the system for those that go to one segment.

        Args:
            view: the batches, stamped, one after the other.
            placed: each of them, in order.
            now_ms: since 1970.

        Raises:
            DiskError: the batches that `on_written` was not called for are not in the log.
        """
        if len(placed) == 1:
            batch = placed[0]
            if self._must_roll(0, batch, now_ms):
                self.roll(now_ms, batch)
            self._write(view, placed)
            self.on_written(placed, view, now_ms)
            return
        last = placed[-1]
        newest = last._replace(max_timestamp=max([batch.max_timestamp for batch in placed]))
        if self.active.size_bytes and not self._must_roll(last.position, newest, now_ms):  # so none of them must
            self._write(view, placed)
            self.on_written(placed, view, now_ms)
            return
        run: list[Placed] = []
        start = end = 0
        for batch in placed:
            if self._must_roll(end - start, batch, now_ms):
                if run:
                    self._write(view[start:end], run)
                    self.on_written(run, view, now_ms)
                self.roll(now_ms, batch)
                run, start = [], end
            run.append(batch)
            end = batch.position + batch.header.size_bytes
        self._write(view[start:end], run)
        self.on_written(run, view, now_ms)

    def _must_roll(self, pending_bytes: int, batch: Placed, now_ms: int) -> bool:
        segment = self.active
        if batch.last_offset > segment.offset_max:
            return True
        size_bytes = segment.size_bytes + pending_bytes
        if not size_bytes:
            return False
        config = self.config
        if size_bytes + batch.header.size_bytes > config.segment_size_bytes:
            return True
        indexes = segment.indexes
        first_timestamp = indexes.first_timestamp
        if first_timestamp is not None and first_timestamp >= 0:
            waited_ms = batch.max_timestamp - first_timestamp
        else:
            waited_ms = now_ms - segment.created_ms
        roll_ms = config.roll_ms
        if config.segment_jitter_ms:
            roll_ms -= int(self._jitter_share() * min(config.segment_jitter_ms, roll_ms))
        return waited_ms > roll_ms or indexes.is_full

    def _jitter_share(self) -> float:
        """Which part of `segment.jitter.ms` the active segment is closed earlier, in [0, 1): drawn once for each."""
        if self._jitter_of is not self.active:
            self._jitter_of, self._jitter = self.active, 0.0 if self._rng is None else self._rng.random()
        return self._jitter

    def _write(self, data: memoryview, run: list[Placed]) -> None:
        segment = self.active
        self.is_touched = True
        segment.indexes.spill()
        try:
            segment.append(data)
        except DiskError as error:
            try:
                segment.withdraw()
            except DiskError as second:
                self.failure = second
                raise second from error
            raise
        segment.note(run)

    def roll(self, now_ms: int, batch: Placed | None = None) -> None:
        """Close the active segment and start the next at its end; an empty one is left alone.

        Args:
            now_ms: since 1970.
            batch: that is to come first, if its offset lies so far ahead that only a segment of its own can hold it.

        Raises:
            DiskError: the active segment is as it was.
        """
        active = self.active
        base_offset = active.end_offset
        if batch is not None and batch.last_offset - base_offset > OFFSET_DELTA_MAX:
            base_offset = Offset(batch.base_offset)
        if base_offset == active.base_offset:
            return
        segment = Segment(self._disk, self._directory, base_offset, self.config, now_ms=now_ms)
        self.is_touched = True
        self.on_roll(base_offset)
        try:
            segment.create()
            segment.indexes.offsets.spill()  # from the first on: an index without its log says that the log is gone
            if active.size_bytes:
                active.seal()
        except DiskError:
            # The active one grows on. An empty file named like an offset in its midst would cut it in two at a start.
            self._withdraw_segment(segment)
            raise
        self._name_changes += 1
        if active.size_bytes:
            active.end_offset = base_offset
            self._keep_warm(active)
        else:
            self._drop_last()
            self._retire(active)
        self._segments.append(segment)
        self._base_offsets.append(base_offset)
        self.active = segment

    def _withdraw_segment(self, segment: Segment) -> None:
        if not self._disk.exists(segment.path):
            return
        try:
            segment.remove()
        except DiskError as error:
            self.failure = error
            raise

    # Reading.

    def read(self, offset: int, *, size_bytes_max: int, end_offset: int, at_least_one: bool) -> LogSlice:
        """Whole batches of one segment, from the one that holds `offset`; below the mark, or the first above it.

        Raises:
            CorruptLogError: the segment is damaged there, or the batch that held `offset` is gone: no reader is to
                pass over it without being told.
        """
        index = self._index_of(offset)
        if offset < end_offset:
            for segment in self._segments[index:] if index < len(self._segments) - 1 else (self.active,):
                if segment is not self.active:
                    self._keep_warm(segment)
                found = segment.read(
                    offset,
                    size_bytes_max=size_bytes_max,
                    end_offset=end_offset,
                    at_least_one=at_least_one,
                    cleaned_end_offset=self.mark.end_offset,
                )
                if found is not None:
                    if not segment.knows_place_of(offset):
                        _check_no_gap(found, max(offset, self.mark.end_offset))
                    return found
        return LogSlice(self.active.file, self.active.size_bytes, 0, [], lambda _: Offset(offset))

    def header_from(self, offset: int) -> BatchHeader | None:
        """Of the batch that holds `offset`, or of the first above it; None if there is none."""
        for segment in self._segments[self._index_of(offset) :]:
            if segment is not self.active:
                self._keep_warm(segment)
            position = segment.position_of(offset)
            if position < segment.size_bytes:
                return next(segment.headers(position, position + 1))[1]
        return None

    # Aborted transactions.

    def note_aborted(self, entry: AbortedEntry) -> None:
        """Take in that the last segment got an abort marker."""
        if not self.active.indexes.transactions.is_telling:
            self._aborted = None
        self.active.indexes.note_aborted(entry)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Those that reach into [start_offset, end_offset), by their markers. Nothing is read if there are none.

        Raises:
            CorruptIndexError: a segment's aborted transactions are not known.
        """
        found: list[AbortedTransaction] = []
        for segment in self._with_aborted(start_offset):
            if segment.indexes.transactions.collect(found, start_offset, end_offset):
                break
        return found

    def has_aborted_transactions(self, start_offset: int) -> bool:
        """Whether a segment has any, from the one on that holds `start_offset`. Reads nothing."""
        return bool(self._with_aborted(start_offset))

    def with_aborted(self) -> list[Offset]:
        """The base offsets of segments that have any. May be called on another thread."""
        return [each.base_offset for each in tuple(self._segments) if each.indexes.transactions.is_telling]

    def aborted_files(self, start_offset: int) -> list[AbortedFile]:
        """Where to read the aborted transactions whose markers lie at `start_offset` or beyond, on another thread."""
        return [segment.indexes.transactions.file_now() for segment in self._with_aborted(start_offset)]

    def _with_aborted(self, start_offset: int) -> list[Segment]:
        """The segments with aborted transactions, from the one on that holds `start_offset`."""
        aborted = self._aborted
        if aborted is None:
            aborted = self._aborted = [each for each in self._segments if each.indexes.transactions.is_telling]
        if not aborted:
            return aborted
        start_base = self._base_offsets[self._index_of(start_offset)]
        return aborted[bisect_left(aborted, start_base, key=_base_offset) :]

    def _keep_warm(self, segment: Segment) -> None:
        warm = self._warm
        if warm and warm[-1] is segment:
            return
        if segment in warm:
            warm.remove(segment)
        warm.append(segment)
        if len(warm) > WARM_MAX:
            warm.pop(0).release()

    # Cutting and deleting.

    def truncate(self, end_offset: Offset) -> None:
        """Truncate at `end_offset`, or at the start of the batch that it lies in. It is not below the first segment.

        The cut is synced: what was truncated must not come back with the power, below a recovery point.
        """
        invariant(end_offset >= self._base_offsets[0], "cut at {}, below the first segment", end_offset)
        self.is_touched = True
        self._aborted = None
        while self.active.base_offset > end_offset:
            retired = self.active
            retired.spoil_slices()
            self._drop_last()
            self._retire(retired)
        active = self.active
        position = active.position_of(end_offset)
        if position < active.size_bytes:
            end_offset = min(end_offset, active.offset_at(position))
        active.truncate(position, end_offset)
        active.file.sync()
        active.indexes.transactions.sync()
        active.indexes.close_files()  # thousands of logs may be truncated at once, after an unclean election
        self._disk.sync_dir(self._directory)

    def keep_end(self) -> None:
        """Have the name of an empty segment say where the log ends: it may end in a gap that compaction left, where no
        batch says so. A log that ended lower after a restart would give offsets out again. This is synced.
        """
        active = self.active
        self.roll(active.created_ms)
        if self.active is not active:
            self._disk.sync_dir(self._directory)

    def replace_all(self, base_offset: Offset, now_ms: int) -> None:
        """Nothing is left but a new, empty segment. This is synced.

        The new one is announced before the others go: a log whose process ends meanwhile is not taken for one that
        lost all its files, and goes on where it was to (`clear_leftovers`).
        """
        self.is_touched = True
        self._aborted = None
        started = Segment(self._disk, self._directory, base_offset, self.config, now_ms=now_ms, suffix=START_SUFFIX)
        started.create()
        self._disk.sync_dir(self._directory)
        for segment in reversed(self._segments):
            segment.spoil_slices()
            self._retire(segment)
        started.take_names()
        self.active = started
        self._segments = [started]
        self._base_offsets = [base_offset]
        self._warm = []
        self._disk.sync_dir(self._directory)

    def delete_before(self, offset: Offset) -> int:
        """Delete the segments that end at or below `offset`, but never the active one. Returns how many."""
        count = 0
        while self._segments[0] is not self.active and self._segments[0].end_offset <= offset:
            retired = self._segments.pop(0)
            self._base_offsets.pop(0)
            if retired in self._warm:
                self._warm.remove(retired)
            self._retire(retired)
            self._name_changes += 1
            self.is_touched = True
            self._aborted = None
            count += 1
        return count

    # Compacting.

    def holds_side_by_side(self, segments: Sequence[Segment]) -> bool:
        """Whether these very segments are in the log, one behind the other."""
        start = bisect_left(self._base_offsets, segments[0].base_offset)
        found = self._segments[start : start + len(segments)]
        return len(found) == len(segments) and all(one is other for one, other in zip(found, segments, strict=True))

    def replace(self, replaced: Sequence[Segment], cleaned: Segment) -> None:
        """Put one segment where others were, none of them the active one.

        Raises:
            DiskError: the log is out of use; a new start completes it.
        """
        try:
            for retired in replaced:
                if retired in self._warm:
                    self._warm.remove(retired)
                self._retire(retired)
            cleaned.take_names()
        except DiskError as error:
            self.failure = error
            raise
        self._aborted = None
        start = bisect_left(self._base_offsets, cleaned.base_offset)
        self._segments[start : start + len(replaced)] = [cleaned]
        self._base_offsets[start : start + len(replaced)] = [cleaned.base_offset]
        self._name_changes += 1
        self.is_touched = True

    def _drop_last(self) -> None:
        self._segments.pop()
        self._base_offsets.pop()
        if self._segments:
            self.active = self._segments[-1]
            if self.active in self._warm:
                self._warm.remove(self.active)

    def _retire(self, segment: Segment) -> None:
        self._deleted_paths += segment.retire()

    def remove_deleted_files(self) -> int:
        """Give the space of deleted segments back. May take long, and run on another thread. Returns how many files."""
        paths, self._deleted_paths = self._deleted_paths, []
        for path in paths:
            self._disk.remove(path)
        return len(paths)

    # Syncing and leaving.

    def sync(self, start_offset: Offset, end_offset: Offset) -> None:
        """Return once [start_offset, end_offset) would survive a loss of power. May run on another thread.

        A segment that is deleted meanwhile has nothing left to sync: its records went below the log start, or were
        truncated, of which `RecoveryPoint` knows.
        """
        name_changes = self._name_changes
        for segment in self.overlapping(start_offset, end_offset):
            try:
                segment.sync(with_indexes=segment is not self.active)
            except DiskError:
                if not segment.is_retired:
                    raise
        if name_changes != self._name_changes_synced:
            self._disk.sync_dir(self._directory)
            self._name_changes_synced = name_changes

    def finish(self) -> None:
        """Write and sync all that memory holds of the active segment: who opens it next finds it complete."""
        self.active.indexes.finish()
        self.active.sync(with_indexes=True)
        self._disk.sync_dir(self._directory)

    def release_closed(self) -> None:
        """Let go of the descriptors of all but the last."""
        for segment in self._segments[:-1]:
            segment.release()

    def release(self) -> None:
        """Let go of all descriptors, and of the log, which knows them."""
        self.on_written, self.on_roll = _on_nothing_written, _on_no_roll
        for segment in self._segments:
            segment.release()
        self._warm = []


def _on_nothing_written(written: list[Placed], view: memoryview, now_ms: int) -> None:
    """Nobody listens."""


def _on_no_roll(base_offset: Offset) -> None:
    """Nobody listens."""


def _base_offset(segment: Segment) -> Offset:
    return segment.base_offset


def _check_no_gap(found: LogSlice, offset: int) -> None:
    """Raises `CorruptLogError` if what was found does not start with the batch that holds `offset`."""
    if not len(found):
        return
    if len(found) < BATCH_OVERHEAD:
        raise CorruptLogError(f"{found.path}: {len(found)} bytes at position {found.position} are no batch")
    first_offset = found.first_offset
    if first_offset > offset:
        raise CorruptLogError(f"{found.path}: the records from offset {offset} to {first_offset} are missing")
