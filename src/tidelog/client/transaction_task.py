"""What a transactional producer is asked to do, on its event loop: each verb waits until its end is known."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from tidelog.base.errors import TidelogError
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.transaction import (
    Call,
    PreparedTransaction,
    ProducerTransactionState,
)
from tidelog.client.options import ProducerConfig
from tidelog.client.sender_task import SenderTask
from tidelog.client.transaction_driver import TransactionDriver

logger = logging.getLogger("tidelog.client")

_IN_DOUBT = (
    ". The coordinator was asked, and is asked on: whether the transaction is committed is not known yet. Call"
    " commit_transaction again, and wait for its answer"
)
_COMMITTED = (
    ". The transaction is committed, and the producer waits for its next epoch. Call commit_transaction again, and wait"
)
_NOT_ASKED = ". Nothing is committed yet: call commit_transaction again, or abort_transaction"
_STILL_OPEN = ". Call abort_transaction again; the coordinator aborts it after transaction_timeout_ms otherwise"

S = ProducerTransactionState


class TransactionTask:
    """See the module.

    Args:
        config: of the producer.
        sender_task: delivers its records.
        driver: asks its coordinators.
    """

    def __init__(self, config: ProducerConfig, sender_task: SenderTask, driver: TransactionDriver) -> None:
        self._config = config
        self._sender_task = sender_task
        self._driver = driver
        self._machine = driver.machine
        self._lock = sender_task.lock

    @property
    def number(self) -> int:
        """Of the transaction that was begun last."""
        return self._machine.number

    async def init(self) -> None:
        with self._lock:
            self._machine.init()
        self._driver.wake()
        await self._driver.until(self._is_initialized, Call.INIT.value, lambda: ". Call it again, and wait for it")

    def _is_initialized(self) -> bool:
        if self._machine.state is S.FATAL_ERROR:
            self._machine.check(Call.INIT)
        return self._machine.state is not S.INITIALIZING

    async def begin(self, *, initializes: bool = False) -> None:
        """Open a transaction; `initializes` the producer first, if that was not done."""
        if initializes and self._machine.state in (S.UNINITIALIZED, S.INITIALIZING):
            await self.init()
        with self._lock:
            self._machine.begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, Position], group: GroupMetadata) -> None:
        with self._lock:
            if not offsets:
                self._machine.check(Call.SEND_OFFSETS)
                return
            ticket = self._machine.add_offsets(group, offsets)
        self._driver.wake()
        await self._driver.until(lambda: self._machine.is_sent(ticket), Call.SEND_OFFSETS.value)

    async def prepare(self) -> PreparedTransaction | None:
        with self._lock:
            self._machine.prepare()
            self._sender_task.close_open()
        await self._sender_task.drain()
        with self._lock:
            self._machine.on_drained()
        await self._driver.until(self._machine.is_prepared, Call.PREPARE.value)
        with self._lock:
            return self._machine.hand_over()

    async def commit(self) -> None:
        try:
            await self._commit()
        finally:
            self._sender_task.forget_failures()  # one of them is what it raises

    async def _commit(self) -> None:
        with self._lock:
            is_done = self._machine.commit()
            self._sender_task.close_open()
        if not is_done:
            await self._sender_task.drain()
            with self._lock:
                self._machine.on_drained()
            self._driver.wake()
            await self._driver.until(self._is_committed, Call.COMMIT.value, self._what_of_the_commit)
        with self._lock:
            self._machine.claim()

    def _is_committed(self) -> bool:
        if self._machine.state is S.READY:
            return True
        self._machine.check(Call.COMMIT)
        return False

    def _what_of_the_commit(self) -> str:
        if self._machine.is_committed:
            return _COMMITTED
        return _IN_DOUBT if self._machine.is_end_requested else _NOT_ASKED

    async def abort(self) -> None:
        try:
            await self._abort()
        finally:
            self._sender_task.forget_failures()  # whoever aborts knows that nothing was delivered

    async def _abort(self) -> None:
        with self._lock:
            is_done = self._machine.abort()
            if not is_done:
                self._sender_task.drop_waiting()
        if not is_done:
            await self._sender_task.drain()
            with self._lock:
                self._machine.on_drained()
            self._driver.wake()
            await self._driver.until(self._is_aborted, Call.ABORT.value, lambda: _STILL_OPEN)
        with self._lock:
            self._machine.claim()

    def _is_aborted(self) -> bool:
        if self._machine.state is S.READY:
            return True
        self._machine.check(Call.ABORT)
        return False

    async def leave(self, number: int, error: BaseException | None) -> None:
        """The block of the transaction of that number is left: commit it, or abort it because of `error`.

        What was ended in the block, or handed over, stays as it is.
        """
        if self._machine.is_over(number):
            return
        if error is not None:
            await self._abort_for(error)
        elif not self._machine.is_handed_over:
            try:
                await self.commit()
            except BaseException as failed:
                await self._abort_for(failed)
                raise

    async def _abort_for(self, error: BaseException) -> None:
        """Abort what can be, and keep the error that is on its way."""
        if not self._may_abort():
            return
        try:
            await self.abort()
        except TidelogError as failed:
            error.add_note(f"The transaction could not be aborted: {failed}")
            logger.warning("%s: a transaction could not be aborted: %s", self._config.client_id, failed)

    def _may_abort(self) -> bool:
        state = self._machine.state
        if state is S.COMMITTING:
            return not self._machine.is_end_requested
        return state in (S.IN_TRANSACTION, S.PREPARED, S.ABORTABLE_ERROR, S.ABORTING)

    async def close(self, timeout: float | None) -> None:
        """The producer closes: a transaction that is open is aborted, one that is handed over stays open."""
        if self._machine.is_handed_over and self._machine.state is S.PREPARED:
            return
        is_abort = self._may_abort()
        if not is_abort and self._machine.state is not S.COMMITTING:
            return
        if is_abort:
            logger.warning("%s: closed with a transaction open: it is aborted", self._config.client_id)
        try:
            async with asyncio.timeout(timeout):
                await (self.abort() if is_abort else self.commit())
        except (TidelogError, TimeoutError) as error:
            logger.warning(
                "%s: closed while a transaction was being ended, and how it ends is not known: %s",
                self._config.client_id,
                error,
            )
