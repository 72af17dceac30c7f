"""What the machine of the metadata quorum owes the disk: its state, the log, and who votes as the log has it.

One thing after the other, and each synced before the machine is told; but for what a leader appends, which is synced
behind its back: one sync serves all that came before it.

Kafka: `KafkaRaftClient`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from tidelog.base.errors import DiskError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock, Executor
from tidelog.metadata import MetadataImage
from tidelog.quorum import QuorumNode, QuorumState
from tidelog.quorum.values import LeaderChange, QuorumReady, ReplicaKey, SnapshotId, VoterSet
from tidelog.records import control as control_records
from tidelog.records import control_batch
from tidelog.server.quorum.metadata_log import MetadataLog
from tidelog.server.quorum.snapshot_scheduler import SnapshotScheduler
from tidelog.server.quorum.voter_history import VoterHistory
from tidelog.server.settings.quorum_config import QuorumConfig
from tidelog.server.storage.metadata_files import OpenedMetadata
from tidelog.server.storage.metadata_snapshots import KRAFT_VERSION
from tidelog.server.storage.voter_records import IN_THE_LOG, voters_record
from tidelog.server.tasks import Tasks
from tidelog.wire.primitives import ZERO_UUID

logger = logging.getLogger("tidelog.server.quorum")


class MetadataStorage:
    """See the module.

    Args:
        voters: as configured.
        persist: writes the state of the voter, synced; called off the loop.
        on_voters: told of each new set of voters.
        on_failed: told of what went wrong behind everybody's back.

    Attributes:
        machine: to be set before anything is done.
        fetched: the records of the latest answer to a fetch, by its number.
        opened: the epoch that this node opened last, as its leader, and where its first records end.
        log_lock: held while the log is written to off the loop.
    """

    machine: QuorumNode

    def __init__(
        self,
        opened: OpenedMetadata,
        config: QuorumConfig,
        voters: VoterSet,
        *,
        persist: Callable[[QuorumState], None],
        clock: Clock,
        executor: Executor,
        tasks: Tasks,
        on_voters: Callable[[VoterSet], None],
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.log = MetadataLog(opened.log, opened.snapshots, opened.checkpoints, clock=clock)
        self.snapshots = opened.snapshots
        self.log_lock = asyncio.Lock()
        self.fetched: tuple[int, bytes] | None = None
        self.opened: tuple[LeaderEpoch, Offset] | None = None
        self.scheduler = SnapshotScheduler(
            self.log,
            opened.snapshots,
            log_lock=self.log_lock,
            clock=clock,
            executor=executor,
            after_bytes=config.snapshot_after_bytes,
            after_ms=config.snapshot_after_ms,
        )
        self._config = config
        self._persist = persist
        self._clock = clock
        self._executor = executor
        self._tasks = tasks
        self._on_voters = on_voters
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._synced_end_offset = self.log.log_end_offset
        self._syncing: asyncio.Task[None] | None = None
        self.voters = VoterHistory(voters)
        if opened.snapshot is not None:
            self.voters.on_snapshot(opened.snapshot.voters, opened.snapshot.snapshot_id.end_offset)
        self.voters.on_batches(self.log.control_batches(self.log.log_start_offset))

    async def process_ready(self, ready: QuorumReady) -> None:
        """All of it that the disk has to do, in its order."""
        if ready.state is not None:
            await self._executor.run(partial(self._persist, ready.state))
        async with self.log_lock:
            if ready.truncation is not None:
                await self._truncate(ready.truncation)
            if ready.append is not None:
                await self._append_fetched(ready.append)
            if ready.leader_change is not None:
                await self._open_epoch(ready.leader_change)

    async def _truncate(self, end_offset: Offset) -> None:
        await self.synced()
        logger.warning(
            "the metadata log is cut at offset %d of %d: its leader's goes on otherwise",
            end_offset,
            self.log.log_end_offset,
        )
        log_end_offset = await self._executor.run(partial(self.log.truncate_to, end_offset))
        self._synced_end_offset = log_end_offset
        if self.voters.on_truncated(log_end_offset):
            self._publish_voters()
        self.machine.on_truncated(log_end_offset, self._clock.now_ms())

    async def _append_fetched(self, number: int) -> None:
        await self.synced()
        fetched, self.fetched = self.fetched, None
        invariant(fetched is not None and fetched[0] == number, "nothing was fetched as {}", number)
        assert fetched is not None
        start_offset = self.log.log_end_offset
        end_offset = await self._executor.run(partial(self.log.append_fetched, fetched[1]))
        self._synced_end_offset = end_offset
        self.machine.on_appended(end_offset, self._clock.now_ms())
        if self.voters.on_batches(self.log.control_batches(start_offset)):
            self._publish_voters()
        self.machine.on_synced(end_offset, self._clock.now_ms())

    async def _open_epoch(self, change: LeaderChange) -> None:
        """This node was elected: its first records say so, and who votes, where the log has yet to say that."""
        await self.synced()
        now_ms, voters, log = self._clock.wall_ms(), self.voters, self.log
        batches = [_leader_change_batch(change, now_ms)]
        if voters.is_in_log and voters.end_offset == 0:
            version = control_records.KRaftVersion(kraft_version=KRAFT_VERSION)
            batches.append(control_batch(version, voters_record(voters.current), timestamp_ms=now_ms))
        epoch_start = await self._executor.run(partial(log.open_epoch, change.leader_epoch, batches))
        self.opened = (change.leader_epoch, log.log_end_offset)
        self.machine.on_epoch_opened(epoch_start, self._clock.now_ms())
        if len(batches) > 1:
            self.machine.on_appended(log.log_end_offset, self._clock.now_ms())
            if voters.on_batches(log.control_batches(epoch_start)):
                self._publish_voters()
        self._sync_soon()

    def append(self, batch: bytes, leader_epoch: LeaderEpoch) -> Offset:
        """As the leader; it is synced in time. Returns the offset of its first record."""
        offset = self.log.append(batch, leader_epoch)
        self.machine.on_appended(self.log.log_end_offset, self._clock.now_ms())
        self._sync_soon()
        return offset

    def append_voters(self, voters: VoterSet, leader_epoch: LeaderEpoch) -> Offset:
        """As the leader: they are the voters from this record on, committed or not. Returns its exclusive end.

        Where the configuration said so before, the log says from here on that it does (kraft.version).
        """
        records: tuple[control_records.QuorumControlRecord, ...] = (voters_record(voters),)
        if not self.voters.is_in_log:
            records = (control_records.KRaftVersion(kraft_version=KRAFT_VERSION), *records)
        batch = control_batch(*records, timestamp_ms=self._clock.wall_ms())
        offset = self.append(batch, leader_epoch)
        self.voters.on_batches(self.log.control_batches(offset))
        self._publish_voters()
        return self.log.log_end_offset

    async def start_at(self, snapshot_id: SnapshotId, voters: VoterSet | None) -> None:
        """A snapshot from the leader takes the place of the log."""
        async with self.log_lock:
            await self.synced()
            await self._executor.run(partial(self.log.start_at, snapshot_id))
            self._synced_end_offset = snapshot_id.end_offset
            self.snapshots.add(snapshot_id)
            self.scheduler.on_loaded()
            if self.voters.on_snapshot(voters, snapshot_id.end_offset):
                self._publish_voters()
            self.machine.on_snapshot_loaded(snapshot_id, self._clock.now_ms())

    async def make_snapshot(self, image: MetadataImage) -> None:
        """Write down what is committed, and forget what lies before the last but one."""
        if not self.scheduler.is_due:
            return
        assert image.last_offset is not None
        voters = self.voters.at(Offset(image.last_offset + 1))
        try:
            await self.scheduler.make(
                image, voters if voters.version >= IN_THE_LOG else None, self.machine.on_log_start_moved
            )
        except DiskError as error:
            logger.error("no snapshot of the metadata was made, so that its log grows on: %s", error)
        except Exception as error:
            self._on_failed(error)

    def _publish_voters(self) -> None:
        voters = self.voters.current
        self._on_voters(voters)
        self.machine.on_voters(voters, self._clock.now_ms(), end_offset=self.voters.end_offset)

    # Syncing what a leader appends.

    async def synced(self) -> None:
        """Return once no sync is under way."""
        while self._syncing is not None:
            await asyncio.gather(self._syncing, return_exceptions=True)

    def _sync_soon(self) -> None:
        if self._syncing is None:
            self._syncing = self._tasks.start(self._sync())

    async def _sync(self) -> None:
        """Sync off the loop until nothing new was appended meanwhile."""
        try:
            while self.log.log_end_offset > self._synced_end_offset:
                end_offset = self.log.log_end_offset
                await self._executor.run(partial(self.log.sync, end_offset))
                self._synced_end_offset = end_offset
                self._on_synced(end_offset)
        except Exception as error:  # of the disk or a bug of ours
            self._on_failed(error)
        finally:
            self._syncing = None


def _leader_change_batch(change: LeaderChange, now_ms: int) -> bytes:
    """With directories where they are known, which makes it version 1."""

    has_directories = any(key.directory_id is not None for key in (*change.voters, *change.granting_voters))

    def voters(keys: tuple[ReplicaKey, ...]) -> list[control_records.LeaderChangeVoter]:
        return [
            control_records.LeaderChangeVoter(key.node_id, (has_directories and key.directory_id) or ZERO_UUID)
            for key in keys
        ]

    return control_batch(
        control_records.LeaderChangeMessage(
            version=int(has_directories),
            leader_id=change.leader_id,
            voters=voters(change.voters),
            granting_voters=voters(change.granting_voters),
        ),
        timestamp_ms=now_ms,
    )
