"""All moves of replicas between the log directories of a node (KIP-113): `replica_log_dir_move.py` does one of them.

Kafka: `ReplicaAlterLogDirsManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from tidelog.base.errors import Code, CorruptLogError, DiskError, refusal
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Clock, Executor
from tidelog.log.future_log import FutureLog
from tidelog.server.broker.replica_log_dir_move import Mover, ReplicaLogDirMove
from tidelog.server.replication.deadlines import ReplicationDeadlines
from tidelog.server.replication.partition import Partition
from tidelog.server.replication.replication_throttles import Throttle, moves_limit
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.storage.checkpoints import Replica
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import to_its_end

T = TypeVar("T")

COPIED_TOGETHER_MAX = 2
"""Moves that have their turn at a time; the others wait between two pieces."""


class ReplicaLogDirMover:
    """All moves of a node."""

    def __init__(self, broker: Mover, files: LogFiles, *, clock: Clock, executor: Executor) -> None:
        self._broker = broker
        self._tasks = broker.tasks.branch("moves of logs")
        self._files = files
        self._clock = clock
        self._executor = executor
        self._deadlines = ReplicationDeadlines(clock)
        self._throttle = Throttle(clock.now_ms, self._deadlines.add)
        self._moves: dict[TopicPartition, ReplicaLogDirMove] = {}
        self._turns = asyncio.Semaphore(COPIED_TOGETHER_MAX)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """How fast logs are copied may have changed."""
        self.throttle.configure(moves_limit(new.broker))

    @property
    def copies(self) -> list[tuple[LogDir, FutureLog]]:
        """Those that are under way, with where they lie."""
        return [(move.target, move.future) for move in self._moves.values() if move.future is not None]

    @property
    def bytes_left(self) -> int:
        """About how much is still to be copied, of all moves together."""
        left = 0
        for move in self._moves.values():
            log, future = move.partition.log, move.future
            left += log.segments.size_bytes_from(log.log_start_offset if future is None else future.log.log_end_offset)
        return left

    async def move(self, partition: Partition, target: LogDir) -> None:
        """Begin to move a log; to where it lies: end what was begun. The copy is there when this returns.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR: no copy can be made; or the former directory of the log is out of use, so
                that it may still be there: bring that one back first.
        """
        topic_partition = partition.topic_partition
        under_way = self._moves.get(topic_partition)
        if under_way is not None:
            if under_way.target is target:
                return
            await self.end(topic_partition)
        if self._files.directory_of(topic_partition) is not target:
            await self._begin(partition, target)

    def resume(self, partition: Partition) -> None:
        """The log was opened: if a move of it was interrupted, begin anew."""
        target = self._files.log_dir_assignment.interrupted.pop(partition.topic_partition, None)
        if target is not None and target.failure is None:
            self._start(partition, target)

    async def _begin(self, partition: Partition, target: LogDir) -> None:
        current = self._files.directory_of(partition.topic_partition)
        if current is None:
            raise refusal(Code.KAFKA_STORAGE_ERROR, f"{partition.topic_partition} is offline")
        try:
            mark = await self._executor.run(partial(current.futures.mark_of, partition.topic_partition))
        except (DiskError, CorruptLogError) as error:
            raise refusal(Code.KAFKA_STORAGE_ERROR, str(error)) from error
        if mark is not None:
            raise refusal(
                Code.KAFKA_STORAGE_ERROR,
                f"{partition.topic_partition} was moved to {current.path} from a directory that is out of use since: "
                "bring that one back, or take it out of log.dirs, and start the node again",
            )
        if partition.topic_partition in self._moves:  # somebody else asked meanwhile, and this one comes after that
            await self.move(partition, target)
        elif self._broker.replica_of(partition.topic_partition) is partition:
            move = self._start(partition, target)
            await move.has_begun.wait()
            if move.error is not None:
                raise refusal(Code.KAFKA_STORAGE_ERROR, str(move.error))

    def _start(self, partition: Partition, target: LogDir) -> ReplicaLogDirMove:
        move = ReplicaLogDirMove(self, partition, target)
        self._moves[partition.topic_partition] = move
        move.task = self._tasks.start(self._run(move))
        return move

    async def _run(self, move: ReplicaLogDirMove) -> None:
        try:
            await move.run()
        finally:
            self._on_ended(move)

    def _on_ended(self, move: ReplicaLogDirMove) -> None:
        move.has_begun.set()
        if self._moves.get(move.partition.topic_partition) is move:
            del self._moves[move.partition.topic_partition]

    async def end(self, topic_partition: TopicPartition) -> None:
        """Return once nothing is copied of it, and nothing is left of the copy. A move that takes over is completed."""
        move = self._moves.get(topic_partition)
        if move is not None:
            await move.end()
            self._on_ended(move)  # also one that had no turn yet, whose task ran none of its code

    async def stop(self) -> None:
        """Copy nothing more. What is under way begins anew after the next start."""
        moves = list(self._moves.values())
        for move in moves:
            move.is_kept = True
        await asyncio.gather(*(move.end() for move in moves))
        for move in moves:
            self._on_ended(move)
        self._deadlines.stop()

    def note_truncation(self, partition: Replica, end_offset: Offset) -> None:
        """A log was truncated."""
        move = self._moves.get(partition.topic_partition)
        if move is not None and move.partition is partition:
            move.note_truncation(end_offset)

    # What a move needs.

    @property
    def throttle(self) -> Throttle:
        """How many bytes a second may be copied, of all moves together."""
        return self._throttle

    @property
    def files(self) -> LogFiles:
        return self._files

    @property
    def broker(self) -> Mover:
        return self._broker

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def turn(self) -> asyncio.Semaphore:
        """To be held while a piece is copied."""
        return self._turns

    async def room(self) -> None:
        """Return when something may be copied."""
        while self.throttle.room_bytes <= 0:
            waiter = _Room()
            self.throttle.wait(waiter)
            try:
                await waiter.has_room.wait()
            finally:
                self.throttle.forget(waiter)

    async def off_the_loop(self, work: Callable[[], T]) -> T:
        """Run work on a thread. Cancelled, this waits for the end of it: nobody is to come in between."""
        return await to_its_end(self._executor.run(work))


class _Room:
    def __init__(self) -> None:
        self.has_room = asyncio.Event()

    def on_room(self) -> None:
        self.has_room.set()
