"""Appending what a leader stored, where a log may have to start within a batch.

```
 the leader's log      [ 0 1 2 3 ][ 4 ]      records 0 and 1 were deleted: its log starts at 2
 a replica that is new                       is told to start at 2, and is sent the whole batch
 what it becomes       [ 0 1 2 3 ][ 4 ]      starts at 2 as well
```

Kafka: `UnifiedLog.appendAsFollower`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.base.errors import MalformedBatchError
from tidelog.base.ids import Offset
from tidelog.base.ports import Buffer
from tidelog.log.append import AppendResult
from tidelog.log.log import Log
from tidelog.records.batch import read_header
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage


def append_fetched(log: Log, batches: Buffer, *, now_ms: int) -> AppendResult | None:
    """As `Log.append_as_follower`; a log without records begins where the first batch does, and starts where it did."""
    log_start_offset = log.log_start_offset
    base_offset = _batch_that_holds(batches, log.log_end_offset)
    if base_offset is not None and not log.segments.size_bytes:
        lineage = _from(log.lineage, base_offset, log_start_offset)
        log.truncate_fully_and_start_at(base_offset, now_ms=now_ms)
        log._lineage_file.replace(lineage)
    result = log.append_as_follower(batches, now_ms=now_ms)
    log.advance_log_start_offset(min(log_start_offset, log.log_end_offset))
    return result


def unwritten_epochs(log: Log, batches: Buffer) -> list[EpochEntry]:
    """The leader epochs that batches bring and the lineage has yet to say, where they may be appended as they are.

    What it says is synced first, which takes long. Whoever must not wait notes them beforehand (`EpochsToWrite`): then
    the append has nothing to sync.

    Raises:
        CorruptLogError, KafkaError: as `Log.append_as_follower`.
        DiskError: the log is out of use.
    """
    log._check_usable()
    if not log.segments.size_bytes and _batch_that_holds(batches, log.log_end_offset) is not None:
        return []
    accepted = log.rules.check_for_follower(memoryview(batches), log_end_offset=log.log_end_offset, lineage=log.lineage)
    return log._lineage_file.unknown(each.header for each in accepted)


class EpochsToWrite:
    """Leader epochs that the lineage of a log is to have before their records are appended.

    Nothing else may change the lineage before `on_written`.

    Attributes:
        path: of the file, which is to be replaced.
        data: what it is to say.
    """

    __slots__ = ("_entries", "_log", "data", "path")

    def __init__(self, log: Log, entries: Sequence[EpochEntry]) -> None:
        """To be written by whoever makes it."""
        self._log = log
        self._entries = entries
        self.path, self.data = log._lineage_file.planned(entries)

    def on_written(self) -> None:
        """The file says so, synced."""
        self._log._lineage_file.assign_written(self._entries)


def _batch_that_holds(batches: Buffer, offset: Offset) -> Offset | None:
    """Where the first batch starts, if `offset` lies within it and is not its first."""
    try:
        header = read_header(batches)
    except MalformedBatchError:
        return None  # whoever appends it says so
    return Offset(header.base_offset) if header.base_offset < offset < header.next_offset else None


def _from(lineage: LeaderEpochLineage, base_offset: Offset, log_start_offset: Offset) -> LeaderEpochLineage:
    """As it is of a log that holds the first records of the batch too: they are of the same epoch."""
    entries = list(lineage.entries)
    if entries and entries[0].start_offset == log_start_offset:
        entries[0] = EpochEntry(entries[0].leader_epoch, base_offset)
    return LeaderEpochLineage(entries)
