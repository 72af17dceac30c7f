"""The producer for event loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from tidelog.base.errors import ClientClosedError, Code, ConfigError, KafkaError, TidelogError, TimedOutError
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.async_transaction import AsyncResumedTransaction, AsyncTransaction
from tidelog.client.cluster import Cluster, World, real_world
from tidelog.client.core.encoding import split_rows
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.route import Route
from tidelog.client.core.transaction import PreparedTransaction
from tidelog.client.core.values import ProducerStatistics, RecordMetadata
from tidelog.client.futures import ColumnsFuture, Future
from tidelog.client.options import ProducerConfig, ProducerOptions, parse_options
from tidelog.client.producer_arguments import (
    BytesLike,
    HeadersLike,
    K,
    Serializers,
    V,
    as_bytes,
    as_group,
    as_headers,
    as_positions,
    check_timestamp,
    rows_by_target,
    sender_settings,
    serialized,
    serializers_of,
    with_timestamps,
)
from tidelog.client.sender_task import SenderTask
from tidelog.client.transaction_driver import TransactionDriver
from tidelog.client.transaction_task import TransactionTask
from tidelog.net.address import parse_bootstrap
from tidelog.records.columns import ColumnBuffers

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("tidelog.client")


class AsyncProducer(Generic[K, V]):
    """Sends records. Idempotent unless told otherwise: retries write nothing twice, keep the order, and show losses.

        async with aio.Producer("127.0.0.1:9092") as producer:
            sent = await producer.send("flights", b"value", key=b"key")
            print((await sent).offset)

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
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._config = config
        self._is_closed = False
        self._serializers = serializers
        world = world or real_world()
        cluster = Cluster(parse_bootstrap(bootstrap_servers), config, world)
        self._clock = world.clock
        self._cluster = cluster
        self._sender_task = sender = SenderTask(
            config, sender_settings(config), cluster, world, call_soon or _call_soon
        )
        self._appender = sender.appender
        self._transaction_task = None if sender.driver is None else TransactionTask(config, sender, sender.driver)
        self._resumed: set[TransactionDriver] = set()

    @property
    def client_id(self) -> str:
        """What brokers call this client in their logs, and Prometheus in its metrics."""
        return self._config.client_id

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    async def __aenter__(self) -> AsyncProducer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except TidelogError:
            if error is None:
                raise
            logger.exception("while the `with` block failed, so did the producer")

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
        """Take a record, once there is room for it; await what is returned to know that it was delivered.

        Args:
            topic: where to; asked for from the cluster the first time.
            value: bytes, or text that is sent as UTF-8, unless there is a `value_serializer`; None for null.
            key: likewise. Records of a key go to one partition, the same as Java's clients choose.
            partition: overrides that choice.
            timestamp_ms: since 1970; by default now.
            headers: names with values.

        Raises:
            TimedOutError: no room, or no metadata, within `max_block_ms`. The record was not taken.
            TidelogError: why no record of this kind will ever be taken.
        """
        sent: Any = value
        sent_key: Any = key
        try:
            if self._serializers is not None:
                sent_key, sent = serialized(self._serializers, key, value)
            arguments = (
                topic,
                partition,
                as_bytes(sent_key, "key"),
                as_bytes(sent, "value"),
                self._clock.wall_ms() if timestamp_ms is None else check_timestamp(timestamp_ms),
                as_headers(headers) if headers else (),
            )
            while (future := self._appender.append(*arguments)) is None:
                await self._sender_task.until_ready(topic, partition)
        except BaseException as error:
            self._sender_task.on_send_raised(error)
            raise
        return future

    async def send_columns(self, topic: str, columns: ColumnBuffers, *, partition: int | None = None) -> ColumnsFuture:
        """Take all rows of columns (`timestamp` may be missing: then it is now), as `send` does, but much faster."""
        try:
            return await self._send_parts(topic, [(partition, columns)])
        except BaseException as error:
            self._sender_task.on_send_raised(error)
            raise

    async def send_arrow(
        self, topic: str, data: pa.RecordBatch | pa.Table, *, partition: int | None = None
    ) -> ColumnsFuture:
        """Take all rows of an Arrow table. See `tidelog.client.arrow.columns_from_arrow` for its columns."""
        from tidelog.client.arrow import columns_from_arrow

        try:
            return await self._send_parts(topic, columns_from_arrow(data, partition))
        except BaseException as error:
            self._sender_task.on_send_raised(error)
            raise

    async def partitions_for(self, topic: str, *, at_least: int = 0) -> int:
        """How many partitions a topic has. Raises as `send` does for a topic that cannot be had.

        Args:
            topic: which; asked for from the cluster the first time.
            at_least: if fewer are known, the cluster is asked once more, as some may have been added since.
        """
        route = await self._route(topic)
        if route.partition_count < at_least:
            try:
                await self._sender_task.until_ready(topic, at_least - 1)
            except KafkaError as error:
                if error.code != Code.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
            route = await self._route(topic)
        return route.partition_count

    async def _route(self, topic: str) -> Route:
        while (route := self._appender.route(topic)) is None:
            await self._sender_task.until_ready(topic)
        return route

    async def _send_parts(self, topic: str, parts: Iterable[tuple[int | None, ColumnBuffers]]) -> ColumnsFuture:
        batches = []
        for partition, given in parts:
            columns = with_timestamps(given, self._clock.wall_ms())
            by_key = [(partition, None)] if partition is not None else rows_by_target(columns, await self._route(topic))
            for target, rows in by_key:
                for piece in split_rows(columns, self._config.batch_size, rows):
                    while (batch := self._appender.append_rows(topic, target, piece)) is None:
                        await self._sender_task.until_ready(topic, target)
                    batches.append(batch)
        return ColumnsFuture(tuple(batches))

    # Transactions.
    async def init_transactions(self) -> None:
        """Take the `transactional_id` over: what an earlier producer left open is aborted, and that one is fenced.

        Call it before the program reads the positions that its predecessor committed. `transaction` calls it if nobody
        has. A second call does nothing.

        Raises:
            TimedOutError: not within `default_api_timeout_ms`. It goes on: call again.
            TidelogError: the producer will never have transactions; says why.
        """
        await self._transactions().init()

    def transaction(self) -> AsyncTransaction[K, V]:
        """A transaction, as a context: leaving it commits, an exception aborts. See `Transaction`."""
        return AsyncTransaction(self, self._transactions())

    async def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it."""
        await self._transactions().begin()

    async def send_offsets_to_transaction(
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
        task = self._transactions()
        try:
            await task.send_offsets(as_positions(offsets), as_group(group))
        except BaseException as error:
            self._sender_task.on_send_raised(error)
            raise

    async def commit_transaction(self) -> None:
        """Wait until all that was sent is delivered, then commit: all of it becomes visible, or nothing.

        Raises:
            TransactionAbortableError: something was not delivered. Nothing is committed: call `abort_transaction`.
            ProducerFencedError: the transactional id has a newer producer, or the transaction was open for too long.
            TimedOutError: the outcome is not known. Call again: it is the same commit, and is done once.
        """
        await self._transactions().commit()

    async def abort_transaction(self) -> None:
        """Give the transaction up: records that wait are not sent, and `read_committed` consumers see none of it.

        Raises:
            KafkaError: INVALID_TXN_STATE; its commit was asked for, and may have been done.
            TimedOutError: not done yet; call again. The coordinator aborts it after `transaction_timeout_ms`.
        """
        await self._transactions().abort()

    async def prepare_transaction(self) -> PreparedTransaction | None:
        """Wait until all that was sent is delivered, and leave the end to whoever is given the result.

        That one calls `resume_transaction`, of another producer, maybe elsewhere. Closing this one leaves the
        transaction open; the coordinator aborts it after `transaction_timeout_ms`, or when another producer takes the
        transactional id over. `commit_transaction` and `abort_transaction` still end it here.

        Returns:
            What `resume_transaction` takes; None if nothing was sent: then there is nothing to be ended.
        """
        return await self._transactions().prepare()

    def resume_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int
    ) -> AsyncResumedTransaction:
        """End a transaction that another producer has prepared, as `PreparedTransaction` names it.

        The producer that resumes needs no `transactional_id`, and its own transactions are not concerned. The one that
        prepared it writes nothing more until it has called `init_transactions` anew, in a new producer.
        """
        prepared = PreparedTransaction(transactional_id, producer_id, producer_epoch)
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        return AsyncResumedTransaction(self._config, self._cluster, self._resumed, prepared)

    def statistics(self) -> ProducerStatistics:
        """How the producer stands: what was delivered, what waits, what failed. From any thread; asks nobody."""
        return self._sender_task.statistics()

    # Its end.
    async def flush(self, timeout: float | None = None) -> None:
        """Wait until all that was taken is delivered or has failed.

        Args:
            timeout: in seconds; None for as long as `delivery_timeout_ms` lets it take.

        Raises:
            TimedOutError: not within `timeout`; what is left is still on its way.
            TidelogError: the first failure of a record of whose future nobody asked the outcome, since the last flush.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._sender_task.flush()
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            raise TimedOutError(f"flush: not all was delivered within {timeout} s; it is still on its way") from None

    async def close(self, timeout: float | None = None) -> None:
        """Flush, and disconnect in any case. Raises as `flush` does. A second call does nothing.

        A transaction that is open is aborted.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._transaction_task is not None:
                await self._transaction_task.close(timeout)
            await self.flush(timeout)
        finally:
            for driver in list(self._resumed):
                await driver.close()
            await self._sender_task.close()

    def _transactions(self) -> TransactionTask:
        if self._is_closed:
            raise ClientClosedError("the producer is closed")
        if self._transaction_task is None:
            raise ConfigError(
                "this producer has no transactions: give it a transactional_id, one of its own that it keeps over"
                " restarts, as in Producer(transactional_id='copier-1')"
            )
        return self._transaction_task


def _call_soon(callback: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_soon(callback)
