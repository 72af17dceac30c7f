"""What the partitions of one broker share to be replicated: time, the fetchers, the proposals, the files.

Kafka: `ReplicaManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Protocol

from tidelog.base.errors import CorruptLogError, DiskError, InvariantBrokenError
from tidelog.base.ids import BrokerEpoch, BrokerId, Offset
from tidelog.base.losses import ReplicaFate, ReplicaLoss
from tidelog.base.ports import Clock, Network, Rng
from tidelog.log.lost_records import LostTail
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs.broker import NUM_REPLICA_FETCHERS
from tidelog.metadata.configs.cluster import LOSSES_KEPT_BYTES
from tidelog.metadata.features import replica_fetch_version
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import OF_NODES, ConnectionSettings
from tidelog.net.pool import ConnectionPool
from tidelog.net.security import ConnectionSecurity
from tidelog.records.lineage import EpochEntry
from tidelog.replica import FollowerRequest, IsrProposal, LeaderReplica, Truncation
from tidelog.server.replication.cut_off import CutOffLeaders
from tidelog.server.replication.damage_notes import DamageNotes
from tidelog.server.replication.deadlines import Due, ReplicationDeadlines
from tidelog.server.replication.follower_changes import FollowerChanges
from tidelog.server.replication.follower_driver import FollowerDriver, LostOffsets, TruncatedRecords
from tidelog.server.replication.isr_changes import AlterPartitions, IsrChanges
from tidelog.server.replication.leader_doubts import LeaderDoubts
from tidelog.server.replication.leader_driver import LeaderDriver
from tidelog.server.replication.leader_probes import LeaderProbes
from tidelog.server.replication.loss_notes import LossNotes
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.put_off_writes import PutOffWrites
from tidelog.server.replication.replica_fetchers import ReplicaFetchers
from tidelog.server.replication.replication_throttles import Throttle, replication_limits
from tidelog.server.replication.silent_followers import SilentFollowers
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.settings.replication_settings import ReplicaFetchSettings
from tidelog.server.storage.checkpoints import Replica
from tidelog.server.storage.served_logs import ServedLogs
from tidelog.server.tasks import Tasks

CONNECT_BACKOFF_FIRST_MS = 20
CONNECT_BACKOFF_LONGEST_MS = 1_000


class Failures(Protocol):
    """What the broker does about a partition that fails."""

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None: ...

    def on_read_error(self, partition: Partition) -> None: ...

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None: ...


class Replicated(Protocol):
    """The broker."""

    @property
    def tasks(self) -> Tasks: ...

    @property
    def partitions(self) -> list[Partition]: ...

    @property
    def failures(self) -> Failures: ...

    def on_log_truncating(self, replica: Replica, end_offset: Offset) -> None:
        """A log is about to be truncated."""
        ...


class Replication:
    """The host of every partition that is led or followed here.

    Args:
        broker: whoever has the partitions; asked for nothing but its tasks before the first image.
        alter_partitions: asks the active controller for ISRs.

    Attributes:
        broker_epoch: of this incarnation, as the metadata has it; None before it is registered.
        active_brokers: those that are neither fenced nor shutting down, in which incarnation.
        followers: of partitions that are led here, and which of them are silent.
        leader_throttle: of what is sent to followers; follower_throttle: of what is fetched.
        doubts: leaders that have hung up, or have to show that they are there.
        peers: connections to the other brokers, where brokers speak with each other.
        isr_shrinks: how often the ISR of a partition led here became smaller; isr_expands: larger.
        truncated: records that were removed from the ends of logs that follow.
        loss_notes: what of them the account of losses is to know.
        damage_notes: what rotted in the logs here.
    """

    def __init__(
        self,
        broker: Replicated,
        broker_id: BrokerId,
        logs: ServedLogs,
        alter_partitions: AlterPartitions,
        settings: ReplicaFetchSettings,
        *,
        network: Network,
        security: ConnectionSecurity | None = None,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        self.active_brokers: Mapping[BrokerId, BrokerEpoch] = {}
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.truncated = TruncatedRecords()
        self.loss_notes = LossNotes()
        self.damage_notes = DamageNotes()
        self._broker = broker
        self._broker_id = broker_id
        self._logs = logs
        self._settings = settings
        self._clock = clock
        self._deadlines = ReplicationDeadlines(clock)
        self.leader_throttle = Throttle(clock.now_ms, self.due_at)
        self.follower_throttle = Throttle(clock.now_ms, self.due_at)
        self.peers = ConnectionPool(
            network,
            ConnectionSettings(client_id=f"broker-{broker_id}-replicas", security=security, protocol_setting=OF_NODES),
            Backoff(CONNECT_BACKOFF_FIRST_MS, CONNECT_BACKOFF_LONGEST_MS, rng),
            is_node=True,
        )
        self._tasks = broker.tasks.branch("replication")
        self._log_tasks = broker.tasks.branch("logs")
        changes = FollowerChanges(lambda: broker.partitions, clock.now_ms, self._tasks)
        self.followers = SilentFollowers(clock, settings.silence_ms_max, self.due_at, changes.on_changed)
        self.isr_changes = IsrChanges(
            broker_id,
            alter_partitions,
            self._tasks,
            broker_epoch=lambda: self.broker_epoch,
        )
        probes = LeaderProbes(self.peers, timeout_ms=settings.timeout_ms, tasks=self._tasks)
        self.doubts = LeaderDoubts(broker_id, settings.doubt_ms_max, probes)
        self._fetchers = ReplicaFetchers(
            broker_id,
            self.peers,
            settings,
            doubts=self.doubts,
            broker_epoch=lambda: self.broker_epoch,
            throttle=self.follower_throttle,
            tasks=self._tasks,
        )
        self._writes = PutOffWrites(self._tasks)
        self._cut_off = CutOffLeaders()
        self._racks: Mapping[BrokerId, str | None] = {}

    def on_image(self, image: MetadataImage) -> None:
        """Brokers came, went, moved, were fenced or are back; or the cluster was upgraded."""
        self._fetchers.version_max = replica_fetch_version(image.features)
        self.active_brokers = {each.broker_id: each.broker_epoch for each in image.brokers.values() if each.is_active}
        addresses = {}
        for each in image.brokers.values():
            endpoint = each.endpoint(self._settings.listener_name) or next(iter(each.endpoints), None)
            if endpoint is not None and each.broker_id != self._broker_id:
                addresses[each.broker_id] = Address(endpoint.host, endpoint.port)
        self.peers.set_addresses(addresses)
        self._racks = {each.broker_id: each.rack for each in image.brokers.values() if not each.is_fenced}

    def preferred_read_replica(self, leader: LeaderReplica, rack: str, offset: int) -> BrokerId | None:
        """Where a consumer in `rack` had better read from `offset` on (KIP-392); None: here, where the leader is.

        That is a follower in its rack which is in sync and has come so far: of several the one that has most.
        """
        if not self._settings.selects_by_rack or self._racks.get(self._broker_id) == rack:
            return None
        near = [
            (end_offset, -broker_id, broker_id)
            for broker_id, end_offset in leader.followers.ends_from(offset, leader.isr).items()
            if self._racks.get(broker_id) == rack
        ]
        return max(near)[2] if near else None

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """How many fetchers there are for each of the others, and how fast may be sent and fetched."""
        self._fetchers.resize(new.broker[NUM_REPLICA_FETCHERS])
        leader, follower = replication_limits(new, self._broker_id)
        self.loss_notes.kept_size_bytes_max = new.broker[LOSSES_KEPT_BYTES]
        self.leader_throttle.configure(leader)
        self.follower_throttle.configure(follower)

    async def stop(self) -> None:
        """Stop all fetches. Truncations under way are finished."""
        self._deadlines.stop()
        self.isr_changes.stop()
        self._cut_off.stop()
        self.doubts.stop()
        await self._fetchers.stop()
        await self.peers.close()
        await self._tasks.end()
        await self._log_tasks.finish()

    # What partitions need.

    @property
    def backoff_ms_max(self) -> int:
        return self._settings.backoff_ms

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def due_at(self, who: Due, due_ms: int) -> None:
        """Call `on_due` of a waiter then, or a little later."""
        self._deadlines.add(who, due_ms)

    def propose(self, leading: LeaderDriver, proposal: IsrProposal) -> None:
        """Put an ISR to the controller."""
        self.isr_changes.propose(leading, proposal)

    def on_isr_changed(self, before: int, after: int) -> None:
        """So many were in sync, and now are."""
        self.isr_shrinks += after < before
        self.isr_expands += after > before

    def on_cut_off(self, leading: LeaderDriver, is_cut_off: bool) -> None:
        """Too few fetch from this leader for it to commit anything; or enough do again."""
        self._cut_off.on_changed(leading, is_cut_off)

    def on_follower_fetched(self, broker_id: BrokerId, wait_ms_max: int) -> None:
        """Somebody fetches as a broker: it counts if there is such a one, and for no longer than a session."""
        if broker_id in self.active_brokers:
            self.followers.on_fetch(broker_id, min(wait_ms_max, self._settings.silence_ms_max))

    def send(self, following: FollowerDriver, request: FollowerRequest) -> None:
        """Send a request to a leader."""
        self._fetchers.send(following, request)

    def forget(self, following: FollowerDriver) -> None:
        """Nothing more is to be sent for it."""
        self._fetchers.forget(following)

    def write_soon(self, following: FollowerDriver) -> None:
        """Write what a follower put off, once its fetch has left."""
        self._writes.add(following)

    def on_truncating(self, counts: TruncatedRecords) -> None:
        """So many records are about to be removed from the end of a log."""
        self.truncated = TruncatedRecords(*(sum(pair) for pair in zip(self.truncated, counts, strict=True)))

    def start(self, partition: Partition, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run what the disk takes its time for; `stop` waits for it, and a bug of it takes the partition offline."""
        return self._log_tasks.start(work, on_bug=partial(self._on_log_task_bug, partition))

    def _on_log_task_bug(self, partition: Partition, error: Exception) -> None:
        self.on_bug(partition, InvariantBrokenError(repr(error)))

    async def truncate(self, partition: Partition, truncation: Truncation, lost: LostOffsets | None = None) -> None:
        """Truncate a log. Raises CorruptLogError, DiskError.

        Args:
            lost: what is told to the account of losses; None where nobody was promised what goes.
        """
        tail = None if lost is None else self._tail(partition, lost)
        noted = await self._logs.truncate(
            partition, truncation, on_log_truncating=self._broker.on_log_truncating, tail=tail
        )
        if tail is not None and (tail.replica.cut_from is not None or self.loss_notes.awaits(tail.loss_id)):
            self.loss_notes.note(tail.loss_id, noted or tail.replica)

    def _tail(self, partition: Partition, lost: LostOffsets) -> LostTail:
        loss_id = self.loss_notes.loss_of(
            partition.topic_id, partition.topic_partition.partition, lost.last_epoch, lost.unclean_epoch
        )
        replica = ReplicaLoss(
            self._broker_id,
            ReplicaFate.UNCOMPARED if lost.start_offset is None else ReplicaFate.CUT,
            lost.end_offset,
            lost.start_offset,
            lost.high_watermark,
            lost.first_epoch,
            lost.last_epoch,
        )
        return LostTail(loss_id, replica, self.loss_notes.room_size_bytes())

    async def note_leader_epochs(self, partition: Partition, entries: Sequence[EpochEntry]) -> None:
        """Return once the lineage of a log says so, synced. Raises DiskError."""
        await self._logs.note_leader_epochs(partition, entries)

    async def flush(self, partition: Partition) -> None:
        """Return once all that was appended is synced. Raises DiskError."""
        await self._logs.flush(partition)

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None:
        """A log cannot be written any more, or has no room."""
        self._broker.failures.on_log_failed(partition, error)

    def on_read_error(self, partition: Partition) -> None:
        """Some place in a log could not be read."""
        self._broker.failures.on_read_error(partition)

    def on_damage(self, partition: Partition) -> None:
        """Somebody came upon something in a log that was never written so."""
        self.damage_notes.suspect(partition)

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None:
        """What must hold of a partition does not."""
        self._broker.failures.on_bug(partition, error)
