"""What `transaction` and `resume_transaction` of the blocking producer return."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Generic

from tidelog.base.ids import Position, TopicPartition
from tidelog.client.async_transaction import AsyncResumedTransaction, AsyncTransaction
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.transaction import PreparedTransaction
from tidelog.client.core.values import RecordMetadata
from tidelog.client.futures import ColumnsFuture, Future
from tidelog.client.loop_thread import LoopThread
from tidelog.client.producer_arguments import HeadersLike, K, V
from tidelog.records.columns import ColumnBuffers

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.producer import Producer


class Transaction(Generic[K, V]):
    """One transaction of a producer, to be used as a context.

    Entering opens it (and takes the transactional id over, if `init_transactions` was not called). Leaving commits it,
    after everything is delivered. An exception aborts it, as does any record or offset that could not be sent, even if
    the block caught that error: then leaving raises `TransactionAbortableError`.
    """

    def __init__(self, producer: Producer[K, V], thread: LoopThread, transaction: AsyncTransaction[K, V]) -> None:
        self._producer = producer
        self._thread = thread
        self._async = transaction

    def __enter__(self) -> Transaction[K, V]:
        self._thread.run(self._async.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._async.__aexit__(kind, error, trace))

    def send(
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
        return self._producer.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)

    def send_columns(self, topic: str, columns: ColumnBuffers, *, partition: int | None = None) -> ColumnsFuture:
        """As `Producer.send_columns`, in the transaction."""
        return self._producer.send_columns(topic, columns, partition=partition)

    def send_arrow(self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None) -> ColumnsFuture:
        """As `Producer.send_arrow`, in the transaction."""
        return self._producer.send_arrow(topic, data, partition=partition)

    def send_offsets(self, offsets: Mapping[TopicPartition, Position | int], group: GroupMetadata | str) -> None:
        """As `Producer.send_offsets_to_transaction`."""
        self._producer.send_offsets_to_transaction(offsets, group)

    def prepare(self) -> PreparedTransaction | None:
        """As `Producer.prepare_transaction`. Leaving the block without an exception then ends nothing."""
        return self._producer.prepare_transaction()

    def abort(self) -> None:
        """Abort now. Leaving the block then does nothing more."""
        self._producer.abort_transaction()


class ResumedTransaction:
    """A transaction that another producer has prepared, and this one ends. Each method may be called again.

    An error other than a `TimedOutError` is the last word. `ProducerFencedError` says that the transaction was ended
    before, or timed out, or that its transactional id was taken over.
    """

    def __init__(self, thread: LoopThread, transaction: AsyncResumedTransaction) -> None:
        self._thread = thread
        self._async = transaction

    def commit(self) -> None:
        """Commit it."""
        self._thread.run(self._async.commit())

    def abort(self) -> None:
        """Abort it."""
        self._thread.run(self._async.abort())
