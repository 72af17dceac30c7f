"""The blocking producer, for any number of threads."""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from tidelog.base.errors import TidelogError
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.async_producer import AsyncProducer
from tidelog.client.cluster import World
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.transaction import PreparedTransaction
from tidelog.client.core.values import ProducerStatistics, RecordMetadata
from tidelog.client.futures import ColumnsFuture, Future
from tidelog.client.loop_thread import LoopThread
from tidelog.client.options import ProducerConfig, ProducerOptions, parse_options
from tidelog.client.producer_arguments import (
    BytesLike,
    HeadersLike,
    K,
    Serializers,
    V,
    as_bytes,
    as_headers,
    check_timestamp,
    serialized,
    serializers_of,
)
from tidelog.client.transaction import ResumedTransaction, Transaction
from tidelog.records.columns import ColumnBuffers

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("tidelog.client")

_AT_EXIT_SECONDS_MAX = 30.0


class Producer(Generic[K, V]):
    """Sends records. Idempotent unless told otherwise: retries write nothing twice, keep the order, and show losses.

        with Producer("127.0.0.1:9092") as producer:
            future = producer.send("flights", b"value", key=b"key")
            print(future.result().offset)

    `send` returns at once; leaving the `with` block, `flush` and `close` wait, and raise the first failure that was not
    asked for by `result()`. Thread-safe; its event loop runs in a thread of its own.

    Args:
        bootstrap_servers: `host:port`, several with commas between them or as a list.
        key_serializer, value_serializer: make bytes or text of what `send` is given. None is null, without them.
        options: see `tidelog.client.options.ProducerConfig`; an unknown one is a TypeError.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        *,
        key_serializer: Callable[[K], BytesLike] | None = None,
        value_serializer: Callable[[V], BytesLike] | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        serializers = serializers_of(key_serializer, value_serializer)
        self._start(bootstrap_servers, parse_options(ProducerConfig, "Producer", options), serializers=serializers)

    def _start(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ProducerConfig,
        *,
        world: World | None = None,
        serializers: Serializers | None = None,
    ) -> None:
        self._is_closed = False
        self._serializers = serializers
        self._async: AsyncProducer[K, V] = AsyncProducer.__new__(AsyncProducer)
        self._async._start(bootstrap_servers, config, world=world, call_soon=self._call_soon)
        self._sender_task = self._async._sender_task
        self._appender = self._sender_task.appender
        self._wall_ms = self._async._clock.wall_ms
        self._thread = LoopThread(f"tidelog-producer-{config.client_id}")
        _open_producers.add(self)

    @property
    def client_id(self) -> str:
        """What brokers call this client in their logs, and Prometheus in its metrics."""
        return self._async.client_id

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def _call_soon(self, callback: Callable[[], None]) -> None:
        self._thread.call_soon(callback)

    def __enter__(self) -> Producer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TidelogError:
            if error is None:
                raise
            logger.exception("while the `with` block failed, so did the producer")

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
        """Take a record and return. Blocks only while the buffer is full, and for a topic's first record.

        Args:
            topic: where to; asked for from the cluster the first time.
            value: bytes, or text that is sent as UTF-8, unless there is a `value_serializer`; None for null.
            key: likewise. Records of a key go to one partition, the same as Java's clients choose.
            partition: overrides that choice.
            timestamp_ms: since 1970; by default now.
            headers: names with values.

        Returns:
            Its outcome: `result()` waits until the record is delivered, and says where it went.

        Raises:
            TimedOutError: no room, or no metadata, within `max_block_ms`. The record was not taken.
            TidelogError: why no record of this kind will ever be taken.
        """
        sent: Any = value
        sent_key: Any = key
        try:
            if self._serializers is not None:
                sent_key, sent = serialized(self._serializers, key, value)
            if sent.__class__ is not bytes:
                sent = as_bytes(sent, "value")
            if sent_key is not None and sent_key.__class__ is not bytes:
                sent_key = as_bytes(sent_key, "key")
            timestamp_ms = self._wall_ms() if timestamp_ms is None else check_timestamp(timestamp_ms)
            pairs = as_headers(headers) if headers else ()
            append = self._appender.append
            while (future := append(topic, partition, sent_key, sent, timestamp_ms, pairs)) is None:
                self._thread.run(self._sender_task.until_ready(topic, partition))
        except BaseException as error:
            self._sender_task.on_send_raised(error)
            raise
        return future

    def send_columns(self, topic: str, columns: ColumnBuffers, *, partition: int | None = None) -> ColumnsFuture:
        """Take all rows of columns (`timestamp` may be missing: then it is now), as `send` does, but much faster."""
        return self._thread.run(self._async.send_columns(topic, columns, partition=partition))

    def send_arrow(self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None) -> ColumnsFuture:
        """Take all rows of an Arrow table. See `tidelog.client.arrow.columns_from_arrow` for its columns."""
        return self._thread.run(self._async.send_arrow(topic, data, partition=partition))

    def partitions_for(self, topic: str, *, at_least: int = 0) -> int:
        """How many partitions a topic has. Raises as `send` does for a topic that cannot be had.

        Args:
            topic: which; asked for from the cluster the first time.
            at_least: if fewer are known, the cluster is asked once more, as some may have been added since.
        """
        return self._thread.run(self._async.partitions_for(topic, at_least=at_least))

    # Transactions.
    def init_transactions(self) -> None:
        """Take the `transactional_id` over: what an earlier producer left open is aborted, and that one is fenced.

        Call it before the program reads the positions that its predecessor committed. `transaction` calls it if nobody
        has. A second call does nothing.

        Raises:
            TimedOutError: not within `default_api_timeout_ms`. It goes on: call again.
            TidelogError: the producer will never have transactions; says why.
        """
        self._thread.run(self._async.init_transactions())

    def transaction(self) -> Transaction[K, V]:
        """A transaction, as a context: leaving it commits, an exception aborts. See `Transaction`."""
        return Transaction(self, self._thread, self._async.transaction())

    def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it."""
        self._thread.run(self._async.begin_transaction())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, Position | int], group: GroupMetadata | str
    ) -> None:
        """Commit the positions of a group with the transaction, as `ConsumerRecords.next_offsets` returns them.

        Args:
            offsets: the next offset to read of each partition; with its leader epoch, as a `Position`, so that the
                next reader notices a truncation.
            group: the consumer's `group_metadata()`, or the name of a group whose partitions are assigned by hand.

        Raises:
            TransactionAbortableError: the group has moved on without the consumer, or the like; abort.
            TimedOutError: not within `default_api_timeout_ms`; abort.
        """
        self._thread.run(self._async.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Wait until all that was sent is delivered, then commit: all of it becomes visible, or nothing.

        Raises:
            TransactionAbortableError: something was not delivered. Nothing is committed: call `abort_transaction`.
            ProducerFencedError: the transactional id has a newer producer, or the transaction was open for too long.
            TimedOutError: the outcome is not known. Call again: it is the same commit, and is done once.
        """
        self._thread.run(self._async.commit_transaction())

    def abort_transaction(self) -> None:
        """Give the transaction up: records that wait are not sent, and `read_committed` consumers see none of it.

        Raises:
            KafkaError: INVALID_TXN_STATE; its commit was asked for, and may have been done.
            TimedOutError: not done yet; call again. The coordinator aborts it after `transaction_timeout_ms`.
        """
        self._thread.run(self._async.abort_transaction())

    def prepare_transaction(self) -> PreparedTransaction | None:
        """Wait until all that was sent is delivered, and leave the end to whoever is given the result.

        That one calls `resume_transaction`, of another producer, maybe elsewhere. Closing this one leaves the
        transaction open; the coordinator aborts it after `transaction_timeout_ms`, or when another producer takes the
        transactional id over. `commit_transaction` and `abort_transaction` still end it here.

        Returns:
            What `resume_transaction` takes; None if nothing was sent: then there is nothing to be ended.
        """
        return self._thread.run(self._async.prepare_transaction())

    def resume_transaction(self, transactional_id: str, producer_id: int, producer_epoch: int) -> ResumedTransaction:
        """End a transaction that another producer has prepared, as `PreparedTransaction` names it.

        The producer that resumes needs no `transactional_id`, and its own transactions are not concerned. The one that
        prepared it writes nothing more until it has called `init_transactions` anew, in a new producer.
        """
        return ResumedTransaction(
            self._thread, self._async.resume_transaction(transactional_id, producer_id, producer_epoch)
        )

    def statistics(self) -> ProducerStatistics:
        """How the producer stands: what was delivered, what waits, what failed. From any thread; asks nobody."""
        return self._sender_task.statistics()

    # Its end.
    def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was taken is delivered or has failed.

        Args:
            timeout: in seconds; None for as long as `delivery_timeout_ms` lets it take.

        Raises:
            TimedOutError: not within `timeout`; what is left is still on its way.
            TidelogError: the first failure of a record of whose future nobody asked the outcome, since the last flush.
        """
        self._thread.run(self._async.flush(timeout))

    def close(self, timeout: float | None = None) -> None:
        """Flush, and disconnect in any case. Raises as `flush` does. A second call does nothing.

        A transaction that is open is aborted.
        """
        if self._is_closed:
            return
        self._is_closed = True
        _open_producers.discard(self)
        try:
            self._thread.run(self._async.close(timeout))
        finally:
            self._thread.close()


_open_producers: weakref.WeakSet[Producer[Any, Any]] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open_producers.clear)  # the parent's to close


@atexit.register
def _close_all() -> None:
    """A program that ends without closing its producers still delivers what they took."""
    for producer in list(_open_producers):
        try:
            producer.close(_AT_EXIT_SECONDS_MAX)
        except TidelogError:
            logger.exception("a producer was not closed, and could not deliver everything at exit")
