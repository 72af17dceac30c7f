"""One partition of an internal topic that this broker leads: the coordinator on it, fed, driven and written down.

```
    lead ──► loading ──► serving ──► over          loading reads the log off the loop, a piece at a time
                │            │
                └─ damaged ◄─┘                     serves nobody; the log says what to do; the others go on
```
What was decided is answered once all in sync have it. A new leader serves once it knows that of all that it loaded.
What is to be sent to other brokers is sent again until it is done, or until the leadership ends.

Kafka: `CoordinatorRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from logging import Logger
from typing import Any, Generic, TypeVar

from tidelog.base.errors import (
    Code,
    CorruptLogError,
    DiskError,
    InvariantBrokenError,
    KafkaError,
    TidelogError,
    refusal,
)
from tidelog.base.ids import Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Clock, Executor
from tidelog.journal import Answer, Batch, CoordinatorMachine, CoordinatorReady, KeyValue, RequestId, SendId
from tidelog.log.producer_state import ProducerStates
from tidelog.metadata.configs import ConfigKey
from tidelog.net.backoff import Backoff
from tidelog.records import BatchBuilder
from tidelog.server.coordinators.log_replay import LogReplay
from tidelog.server.coordinators.retried_sends import RetriedSends, SendToLeader
from tidelog.server.replication.partition import Partition
from tidelog.server.tasks import Tasks

TIMER_SECONDS_MIN = 0.001
ROOM_CHECK_SECONDS = 0.5

M = TypeVar("M", bound=CoordinatorMachine)

Command = Callable[[M, RequestId, int, int], None]
"""Hands a request to a machine: the machine, the request's id, `now_ms`, `wall_ms`."""

Event = Callable[[M, int, int], None]
"""Tells a machine what happened: the machine, `now_ms`, `wall_ms`. Nobody waits for an answer."""

ProducerCheck = Callable[[ProducerStates], None]
"""Raises KafkaError if what the log knows of a producer refuses what the machine would write for it."""


@dataclass(frozen=True, slots=True)
class CoordinatorKind:
    """What one kind of coordinator is called, and where it writes.

    Attributes:
        topic: the internal topic.
        noun: what is coordinated, singular, for messages.
        loss: what happens to those whose log is given up, for messages.
        logger: the kind's own.
        module: what its machines need, imported on another thread when the first partition is led.
        partition_count_key, replication_factor_key, segment_size_key: broker settings for the topic when it is created.
        memory_key: broker setting that bounds what is coordinated at one node, in bytes.
        min_isr_key: broker setting for the topic's min.insync.replicas; None leaves the broker's default.
        topic_configs: further settings of the topic.
    """

    topic: str
    noun: str
    loss: str
    logger: Logger
    module: str
    partition_count_key: ConfigKey[int]
    replication_factor_key: ConfigKey[int]
    segment_size_key: ConfigKey[int]
    memory_key: ConfigKey[int]
    min_isr_key: ConfigKey[int] | None = None
    topic_configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CoordinatorHost:
    """What a broker gives to all its coordinators of one kind.

    Attributes:
        loading: held while a piece of a log is replayed, so that many partitions do not compete with the loop.
        has_room: whether the disk is not known to be full. While it is, nothing is loaded: the first write would find
            that out, and have everything loaded anew.
        on_disk_error: told when the log cannot be written; takes it offline, unless the disk is merely full.
        on_bug: told when what must hold does not.
        on_refused: told when the log takes a batch not, by its settings or for want of room: the machine is ahead of
            it, and has to be loaded anew, and then told of these events.
        send_to_leader: for what machines send to other brokers.
        backoff: between its attempts.
        tasks: of these coordinators.
    """

    clock: Clock
    executor: Executor
    loading: asyncio.Lock
    has_room: Callable[[Partition], bool]
    on_disk_error: Callable[[Partition, DiskError], None]
    on_bug: Callable[[Partition, InvariantBrokenError], None]
    on_refused: Callable[[Partition, Sequence[Event[Any]]], None]
    send_to_leader: SendToLeader
    backoff: Backoff
    tasks: Tasks


