"""Which of a log's oldest segments may go: what `retention.ms` and `retention.bytes` say, and the log start offset.

Kafka: `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.base.ids import Offset
from tidelog.log.config import LogConfig
from tidelog.log.segment import Segment


def retention_end_offset(
    segments: Iterable[Segment],
    config: LogConfig,
    *,
    log_start_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> Offset | None:
    """Up to where the log may be deleted: the end of a segment, never beyond the high watermark (rule 11).

    Args:
        segments: of the log, in order.
        config: its retention, which counts only where `cleanup.policy` holds `delete`.
        log_start_offset: segments that lie wholly below it go in any case.
        high_watermark: exclusive.
        now_ms: since 1970.

    Returns:
        The new log start offset (exclusive end of what goes); None if nothing does.
    """
    ordered = list(segments)
    remaining_size_bytes = sum(segment.size_bytes for segment in ordered)
    deletes = "delete" in config.cleanup_policy
    end_offset = None
    for segment in ordered:
        is_empty = not segment.size_bytes  # another's compaction leaves such
        if segment.end_offset > high_watermark or (is_empty and segment is ordered[-1]):
            break
        remaining_size_bytes -= segment.size_bytes
        newest = segment.indexes.max_timestamp
        newest_ms = segment.created_ms if newest is None else newest.timestamp
        is_old = deletes and config.retention_ms is not None and (is_empty or now_ms - newest_ms > config.retention_ms)
        is_too_much = (
            deletes and config.retention_size_bytes is not None and remaining_size_bytes >= config.retention_size_bytes
        )
        if not (is_old or is_too_much or segment.end_offset <= log_start_offset):
            break
        end_offset = segment.end_offset
    return end_offset
