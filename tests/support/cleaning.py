"""Compaction of a log in one go, as the node's chore does it in steps."""

from __future__ import annotations

from support.logs import NOW_MS, records_of
from tidelog.base.ids import Offset
from tidelog.log import Log


def clean(
    log: Log,
    *,
    first_dirty_offset: int | None = None,
    end_offset_max: int | None = None,
    now_ms: int = NOW_MS,
    dedupe_size_bytes: int = 1 << 20,
) -> Offset | None:
    """Compact what there is. Returns up to where, exclusive; None if there was nothing to do."""
    compaction = log.compaction
    end = log.recovery_point if end_offset_max is None else Offset(end_offset_max)
    start = compaction.mark.end_offset if first_dirty_offset is None else Offset(first_dirty_offset)
    dirty = compaction.dirty_range(log.config, first_dirty_offset=start, end_offset_max=end, now_ms=now_ms)
    if dirty is None:
        return None
    job = compaction.cleaner(dirty, log.config, log.producers, dedupe_size_bytes=dedupe_size_bytes, now_ms=now_ms)
    while not (step := job.step()).is_done:
        if step.ready is not None:
            assert compaction.announce(step.ready, job.end_offset)
            compaction.sync_names()
            assert compaction.complete(step.ready)
            compaction.sync_names()
            log.remove_deleted_files()
    compaction.finish(job.end_offset)
    return job.end_offset


def key_values(log: Log) -> dict[bytes, bytes | None]:
    """What a table made of the log holds: the latest value of each key; deleted ones are left out."""
    table: dict[bytes, bytes | None] = {}
    for record in records_of(log):
        if record.key is None:
            continue
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