class CoordinatorPartition(Generic[M]):
    """Drives the coordinator of one partition, in one leader epoch. Made anew for the next.

    Args:
        partition: led by this broker.
        coordinator: empty.
    """

    def __init__(self, partition: Partition, coordinator: M, kind: CoordinatorKind, host: CoordinatorHost) -> None:
        self.partition = partition
        self.coordinator = coordinator
        """To look at, for metrics."""
        self.refusal: KafkaError | None = refusal(
            Code.COORDINATOR_LOAD_IN_PROGRESS, f"{partition.topic_partition} is being loaded; try again"
        )
        """Why nobody is served; None when everybody is."""
        self.syncing_events: asyncio.Task[None] | None = None
        """Syncs what the last synced event wrote; None before there was any."""
        self._kind = kind
        self._logger = kind.logger
        self._host = host
        self._clock = host.clock
        self._config = partition.log.config
        coordinator.batch_size_bytes_max = self._config.batch_size_bytes_max
        self._is_over = False
        self._pending_events: list[
            Event[M]
        ] = []  # events that it was not told of, or whose records the log has not taken
        self._last_request_id = 0
        self._current_request_id = 0  # the request that is being asked just now, and its answer if there is one already
        self._answer: object = None
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._sends = RetriedSends(
            host.send_to_leader,
            host.backoff,
            host.tasks,
            logger=kind.logger,
            on_done=self._on_sent,
            on_bug=self._on_bug,
        )
        self._end_offset = Offset(0)  # up to here the coordinator knows the log
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._replay = LogReplay(partition.log, coordinator, executor=host.executor, loading=host.loading)
        self._is_processing = False
        self._is_notified = False  # of a high watermark, and about to look
        self._changed = asyncio.Event()  # while it is loaded

    # Loading.

    def start(self, *first: Event[M]) -> None:
        """Replay the log, then serve. A log without records takes no time.

        Args:
            first: what the machine is told of before it serves anybody, with all that happens while it loads.
        """
        self._pending_events += first
        log = self.partition.log
        if (
            log.log_start_offset == log.log_end_offset
            and self._host.has_room(self.partition)
            and self._is_all_committed
        ):
            self._serve()
        else:
            self._host.tasks.start(self._replay_all(), on_bug=self._refuse_all)

    async def _replay_all(self) -> None:
        while not self._is_over and not self._host.has_room(self.partition):
            await asyncio.sleep(ROOM_CHECK_SECONDS)
        started_ms = self._clock.now_ms()
        try:
            offset = await self._replay.run()
            await self._wait_for_commit()
            if self._is_over:
                return
            self._serve()
        except TidelogError as error:
            self._refuse_all(error)
        else:
            self._logger.info(
                "%s: the %ss up to offset %d are loaded, in %d ms",
                *(self.partition.topic_partition, self._kind.noun, offset, self._clock.now_ms() - started_ms),
            )

    @property
    def _is_all_committed(self) -> bool:
        replica = self.partition.replica
        return replica is not None and replica.high_watermark_is_known

    async def _wait_for_commit(self) -> None:
        """What is answered from must not be taken back by the next leader."""
        while not self._is_over and not self._is_all_committed:
            self._changed.clear()
            self.partition.listeners.add(self)
            await self._changed.wait()

    def _refuse_all(self, error: Exception) -> None:
        """Half of what a coordinator knows would be worse than none: it would answer wrongly, without a word."""
        if self._is_over:
            return
        log, noun = self.partition.log, self._kind.noun
        why = (
            f"{self.partition.topic_partition} cannot be read, so the {noun}s on it have no coordinator: {error}. "
            f"Stop this node and put back a copy of {log.directory} that is whole; or move it away, and "
            f"{self._kind.loss}"
        )
        self._pending_events.clear()
        self.refusal = refusal(Code.COORDINATOR_NOT_AVAILABLE, why)
        self._logger.error("%s", why)

    def _serve(self) -> None:
        replica = self.partition.replica
        invariant(replica is not None, "{} is not led here", self.partition.topic_partition)
        assert replica is not None
        self._end_offset = self.partition.log.log_end_offset
        self.coordinator.become_active(
            replica.leader_epoch,
            self._end_offset,
            now_ms=self._clock.now_ms(),
            wall_ms=self._clock.wall_ms(),
        )
        self.refusal = None
        self.partition.listeners.add(self)
        self._step(_nothing)  # what becoming active left to do
        self._notify_pending_events()

    # What happened.

    def submit(self, command: Command[M], check: ProducerCheck | None = None) -> object:
        """Hand a request to the coordinator.

        Args:
            check: of the producer that it is about; nothing is appended in between.

        Returns:
            The answer, which may be a `KafkaError`; or a future of it, where it has to wait. Who loses interest in the
            future cancels it.
        """
        refused = self.refusal or self._cut_off
        if refused is not None:
            return refused
        if check is not None:
            try:
                check(self.partition.log.producers)
            except KafkaError as error:
                return error
        self._last_request_id += 1
        request_id = self._current_request_id = RequestId(self._last_request_id)
        self._step(lambda coordinator, now_ms, wall_ms: command(coordinator, request_id, now_ms, wall_ms))
        answer, self._current_request_id, self._answer = self._answer, 0, None
        if answer is not None:
            return answer
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        future.add_done_callback(partial(self._on_done, request_id))
        return future

    def _on_done(self, request_id: RequestId, future: asyncio.Future[object]) -> None:
        if future.cancelled() and self._waiting.pop(request_id, None) is not None and self.refusal is None:
            self._step(partial(_disconnect, (request_id,)))

    @property
    def _cut_off(self) -> KafkaError | None:
        """Why nobody is served while nothing can be committed here: another broker may know better by now."""
        replica = self.partition.replica
        if replica is None or not (replica.silence.is_cut_off or replica.silence.may_be_succeeded):
            return None
        return refusal(
            Code.NOT_COORDINATOR,
            f"{self.partition.topic_partition}: followers have not fetched for broker.session.timeout.ms, so this "
            "broker commits nothing; another one may coordinate by now",
        )

    def _refuse_waiting(self, error: KafkaError) -> None:
        """What they asked for may be committed yet; they ask again, here or elsewhere."""
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_result(error)
        if waiting:
            self._step(partial(_disconnect, [RequestId(one) for one in waiting]))

    def _on_sent(self, send_id: SendId, outcome: object) -> None:
        self._step(
            lambda coordinator, now_ms, wall_ms: coordinator.on_sent(send_id, outcome, now_ms=now_ms, wall_ms=wall_ms)
        )

    def notify(self, event: Event[M]) -> None:
        """Apply an event to the coordinator, or, while it loads, once it has. What it writes is synced soon.

        A loss of power must not take back what is told here: it is not told twice. `syncing_events` ends after that.
        """
        if self.refusal is None or self.refusal.code == Code.COORDINATOR_LOAD_IN_PROGRESS:
            self._pending_events.append(event)
        if self.refusal is None:
            self._notify_pending_events()

    def _notify_pending_events(self) -> None:
        while self._pending_events and not self._is_over:
            end_offset = self._end_offset
            self._step(self._pending_events[0])
            if self._is_over:
                break
            del self._pending_events[0]
            if self._end_offset != end_offset:
                self.syncing_events = self._host.tasks.start(self._sync_event(), on_bug=self._on_bug)

    async def _sync_event(self) -> None:
        try:
            async with self.partition.log_lock:
                await self._host.executor.run(self.partition.log.flush)
        except DiskError as error:
            self._host.on_disk_error(self.partition, error)

    def _on_bug(self, error: Exception) -> None:
        """Of a task: the partition goes offline."""
        self._host.on_bug(self.partition, InvariantBrokenError(repr(error)))

    def on_changed(self) -> None:
        """The high watermark moved, this leader is cut off, or the leadership ended; the partition tells once."""
        self._changed.set()
        if self._is_over or self.refusal is not None:
            return
        self.partition.listeners.add(self)
        if not self._is_processing and not self._is_notified:
            self._is_notified = True
            asyncio.get_running_loop().call_soon(self._on_high_watermark)

    def _on_high_watermark(self) -> None:
        self._is_notified = False
        if self._is_over:
            return
        self._step(_nothing)
        cut_off = None if self._is_over else self._cut_off
        if cut_off is not None:
            self._refuse_waiting(cut_off)

    def stop(self) -> None:
        """This broker leads the partition no more, or its log failed: whoever waits is sent elsewhere."""
        self._is_over = self._replay.is_over = True
        self._changed.set()
        self.partition.listeners.remove(self)
        is_serving = self.refusal is None
        self.refusal = refusal(Code.NOT_COORDINATOR, f"this broker does not lead {self.partition.topic_partition}")
        if self._timer is not None:
            self._timer.cancel()
        self._sends.stop()
        if is_serving:
            self.coordinator.resign()
            self._answer_all(self.coordinator.take_ready().answers)
        for future in self._waiting.values():
            if not future.done():
                future.set_result(self.refusal)
        self._waiting.clear()
        if self._current_request_id and self._answer is None:
            self._answer = self.refusal

    # What to do about it.

    def _step(self, event: Event[M]) -> None:
        """Apply one event to the machine, and carry out what it then has ready.

        Raises:
            InvariantBrokenError: a bug; the partition is offline.
        """
        try:
            if self.partition.log.log_end_offset != self._end_offset and not self._take_in_what_others_wrote():
                return
            if self.partition.log.config is not self._config:
                self._config = config = self.partition.log.config
                self.coordinator.batch_size_bytes_max = config.batch_size_bytes_max
            event(self.coordinator, self._clock.now_ms(), self._clock.wall_ms())
            self._process_ready()
        except Exception as error:
            # Whatever it was, the coordinator may now be ahead of its log.
            broken = error if isinstance(error, InvariantBrokenError) else InvariantBrokenError(repr(error))
            self._host.on_bug(self.partition, broken)
            raise

    def _take_in_what_others_wrote(self) -> bool:
        """A tool wrote to the log beside us (as Kafka lets its admin client do). Returns whether we can go on."""
        end_offset = self.partition.log.log_end_offset
        if self.partition.high_watermark < end_offset:
            self._load_anew(CorruptLogError(f"somebody else wrote up to offset {end_offset}"))
            return False
        self._end_offset = end_offset
        self.coordinator.on_committed(end_offset)
        return True

    def _process_ready(self) -> None:
        self._is_processing = True
        try:
            self._process_all_ready()
        finally:
            self._is_processing = False

    def _process_all_ready(self) -> None:
        coordinator = self.coordinator
        coordinator.on_committed(self.partition.high_watermark)
        while not self._is_over:
            ready = coordinator.take_ready()
            if not ready.batches:
                self._deliver(ready)
                break
            try:
                for batch in ready.batches:
                    self._append(batch)
            except DiskError as error:
                self._host.on_disk_error(self.partition, error)
                if not self._is_over:
                    self._load_anew(error)
                return
            except KafkaError as error:
                self._load_anew(error)
                return
            self._deliver(ready)
            coordinator.on_committed(self.partition.high_watermark)
        if not self._is_over:
            self._reschedule_timer()

    def _load_anew(self, error: TidelogError) -> None:
        """The log did not take what the coordinator decided. This ends in `stop`, and so answers everybody."""
        self._logger.error(
            "%s: the %ss on it are loaded anew: %s", self.partition.topic_partition, self._kind.noun, error
        )
        self._host.on_refused(self.partition, self._pending_events)
        invariant(self._is_over, "{} refused a batch and served on", self.partition.topic_partition)

    def _append(self, batch: Batch[KeyValue]) -> None:
        now_ms = self._clock.wall_ms()
        transaction = batch.transaction
        if transaction is None:
            builder = BatchBuilder()
        else:  # without sequence numbers, as Kafka's coordinators
            builder = BatchBuilder(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transactional=True,
                control=transaction.end is not None,
            )
        for key, value in batch.records:
            builder.append(now_ms, key, value)
        data = memoryview(bytearray(builder.build()))
        appended = self.partition.append_as_coordinator(data, leader_epoch=batch.leader_epoch, now_ms=now_ms)
        invariant(
            appended.first_offset == batch.base_offset, "batch {} lies at {}", batch.base_offset, appended.first_offset
        )
        self._end_offset = Offset(appended.last_offset + 1)

    def _deliver(self, ready: CoordinatorReady) -> None:
        self._answer_all(ready.answers)
        for send in ready.sends:
            self._sends.start(send)

    def _answer_all(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            if answer.request_id == self._current_request_id:
                self._answer = answer.outcome
                continue
            future = self._waiting.pop(answer.request_id, None)
            if future is not None and not future.done():
                future.set_result(answer.outcome)

    def _reschedule_timer(self) -> None:
        deadline_ms = self.coordinator.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return  # one that goes off too early looks again: heartbeats move deadlines all the time
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_seconds = max((deadline_ms - self._clock.now_ms()) / 1000, TIMER_SECONDS_MIN)
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self.on_timer)

    def on_timer(self) -> None:
        """Look whether something is due. May be called at any time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._is_over:
            self._step(lambda coordinator, now_ms, wall_ms: coordinator.on_time(now_ms=now_ms, wall_ms=wall_ms))


def _nothing(coordinator: CoordinatorMachine, now_ms: int, wall_ms: int) -> None:
    """What is committed by now is looked at anyway."""


def _disconnect(request_ids: Iterable[RequestId], coordinator: CoordinatorMachine, now_ms: int, wall_ms: int) -> None:
    for request_id in request_ids:
        coordinator.on_disconnected(request_id, now_ms=now_ms, wall_ms=wall_ms)
