"""A log that becomes the copy of another one, and then takes its place (KIP-113).

```
 current   log start ──────────────────────────────► log end      appended to, cut and trimmed as ever
 future    log start ───────────────► log end                     follows all of it
```

The copy holds the same batches, byte for byte, the same lineage, the same producers and the same log start. It may have
other segments.

Kafka: `LogManager.replaceCurrentWithFutureLog`.
"""

from __future__ import annotations

from tidelog.base.errors import DiskError, OffsetOutOfRangeError
from tidelog.base.ids import Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer, Disk
from tidelog.log.files.future_mark import FutureMark, write_future_mark
from tidelog.log.follower_append import append_fetched
from tidelog.log.log import Log
from tidelog.log.lookup import NotCachedError, without_waiting
from tidelog.log.lost_records import copy_kept
from tidelog.log.producer_state import ProducerStates
from tidelog.log.segment import SNAPSHOT_SUFFIX, file_name
from tidelog.log.slice import LogSlice
from tidelog.records.lineage import LeaderEpochLineage

TAKEN_AT_ONCE_BYTES = 256 * 1024
"""That came since the copy was level, at most: it is read and written without letting go of the current log."""


class FutureLog:
    """See the module. Methods run on the current log's thread, but those that say otherwise.

    Args:
        log: opened where the copy is to lie.
        current: whose copy it becomes.
    """

    def __init__(self, disk: Disk, log: Log, current: Log) -> None:
        self.log = log
        self.current = current
        self._disk = disk

    @property
    def offset_lag(self) -> int:
        """How many offsets of the current log are not here yet."""
        return max(self.current.log_end_offset - self.log.log_end_offset, 0)

    @property
    def is_level(self) -> bool:
        """Whether it holds all that the current log does."""
        log, current = self.log, self.current
        return (
            log.log_end_offset == current.log_end_offset
            and log.log_start_offset == current.log_start_offset
            and log.lineage == current.lineage
        )

    # What is to be copied.

    def find(self, size_bytes_max: int) -> LogSlice:
        """What comes next, up to the end of a segment. May be called again after NotCachedError's `fetch`.

        Raises:
            NotCachedError: to find it takes waiting.
            DiskError, CorruptLogError: the current log cannot be read.
        """
        current = self.current
        offset = max(self.log.log_end_offset, current.log_start_offset)
        return without_waiting(
            lambda: current.read(offset, size_bytes_max=size_bytes_max, end_offset=current.log_end_offset)
        )

    # What is done to the copy, on another thread: nobody else has it.

    def take(self, data: Buffer, log_start_offset: Offset, lineage: LeaderEpochLineage, now_ms: int) -> None:
        """Append batches of the current log, and trim what it has trimmed.

        Args:
            data: whole batches, the first of them the one that holds what comes next.
            log_start_offset: of the current log.
            lineage: a copy of that of the current log.
            now_ms: since 1970.

        Raises:
            CorruptLogError: they do not go on where the copy ends.
            DiskError: as an append does.
        """
        log = self.log
        if log.log_end_offset < log_start_offset:
            log.truncate_fully_and_start_at(log_start_offset, now_ms=now_ms)
        self._take_lineage(lineage)
        if data:
            append_fetched(log, data, now_ms=now_ms)
        self._follow_start(log_start_offset)

    def truncate_to(self, end_offset: Offset) -> None:
        """The current log was truncated there. Raises CorruptLogError, DiskError."""
        if end_offset < self.log.log_end_offset:
            self.log.truncate_to(end_offset)

    def _follow_start(self, log_start_offset: Offset) -> None:
        log = self.log
        if log.log_start_offset < log_start_offset <= log.log_end_offset:
            log.advance_log_start_offset(log_start_offset)
            if log.delete_segments_before(log_start_offset):
                log.segments.remove_deleted_files()

    def _take_lineage(self, lineage: LeaderEpochLineage) -> None:
        """Also what compaction has left no record of. It may be ahead of the copy."""
        self.log._lineage_file.replace(lineage)

    # How it takes over.

    def catch_up(self, now_ms: int) -> bool:
        """Take what is missing, at once, where that is little and in memory. Returns whether it is level.

        Raises:
            DiskError, CorruptLogError: the copy cannot be written, or the current log not be read.
        """
        left_bytes = TAKEN_AT_ONCE_BYTES
        try:
            while self.offset_lag and left_bytes > 0:
                found = self.find(left_bytes)
                data = found.read_cached(0, len(found)) if len(found) <= TAKEN_AT_ONCE_BYTES else None
                if not data:
                    return False
                left_bytes -= len(data)
                self.take(data, self.current.log_start_offset, self.current.lineage, now_ms)
        except (NotCachedError, OffsetOutOfRangeError):
            return False
        if not self.offset_lag:
            self._take_lineage(self.current.lineage)
            self._follow_start(self.current.log_start_offset)
        return self.is_level

    def adopt_producers(self) -> None:
        """Know what the current log knows of its producers, also of those whose records are gone. While level."""
        invariant(self.is_level, "{}: the copy is not level", self.log.directory)
        self.log.producers = self.current.producers.clone()

    def copy_kept(self) -> int:
        """Copy what is kept of lost records, and not here yet. On another thread. Returns how many bytes were copied.

        Raises:
            DiskError: the disk refused.
        """
        return copy_kept(self._disk, self.current.directory, self.log.directory)

    def sync(self, producers: ProducerStates) -> None:
        """Return once all that was copied would survive a loss of power, and the directory says that it was level.

        On another thread, while nobody truncates the current log.

        Args:
            producers: a copy, as of the end of what was copied.
        """
        log = self.log
        self.copy_kept()  # of a truncation since, or one note less
        log._snapshots.take(producers)
        snapshot = self._disk.open(f"{log.directory}/{file_name(producers.end_offset, SNAPSHOT_SUFFIX)}")
        try:
            snapshot.sync()
        finally:
            snapshot.close()
        log.flush()
        write_future_mark(self._disk, log.directory, FutureMark.LEVEL)

    def take_over(self) -> Log:
        """Be the log from now on: what is appended is appended here. While level. Returns it.

        Whoever holds the lineage or the producers of the current log holds those of this one.
        """
        log, current = self.log, self.current
        invariant(self.is_level, "{}: the copy is not level", log.directory)
        invariant(current.segments.failure is None, "{}: it failed", current.directory)
        log.configure(current.config)
        log.lineage = log._lineage_file.lineage = current.lineage
        log.producers = current.producers
        current.retire()
        return log

    def release(self) -> None:
        """Let go of the copy as it is: it is not needed, or goes on after the next start."""
        if self.log.segments.failure is None:
            self.log.segments.failure = DiskError(self.log.directory, "the move was ended")
        self.log.release()
