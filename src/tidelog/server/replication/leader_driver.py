"""Drives the leader's machine of one partition, in one leader epoch: what it says is owed, in its order.

```
 appended, fetched, time, news ──► high watermark published ──► producers told ──► an ISR proposed ──► one deadline
```

Kafka: `Partition`, `DelayedProduce`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import Code, CorruptLogError, DiskError, InvariantBrokenError
from tidelog.base.ids import BrokerEpoch, BrokerId, CorrelationId, LeaderEpoch, Offset, ProducerId
from tidelog.metadata import PartitionImage
from tidelog.records.lineage import EpochEntry
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.replica import (
    AcceptedFetch,
    FollowerFetch,
    IsrProposal,
    LeaderReplica,
    ReplicationSettings,
)
from tidelog.server.replication.role import PartitionRole
from tidelog.server.tasks import Tasks

if TYPE_CHECKING:
    from tidelog.server.replication.partition import Partition

LAST_MARKERS_MAX = 10_000


class PartitionHost(Protocol):
    """The broker, as far as a partition needs it, and most of all one that is led."""

    def now_ms(self) -> int: ...

    def due_at(self, who: LeaderDriver, due_ms: int) -> None:
        """Call `on_due` then, or a little later."""
        ...

    def propose(self, leading: LeaderDriver, proposal: IsrProposal) -> None:
        """Put an ISR to the controller."""
        ...

    def on_isr_changed(self, before: int, after: int) -> None:
        """So many were in sync, and now are."""
        ...

    def on_cut_off(self, leading: LeaderDriver, is_cut_off: bool) -> None:
        """Too few fetch from this leader for it to commit anything; or enough do again."""
        ...

    def start(self, partition: Partition, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task that the host keeps; a bug of it is one of the partition."""
        ...

    async def flush(self, partition: Partition) -> None:
        """Return once all that was appended is synced. Raises DiskError."""
        ...

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None:
        """The log cannot be written: it goes offline, unless the disk is merely full."""
        ...

    def on_read_error(self, partition: Partition) -> None:
        """The disk refused to read at some place of the log."""
        ...

    def on_damage(self, partition: Partition) -> None:
        """Somebody came upon something in the log that was never written so."""
        ...

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None:
        """What must hold does not: the partition is to stop."""
        ...


