"""When a snapshot of the metadata is made, and what goes once it is there.

Two are kept: who reads the older one reads on while a newer one is made, and a node that is not far behind finds the
records that it lacks in the log, which starts at the end of the older one.

Kafka: `SnapshotGenerator`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from tidelog.base.ids import Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock, Executor
from tidelog.metadata import MetadataImage
from tidelog.metadata.difference import records_between
from tidelog.quorum.values import SnapshotId, VoterSet
from tidelog.server.quorum.metadata_log import MetadataLog
from tidelog.server.storage.metadata_snapshots import MetadataSnapshots, Snapshot

logger = logging.getLogger("tidelog.server.quorum")

KEPT_COUNT = 2
SYNCS_BEFORE_ROLL_MAX = 10


class SnapshotScheduler:
    """See the module.

    Args:
        log_lock: held while the log is written to off the loop.
        after_bytes: `metadata.log.max.record.bytes.between.snapshots`.
        after_ms: `metadata.log.max.snapshot.interval.ms`; None for whenever there are bytes enough.
    """

    def __init__(
        self,
        log: MetadataLog,
        snapshots: MetadataSnapshots,
        *,
        log_lock: asyncio.Lock,
        clock: Clock,
        executor: Executor,
        after_bytes: int,
        after_ms: int | None,
    ) -> None:
        self._log = log
        self._snapshots = snapshots
        self._log_lock = log_lock
        self._clock = clock
        self._executor = executor
        self._after_bytes = after_bytes
        self._after_ms = after_ms
        self._bytes = 0
        self._since_ms = clock.now_ms()
        self._is_making = False

    def on_committed(self, size_bytes: int) -> None:
        """Count the bytes that were committed since the last snapshot."""
        if not self._bytes:
            self._since_ms = self._clock.now_ms()
        self._bytes += size_bytes

    def on_loaded(self) -> None:
        """One came from the leader."""
        self._bytes = 0

    @property
    def is_due(self) -> bool:
        if self._is_making or not self._bytes:
            return False
        return self._bytes >= self._after_bytes or self._clock.now_ms() >= self._due_ms(self._since_ms)

    def next_deadline_ms(self) -> int | None:
        """When one is due if nothing more is written."""
        if self._is_making or not self._bytes or self._after_ms is None:
            return None
        return self._due_ms(self._since_ms)

    def _due_ms(self, since_ms: int) -> int:
        return since_ms + self._after_ms if self._after_ms is not None else since_ms + (1 << 62)

    async def _roll(self) -> None:
        """Start a new segment, so that those before it can go one day, once all that they hold is synced.

        Else a loss of power could shorten a segment that has a successor. A start takes that for damage to what was
        committed, and refuses. A leader that appends all the time rolls with the next snapshot.
        """
        for _ in range(SYNCS_BEFORE_ROLL_MAX):
            if self._log.is_synced:
                self._log.roll()
                return
            await self._executor.run(partial(self._log.sync, self._log.log_end_offset))

    async def make(
        self, image: MetadataImage, voters: VoterSet | None, on_trimmed: Callable[[Offset, SnapshotId], None]
    ) -> None:
        """Write a snapshot of what is committed, then forget what lies before the last but one.

        Args:
            voters: None where they are not kept in the log.
            on_trimmed: told where the log starts then, and the latest snapshot.

        Raises:
            DiskError: nothing was forgotten.
        """
        invariant(not self._is_making and image.last_offset is not None, "a snapshot of nothing, or two at once")
        assert image.last_offset is not None
        leader_epoch = self._log.lineage.epoch_at(image.last_offset)
        if leader_epoch is None:
            return  # all of it is in the snapshot that is there
        self._is_making = True
        self._bytes = 0
        try:
            snapshot_id = SnapshotId(Offset(image.last_offset + 1), leader_epoch)
            async with self._log_lock:
                await self._roll()
            timestamp_ms = self._clock.wall_ms()

            def write() -> None:
                records = tuple(records_between(MetadataImage.empty(), image))
                self._snapshots.write(Snapshot(snapshot_id, records, voters, timestamp_ms))

            await self._executor.run(write)
            self._snapshots.add(snapshot_id)
            logger.info("snapshot of the metadata up to offset %d made", snapshot_id.end_offset)
            oldest = self._snapshots.ids[-KEPT_COUNT:][0]
            deleted = self._snapshots.remove_before(oldest)
            async with self._log_lock:
                if oldest.end_offset > self._log.log_start_offset:
                    self._log.trim(oldest.end_offset)
            on_trimmed(self._log.log_start_offset, self._snapshots.ids[-1])  # a later one may have come from the leader
            await self._executor.run(partial(self._snapshots.remove_files, deleted))
            await self._executor.run(self._log.remove_trimmed)
        finally:
            self._is_making = False
