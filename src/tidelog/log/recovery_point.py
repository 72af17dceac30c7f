"""Up to where a log is synced, and when to sync more.

Kafka: `LocalLog.markFlushed`.
"""

from __future__ import annotations

from tidelog.base.ids import Offset
from tidelog.log.config import LogConfig
from tidelog.log.segments import Segments


class RecoveryPoint:
    """The exclusive offset below which everything would survive a loss of power, and how it moves.

    Two threads work on it without a lock, each with a field of its own: the log's thread writes the floor and counts
    truncations, whoever flushes writes up to where it synced, and before which truncation. What was synced before the
    latest truncation says nothing about the records since.
    """

    __slots__ = ("_floor", "_flushed_ms", "_segments", "_synced", "_truncation_count")

    def __init__(self, segments: Segments, offset: Offset) -> None:
        self._segments = segments
        self._floor = offset
        self._synced = (0, offset)  # (truncations before it, exclusive end), replaced as one
        self._flushed_ms: int | None = None
        self._truncation_count = 0

    @property
    def offset(self) -> Offset:
        """Where it is. After an unclean stop, recovery reads from the segment that holds it on."""
        truncations, end_offset = self._synced
        return max(self._floor, end_offset) if truncations == self._truncation_count else self._floor

    def on_truncating(self, end_offset: Offset) -> None:
        """Records from `end_offset` on are about to be replaced by others, which are not synced."""
        self._floor = min(self.offset, end_offset)
        self._truncation_count += 1  # a flush under way on another thread does not count for those

    def flush(self, end_offset: Offset) -> None:
        """Return once all below `end_offset` is synced. May run on another thread."""
        truncations = self._truncation_count
        start_offset = self.offset
        if end_offset > start_offset:
            self._segments.sync(start_offset, end_offset)
            known, known_end_offset = self._synced
            self._synced = (truncations, max(end_offset, known_end_offset) if known == truncations else end_offset)

    def flush_end_offset(self, config: LogConfig, now_ms: int) -> Offset:
        """Up to where a flush is due.

        Args:
            config: its `flush.messages` and `flush.ms` ask for all there is; without them, closed segments are due.
            now_ms: by the same clock each time.

        Returns:
            The exclusive end; at or below `offset` if nothing is due.
        """
        active = self._segments.active
        unflushed = active.end_offset - self.offset
        if unflushed <= 0 or self._flushed_ms is None:
            self._flushed_ms = now_ms  # there was nothing to grow old until now
        elif config.flush_ms is not None and now_ms - self._flushed_ms >= config.flush_ms:
            return active.end_offset
        if config.flush_messages is not None and unflushed >= config.flush_messages:
            return active.end_offset
        return active.base_offset
