"""Drives the controller's journal on `__cluster_metadata-0`: append, sync, commit, publish, reply.

The order is the point: a batch counts once it is synced; the committed state, and with it the brokers' image, takes it
in next; the reply that tells of it leaves last. A quorum of one voter commits what it has synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidelog.base.errors import CorruptLogError, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.ports import Clock, Executor
from tidelog.controller import ControllerState
from tidelog.journal import Batch, Decision, Journal
from tidelog.log import Log
from tidelog.metadata.records import decode_record, encode_record
from tidelog.records import BatchBuilder, leader_change_batch, read_records, split_batches

logger = logging.getLogger("tidelog.server.controller")

READ_SIZE_BYTES_MAX = 1 << 20

OnCommitted = Callable[[tuple[object, ...], Offset], None]


class Controller:
    """The active controller of a quorum of one.

    Args:
        node_id: this voter.
        log: the metadata log, open; only this object writes to it.
        on_committed: told of committed records, with the exclusive end offset that they bring the metadata to.
    """

    def __init__(
        self,
        node_id: BrokerId,
        log: Log,
        state: ControllerState,
        *,
        clock: Clock,
        executor: Executor,
        on_committed: OnCommitted,
    ) -> None:
        self.node_id = node_id
        self.journal: Journal[ControllerState] = Journal(state)
        self._log = log
        self._clock = clock
        self._executor = executor
        self._on_committed = on_committed
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._syncing: asyncio.Task[None] | None = None

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        return self.journal.leader_epoch

    async def become_active(self, leader_epoch: LeaderEpoch) -> None:
        """Replay the log, open `leader_epoch` with its control batch, and publish what is committed.

        Args:
            leader_epoch: larger than any before, and on disk already (`quorum-state`).
        """
        self._replay()
        self._log.assign_leader_epoch(leader_epoch)
        change = bytearray(
            leader_change_batch(
                leader_id=self.node_id, voters=(self.node_id,), timestamp_ms=self._clock.wall_ms()
            )
        )
        self._append(memoryview(change), leader_epoch)
        await self._executor.run(self._log.flush)
        self.journal.become_active(leader_epoch, self._log.log_end_offset)
        self._advance()

    async def request(self, decide: Callable[[ControllerState], Decision[Any]]) -> Any:
        """Decide, and return the reply once all that it tells of is committed.

        Raises:
            KafkaError: the refusal that `decide` raised, or NOT_CONTROLLER.
        """
        ticket = self.journal.propose(decide)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self._advance()
        return await future

    async def stop(self) -> None:
        """Finish what is being synced; what waits is told that this is the controller no more."""
        if self._syncing is not None:
            await asyncio.gather(self._syncing, return_exceptions=True)
        self.journal.resign()
        self._advance()

    def _replay(self) -> None:
        log = self._log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            found = log.read(offset, size_bytes_max=READ_SIZE_BYTES_MAX, end_offset=log.log_end_offset)
            data = found.read(0, len(found))
            for position, header in split_batches(data):
                if not header.is_control:
                    for record in read_records(data, position, header):
                        if record.value is None:
                            raise CorruptLogError(
                                f"{log.topic_partition}: the metadata record at offset {record.offset} has no value"
                            )
                        self.journal.replay(decode_record(record.value), Offset(record.offset))
                offset = Offset(header.next_offset)

    def _advance(self) -> None:
        """Carry out what the journal owes, in its order."""
        ready = self.journal.take_ready()
        for batch in ready.batches:
            self._append(self._encode(batch), batch.leader_epoch)
        if ready.batches and self._syncing is None:
            self._syncing = asyncio.get_running_loop().create_task(self._sync())
        if ready.committed:
            self._on_committed(ready.committed, self.journal.committed_end_offset)
        for reply in ready.replies:
            future = self._waiting.pop(reply.ticket, None)
            if future is None or future.done():
                continue
            if isinstance(reply.outcome, KafkaError):
                future.set_exception(reply.outcome)
            else:
                future.set_result(reply.outcome)

    async def _sync(self) -> None:
        """Sync off the loop until nothing new was appended meanwhile: one sync serves all that came before it."""
        try:
            while self._log.log_end_offset > self.journal.committed_end_offset:
                end_offset = self._log.log_end_offset
                await self._executor.run(self._log.flush)
                self.journal.on_committed(end_offset)
                self._advance()
        finally:
            self._syncing = None

    def _append(self, data: memoryview, leader_epoch: LeaderEpoch) -> None:
        self._log.append_as_leader(
            data, leader_epoch=leader_epoch, now_ms=self._clock.wall_ms(), origin="controller"
        )

    def _encode(self, batch: Batch) -> memoryview:
        builder = BatchBuilder()
        now_ms = self._clock.wall_ms()
        for record in batch.records:
            builder.append(now_ms, None, encode_record(record))
        return memoryview(bytearray(builder.build(batch.base_offset, batch.leader_epoch)))
