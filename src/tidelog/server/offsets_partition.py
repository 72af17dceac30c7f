"""One partition of `__consumer_offsets` that this broker leads: the coordinator on it, fed, driven and written down.

```
    lead ──► loading ──► serving ──► over          loading reads the log off the loop, a piece at a time
                │            │
                └─ damaged ◄─┘                     serves nobody; the log says what to do; the others go on
```
What was decided is answered once all in sync have it. A new leader serves once it knows that of all that it loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial

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
from tidelog.coordinator import Answer, EncodedBatch, GroupCoordinator, RequestId
from tidelog.log import LogSlice, NotCachedError, without_waiting
from tidelog.records import BatchBuilder, ControlType, check_crc, read_records, split_batches
from tidelog.records.control import read_control_type
from tidelog.server.partition import Partition

logger = logging.getLogger("tidelog.server.groups")

READ_SIZE_BYTES_MAX = 256 << 10
"""Of the log, replayed in one go: some ten milliseconds of a thread, in which the loop has its turns."""

LOOK_UPS_MAX = 8
"""How often a place is looked up without waiting for the disk; then it waits."""

TIMER_SECONDS_MIN = 0.001
ROOM_CHECK_SECONDS = 0.5

Tell = Callable[[GroupCoordinator, RequestId, int, int], None]
"""Tells a coordinator of a request: the coordinator, the request's id, `now_ms`, `wall_ms`."""


