"""Drives the follower's machine of one partition, in one leader epoch: what it says is owed, in its order.

```
 an answer comes ──► append, on the loop ──► lineage, log start ──► high watermark published ──► the next request
                 ├──► the next request ──► append, a few turns of the loop later: where it may fetch ahead
                 ├──► note a new leader epoch, off the loop, with those of other partitions ──► append
                 └──► truncate, off the loop: until that is done nothing else touches the log, and nothing is sent
```
What the leader answers before the append is done waits for that.

Kafka: `ReplicaFetcherThread`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.base.errors import (
    Code,
    CorruptLogError,
    DiskError,
    InvariantBrokenError,
    KafkaError,
    OffsetOutOfRangeError,
)
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Buffer
from tidelog.log.follower_append import append_fetched, unwritten_epochs
from tidelog.records import split_whole_batches
from tidelog.records.lineage import EpochEntry
from tidelog.replica import FetchOutcome, FollowerReady, FollowerReplica, FollowerRequest, Halt, Truncation
from tidelog.server.replication.role import PartitionRole
from tidelog.server.storage.disk_health import is_passing

if TYPE_CHECKING:
    from tidelog.server.replication.partition import Partition

logger = logging.getLogger("tidelog.server.replication")

BACKOFF_FIRST_MS = 20
"""After the first refusal in a row; each further one doubles it, up to `replica.fetch.backoff.ms`. Leader and followers
hear of an election at different times, mostly a few milliseconds apart."""


class TruncatedRecords(NamedTuple):
    """What a truncation removes, in offsets.

    Attributes:
        committed: below the high watermark of this replica: they are lost.
        unknown: above it, and removed by an unclean election: nobody here knows which of them were acknowledged.
        uncommitted: the rest, which nobody was promised.
    """

    committed: int = 0
    unknown: int = 0
    uncommitted: int = 0


class LostOffsets(NamedTuple):
    """What a truncation removes that somebody may have been promised.

    Attributes:
        start_offset: None where nothing was compared.
        end_offset: exclusive.
        high_watermark: of this replica: below it all is committed; None where it does not reach up to what goes.
        unclean_epoch: the newest leader epoch from which on a leader may lack what was committed.
    """

    start_offset: Offset | None
    end_offset: Offset
    high_watermark: Offset | None
    first_epoch: LeaderEpoch | None
    last_epoch: LeaderEpoch | None
    unclean_epoch: LeaderEpoch


class FollowingHost(Protocol):
    """The broker, as far as a partition that follows needs it."""

    @property
    def backoff_ms_max(self) -> int: ...

    def now_ms(self) -> int: ...

    def wall_ms(self) -> int: ...

    def due_at(self, who: FollowerDriver, due_ms: int) -> None:
        """Call `on_due` then, or a little later."""
        ...

    def send(self, following: FollowerDriver, request: FollowerRequest) -> None:
        """Send a request to the leader; its answer comes to one of the `on_…` below, if any does."""
        ...

    def forget(self, following: FollowerDriver) -> None:
        """Nothing more is to be sent for it."""
        ...

    def write_soon(self, following: FollowerDriver) -> None:
        """Call `write` once what was sent last has left, or a little later."""
        ...

    def on_truncating(self, counts: TruncatedRecords) -> None:
        """So many records are about to be removed from the end of a log."""
        ...

    def start(self, partition: Partition, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task that the host keeps; a bug of it is one of the partition."""
        ...

    async def truncate(self, partition: Partition, truncation: Truncation, lost: LostOffsets | None = None) -> None:
        """Truncate, off the loop, and note what is lost; outlasts a loss of power.

        Raises CorruptLogError, DiskError.
        """
        ...

    async def note_leader_epochs(self, partition: Partition, entries: Sequence[EpochEntry]) -> None:
        """Return once the lineage of its log says where these begin; outlasts a loss of power. Raises DiskError."""
        ...

    async def flush(self, partition: Partition) -> None:
        """Return once all that was appended is synced. Raises DiskError."""
        ...

    def on_log_failed(self, partition: Partition, error: CorruptLogError | DiskError) -> None:
        """The log cannot be written: it goes offline, unless the disk is merely full."""
        ...

    def on_bug(self, partition: Partition, error: InvariantBrokenError) -> None:
        """What must hold does not: the partition is to stop."""
        ...


