"""Drives the controller's journal on `__cluster_metadata-0`: append, sync, commit, publish, reply.

The order is the point: a batch counts once it is synced; the committed state, and with it the brokers' image, takes it
in next; the reply that tells of it leaves last. A quorum of one voter commits what it has synced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.base.ports import Buffer, Clock, Executor
from tidelog.controller import ControllerState
from tidelog.journal import Batch, Decision, Journal
from tidelog.log import Log
from tidelog.metadata.records import decode_record, encode_record
from tidelog.quorum import QuorumState, QuorumVoter
from tidelog.records import BatchBuilder, BatchHeader, check_crc, leader_change_batch, read_records, split_batches

logger = logging.getLogger("tidelog.server.controller")

READ_SIZE_BYTES_MAX = 1 << 20

OnCommitted = Callable[[tuple[object, ...], Offset], None]
OnFailed = Callable[[str], None]


class Controller:
    """The active controller of a quorum of one.

    Args:
        node_id: this voter.
        log: the metadata log, open; only this object writes to it.
        persist: writes the quorum-state file, synced.
        on_committed: told of committed records, with the exclusive end offset that they bring the metadata to.
        on_failed: told when the metadata log cannot be written any more; the node has to stop.
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
        on_failed: OnFailed,
        persist: Callable[[QuorumState], None],
    ) -> None:
        self.node_id = node_id
        self.journal: Journal[ControllerState] = Journal(state)
        self._log = log
        self._clock = clock
        self._executor = executor
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._persist = persist
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._syncing: asyncio.Task[None] | None = None

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        return self.journal.leader_epoch

    async def become_active(self, state: QuorumState | None) -> None:
        """Replay the log, elect this node in a new epoch, open that with its control record, publish what is committed.

        Args:
            state: what the quorum-state file says; None if there is none.
        """
        log = self._log
        self._voter = voter = QuorumVoter(self.node_id, (self.node_id,), state)
        self._replay()
        voter.on_started(log.lineage.latest_leader_epoch)
        ready = voter.take_ready()
        new_state, change = ready.state, ready.leader_change
        invariant(new_state is not None and change is not None, "a voter that starts has an epoch to open")
        assert new_state is not None
        assert change is not None
        await self._executor.run(lambda: self._persist(new_state))
        await self._executor.run(lambda: log.assign_leader_epoch(change.leader_epoch))
        batch = leader_change_batch(
            leader_id=change.leader_id, voters=change.voters, timestamp_ms=self._clock.wall_ms()
        )
        epoch_start = log.log_end_offset
        self._append(memoryview(bytearray(batch)), change.leader_epoch)
        voter.on_epoch_opened(epoch_start)
        end_offset = log.log_end_offset
        await self._executor.run(log.flush)
        voter.on_synced(end_offset)
        high_watermark = voter.take_ready().high_watermark
        invariant(high_watermark == end_offset, "a quorum of one commits what it synced")
        self.journal.become_active(change.leader_epoch, end_offset)
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
                try:
                    self._replay_batch(data, position, header)
                except (CorruptLogError, KafkaError) as error:
                    raise CorruptLogError(
                        f"{log.directory}: the metadata from offset {header.base_offset} on cannot be read: {error}; "
                        "put back a copy of this directory that is whole"
                    ) from error
                offset = Offset(header.next_offset)

    def _replay_batch(self, data: Buffer, position: int, header: BatchHeader) -> None:
        check_crc(data, position, header)  # after a clean stop nobody else looked at it
        if header.is_control:
            return
        for record in read_records(data, position, header):
            if record.value is None:
                raise CorruptLogError(f"the record at offset {record.offset} has no value")
            self.journal.replay(decode_record(record.value), Offset(record.offset))

    def _advance(self) -> None:
        """Carry out what the journal owes, in its order."""
        ready = self.journal.take_ready()
        failure = None
        try:
            for batch in ready.batches:
                appended = self._append(self._encode(batch), batch.leader_epoch)
                invariant(appended == batch.base_offset, "batch {} lies at {}", batch.base_offset, appended)
        except Exception as error:  # of the disk or a bug of ours: the log is not what the journal goes on from
            failure = error
        if ready.batches and failure is None and self._syncing is None:
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
        if failure is not None:
            self._give_up(failure)

    async def _sync(self) -> None:
        """Sync off the loop until nothing new was appended meanwhile: one sync serves all that came before it."""
        try:
            while self._log.log_end_offset > self.journal.committed_end_offset:
                end_offset = self._log.log_end_offset
                await self._executor.run(self._log.flush)
                self._voter.on_synced(end_offset)
                high_watermark = self._voter.take_ready().high_watermark
                if high_watermark is not None:
                    self.journal.on_committed(high_watermark)
                self._advance()
        except Exception as error:  # as above
            self._give_up(error)
        finally:
            self._syncing = None

    def _give_up(self, error: Exception) -> None:
        """Whether what was written is on disk cannot be known any more: nothing may be built on it."""
        if not isinstance(error, DiskError):
            logger.critical("the metadata log cannot be written: a bug in Tidelog", exc_info=error)
        self.journal.resign()
        self._advance()
        self._on_failed(f"the metadata log failed: {error}")

    def _append(self, data: memoryview, leader_epoch: LeaderEpoch) -> Offset:
        """Returns the offset of the first record."""
        now_ms = self._clock.wall_ms()
        return self._log.append_as_leader(
            data, leader_epoch=leader_epoch, now_ms=now_ms, origin="controller"
        ).first_offset

    def _encode(self, batch: Batch) -> memoryview:
        builder = BatchBuilder()
        now_ms = self._clock.wall_ms()
        for record in batch.records:
            builder.append(now_ms, None, encode_record(record))
        return memoryview(bytearray(builder.build(batch.base_offset, batch.leader_epoch)))
