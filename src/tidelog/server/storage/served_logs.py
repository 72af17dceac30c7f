"""What is done to the logs that a node serves, beside appends and reads: synced, truncated, cut at their start.

Kafka: `ReplicaManager` and `LogManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import LeaderEpoch, Offset, TopicPartition
from tidelog.base.losses import ReplicaLoss
from tidelog.base.ports import Clock, Disk, Executor
from tidelog.log import Log
from tidelog.log.follower_append import EpochsToWrite
from tidelog.log.leader_epochs import assign_leader_epochs
from tidelog.log.lost_records import LostTail, keep_lost_tail
from tidelog.records.lineage import EpochEntry
from tidelog.replica import Truncation
from tidelog.server.storage.checkpoints import Replica
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.written_together import WrittenTogether

if TYPE_CHECKING:
    from tidelog.server.storage.log_files import LogFiles

WRITTEN_TOGETHER_MAX = 1024
"""Logs whose leader epochs are written by one thread, and synced together."""


class LockedReplica(Replica, Protocol):
    """A replica whose log others work on as well: who truncates it or removes parts of it holds its lock."""

    @property
    def log_lock(self) -> asyncio.Lock: ...


class ServedLogs:
    """See the module. What waits for a disk runs on the executor's threads.

    Args:
        log_dir_of: where each open log lies; shared with `LogFiles`.
    """

    def __init__(
        self, files: LogFiles, log_dir_of: dict[TopicPartition, LogDir], *, clock: Clock, executor: Executor
    ) -> None:
        self._files = files
        self._log_dir_of = log_dir_of
        self._clock = clock
        self._executor = executor
        self._high_watermarks: dict[LogDir, WrittenTogether[Replica]] = {}
        self._lineages: dict[LogDir, WrittenTogether[EpochsToWrite]] = {}

    async def flush(self, partition: LockedReplica) -> None:
        """Return once all that was appended is synced. Raises DiskError."""
        async with partition.log_lock:
            await self._executor.run(partition.log.flush)

    async def note_leader_epochs(self, partition: LockedReplica, entries: Sequence[EpochEntry]) -> None:
        """Return once the lineage of a log that follows another says so, synced; with those of others that wait.

        Order: the epochs are on disk; the lineage says so; their records are appended. Raises DiskError.
        """
        async with partition.log_lock:
            epochs = EpochsToWrite(partition.log, entries)
            log_dir = self._log_dir_of[partition.topic_partition]
            together = self._lineages.get(log_dir)
            if together is None:
                together = self._lineages[log_dir] = WrittenTogether(self._write_lineages, self._executor)
            try:
                await together.write(epochs)
            except DiskError:  # maybe for the sake of another log
                await self._executor.run(partial(self._files.disk.write_atomically, epochs.path, epochs.data))
            epochs.on_written()

    def _write_lineages(self, every: Iterable[EpochsToWrite]) -> None:
        self._files.disk.write_all_atomically({one.path: one.data for one in every})

    async def truncate(
        self,
        partition: LockedReplica,
        truncation: Truncation,
        *,
        on_log_truncating: Callable[[Replica, Offset], None],
        tail: LostTail | None = None,
    ) -> ReplicaLoss | None:
        """Truncate a log that follows another; return once that outlasts a loss of power.

        Order: what was thought committed, and is not to be kept, is so no more; what is lost is kept and noted; the
        records go; the log counts as synced no further than it now is. Whoever syncs or compacts it waits.

        Args:
            on_log_truncating: told on the loop where, when nobody else has the log.
            tail: what of it is lost.

        Returns:
            What is known of the tail; None where there is none.

        Raises:
            CorruptLogError: what is left cannot be read; DiskError: the log is out of use.
        """
        async with partition.log_lock:
            log_dir = self._log_dir_of[partition.topic_partition]
            on_log_truncating(partition, Offset(0) if truncation.starts_anew else truncation.end_offset)
            if truncation.below_high_watermark is not None:
                await self._write_high_watermark(log_dir, partition)
            return await self._executor.run(partial(_truncate, self._files.disk, log_dir, partition, truncation, tail))

    async def _write_high_watermark(self, log_dir: LogDir, partition: Replica) -> None:
        """With those of all others that wait: a checkpoint names every log of its directory. Raises DiskError."""
        together = self._high_watermarks.get(log_dir)
        if together is None:
            write = log_dir.checkpoints.write_high_watermarks
            together = self._high_watermarks[log_dir] = WrittenTogether(write, self._executor)
        await together.write(partition)

    async def persist_log_starts(self, partitions: Iterable[Replica]) -> None:
        """Return once no crash can bring back what lies below the log starts. Raises DiskError.

        Args:
            partitions: all that are served: a checkpoint names every log of its directory.
        """
        every = list(partitions)
        for log_dir in self._files.online:
            await self._executor.run(partial(log_dir.checkpoints.write_recovery_points, every))

    async def delete_segments(self, partition: LockedReplica) -> None:
        """Give back the space of what lies below the log start, which is persisted already. Raises DiskError."""
        async with partition.log_lock:
            log = partition.log
            log_start_offset = self._log_dir_of[partition.topic_partition].checkpoints.noted_log_start(log)
            if log_start_offset == log.log_end_offset:
                log.roll(self._clock.wall_ms())  # the last segment stays, be it empty
            log.delete_segments_before(log_start_offset)
            await self._files.in_background(log.segments.remove_deleted_files)

    async def write_high_watermarks(self, partitions: Sequence[Replica]) -> None:
        """Write those of some partitions now, each beside the others of its directory. Raises DiskError."""
        for log_dir in {self._log_dir_of[each.topic_partition]: None for each in partitions}:
            await self._executor.run(partial(log_dir.checkpoints.write_high_watermarks, partitions))

    async def assign_leader_epochs(
        self, assignments: Sequence[tuple[Log, LeaderEpoch]]
    ) -> list[CorruptLogError | DiskError | None]:
        """Write down that an epoch starts at the end of each log; see the function of that name."""
        # Neighbours belong to one topic, so to several directories: each thread has its share of each disk.
        jobs = [
            self._executor.run(
                partial(assign_leader_epochs, self._files.disk, assignments[start : start + WRITTEN_TOGETHER_MAX])
            )
            for start in range(0, len(assignments), WRITTEN_TOGETHER_MAX)
        ]
        return [outcome for job in jobs for outcome in await job]


def _truncate(
    disk: Disk, log_dir: LogDir, partition: Replica, truncation: Truncation, tail: LostTail | None
) -> ReplicaLoss | None:
    """On a thread, which has the log for itself."""
    log = partition.log
    noted = None if tail is None else keep_lost_tail(disk, log, tail)
    if truncation.starts_anew:
        log_dir.checkpoints.start_anew(log, truncation.end_offset)
    else:
        log_dir.checkpoints.truncate(log, truncation.end_offset)
    return noted
