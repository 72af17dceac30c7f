"""What of a log is worth compacting: from where it is dirty, and up to where it may be cleaned.

    log start offset     first dirty offset              end of the range                        log end offset
          |   clean: each key   |   dirty: a key may come   |  may not be cleaned yet: too young,      |
          |   comes once        |   again, or be below      |  not committed, not synced, or active    |

All of it up to the end is rewritten, since a record in the dirty part supersedes those of its key in the clean part.

Kafka: `LogCleanerManager.cleanableOffsets`, `LogToClean`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.base.ids import Offset
from tidelog.log.config import LogConfig
from tidelog.log.segment import Segment


class DirtyRange(NamedTuple):
    """What a compaction is about."""

    segments: tuple[Segment, ...]
    """From the first of the log up to the end of the range; none of them grows any more."""
    first_dirty_offset: Offset
    end_offset: Offset
    """Exclusive: the end of the last segment."""
    ratio: float
    """Dirty bytes of all bytes in the range."""
    is_overdue: bool
    """`max.compaction.lag.ms` asks for it, whatever the ratio is."""


def find_dirty_range(
    segments: Iterable[Segment],
    config: LogConfig,
    *,
    first_dirty_offset: Offset,
    end_offset_max: Offset,
    now_ms: int,
    first_timestamp: Callable[[Segment], int | None],
) -> DirtyRange | None:
    """What of a log may be compacted now.

    Args:
        segments: of the log, in order, but for the active one.
        config: of the log.
        first_dirty_offset: where the last compaction ended; the log start if there was none.
        end_offset_max: what lies beyond is not committed, not stable or not synced (rule 11). Exclusive.
        now_ms: since 1970.
        first_timestamp: the largest timestamp of a segment's first batch, for `max.compaction.lag.ms`; it may have to
            be read.

    Returns:
        None if there is nothing to compact, or not enough for `min.cleanable.dirty.ratio`.
    """
    taken: list[Segment] = []
    clean_size_bytes = dirty_size_bytes = 0
    is_overdue = False
    for segment in segments:
        if segment.end_offset > end_offset_max:
            break
        if segment.end_offset > first_dirty_offset:
            if _is_too_young(segment, config, now_ms):
                break
            dirty_size_bytes += segment.size_bytes
            if config.max_compaction_lag_ms is not None and not is_overdue:
                oldest_ms = first_timestamp(segment)
                is_overdue = oldest_ms is not None and 0 <= oldest_ms < now_ms - config.max_compaction_lag_ms
        else:
            clean_size_bytes += segment.size_bytes
        taken.append(segment)
    if not dirty_size_bytes:
        return None
    ratio = dirty_size_bytes / (clean_size_bytes + dirty_size_bytes)
    if ratio <= config.min_cleanable_dirty_ratio and not is_overdue:
        return None
    return DirtyRange(tuple(taken), first_dirty_offset, taken[-1].end_offset, ratio, is_overdue)


def _is_too_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    newest = segment.indexes.max_timestamp
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and newest is not None and newest.timestamp > now_ms - lag_ms
