"""Up to where a log is synced, and when to sync more."""

from __future__ import annotations

from tidelog.base.ids import Offset
from tidelog.log.config import LogConfig
from tidelog.log.segments import Segments


class RecoveryPoint:
    """The exclusive offset below which everything would survive a loss of power, and how it moves.

    Attributes:
        offset: where it is. After an unclean stop, recovery reads from the segment that holds it on.
    """

    __slots__ = ("_flushed_ms", "_segments", "_truncation_count", "offset")

    def __init__(self, segments: Segments, offset: Offset) -> None:
        self._segments = segments
        self.offset = offset
        self._flushed_ms: int | None = None
        self._truncation_count = 0

    def on_truncating(self, end_offset: Offset) -> None:
        """Records from `end_offset` on are about to be replaced by others, which are not synced."""
        self._truncation_count += 1  # a flush under way on another thread does not count for those
        self.offset = min(self.offset, end_offset)

    def flush(self, end_offset: Offset) -> None:
        """Return once all below `end_offset` is synced. May run on another thread."""
        if end_offset > self.offset:
            truncations = self._truncation_count
            self._segments.sync(self.offset, end_offset)
            if truncations == self._truncation_count:
                self.offset = max(self.offset, end_offset)

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
