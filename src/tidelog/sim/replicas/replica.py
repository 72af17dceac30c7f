"""One replica of one partition on a simulated broker: a production log, driven by the production machine that its role
asks for, in the order in which that machine says what is owed.

What truncates runs off the broker's steps, as it does where it waits for a disk; until it is done the machine waits,
and so does news of the partition. Everything else is a step of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import BrokerEpoch, BrokerId, CorrelationId, Offset, TopicPartition
from tidelog.base.ports import Disk
from tidelog.log import Log
from tidelog.log.leader_epochs import assign_leader_epochs
from tidelog.metadata.image import PartitionImage
from tidelog.replica import (
    EpochEndRequest,
    FollowerReplica,
    FollowerRequest,
    FollowerSettings,
    IsrProposal,
    LeaderReplica,
    LogBounds,
    RecordsRequest,
    ReplicaId,
    ReplicationSettings,
    Truncation,
)
from tidelog.server.storage.log_dir import is_full
from tidelog.sim.checkers.views import ReplicaView
from tidelog.sim.replicas.messages import LeaderAnswers
from tidelog.sim.replicas.parked import Parked
from tidelog.sim.replicas.picture import LogPicture
from tidelog.sim.replicas.plan import Plan

FETCH_BACKOFF_MS = 50
PROPOSAL_BACKOFF_MS = 100
PRODUCE_TIMEOUT_MS = 3_000

OnAcknowledged = Callable[[Code], None]


class Host(Protocol):
    """The broker that a replica is on."""

    broker_id: BrokerId
    plan: Plan
    parked: Parked

    @property
    def disk(self) -> Disk: ...
    @property
    def active_brokers(self) -> dict[BrokerId, BrokerEpoch]: ...
    def now_ms(self) -> int: ...
    def wall_ms(self) -> int: ...
    def later(self, ms: float, step: Callable[[], object]) -> None: ...
    def on_step(self) -> None: ...
    def offload(self, work: Callable[[], None], then: Callable[[], None]) -> None: ...
    def ask(self, replica: HostedReplica, request: FollowerRequest) -> None: ...
    def propose(self, replica: HostedReplica, proposal: IsrProposal) -> None: ...
    def checkpoint_high_watermarks(self) -> None: ...
    def checkpoint_recovery_points(self) -> None: ...
    def on_failed(self, error: DiskError | CorruptLogError) -> None: ...
    def on_truncated(self, replica: HostedReplica, truncation: Truncation) -> None: ...
    def on_damage(self, replica: HostedReplica, error: Exception) -> None: ...


class HostedReplica:
    """See the module.

    Attributes:
        state: the partition, as the machine was last told.
        high_watermark: exclusive; what is known here of it.
        is_stopped: for good: the log is another's, or nobody's.
    """

    def __init__(
        self,
        host: Host,
        topic_partition: TopicPartition,
        name: ReplicaId,
        log: Log,
        *,
        high_watermark: Offset | None,
        picture: LogPicture,
    ) -> None:
        self.topic_partition = topic_partition
        self.name = name
        self.log = log
        self.leader: LeaderReplica | None = None
        self.follower: FollowerReplica | None = None
        self.state: PartitionImage | None = None
        self.is_stopped = False
        self.picture = picture
        bounds = LogBounds(log.log_start_offset, log.log_end_offset, high_watermark)
        self.high_watermark = bounds.clamped_high_watermark
        self._host = host
        self._next_state: PartitionImage | None = None
        self._is_truncating = False
        self._records: dict[int, bytes] = {}
        self._waiting: dict[CorrelationId, OnAcknowledged] = {}
        self._correlation_ids = 0
        self._due_ms: int | None = None
        picture.restart()

    # What the metadata says.

    def on_state(self, state: PartitionImage) -> None:
        """The partition changed; told in order."""
        if self._is_truncating:
            self._next_state = state
            return
        machine = self.leader or self.follower
        if machine is not None and machine.leader_epoch == state.leader_epoch:
            if self.leader is not None:
                self.leader.on_brokers(self._host.active_brokers)
                self.leader.on_state(state)
            self.run()
            return
        self._end_role()
        self.state = state
        bounds = LogBounds(self.log.log_start_offset, self.log.log_end_offset, self.high_watermark)
        if state.leader == self._host.broker_id:
            self._lead(state, bounds)
        else:
            settings = FollowerSettings(fetch_backoff_ms=FETCH_BACKOFF_MS)
            self.follower = FollowerReplica(
                self.topic_partition, self._host.broker_id, state, bounds, self.log.lineage, settings=settings
            )
        self.run()

    def _lead(self, state: PartitionImage, bounds: LogBounds) -> None:
        (error,) = assign_leader_epochs(self._host.disk, [(self.log, state.leader_epoch)])
        if error is not None:
            self._host.on_failed(error)
            return
        plan = self._host.plan
        self.leader = LeaderReplica(
            self.topic_partition,
            self._host.broker_id,
            state,
            bounds,
            self.log.lineage,
            settings=ReplicationSettings(
                plan.min_insync_replicas, plan.lag_ms_max, PROPOSAL_BACKOFF_MS, plan.session_ms
            ),
            now_ms=self._host.now_ms(),
        )
        self.leader.on_brokers(self._host.active_brokers)

    def stop(self) -> None:
        """Serve nobody, ask nobody. Another may have the files."""
        self._end_role()
        self.is_stopped = True

    def _end_role(self) -> None:
        if self.leader is not None:
            self.leader.on_stopped()
            for ack in self.leader.take_ready().acks:
                self._waiting.pop(ack.correlation_id)(ack.code)
        elif self.follower is not None:
            self.follower.on_stopped()
        self.leader = self.follower = None
        self._records.clear()
        self._host.parked.wake(self)
        self._host.on_step()

    # What happens.

    def on_brokers(self) -> None:
        """Others were fenced, or are back."""
        if self.leader is not None:
            self.leader.on_brokers(self._host.active_brokers)

    def on_answer(self, follower: FollowerReplica, request: FollowerRequest, body: object | None) -> None:
        """What the leader said to what `follower` asked, if it said anything."""
        if follower is not self.follower or self.is_stopped:
            return
        now_ms = self._host.now_ms()
        if not isinstance(body, LeaderAnswers):
            follower.on_unanswered(request.number, now_ms)
        elif isinstance(body.outcome, Code):
            follower.on_refused(request.number, body.outcome, now_ms)
        elif isinstance(request, RecordsRequest):
            self._records = {request.number: body.records}
            follower.on_fetched(request.number, body.outcome, now_ms)  # type: ignore[arg-type]
        elif isinstance(request, EpochEndRequest):
            follower.on_epoch_end(request.number, body.outcome, now_ms)  # type: ignore[arg-type]
        else:
            follower.on_log_start(request.number, body.outcome, now_ms)  # type: ignore[arg-type]
        self.run()

    def on_produced(self, acks_all: bool, batch: bytes, on_acknowledged: Callable[[Code, Offset | None], None]) -> None:
        """A producer's batch, to be answered once it is as safe as it asks."""
        leader = self.leader
        try:
            if leader is None:
                raise KafkaError("not the leader", code=Code.NOT_LEADER_OR_FOLLOWER)
            if acks_all:
                leader.check_enough_replicas()
            result = self.log.append_as_leader(
                memoryview(bytearray(batch)), leader_epoch=leader.leader_epoch, now_ms=self._host.wall_ms()
            )
            self._sync_if_asked()
        except KafkaError as error:
            on_acknowledged(error.code, None)
            return
        except DiskError as error:
            self._host.on_step()  # some of it may be there
            on_acknowledged(Code.KAFKA_STORAGE_ERROR, None)
            if not is_full(error) or self.log.failure is not None:
                self._host.on_failed(error)
            return
        if not result.is_duplicate:
            leader.on_appended(self.log.log_end_offset, self._host.now_ms())
        if acks_all:
            self._correlation_ids += 1
            correlation_id = CorrelationId(self._correlation_ids)
            self._waiting[correlation_id] = lambda code: on_acknowledged(code, result.first_offset)
            deadline_ms = self._host.now_ms() + PRODUCE_TIMEOUT_MS
            leader.on_produced(correlation_id, Offset(result.last_offset + 1), deadline_ms)
        else:
            on_acknowledged(Code.NONE, result.first_offset)
        self.run()
        self._host.parked.wake(self)

    def _sync_if_asked(self) -> None:
        """`flush.messages`: what was appended is synced before anybody is told of it."""
        record_count = self.log.config.flush_messages
        if record_count is not None and self.log.log_end_offset - self.log.recovery_point >= record_count:
            self.log.flush()

    def on_proposal_answered(self, leader: LeaderReplica, state: PartitionImage | None) -> None:
        """The controller answered an AlterPartition; None: it refused, did not answer, or leaves it to the metadata."""
        if leader is not self.leader:
            return
        if state is not None and state.leader_epoch == leader.leader_epoch:
            leader.on_state(state)
        elif state is None:
            leader.on_proposal_unanswered(self._host.now_ms())
        self.run()

    # What is owed.

    def run(self) -> None:
        """Do what the machine says is owed, in its order."""
        before = self.high_watermark
        if self.leader is not None:
            ready = self.leader.take_ready()
            self.high_watermark = ready.high_watermark
            for ack in ready.acks:
                self._waiting.pop(ack.correlation_id)(ack.code)
            if ready.isr_proposal is not None:
                self._host.propose(self, ready.isr_proposal)
        elif self.follower is not None:
            self._run_follower(self.follower)
        if self.high_watermark != before:
            self.log.producers.on_high_watermark(self.high_watermark)
            self._host.parked.wake(self)
        self._wait_for_deadline()
        self._host.on_step()

    def _run_follower(self, follower: FollowerReplica) -> None:
        while not self._is_truncating and follower is self.follower:
            ready = follower.take_ready()
            self.high_watermark = ready.high_watermark
            if ready.truncation is not None:
                self._cut(follower, ready.truncation)
                return
            try:
                if ready.append is not None and not self._append(follower, self._records.pop(ready.append, b"")):
                    return
                if ready.epochs:
                    self.log.correct_lineage(ready.epochs)
                if ready.log_start_offset is not None:
                    self.log.advance_log_start_offset(ready.log_start_offset)
            except DiskError as error:
                self._host.on_failed(error)
                return
            if ready.request is not None:
                self._host.ask(self, ready.request)
            if ready.append is None:
                return

    def _append(self, follower: FollowerReplica, records: bytes) -> bool:
        """Write what came. Returns whether it could be; if not, it is fetched once more, after a pause."""
        try:
            self.log.append_as_follower(memoryview(bytearray(records)), now_ms=self._host.wall_ms())
            self._sync_if_asked()
        except (KafkaError, CorruptLogError) as error:
            self._host.on_damage(self, error)
        except DiskError as error:
            if not is_full(error) or self.log.failure is not None:
                raise
        else:
            follower.on_appended(self.log.log_end_offset)
            return True
        self._host.later(FETCH_BACKOFF_MS, partial(self._give_append_up, follower))
        return False

    def _give_append_up(self, follower: FollowerReplica) -> None:
        if follower is self.follower:
            follower.on_appended(self.log.log_end_offset)
            self.run()

    def _cut(self, follower: FollowerReplica, truncation: Truncation) -> None:
        self._is_truncating = True
        self.high_watermark = min(self.high_watermark, truncation.end_offset)
        self._host.on_truncated(self, truncation)

        def cut() -> None:
            if self.is_stopped:
                return
            if truncation.below_high_watermark is not None:
                self._host.checkpoint_high_watermarks()
            if truncation.starts_anew:
                self.log.truncate_fully_and_start_at(truncation.end_offset)
                self.picture.restart()
            else:
                self.log.truncate_to(truncation.end_offset)
            self.picture.cut(self.log.log_end_offset)
            self._host.on_step()
            self._host.checkpoint_recovery_points()

        def then() -> None:
            self._is_truncating = False
            self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
            if self.is_stopped:
                return
            if follower is self.follower:
                follower.on_truncated(self.log.log_end_offset)
            state, self._next_state = self._next_state, None
            if state is not None:
                self.on_state(state)
            else:
                self.run()

        self._host.offload(cut, then)

    # Time.

    def on_tick(self) -> None:
        """Time has passed: what was held back is done, what waited too long is given up."""
        now_ms = self._host.now_ms()
        if self.leader is not None:
            self.leader.on_tick(now_ms)
        elif self.follower is not None:
            self.follower.on_tick(now_ms)
        self.run()

    def _wait_for_deadline(self) -> None:
        machine = self.leader or self.follower
        deadline_ms = None if machine is None else machine.next_deadline_ms()
        now_ms = self._host.now_ms()
        if deadline_ms is not None and (self._due_ms is None or deadline_ms < self._due_ms or self._due_ms <= now_ms):
            self._due_ms = deadline_ms
            self._host.later(max(1, deadline_ms - now_ms), partial(self._on_due, deadline_ms))

    def _on_due(self, due_ms: int) -> None:
        if self._due_ms == due_ms and not self.is_stopped:
            self._due_ms = None
            self.on_tick()

    # How it looks.

    def view(self) -> ReplicaView:
        """As somebody outside sees it."""
        self.picture.look(self.log)
        leader, follower = self.leader, self.follower
        machine = leader or follower
        epoch = None if machine is None else machine.leader_epoch
        return ReplicaView(
            self._host.broker_id,
            is_up=True,
            leads=leader is not None,
            leader_epoch=epoch,
            log_start_offset=self.picture.log_start_offset,
            records=self.picture.records,
            lineage=self.log.lineage.entries,
            high_watermark=self.high_watermark,
            isr=frozenset() if leader is None else leader.isr,
            serves_consumers=leader is not None or (follower is not None and follower.is_reconciled),
        )
