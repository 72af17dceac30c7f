"""How a cleaned segment takes the place of those it was made of, such that a stop at any moment leaves a whole log.

    on another thread   0.log.cleaned, its indexes and the mark are written and synced
    announce            the mark takes its place; 0.log.cleaned -> 0.log.swap
    on another thread   the directory is synced: from here on, recovery completes what was begun (leftovers.py)
    complete            the old files -> *.deleted; the indexes, then 0.log.swap, lose their suffix
    on another thread   the directory is synced; *.deleted go

The old files go in order, the lowest offsets first: those that a crash leaves beside the new segment are of its end.
They bring back superseded records and marks of deleted keys, but nothing without the mark that came after it.

Who reads in an old segment meanwhile reads on in it: the records are the same, and those that are gone besides.

Kafka: `LocalLog.replaceSegments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import Offset
from tidelog.base.ports import Disk
from tidelog.log.compaction.cleaner import CleanedGroup, LogCleaner
from tidelog.log.compaction.cleaner_mark import CleanedMark
from tidelog.log.compaction.cleaner_range import DirtyRange, find_dirty_range
from tidelog.log.config import LogConfig
from tidelog.log.files.leftovers import SWAP_SUFFIX
from tidelog.log.placed import Placed
from tidelog.log.producer_state import ProducerStates
from tidelog.log.segment import Segment
from tidelog.log.segments import Segments
from tidelog.log.snapshots import ProducerSnapshots


class Compaction:
    """The part of a log that is changed by compaction; on the log's own thread, but where it says otherwise.

    Attributes:
        mark: up to where offsets may be missing.
    """

    __slots__ = ("_announced", "_directory", "_disk", "_segments", "_snapshots", "mark")

    def __init__(
        self, disk: Disk, directory: str, segments: Segments, snapshots: ProducerSnapshots, mark: CleanedMark
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._segments = segments
        self._snapshots = snapshots
        self._announced: CleanedGroup | None = None
        self.mark = mark

    # What to do.

    def dirty_range(
        self, config: LogConfig, *, first_dirty_offset: Offset, end_offset_max: Offset, now_ms: int
    ) -> DirtyRange | None:
        """As `find_dirty_range`; for `max.compaction.lag.ms` it reads a header of each dirty segment."""
        closed = tuple(segment for segment in self._segments if segment is not self._segments.active)
        return find_dirty_range(
            closed,
            config,
            first_dirty_offset=min(first_dirty_offset, self.mark.end_offset),
            end_offset_max=end_offset_max,
            now_ms=now_ms,
            first_timestamp=_first_timestamp,
        )

    def cleaner(
        self,
        dirty: DirtyRange,
        config: LogConfig,
        producers: ProducerStates,
        *,
        dedupe_size_bytes: int,
        now_ms: int,
    ) -> LogCleaner:
        """What does the work, to be stepped on another thread.

        Args:
            dirty: of this log.
            config: of the log.
            producers: of the log; what it says is not stable is left alone, even if it was when the range was chosen.
            dedupe_size_bytes: see `LogCleaner`.
            now_ms: since 1970.
        """
        last_offsets = {state.producer_id: state.batches[-1].last_offset for state in producers if state.batches}
        marker_epochs = {int(state.producer_id): state.producer_epoch for state in producers if not state.batches}
        return LogCleaner(
            self._disk,
            self._directory,
            self.mark,
            dirty,
            config,
            last_offsets={int(producer_id): offset for producer_id, offset in last_offsets.items()},
            marker_epochs=marker_epochs,
            first_unstable_offset=producers.first_unstable_offset,
            aborted=self._segments.aborted_files(dirty.segments[0].base_offset),
            dedupe_size_bytes=dedupe_size_bytes,
            now_ms=now_ms,
        )

    # The swap.

    def announce(self, group: CleanedGroup, end_offset: Offset) -> bool:
        """Decide that the new segment takes over. `sync_names` next, then `complete`.

        Args:
            group: as a step returned it.
            end_offset: of the range that is compacted, exclusive.

        Returns:
            Whether the segments still are those that were read. If not, the new one is removed.

        Raises:
            DiskError: nothing is decided.
        """
        if not self._is_unchanged(group):
            group.cleaned.remove()
            return False
        self._take_mark(end_offset)
        group.cleaned.rename_log(SWAP_SUFFIX)
        self._announced = group
        return True

    def _take_mark(self, end_offset: Offset) -> None:
        if end_offset > self.mark.end_offset:
            self.mark.take_staged(end_offset)

    def sync_names(self) -> None:
        """Return once the names in the directory would survive a loss of power. On another thread."""
        self._disk.sync_dir(self._directory)

    def complete(self, group: CleanedGroup) -> bool:
        """Put the new segment where the old ones were; they wait for `remove_deleted_files`.

        Returns:
            Whether that was done. If the segments changed since `announce`, nothing is, and nothing is left of it.

        Raises:
            DiskError: the log is out of use; open it anew.
        """
        if self._announced is not group:
            return False
        if not self._is_unchanged(group):
            self.withdraw()
            return False
        self._announced = None
        self._segments.replace(group.replaced, group.cleaned)
        first, last = group.replaced[0], group.replaced[-1]
        self._snapshots.remove_between(first.base_offset, last.end_offset)
        return True

    def finish(self, end_offset: Offset) -> None:
        """All is done up to here, though nothing may have been replaced."""
        self._take_mark(end_offset)

    def withdraw(self) -> None:
        """Take back what was announced and is not complete: records are about to go that it would bring back.

        Raises:
            DiskError: it is announced still.
        """
        announced = self._announced
        if announced is not None:
            announced.cleaned.remove()
            self._announced = None

    def _is_unchanged(self, group: CleanedGroup) -> bool:
        if self._segments.failure is not None or not self._segments.holds_side_by_side(group.replaced):
            return False
        versions = tuple(segment.version for segment in group.replaced)
        return versions == group.versions and group.replaced[-1] is not self._segments.active

    # What else happens to the log.

    def on_truncating(self) -> None:
        """Records go: whatever was to replace segments may hold them still. Raises DiskError."""
        self.withdraw()

    def on_truncated(self, end_offset: Offset) -> None:
        """Above `end_offset`, no offset is missing from now on. Raises DiskError."""
        self.mark.on_truncated(end_offset)

    def on_fetched(self, batches: Sequence[Placed], log_end_offset: Offset) -> None:
        """A leader's batches are about to be appended: what is missing between them, its compaction removed.

        Raises:
            DiskError: that is not written down, so they must not be appended.
        """
        next_offset: int = log_end_offset
        has_gap = False
        for batch in batches:
            has_gap |= batch.base_offset > next_offset
            next_offset = batch.last_offset + 1
        if has_gap:
            self.mark.set(Offset(next_offset))

    def on_started_anew(self) -> None:
        """Nothing is left. Raises DiskError."""
        self.mark.remove()


def _first_timestamp(segment: Segment) -> int | None:
    """The largest timestamp of a segment's first batch; None where it has none, or the disk does not say."""
    if segment.indexes.first_timestamp is None:
        try:
            for _, header in segment.headers(0, min(1, segment.size_bytes)):
                segment.indexes.first_timestamp = header.max_timestamp
        except (DiskError, CorruptLogError):
            return None
    return segment.indexes.first_timestamp