class FollowerDriver(PartitionRole):
    """See the module.

    Attributes:
        replica: the machine.
        log_task: the truncation under way, which is to be waited for before the log is given to anybody else.
    """

    __slots__ = (
        "_deferred",
        "_due_ms",
        "_failures",
        "_host",
        "_is_stopped",
        "_records",
        "_records_epoch",
        "_refused_truncation",
        "_retry_ms",
        "_unwritten",
        "log_task",
        "partition",
        "replica",
    )

    is_active = True

    def __init__(self, partition: Partition, replica: FollowerReplica, host: FollowingHost) -> None:
        """Do nothing until `run`."""
        super().__init__(partition.topic_partition, partition.high_watermark, replica.leader_epoch)
        self.partition = partition
        self.replica = replica
        self.log_task: asyncio.Task[None] | None = None
        self._host = host
        self._records: Buffer = b""
        self._records_epoch: int | None = None  # of the last batch
        self._unwritten: FollowerReady | None = None  # what is owed but for what was asked ahead: see `write`
        self._deferred: deque[Callable[[FollowerReplica, int], None]] = deque()  # answers, until the append is done
        self._failures = 0
        self._due_ms: int | None = None
        self._retry_ms: int | None = None  # what the disk refused for now: to append, or to truncate
        self._refused_truncation: tuple[Truncation, LostOffsets | None] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Another epoch, or no replica here any more. A truncation that is under way ends by itself: see `log_task`."""
        self._is_stopped = True
        self.replica.on_stopped()
        self._records, self._unwritten = b"", None
        self._deferred.clear()
        self._host.forget(self)

    def check_serves(self, sent_leader_epoch: int) -> None:
        """See `Partition.check_serves`."""
        self.replica.check_serves(None if sent_leader_epoch < 0 else LeaderEpoch(sent_leader_epoch))

    def diverging(self, last_fetched_epoch: LeaderEpoch, fetch_offset: int) -> tuple[LeaderEpoch, Offset] | None:
        """See `Partition.diverging`.

        A follower that serves has a prefix of its leader's log: it knows where an epoch ends that another one
        succeeds. Where the latest epoch ends, the leader alone knows: a follower calls no such position diverging.
        """
        log = self.partition.log
        known = log.lineage.end_offset_for(last_fetched_epoch, log.log_end_offset)
        if known is None or (known[0] == log.lineage.latest_leader_epoch and fetch_offset > log.log_end_offset):
            start, end = log.log_start_offset, log.log_end_offset
            name = self.partition.topic_partition
            raise OffsetOutOfRangeError(name, offset=fetch_offset, log_start_offset=start, end_offset=end)
        return known if known[0] < last_fetched_epoch or known[1] < fetch_offset else None

    def _move_high_watermark(self, high_watermark: Offset) -> None:
        if high_watermark != self._high_watermark:
            self._high_watermark = high_watermark
            self.partition.on_high_watermark(high_watermark)

    # What the leader said.

    def on_fetched(
        self,
        number: int,
        *,
        records: Buffer = b"",
        high_watermark: int | None = None,
        log_start_offset: int | None = None,
        diverging: EpochEntry | None = None,
    ) -> bool:
        """Records, or none yet; or that our log is no prefix of the leader's.

        Returns whether records are yet to be written: see `FollowingHost.write_soon`.
        """
        try:
            end_offset, last_leader_epoch = _end_of(records)
        except KafkaError as error:
            self._log_damage(error)
            self.on_unanswered(number)
            return False
        fetched = FetchOutcome(
            end_offset,
            None if high_watermark is None else Offset(high_watermark),
            None if log_start_offset is None else Offset(log_start_offset),
            diverging,
            last_leader_epoch,
        )

        def event(replica: FollowerReplica, now_ms: int) -> None:
            self._failures = 0
            self._records, self._records_epoch = records, last_leader_epoch
            replica.on_fetched(number, fetched, now_ms)

        self._on_answer(event)
        return self.replica.is_appending

    def on_epoch_end(self, number: int, end: tuple[LeaderEpoch, Offset] | None) -> None:
        """Where an epoch ends; None where the leader does not know it."""
        self._on_answer(lambda replica, now_ms: replica.on_epoch_end(number, end, now_ms))

    def on_log_start(self, number: int, log_start_offset: int) -> None:
        """Where the leader's log starts."""
        self._on_answer(lambda replica, now_ms: replica.on_log_start(number, Offset(log_start_offset), now_ms))

    def on_refused(self, number: int, code: Code) -> None:
        """That it does not answer, and why."""
        self._on_answer(lambda replica, now_ms: replica.on_refused(number, code, now_ms))

    def on_unanswered(self, number: int) -> None:
        """The leader did not answer: the machine retries after its back-off."""
        self._on_answer(lambda replica, now_ms: replica.on_unanswered(number, now_ms))

    def _on_answer(self, event: Callable[[FollowerReplica, int], None]) -> None:
        """Apply an answer, or defer it: the machine is told of none before it has what came with the last one."""
        if not self.replica.is_appending:
            self._step(event)
        elif not self._is_stopped:
            self._deferred.append(event)

    def _step(self, event: Callable[[FollowerReplica, int], None]) -> None:
        """Apply one event to the machine, and carry out what it then has ready; nothing after `stop`."""
        if self._is_stopped:
            return
        try:
            event(self.replica, self._host.now_ms())
            self._process_ready()
        except InvariantBrokenError as error:
            self._host.on_bug(self.partition, error)
        if self._deferred and not self.replica.is_appending:
            self._step(self._deferred.popleft())

    # Time.

    def on_due(self, now_ms: int) -> None:
        """A deadline may be over: retry the append or the truncation, or let the machine retry its request."""
        if self._is_stopped or self._due_ms is None or now_ms < self._due_ms:
            return
        self._due_ms = None
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
            refused, self._refused_truncation = self._refused_truncation, None
            if refused is not None:
                self.log_task = self._host.start(self.partition, self._truncate_log(*refused))
                return
            self._step(self._notify_appended)  # nothing: it is fetched once more
        self._step(lambda replica, now_ms: replica.on_tick(now_ms))

    def _notify_appended(self, replica: FollowerReplica, now_ms: int) -> None:
        replica.on_appended(self.partition.log.log_end_offset)

    def _reschedule_deadlines(self) -> None:
        if self._due_ms is not None:
            return
        if self._retry_ms is not None:
            self._due_ms = self._retry_ms
        elif (retry_ms := self.replica.next_deadline_ms()) is not None:
            longer_ms = min(BACKOFF_FIRST_MS << min(self._failures, 16), self._host.backoff_ms_max) - BACKOFF_FIRST_MS
            self._failures += 1
            self._due_ms = retry_ms + max(longer_ms, 0)
        if self._due_ms is not None:
            self._host.due_at(self, self._due_ms)

    # What is owed.

    def run(self) -> None:
        """Carry out what the machine has ready at first: the first fetch says what is held here, so it is synced."""
        if self.partition.is_sync_awaited:
            self.log_task = self._host.start(self.partition, self._sync(lambda replica, now_ms: None))
        else:
            self._step(lambda replica, now_ms: None)

    def _process_ready(self) -> None:
        """Do it, in the machine's order; where the disk takes its time, what follows comes after that."""
        partition, log = self.partition, self.partition.log
        while not self._is_stopped and self.log_task is None:
            ready, self._unwritten = self._unwritten or self.replica.take_ready(), None
            if ready.halt is not None:
                self._log_halt(ready.halt)
            if ready.truncation is not None:
                self._begin_truncation(ready.truncation)
                return
            if ready.ahead is not None:
                self._host.send(self, ready.ahead)
                self._unwritten = ready._replace(ahead=None)
                self._host.write_soon(self)
                break
            try:
                if ready.append is not None and not self._append():
                    break
                if ready.epochs:
                    log.correct_lineage(ready.epochs)
                if ready.log_start_offset is not None:
                    log.advance_log_start_offset(ready.log_start_offset)
                    partition.on_log_start_moved()
            except DiskError as error:
                self._host.on_log_failed(partition, error)
                return
            self._move_high_watermark(ready.high_watermark)
            if ready.request is not None:
                self._host.send(self, ready.request)
            if ready.append is None:
                break
        if not self._is_stopped:
            self._reschedule_deadlines()

    def write(self) -> None:
        """Append the records that came before the fetch that went ahead; nothing where that is done by now."""
        if self._unwritten is not None:
            self._step(lambda replica, now_ms: None)

    def _append(self) -> bool:
        """Write what came. Returns whether the machine was told; else it will be: it is to wait for a while."""
        partition, records = self.partition, self._records
        self._records = b""
        try:
            if self._records_epoch != partition.log.lineage.latest_leader_epoch:
                entries = unwritten_epochs(partition.log, records)
                if entries:
                    self._records = records
                    self.log_task = self._host.start(partition, self._note_leader_epochs(entries))
                    return False
            append_fetched(partition.log, records, now_ms=self._host.wall_ms())
        except (KafkaError, CorruptLogError) as error:
            self._log_damage(error)
        except DiskError as error:
            self._on_append_refused(error)
            return False
        else:
            if partition.is_sync_awaited:
                self.log_task = self._host.start(self.partition, self._sync(self._notify_appended))
                return False
            self.replica.on_appended(partition.log.log_end_offset)
            return True
        self._retry_ms = self._host.now_ms() + self._host.backoff_ms_max
        return False

    def _on_append_refused(self, error: DiskError) -> None:
        if _may_go_well_later(self.partition, error):
            self._retry_ms = self._host.now_ms() + self._host.backoff_ms_max
        self._host.on_log_failed(self.partition, error)

    async def _note_leader_epochs(self, entries: Sequence[EpochEntry]) -> None:
        """What came is appended only when its leader epochs would survive a loss of power."""
        if self._is_stopped:  # before it began: the log is the next role's by now
            self.log_task = None
            return
        try:
            await self._host.note_leader_epochs(self.partition, entries)
        except DiskError as error:
            self.log_task = None
            self._records = b""
            if not self._is_stopped:
                self._on_append_refused(error)
                self._reschedule_deadlines()
            return
        self.log_task = None
        self._step(self._append_noted)

    def _append_noted(self, replica: FollowerReplica, now_ms: int) -> None:
        self._append()

    async def _sync(self, event: Callable[[FollowerReplica, int], None]) -> None:
        """`flush.messages`: what was appended is synced before the leader is told that it is here."""
        try:
            await self._host.flush(self.partition)
        except DiskError as error:
            self.log_task = None
            self._host.on_log_failed(self.partition, error)
            return
        self.log_task = None
        self._step(event)

    def _begin_truncation(self, truncation: Truncation) -> None:
        self._move_high_watermark(min(truncation.end_offset, self.high_watermark))
        self.log_task = self._host.start(self.partition, self._truncate(truncation))

    def _log_truncation(self, truncation: Truncation) -> LostOffsets | None:
        """Say what is removed, as loudly as it deserves, and have it counted. Returns what is lost.

        A process that was killed knows its high watermark as of the last checkpoint: what an unclean election removes
        above that may have been acknowledged, and is told as well.
        """
        log = self.partition.log
        start, end = log.log_start_offset if truncation.starts_anew else truncation.end_offset, log.log_end_offset
        if start >= end:
            return None  # only epochs go, which no record is of
        if truncation.starts_anew and truncation.below_high_watermark is None:
            logger.info(
                "%s: begins anew at offset %d, where the leader's log starts: all that is here ends at offset %d",
                *(self.partition.topic_partition, truncation.end_offset, end),
            )
            return self._uncompared(end)
        unclean_epoch, last_epoch = self.replica.unclean_epoch, log.lineage.epoch_at(Offset(end - 1))
        is_unclean = unclean_epoch is not None and (last_epoch is None or last_epoch < unclean_epoch)
        high_watermark = truncation.below_high_watermark
        committed = 0 if high_watermark is None else max(min(high_watermark, end) - start, 0)
        rest = end - start - committed
        self._host.on_truncating(TruncatedRecords(committed, rest if is_unclean else 0, 0 if is_unclean else rest))
        epochs = f"{log.lineage.epoch_at(Offset(start))} to {last_epoch}" if last_epoch is not None else "unknown"
        what = (
            f"{self.partition.topic_partition}: offsets {start} to {end - 1} (leader epochs {epochs}) are truncated, "
            f"which the leader of epoch {self.replica.leader_epoch} does not have"
        )
        cause = (
            f"leader epoch {unclean_epoch} began with an unclean election, or without what a loss of power took; the "
            "active controller logged who ordered an election"
            if is_unclean
            else "more was lost than min.insync.replicas covers"
        )
        if committed:
            logger.error("COMMITTED RECORDS ARE LOST: %s. All below %d were committed: %s", what, high_watermark, cause)
        elif is_unclean:
            logger.warning("RECORDS ARE LOST: %s. Of these, acknowledged ones are lost: %s", what, cause)
        else:
            logger.info("%s; they were not committed", what)
        if last_epoch is None:
            return self._uncompared(end)
        if unclean_epoch is None or not (is_unclean or committed):
            return None
        first_epoch = log.lineage.epoch_at(Offset(start))
        return LostOffsets(Offset(start), Offset(end), high_watermark, first_epoch, last_epoch, unclean_epoch)

    def _uncompared(self, end_offset: Offset) -> LostOffsets | None:
        """All that is here goes, and nobody compared it: after an unclean election, records may have been lost so."""
        log, unclean_epoch = self.partition.log, self.replica.unclean_epoch
        last_epoch = log.lineage.epoch_at(Offset(end_offset - 1))
        if unclean_epoch is None or (last_epoch is not None and last_epoch >= unclean_epoch):
            return None
        return LostOffsets(None, end_offset, self.high_watermark, None, last_epoch, unclean_epoch)

    def _log_truncated_transactions(self) -> None:
        """Say whose transactions are not what their coordinators believe (rule 10).

        The leader may lack what was truncated here: then a transaction that was decided is open there for ever, unless
        its marker is written again.
        """
        reopened, shortened = self.partition.log.take_truncated_transactions()
        if reopened:
            producers = ", ".join(f"{one.producer_id} (from offset {one.first_offset} on)" for one in reopened)
            logger.warning(
                "%s: THE ENDS OF TRANSACTIONS ARE TRUNCATED, of producers %s: they are open again. Readers of "
                "committed records wait for each until its marker comes once more; describe the producers, and "
                "abort what hangs",
                *(self.partition.topic_partition, producers),
            )
        if shortened:
            producers = ", ".join(f"{one.producer_id} (from offset {one.first_offset} on)" for one in shortened)
            logger.warning(
                "%s: open transactions lack records that are truncated, of producers %s",
                *(self.partition.topic_partition, producers),
            )

    def _log_halt(self, halt: Halt) -> None:
        partition, leader = self.partition, self.replica.leader
        logger.error(
            "%s: THIS FOLLOWER STOPS AND KEEPS ITS LOG: broker %s, the leader of epoch %d, would have it cut to offset "
            "%d, though all below %d was committed by epoch %s, and the metadata knows of no unclean election since. "
            "That broker has lost records, and nobody noticed. To keep what is here: stop broker %s; if nobody leads "
            "then, tidelog elect --type unclean --topic %s --partition %d. To give it up: stop this node, move %s "
            "away, and start it again",
            *(partition.topic_partition, leader, self.replica.leader_epoch, halt.end_offset, halt.high_watermark),
            *(halt.last_epoch, leader, *partition.topic_partition, partition.log.directory),
        )

    async def _truncate(self, truncation: Truncation) -> None:
        if self._is_stopped:  # before it began: the log is the next role's by now
            self.log_task = None
            return
        await self._truncate_log(truncation, self._log_truncation(truncation))

    async def _truncate_log(self, truncation: Truncation, lost: LostOffsets | None) -> None:
        partition = self.partition
        if self._is_stopped:
            self.log_task = None
            return
        try:
            await self._host.truncate(partition, truncation, lost)
        except (CorruptLogError, DiskError) as error:
            self.log_task = None
            if not self._is_stopped:
                self._host.on_log_failed(partition, error)
            if not self._is_stopped and _may_go_well_later(partition, error):
                self._refused_truncation = truncation, lost
                self._retry_ms = self._host.now_ms() + self._host.backoff_ms_max
                self._reschedule_deadlines()
            return
        self.log_task = None
        self._log_truncated_transactions()
        self._step(lambda replica, now_ms: replica.on_truncated(partition.log.log_end_offset))

    def _log_damage(self, error: Exception) -> None:
        logger.error(
            "%s: what broker %s sent cannot be appended, and is fetched once more: %s",
            *(self.partition.topic_partition, self.replica.leader, error),
        )


def _may_go_well_later(partition: Partition, error: CorruptLogError | DiskError) -> bool:
    """Whether what the disk refused is to be tried again: the log is as it was, or cut where it was to be."""
    return isinstance(error, DiskError) and is_passing(error) and partition.log.segments.failure is None


def _end_of(records: Buffer) -> tuple[Offset | None, LeaderEpoch | None]:
    """The exclusive end of the whole batches in an answer, and the leader epoch of the last; None where there is none.

    Raises KafkaError.
    """
    end_offset, leader_epoch = None, None
    for _, header in split_whole_batches(records):
        end_offset, leader_epoch = Offset(header.next_offset), LeaderEpoch(header.leader_epoch)
    return end_offset, leader_epoch