class OffsetsPartition:
    """Drives the coordinator of one partition, in one leader epoch. Made anew for the next.

    Args:
        partition: led by this broker.
        coordinator: empty.
        loading: held while a piece of a log is replayed, so that many partitions do not compete with the loop.
        has_room: whether the disk is not known to be full. While it is, nothing is loaded: the first commit would find
            that out, and have everything loaded anew.
        on_disk_error: told when the log cannot be written; takes it offline, unless the disk is merely full.
        on_bug: told when what must hold does not.
        on_refused: told when the log takes a batch not, by its settings or for want of room: the coordinator is ahead
            of it, and has to be loaded anew.
    """

    def __init__(
        self,
        partition: Partition,
        coordinator: GroupCoordinator,
        *,
        clock: Clock,
        executor: Executor,
        loading: asyncio.Lock,
        has_room: Callable[[], bool],
        on_disk_error: Callable[[Partition, DiskError], None],
        on_bug: Callable[[Partition, InvariantBrokenError], None],
        on_refused: Callable[[Partition], None],
    ) -> None:
        self.partition = partition
        self.refusal: KafkaError | None = refusal(
            Code.COORDINATOR_LOAD_IN_PROGRESS, f"{partition.topic_partition} is being loaded; try again"
        )
        """Why nobody is served; None when everybody is."""
        self._coordinator = coordinator
        self._clock = clock
        self._executor = executor
        self._loading = loading
        self._has_room = has_room
        self._on_disk_error = on_disk_error
        self._on_bug = on_bug
        self._on_refused = on_refused
        self._config = partition.log.config
        self._is_over = False
        self._deleted_topics: set[str] = set()  # while it was loading
        self._last_request_id = 0
        self._asking = 0  # the request that is being asked just now, and its answer if there is one already
        self._answer: object = None
        self._waiting: dict[int, asyncio.Future[object]] = {}
        self._end_offset = Offset(0)  # up to here the coordinator knows the log
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._syncing: asyncio.Task[None] | None = None
        self.forgetting: asyncio.Task[None] | None = None
        """Syncs what forgets the offsets of deleted topics; None before there was any."""
        self._load: asyncio.Task[None] | None = None
        self._is_carrying_out = False
        self._is_told = False  # of a high watermark, and about to look
        self._news = asyncio.Event()  # while it is loaded

    @property
    def coordinator(self) -> GroupCoordinator:
        """To look at, for whoever counts."""
        return self._coordinator

    # Loading.

    def start(self, gone: Callable[[Iterable[str]], Collection[str]]) -> None:
        """Replay the log, then serve. A log without records takes no time.

        Args:
            gone: of some topics, those that are no more.
        """
        log = self.partition.log
        if log.log_start_offset == log.log_end_offset and self._has_room() and self._is_all_committed:
            self._serve(gone)
        else:
            self._load = asyncio.get_running_loop().create_task(self._replay_all(gone))

    async def _replay_all(self, gone: Callable[[Iterable[str]], Collection[str]]) -> None:
        while not self._is_over and not self._has_room():
            await asyncio.sleep(ROOM_CHECK_SECONDS)
        log = self.partition.log
        started_ms = self._clock.now_ms()
        offset = log.log_start_offset
        try:
            while offset < log.log_end_offset:
                async with self._loading:
                    if self._is_over:
                        return
                    found = await self._find(offset)
                    if not len(found):
                        break
                    offset = await self._executor.run(partial(self._replay, found))
            await self._executor.run(self._coordinator.restore)
            await self._wait_for_commit()
            if self._is_over:
                return
            self._serve(gone)
        except TidelogError as error:
            if not self._is_over:
                self._refuse_all(error)
        except Exception as error:
            logger.exception("%s: a bug in Tidelog while it was loaded", self.partition.topic_partition)
            if not self._is_over:
                self._refuse_all(error)
        else:
            logger.info(
                "%s: the groups up to offset %d are loaded, in %d ms",
                *(self.partition.topic_partition, offset, self._clock.now_ms() - started_ms),
            )

    @property
    def _is_all_committed(self) -> bool:
        replica = self.partition.replica
        return replica is not None and replica.high_watermark_is_known

    async def _wait_for_commit(self) -> None:
        """What is answered from must not be taken back by the next leader."""
        while not self._is_over and not self._is_all_committed:
            self._news.clear()
            self.partition.watch(self)
            await self._news.wait()

    async def _find(self, offset: Offset) -> LogSlice:
        """What lies from `offset` on, or from where the log starts by now. To look it up must not wait for the disk on
        the loop.
        """
        log = self.partition.log

        def look_up() -> LogSlice:
            start_offset = max(offset, log.log_start_offset)
            return log.read(start_offset, size_bytes_max=READ_SIZE_BYTES_MAX, end_offset=log.log_end_offset)

        for _ in range(LOOK_UPS_MAX):
            try:
                return without_waiting(look_up)
            except NotCachedError as missing:
                await self._executor.run(missing.fetch)
        return look_up()

    def _replay(self, found: LogSlice) -> Offset:
        """Take a piece of the log in, on a thread: nobody else knows the coordinator yet. Returns where to go on."""
        data = found.read_all()
        offset = found.first_offset
        replay = self._coordinator.replay
        try:
            for position, header in split_batches(data):
                offset = Offset(header.base_offset)
                check_crc(data, position, header)  # after a clean stop nobody else looked at it
                transaction_of = header.producer_id if header.is_transactional else None
                for record in read_records(data, position, header):
                    offset = Offset(record.offset)
                    if not header.is_control:
                        replay(record.key, record.value, offset, transaction_of=transaction_of)
                    elif transaction_of is not None:
                        is_committed = read_control_type(record.key) is ControlType.COMMIT
                        self._coordinator.replay_end(transaction_of, is_committed=is_committed)
                offset = Offset(header.next_offset)
        except KafkaError as error:  # of a batch; a record's own names its offset
            raise CorruptLogError(f"at offset {offset}: {error}") from error
        return offset

    def _refuse_all(self, error: Exception) -> None:
        """Half of what the groups know would be worse than none: they would read again, or skip, without a word."""
        log = self.partition.log
        why = (
            f"{self.partition.topic_partition} cannot be read, so the groups on it have no coordinator: {error}. "
            f"Stop this node and put back a copy of {log.directory} that is whole; or move it away, and these groups "
            "start where their auto.offset.reset says"
        )
        self.refusal = refusal(Code.COORDINATOR_NOT_AVAILABLE, why)
        logger.error("%s", why)

    def _serve(self, gone: Callable[[Iterable[str]], Collection[str]]) -> None:
        replica = self.partition.replica
        invariant(replica is not None, "{} is not led here", self.partition.topic_partition)
        assert replica is not None
        self._end_offset = self.partition.log.log_end_offset
        self._coordinator.become_active(
            replica.leader_epoch,
            self._end_offset,
            now_ms=self._clock.now_ms(),
            wall_ms=self._clock.wall_ms(),
        )
        self.refusal = None
        self.partition.watch(self)
        self.on_topics_deleted(self._deleted_topics.union(gone(self._coordinator.topics)))
        self._mind_timer()

    # What happened.

    def ask(self, tell: Tell) -> object:
        """Tell the coordinator of a request.

        Returns:
            The answer, which may be a `KafkaError`; or a future of it, where it has to wait. Who loses interest in the
            future cancels it.
        """
        if self.refusal is not None:
            return self.refusal
        self._last_request_id += 1
        request_id = self._asking = RequestId(self._last_request_id)
        self._tell(lambda coordinator, now_ms, wall_ms: tell(coordinator, request_id, now_ms, wall_ms))
        answer, self._asking, self._answer = self._answer, 0, None
        if answer is not None:
            return answer
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        future.add_done_callback(partial(self._on_done, request_id))
        return future

    def _on_done(self, request_id: RequestId, future: asyncio.Future[object]) -> None:
        if future.cancelled() and self._waiting.pop(request_id, None) is not None and self.refusal is None:
            self._tell(
                lambda coordinator, now_ms, wall_ms: coordinator.on_disconnected(
                    request_id, now_ms=now_ms, wall_ms=wall_ms
                )
            )

    def on_topics_deleted(self, topics: Collection[str]) -> None:
        """Offsets in topics that are no more are no use, and would be wrong for topics of the same name."""
        if self.refusal is not None:
            self._deleted_topics.update(topics)
        elif topics:
            end_offset = self._end_offset
            self._tell(
                lambda coordinator, now_ms, wall_ms: coordinator.on_topics_deleted(
                    topics, now_ms=now_ms, wall_ms=wall_ms
                )
            )
            if self._end_offset != end_offset and not self._is_over:
                self.forgetting = asyncio.get_running_loop().create_task(self._sync_forgotten())

    async def _sync_forgotten(self) -> None:
        """A loss of power must not give the next topic of that name the offsets of this one."""
        try:
            async with self.partition.log_lock:
                await self._executor.run(self.partition.log.flush)
        except DiskError as error:
            self._on_disk_error(self.partition, error)

    def on_changed(self) -> None:
        """The high watermark moved, or the leadership ended; the partition tells once."""
        self._news.set()
        if self._is_over or self.refusal is not None:
            return
        self.partition.watch(self)
        if not self._is_carrying_out and not self._is_told:
            self._is_told = True
            asyncio.get_running_loop().call_soon(self._on_high_watermark)

    def _on_high_watermark(self) -> None:
        self._is_told = False
        if not self._is_over:
            self._tell(_nothing)

    def stop(self) -> None:
        """This broker leads the partition no more, or its log failed: whoever waits is sent elsewhere."""
        self._is_over = True
        self._news.set()
        self.partition.unwatch(self)
        is_serving = self.refusal is None
        self.refusal = refusal(Code.NOT_COORDINATOR, f"this broker does not lead {self.partition.topic_partition}")
        if self._timer is not None:
            self._timer.cancel()
        if is_serving:
            self._coordinator.resign()
            self._deliver(self._coordinator.take_ready().answers)
        for future in self._waiting.values():
            if not future.done():
                future.set_result(self.refusal)
        self._waiting.clear()
        if self._asking and self._answer is None:
            self._answer = self.refusal

    # What to do about it.

    def _tell(self, tell: Callable[[GroupCoordinator, int, int], None]) -> None:
        """Tell it something, and do what it then owes the world.

        Raises:
            InvariantBrokenError: a bug; the partition is offline.
        """
        try:
            if self.partition.log.log_end_offset != self._end_offset and not self._take_in_what_others_wrote():
                return
            if self.partition.log.config is not self._config:
                self._config = config = self.partition.log.config
                settings = self._coordinator.settings
                self._coordinator.settings = replace(settings, batch_size_bytes_max=config.batch_size_bytes_max)
            tell(self._coordinator, self._clock.now_ms(), self._clock.wall_ms())
            self._carry_out()
        except Exception as error:
            # Whatever it was, the coordinator may now be ahead of its log.
            broken = error if isinstance(error, InvariantBrokenError) else InvariantBrokenError(repr(error))
            self._on_bug(self.partition, broken)
            raise

    def _take_in_what_others_wrote(self) -> bool:
        """A tool wrote to the log beside us (as Kafka lets its admin client do). Returns whether we can go on."""
        end_offset = self.partition.log.log_end_offset
        if self.partition.high_watermark < end_offset:
            self._load_anew(CorruptLogError(f"somebody else wrote up to offset {end_offset}"))
            return False
        self._end_offset = end_offset
        self._coordinator.on_committed(end_offset)
        return True

    def _carry_out(self) -> None:
        self._is_carrying_out = True
        try:
            self._carry_out_all()
        finally:
            self._is_carrying_out = False

    def _carry_out_all(self) -> None:
        coordinator = self._coordinator
        self._commit()
        while not self._is_over:
            ready = coordinator.take_ready()
            if not ready.batches:
                self._deliver(ready.answers)
                break
            try:
                for batch in ready.batches:
                    self._append(batch)
            except DiskError as error:
                self._on_disk_error(self.partition, error)
                if not self._is_over:
                    self._load_anew(error)
                return
            except KafkaError as error:
                self._load_anew(error)
                return
            self._deliver(ready.answers)
            self._commit()
        if not self._is_over:
            self._mind_timer()

    def _commit(self) -> None:
        """What all in sync have is committed; once it is synced, where the topic asks for that."""
        if self._syncing is not None or self.partition.is_sync_awaited:
            self._sync_later()
        else:
            self._coordinator.on_committed(self.partition.high_watermark)

    def _load_anew(self, error: TidelogError) -> None:
        """The log did not take what the coordinator decided. This ends in `stop`, and so answers everybody."""
        logger.error("%s: the groups on it are loaded anew: %s", self.partition.topic_partition, error)
        self._on_refused(self.partition)
        invariant(self._is_over, "{} refused a batch and served on", self.partition.topic_partition)

    def _append(self, batch: EncodedBatch) -> None:
        now_ms = self._clock.wall_ms()
        builder = BatchBuilder()
        for key, value in batch.records:
            builder.append(now_ms, key, value)
        data = memoryview(bytearray(builder.build()))
        appended = self.partition.append_as_coordinator(data, leader_epoch=batch.leader_epoch, now_ms=now_ms)
        invariant(
            appended.first_offset == batch.base_offset, "batch {} lies at {}", batch.base_offset, appended.first_offset
        )
        self._end_offset = Offset(appended.last_offset + 1)

    def _deliver(self, answers: Iterable[Answer]) -> None:
        for answer in answers:
            if answer.request_id == self._asking:
                self._answer = answer.outcome
                continue
            future = self._waiting.pop(answer.request_id, None)
            if future is not None and not future.done():
                future.set_result(answer.outcome)

    def _sync_later(self) -> None:
        """The topic asks for records to be on the disk before they are acknowledged (`flush.messages`)."""
        if self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync())

    async def _sync(self) -> None:
        synced_offset = Offset(0)
        try:
            while not self._is_over and synced_offset < self.partition.high_watermark:
                end_offset = self.partition.high_watermark
                async with self.partition.log_lock:
                    await self._executor.run(self.partition.log.flush)
                synced_offset = end_offset
                if not self._is_over:
                    self._tell(partial(_commit, end_offset))
        except DiskError as error:
            self._on_disk_error(self.partition, error)
        finally:
            self._syncing = None

    def _mind_timer(self) -> None:
        deadline_ms = self._coordinator.next_deadline_ms()
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
            self._tell(lambda coordinator, now_ms, wall_ms: coordinator.on_time(now_ms=now_ms, wall_ms=wall_ms))


def _nothing(coordinator: GroupCoordinator, now_ms: int, wall_ms: int) -> None:
    """What is committed by now is looked at anyway."""


def _commit(end_offset: Offset, coordinator: GroupCoordinator, now_ms: int, wall_ms: int) -> None:
    coordinator.on_committed(end_offset)
