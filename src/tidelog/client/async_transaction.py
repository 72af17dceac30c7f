"""What `transaction` and `resume_transaction` of the asynchronous producer return."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Generic

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.cluster import Cluster
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.transaction import (
    Call,
    PreparedTransaction,
    ProducerTransactions,
    ProducerTransactionState,
)
from tidelog.client.core.values import RecordMetadata
from tidelog.client.futures import ColumnsFuture, Future
from tidelog.client.options import ProducerConfig
from tidelog.client.producer_arguments import HeadersLike, K, V
from tidelog.client.transaction_driver import TransactionDriver
from tidelog.client.transaction_task import TransactionTask
from tidelog.records.columns import ColumnBuffers

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.async_producer import AsyncProducer


class AsyncTransaction(Generic[K, V]):
    """One transaction of a producer, to be used as a context.

    Entering opens it (and takes the transactional id over, if `init_transactions` was not called). Leaving commits it,
    after everything is delivered. An exception aborts it, as does any record or offset that could not be sent, even if
    the block caught that error: then leaving raises `TransactionAbortableError`.
    """

    def __init__(self, producer: AsyncProducer[K, V], task: TransactionTask) -> None:
        self._producer = producer
        self._task = task
        self._number = 0

    async def __aenter__(self) -> AsyncTransaction[K, V]:
        await self._task.begin(initializes=True)
        self._number = self._task.number
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._task.leave(self._number, error)

    async def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Future[RecordMetadata]:
        """As `Producer.send`. The record becomes visible to `read_committed` consumers when the transaction commits."""
        return await self._producer.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def send_columns(self, topic: str, columns: ColumnBuffers, *, partition: int | None = None) -> ColumnsFuture:
        """As `Producer.send_columns`, in the transaction."""
        return await self._producer.send_columns(topic, columns, partition=partition)

    async def send_arrow(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> ColumnsFuture:
        """As `Producer.send_arrow`, in the transaction."""
        return await self._producer.send_arrow(topic, data, partition=partition)

    async def send_offsets(self, offsets: Mapping[TopicPartition, Position | int], group: GroupMetadata | str) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        await self._producer.send_offsets_to_transaction(offsets, group)

    async def prepare(self) -> PreparedTransaction | None:
        """As `Producer.prepare_transaction`. Leaving the block without an exception then ends nothing."""
        return await self._producer.prepare_transaction()

    async def abort(self) -> None:
        """Abort now. Leaving the block then does nothing more."""
        await self._producer.abort_transaction()


class AsyncResumedTransaction:
    """A transaction that another producer has prepared, and this one ends. Each method may be called again.

    An error other than a `TimedOutError` is the last word. `ProducerFencedError` says that the transaction was ended
    before, or timed out, or that its transactional id was taken over.
    """

    def __init__(
        self, config: ProducerConfig, cluster: Cluster, drivers: set[TransactionDriver], prepared: PreparedTransaction
    ) -> None:
        self._machine = ProducerTransactions.resumed(prepared)
        self._lock = Lock()
        self._drivers = drivers  # of the producer, which closes them
        self._driver = TransactionDriver(config, self._machine, cluster, self._lock, self._on_answer)
        self._is_committed: bool | None = None

    async def commit(self) -> None:
        """Commit it."""
        await self._end(self._machine.commit, Call.COMMIT)

    async def abort(self) -> None:
        """Abort it."""
        await self._end(self._machine.abort, Call.ABORT)

    async def _end(self, ask: Callable[[], bool], call: Call) -> None:
        commits = call is Call.COMMIT
        if self._is_committed is not None:
            if self._is_committed is commits:
                return
            raise refusal(
                Code.INVALID_TXN_STATE,
                f"transactional id {self._machine.transactional_id!r}: {call.value}: the transaction"
                f" {'is committed' if self._is_committed else 'was aborted'}",
            )

        def is_ended() -> bool:
            if self._machine.state is ProducerTransactionState.READY:
                return True
            self._machine.check(call)
            return False

        with self._lock:
            ask()
        self._drivers.add(self._driver)
        self._driver.wake()
        await self._driver.until(
            is_ended, call.value, lambda: ". It is asked on: call it again, and wait for the answer"
        )
        self._is_committed = commits

    def _on_answer(self) -> None:
        if self._machine.state in (ProducerTransactionState.READY, ProducerTransactionState.FATAL_ERROR):
            self._drivers.discard(self._driver)
