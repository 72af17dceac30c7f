"""One replica is moved to another log directory while it is served (KIP-113).

    thread   a piece of the log is copied             again, until little is missing
    thread   what is kept of lost records is copied
    loop     what is missing is taken at once: the copy is level
    thread   the copy is synced, and says that it was level     what is appended goes to the log meanwhile
    loop     what came since is taken at once; the copy takes over: what is appended goes to it from here on
    thread   checkpoints; the copy says that it is complete; the former log goes; the copy says nothing more

From the first time that it is level on, nobody truncates the log (`log_lock`). So at a stop one of the two is a prefix
of the other, and the longer one is the log, until the copy is complete (log/files/future_mark.py, log_places.py).

Kafka: `ReplicaAlterLogDirsThread`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError, TidelogError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.log import Log, NotCachedError, StaleSliceError
from tidelog.log.files.future_mark import FutureMark
from tidelog.log.future_log import TAKEN_AT_ONCE_BYTES, FutureLog
from tidelog.server.broker.partition_failures import PartitionFailures
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.replication_throttles import Throttle
from tidelog.server.storage.disk_health import is_full, is_passing
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks, to_its_end

logger = logging.getLogger("tidelog.server.log_moves")

T = TypeVar("T")

PIECE_SIZE_BYTES_MAX = 1 << 20
CATCH_UPS_MAX = 50
"""How often a copy tries to be level while the log grows, before others may work on the log again."""
RETRY_SECONDS = 0.01
"""After a copy that was near could not take over: it has no role at present, or much was written meanwhile."""
ROOM_CHECK_SECONDS = 1.0
"""How often a move looks whether a full disk has room again."""
COMPLETIONS_MAX = 5
"""How often a log that took over tries to say so on a full disk: meanwhile others wait for the log."""


class MoveEndedError(TidelogError):
    """The partition is not here any more, or the move is not wanted. Never leaves this module."""


class Mover(Protocol):
    """Whoever serves the partitions (the broker)."""

    @property
    def tasks(self) -> Tasks: ...

    def replica_of(self, topic_partition: TopicPartition) -> Partition | None: ...

    def is_offline(self, topic: str, index: int) -> bool: ...

    @property
    def failures(self) -> PartitionFailures: ...

    def on_moved(self, partition: Partition) -> None: ...


class MoveHost(Protocol):
    """What one move needs of all of them (`ReplicaLogDirMover`)."""

    @property
    def files(self) -> LogFiles: ...

    @property
    def broker(self) -> Mover: ...

    @property
    def throttle(self) -> Throttle: ...

    def wall_ms(self) -> int: ...

    def turn(self) -> asyncio.Semaphore:
        """To be held while a piece is copied."""
        ...

    async def room(self) -> None:
        """Return when something may be copied."""
        ...

    async def off_the_loop(self, work: Callable[[], T]) -> T:
        """Run work on a thread. Cancelled, this waits for the end of it: nobody is to come in between."""
        ...


class ReplicaLogDirMove:
    """The move of one replica to another log directory.

    Attributes:
        target: where the log is to lie.
        future: the copy; None before it is made.
        has_begun: set once the copy is there, or cannot be.
        error: what went wrong.
        is_kept: whether the copy stays when the move is ended: it goes on after the next start.
    """

    def __init__(self, moves: MoveHost, partition: Partition, target: LogDir) -> None:
        self.partition = partition
        self.target = target
        self.future: FutureLog | None = None
        self.has_begun = asyncio.Event()
        self.error: TidelogError | None = None
        self.is_kept = False
        self.task: asyncio.Task[None] | None = None
        self._moves = moves
        self._truncated_to: Offset | None = None
        self._is_near = False
        self._has_kept = False
        self._has_logged_full = False

    async def end(self) -> None:
        """Cancel the move, and return once it has ended."""
        assert self.task is not None
        self.task.cancel()
        await asyncio.wait([self.task])

    def note_truncation(self, end_offset: Offset) -> None:
        """The log was truncated: what the copy has beyond goes before anything is added to it."""
        self._truncated_to = end_offset if self._truncated_to is None else min(self._truncated_to, end_offset)

    async def run(self) -> None:
        """Copy, and take over. What goes wrong is in the log; the partition stays where it is then."""
        topic_partition, target = self.partition.topic_partition, self.target
        started_ms = self._moves.wall_ms()
        try:
            await self._make()
            while not await self._copy():
                pass
        except asyncio.CancelledError:
            await self._leave()
            raise
        except (DiskError, CorruptLogError, KafkaError) as error:
            self._on_failed(error)
            await self._leave()
        except Exception as error:
            if not isinstance(error, MoveEndedError):
                logger.exception("%s is not moved: a bug in Tidelog", topic_partition)
            await self._leave()
        else:
            took_ms = self._moves.wall_ms() - started_ms
            logger.info("%s lies in %s now, moved in %d ms", topic_partition, target.path, took_ms)

    def _on_failed(self, error: TidelogError) -> None:
        self.error = error
        logger.error("%s is not moved to %s: %s", self.partition.topic_partition, self.target.path, error)
        if isinstance(error, DiskError):
            self._moves.broker.failures.on_suspicion(self.target)
            if self._is_ours:
                self._moves.broker.failures.on_read_error(self.partition)

    async def _leave(self) -> None:
        """Whatever happens meanwhile."""
        await to_its_end(self._leave_undisturbed())

    async def _leave_undisturbed(self) -> None:
        future = self.future
        self.future = None
        if future is None:
            return
        future.release()
        is_offline = self._moves.broker.is_offline(*self.partition.topic_partition)
        if self.is_kept or is_offline or self.target.failure is not None:
            return
        try:
            await self._moves.off_the_loop(partial(self._mark_for_deletion, future.log))
            self._moves.files.deletions.remove_marked_later()
        except (DiskError, CorruptLogError) as error:
            logger.error("%s: the copy in %s stays behind: %s", *self._where, error)

    def _mark_for_deletion(self, log: Log) -> None:
        """Unless its topic was deleted meanwhile, and it has gone with that."""
        target, topic_partition = self.target, self.partition.topic_partition
        if target.holds(topic_partition) and target.topic_id_of(topic_partition) == log.topic_id:
            target.removal.mark_for_deletion(topic_partition)

    @property
    def _where(self) -> tuple[TopicPartition, str]:
        return self.partition.topic_partition, self.target.path

    @property
    def _is_ours(self) -> bool:
        return self._moves.broker.replica_of(self.partition.topic_partition) is self.partition

    def _check_wanted(self) -> None:
        if not self._is_ours or self.target.failure is not None:
            raise MoveEndedError("the partition is not served here any more")

    # Copying.

    async def _make(self) -> None:
        partition, current = self.partition, self.partition.log
        self._check_wanted()

        def make() -> None:
            log = self.target.futures.make(
                partition.topic_partition,
                current.config,
                partition.topic_id,
                log_start_offset=current.log_start_offset,
                now_ms=self._moves.wall_ms(),
            )
            self.future = FutureLog(self._moves.files.disk, log, current)  # to be let go of, whoever gave up meanwhile

        await self._moves.off_the_loop(make)
        self.has_begun.set()

    async def _copy(self) -> bool:
        """One step. Returns whether the log lies in its new place."""
        moves, future = self._moves, self.future
        assert future is not None
        self._check_wanted()
        if self._truncated_to is not None:
            async with self.partition.log_lock:  # else it is being truncated still
                truncated_to, self._truncated_to = self._truncated_to, None
                await moves.off_the_loop(partial(future.truncate_to, truncated_to))
            self._has_kept = False
            return False
        try:
            if self._is_near and not self._has_kept:
                async with moves.turn():
                    await moves.room()
                    moves.throttle.record(await moves.off_the_loop(future.copy_kept))
                self._has_kept = True
                return False
            if self._is_near:
                if await self._hand_over(future):
                    return True
                await asyncio.sleep(RETRY_SECONDS)
            async with moves.turn():
                await moves.room()
                size_bytes_max = max(min(PIECE_SIZE_BYTES_MAX, moves.throttle.room_bytes), 1)
                size_bytes = await self._copy_piece(future, size_bytes_max)
            moves.throttle.record(size_bytes)
            self._is_near = size_bytes < min(size_bytes_max, TAKEN_AT_ONCE_BYTES)
        except StaleSliceError:  # truncated since it was found
            pass
        except DiskError as error:
            if not is_passing(error) or future.log.segments.failure is not None:
                raise
            await self._wait_for_room(error)
        return False

    async def _copy_piece(self, future: FutureLog, size_bytes_max: int = PIECE_SIZE_BYTES_MAX) -> int:
        current = future.current
        self._check_wanted()
        if self._truncated_to is not None:
            return 0
        try:
            found = future.find(size_bytes_max)
        except NotCachedError as missing:
            await self._moves.off_the_loop(missing.fetch)
            return 0
        log_start_offset, lineage, now_ms = current.log_start_offset, current.lineage.clone(), self._moves.wall_ms()
        has_lag = future.offset_lag > 0

        def copy() -> int:
            data = found.read_all()
            if has_lag and not data:
                raise CorruptLogError(
                    f"{current.directory}: nothing lies between offset {future.log.log_end_offset} and its end at "
                    f"{current.log_end_offset}"
                )
            future.take(data, log_start_offset, lineage, now_ms)
            return len(data)

        return await self._moves.off_the_loop(copy)

    async def _wait_for_room(self, error: DiskError) -> None:
        if not self._has_logged_full:
            self._has_logged_full = True
            logger.warning("%s: the move to %s waits: %s", *self._where, error)
        if is_full(error):
            self.target.health.on_full()
        await asyncio.sleep(ROOM_CHECK_SECONDS)

    # Taking over.

    async def _hand_over(self, future: FutureLog) -> bool:
        """Returns whether the copy took over; if not, there is more to copy."""
        return await to_its_end(self._hand_over_undisturbed(future))

    async def _hand_over_undisturbed(self, future: FutureLog) -> bool:
        moves, partition = self._moves, self.partition
        async with partition.log_lock:
            if not self._is_complete(future):
                return False
            future.adopt_producers()
            producers = future.log.producers.clone()
            await moves.off_the_loop(partial(future.sync, producers))
            for _ in range(CATCH_UPS_MAX):
                self._check_wanted()
                if self._is_complete(future):
                    break
                await self._copy_piece(future)
            else:
                await moves.off_the_loop(
                    partial(self.target.futures.write_mark, partition.topic_partition, FutureMark.COPYING)
                )
                return False
            former = moves.files.directory_of(partition.topic_partition)
            assert former is not None
            partition.log = future.take_over()
            self.target.adopt(partition.topic_partition, partition.log)
            moves.files.on_moved(partition.topic_partition, self.target)
            self.future = None
            try:
                await self._complete()
            except DiskError as error:
                moves.broker.failures.on_disk_error(partition, error)
                raise
        moves.broker.on_moved(partition)
        await self._remove_former(former)
        return True

    async def _complete(self) -> None:
        """Until it is, nobody may truncate the log, so a full disk is given a little time.

        Raises:
            DiskError: the log is to go offline: served, it might be truncated, and the next start would take the
                former one for the log. It is never one of a full disk, under which what is there is served.
        """
        for _ in range(COMPLETIONS_MAX):
            try:
                return await self._moves.off_the_loop(partial(_complete, self.partition, self.target))
            except DiskError as error:
                if not is_passing(error):
                    raise
                await self._wait_for_room(error)
        raise DiskError(self.target.path, f"there is no room to say that {self.partition.topic_partition} lies here")

    def _is_complete(self, future: FutureLog) -> bool:
        """Without a role, a new leader epoch may be being written to the log that is there."""
        is_whole = self._is_ours and self.partition.role.is_active and self._truncated_to is None
        return is_whole and future.catch_up(self._moves.wall_ms())

    async def _remove_former(self, former: LogDir) -> None:
        """If it cannot be removed, the next start does so: until then the copy says that it is complete."""
        topic_partition, target = self.partition.topic_partition, self.target

        def remove() -> None:
            former.removal.mark_for_deletion(topic_partition)
            target.futures.remove_mark(topic_partition)

        try:
            await self._moves.off_the_loop(remove)
            self._moves.files.deletions.remove_marked_later()
        except DiskError as error:
            logger.error("%s: the log in %s stays behind: %s", topic_partition, former.path, error)
            self._moves.broker.failures.on_suspicion(former)


def _complete(partition: Partition, target: LogDir) -> None:
    """The order matters: what the checkpoints say of the log is true of the copy before it is the log for good."""
    target.listed.add([(partition.topic_id, partition.topic_partition.partition)])
    target.checkpoints.write_recovery_points([partition])
    target.checkpoints.write_high_watermarks([partition])
    target.futures.write_mark(partition.topic_partition, FutureMark.COMPLETE)