class NoHost:
    """For a partition that has no other replica, and nobody to wait for."""

    def __init__(self) -> None:
        self._tasks = Tasks("partition")

    def now_ms(self) -> int:
        return 0

    def due_at(self, who: LeaderDriver, due_ms: int) -> None:
        """Nobody looks at the time."""

    def propose(self, leading: LeaderDriver, proposal: IsrProposal) -> None:
        """There is nobody to put it to."""

    def on_isr_changed(self, before: int, after: int) -> None:
        """Nobody counts changes of the ISR here."""

    def on_cut_off(self, leading: LeaderDriver, is_cut_off: bool) -> None:
        """A leader without followers is never cut off."""

    def start(self, partition: Partition, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        return self._tasks.start(work)

    async def flush(self, partition: Partition) -> None:
        partition.log.flush()

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None:
        """A failed log is raised where nobody handles it."""
        raise error

    def on_read_error(self, partition: Partition) -> None:
        """Nobody looks at the disk."""

    def on_damage(self, partition: Partition) -> None:
        """Nobody has another replica."""

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None:
        """A bug is raised where nobody handles it."""
        raise error


class LeaderDriver(PartitionRole):
    """See the module.

    Attributes:
        replica: the machine.
        last_markers: of `LAST_MARKERS_MAX` producers, the coordinator epoch and the number of the latest marker.
    """

    __slots__ = (
        "_deletions",
        "_due_ms",
        "_host",
        "_is_cut_off",
        "_is_stopped",
        "_last_correlation_id",
        "_log_starts",
        "_syncing",
        "_waiting",
        "last_markers",
        "partition",
        "replica",
    )

    is_active = True

    def __init__(self, partition: Partition, replica: LeaderReplica, host: PartitionHost) -> None:
        """Do nothing until `run`."""
        super().__init__(partition.topic_partition, replica.high_watermark, replica.leader_epoch)
        self.partition = partition
        self.replica = replica
        self._host = host
        self._waiting: dict[CorrelationId, asyncio.Future[Code]] = {}
        self._last_correlation_id = 0
        self._due_ms: int | None = None
        self._is_stopped = False
        self._is_cut_off = False  # as the host was told
        self._log_starts: dict[BrokerId, int] = {}  # of followers, as they told last
        self._deletions: list[tuple[int, asyncio.Future[bool]]] = []
        self._syncing: asyncio.Task[None] | None = None
        self.last_markers: dict[ProducerId, tuple[LeaderEpoch, int]] = {}

    def run(self) -> None:
        """Carry out what the machine has ready at first."""
        self._hold()
        self.process_ready()

    def stop(self) -> None:
        """The leadership is over: whoever waits is told."""
        self._is_stopped = True
        self.replica.on_stopped()
        for ack in self.replica.take_ready().acks:
            self._acknowledge(ack.correlation_id, ack.code)
        for _, future in self._deletions:
            if not future.done():
                future.set_result(False)
        self._deletions.clear()
        if self._is_cut_off:
            self._host.on_cut_off(self, False)

    @property
    def leader_replica(self) -> LeaderReplica:
        """See `PartitionRole`."""
        return self.replica

    @property
    def high_watermark(self) -> Offset:
        """See `PartitionRole`."""
        return self.replica.high_watermark

    def leading(self, sent_leader_epoch: int = -1) -> LeaderDriver:
        """See `PartitionRole`."""
        if sent_leader_epoch >= 0:
            self.replica.check_leader_epoch(LeaderEpoch(sent_leader_epoch))
        return self

    def diverging(self, last_fetched_epoch: LeaderEpoch, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """See `Partition.diverging`."""
        return self.replica.diverging(last_fetched_epoch, fetch_offset)

    # What happened.

    def on_appended(self) -> None:
        """The leader's log grew: move the high watermark, and notify followers."""
        partition = self.partition
        is_held = not partition.is_sync_awaited
        self.replica.on_appended(partition.log.log_end_offset, self._host.now_ms(), is_held=is_held)
        if not is_held:
            self._hold()
        self.process_ready()
        partition.follower_listeners.notify()

    def _hold(self) -> None:
        """Let what was appended count, once it is synced if `flush.messages` asks for that."""
        if not self.partition.is_sync_awaited:
            self.replica.on_held(self.partition.log.log_end_offset)
        elif self._syncing is None:
            self._syncing = self._host.start(self.partition, self._sync())

    async def _sync(self) -> None:
        """One sync at a time; it covers all that was appended before it."""
        partition = self.partition
        try:
            await self._host.flush(partition)
        except DiskError as error:
            self._host.on_log_failed(partition, error)
            return
        finally:
            self._syncing = None
        if self._is_stopped:
            return
        try:
            self.replica.on_held(partition.log.recovery_point)
            self._hold()
            self.process_ready()
        except InvariantBrokenError as error:
            self._host.on_bug(partition, error)

    def note_marker(self, marker: TransactionMarker) -> None:
        """It was written."""
        if marker.number is not None:
            number = marker.coordinator_epoch, marker.number
            before = self.last_markers.pop(marker.producer_id, number)  # the order is that of the last ones
            self.last_markers[marker.producer_id] = max(before, number)  # one that comes again late says nothing new
            if len(self.last_markers) > LAST_MARKERS_MAX:
                del self.last_markers[next(iter(self.last_markers))]

    def on_log_start_moved(self) -> None:
        """See `PartitionRole`."""
        self.replica.on_log_start_moved(self.partition.log.log_start_offset)

    def on_fetched(self, fetch: FollowerFetch, log_start_offset: int) -> EpochEntry | None:
        """A follower asks for records; see `Partition.on_fetched`."""
        accepted = self.replica.accept_fetch(fetch)
        if not isinstance(accepted, AcceptedFetch):
            return accepted
        self.replica.on_fetch(accepted)
        self.process_ready()
        self._log_starts[fetch.follower] = log_start_offset
        if self._deletions:
            self._complete_deletions()
        return None

    def on_state(self, state: PartitionImage) -> None:
        """Something newer about the partition, within the epoch."""
        before = len(self.replica.isr)
        self.replica.on_state(state)
        self._host.on_isr_changed(before, len(self.replica.isr))
        self.process_ready()
        self._reschedule_deadline()  # who lags may be proposed to leave again
        self._notify_followers_outside_isr()

    def on_brokers(self, active: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Who is neither fenced nor shutting down, in which incarnation."""
        self.replica.on_brokers(active)
        self._complete_deletions()
        self._notify_followers_outside_isr()

    def on_settings(self, settings: ReplicationSettings) -> None:
        """Those of the topic changed: with fewer to wait for, more may be committed."""
        self.replica.on_settings(settings)
        self._hold()
        self.process_ready()
        self._reschedule_deadline()  # with more to wait for, it may be cut off

    def on_proposal_unanswered(self) -> None:
        """The controller refused an ISR, or did not answer."""
        if self._is_stopped:
            return
        try:
            self.replica.on_proposal_unanswered(self._host.now_ms())
            self.process_ready()
        except InvariantBrokenError as error:
            self._host.on_bug(self.partition, error)
            return
        self._reschedule_deadline()

    def on_due(self, now_ms: int) -> None:
        """A deadline may be over: let the machine time out what is due."""
        if self._is_stopped or self._due_ms is None or now_ms < self._due_ms:
            return
        self._due_ms = None
        try:
            self.replica.on_tick(now_ms)
            self.process_ready()
        except InvariantBrokenError as error:
            self._host.on_bug(self.partition, error)
            return
        self._reschedule_deadline()
        self._notify_followers_outside_isr()

    def on_follower_changed(self, follower: BrokerId, is_silent: bool, now_ms: int) -> None:
        """A broker has fetched nothing from here for a session, whatever it follows; or it does again."""
        if self._is_stopped or follower not in self.replica.followers:
            return
        try:
            if is_silent:
                self.replica.on_silent(follower, now_ms)
            else:
                self.replica.on_contact(follower, now_ms)
            self.process_ready()
        except InvariantBrokenError as error:
            self._host.on_bug(self.partition, error)
            return
        self._reschedule_deadline()

    def _notify_followers_outside_isr(self) -> None:
        """Look again at the fetches of followers: one that has nothing new to say may join the ISR by now."""
        if len(self.replica.isr) <= len(self.replica.followers):
            self.partition.follower_listeners.notify()

    def committed(self, end_offset: int, timeout_ms: int) -> asyncio.Future[Code]:
        """See `Partition.committed`."""
        future: asyncio.Future[Code] = asyncio.get_running_loop().create_future()
        self._last_correlation_id += 1
        correlation_id = CorrelationId(self._last_correlation_id)
        self._waiting[correlation_id] = future
        deadline_ms = self._host.now_ms() + max(timeout_ms, 0)
        self._due_at(self.replica.on_produced(correlation_id, Offset(end_offset), deadline_ms))
        return future

    def deleted(self, offset: int) -> asyncio.Future[bool]:
        """See `Partition.deleted`."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._deletions.append((offset, future))
        self._complete_deletions()
        return future

    def _complete_deletions(self) -> None:
        starts = [self._log_starts.get(broker, -1) for broker in self.replica.followers.active]
        lowest = min(starts, default=self.partition.log.log_start_offset)
        waiting = []
        for offset, future in self._deletions:
            if future.done():
                continue  # whoever waited has given up
            if offset > lowest:
                waiting.append((offset, future))
            else:
                future.set_result(True)
        self._deletions = waiting

    # What is owed.

    def process_ready(self) -> None:
        """Carry out what the machine has ready: publish the high watermark, acknowledge, propose an ISR."""
        replica = self.replica
        before = replica.high_watermark
        high_watermark, acks, proposal = replica.take_ready()
        if high_watermark != before:
            self.partition.on_high_watermark(high_watermark)
        for ack in acks:
            self._acknowledge(ack.correlation_id, ack.code)
        if proposal is not None:
            self._host.propose(self, proposal)
        if replica.silence.is_cut_off != self._is_cut_off:
            self._is_cut_off = not self._is_cut_off
            self._host.on_cut_off(self, self._is_cut_off)
            self.partition.listeners.notify()
        if self._due_ms is None and replica.followers.progress:
            self._reschedule_deadline()

    def _acknowledge(self, correlation_id: CorrelationId, code: Code) -> None:
        future = self._waiting.pop(correlation_id)
        if not future.done():
            future.set_result(code)

    def _reschedule_deadline(self) -> None:
        due_ms = self.replica.next_deadline_ms()
        if due_ms is not None:
            self._due_at(due_ms)

    def _due_at(self, due_ms: int) -> None:
        """One deadline at a time: when it is over, the machine says what is next. They mostly move away."""
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._host.due_at(self, due_ms)
