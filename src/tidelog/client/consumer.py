"""The blocking consumer."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from tidelog.base.ids import PartitionIndex, Position, TopicPartition
from tidelog.client.core.values import (
    RAW,
    CommittedOffset,
    ConsumerRecord,
    ConsumerRecords,
    Deserializers,
    FetchedBatches,
    K,
    OffsetAndEpoch,
    PartitionStatistics,
    Rebalance,
    V,
)
from tidelog.client.options import ConsumerConfig, deserializers_of, parse_options

if TYPE_CHECKING:
    import re
    from datetime import datetime
    from types import TracebackType

    import pyarrow as pa

    from tidelog.client.async_consumer import AsyncConsumer
    from tidelog.client.cluster import World
    from tidelog.client.consumer_group import Listener
    from tidelog.client.core.group_metadata import GroupMetadata
    from tidelog.client.core.handing import Handing
    from tidelog.client.core.subscription import Begins
    from tidelog.client.options import ConsumerOptions, Start

T = TypeVar("T")


class Consumer(Generic[K, V]):
    """Reads records of the partitions it is assigned, and never skips any that the log lost without saying so.

        with Consumer("127.0.0.1:9092", auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            consumer.seek(TopicPartition("flights", 0), offset, leader_epoch)
            for record in consumer.poll(timeout_ms=1000):
                ...

    While the caller works on what `poll` returned, the next records are fetched in a thread of its own. Thread-safe,
    though two threads that poll share the records between them.

    Args:
        bootstrap_servers: `host:port`, several with commas between them or as a list.
        key_deserializer, value_deserializer: make a record's key and value of its bytes, or of None where it has none;
            see `tidelog.serialization.or_none`. They are called on the client's own thread. What one raises comes as a
            `RecordDeserializationError`.
        options: see `tidelog.client.options.ConsumerConfig`; an unknown one is a TypeError.
    """

    def __init__(
        self,
        bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092",
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        deserializers = deserializers_of("Consumer", key_deserializer, value_deserializer)
        config = parse_options(ConsumerConfig, "Consumer", options)
        self._start(bootstrap_servers, config, deserializers=deserializers)

    def _start(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ConsumerConfig,
        *,
        world: World | None = None,
        deserializers: Deserializers = RAW,
    ) -> None:
        from tidelog.client.async_consumer import AsyncConsumer  # and asyncio: loaded with the first consumer
        from tidelog.client.loop_thread import LoopThread

        self._is_closed = False
        self._teller: int | None = None  # the thread that calls a listener
        self._async: AsyncConsumer[K, V] = AsyncConsumer.__new__(AsyncConsumer)
        self._async._start(bootstrap_servers, config, world=world, deserializers=deserializers)
        self._polling = self._async._polling
        self._thread = LoopThread(f"tidelog-consumer-{config.client_id}")

    @property
    def client_id(self) -> str:
        """What brokers call this client in their logs, and Prometheus in its metrics."""
        return self._async.client_id

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed

    def __enter__(self) -> Consumer[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Where to read.
    def subscribe(
        self,
        topics: str | re.Pattern[str] | Iterable[str],
        *,
        start: Start | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read what the group gives this consumer of these topics. A second call changes what it reads.

        Partitions come and go only while the consumer asks for records. Then the caller is told, within that call.
        Each partition starts behind what the group has committed. Whether that was truncated is found out first.

        Args:
            topics: names, or one name, or a pattern that matches whole names.
            start: where to start what the group has committed nothing of: "earliest", "latest", or a `timedelta` ago.
                By default where `auto_offset_reset` says.
            on_assigned: called with the partitions that come, before any of their records; it may `seek`.
            on_revoked: called with the partitions that go, while they are still this consumer's; it may `commit`.
            on_lost: called with partitions that are another's already; by default `on_revoked` is.

        Raises:
            ConfigError: the consumer has no `group_id`.
            TidelogError: partitions are assigned by `assign`.
        """
        self._there(
            lambda: self._async.subscribe(
                topics, start=start, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost
            )
        )

    def subscription(self) -> list[str]:
        """The topics that it subscribes to, sorted; of a pattern those that are found so far."""
        return self._there(self._async.subscription)

    def unsubscribe(self) -> None:
        """Leave the group, and read nothing. `on_revoked` is told first. What auto-commit has left is committed."""
        self._tell(self._thread.run(self._async._before_unsubscribing()))
        self._thread.run(self._async._leave())

    def assign(self, partitions: Iterable[TopicPartition], *, start: Start | None = None) -> None:
        """Read these partitions, and no others. Those that were assigned before keep their positions.

        A new one starts behind what the group has committed, if there is a `group_id`; else at `start`; else where
        `auto_offset_reset` says; unless `seek` says otherwise.

        Args:
            partitions: which.
            start: "earliest", "latest", or a `timedelta` ago.
        """
        wanted = list(partitions)
        self._there(lambda: self._async.assign(wanted, start=start))

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned, sorted."""
        return self._there(self._async.assignment)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Give no records of these partitions, or of all that are assigned, until `resume`. They keep their positions.

        Whether their logs were truncated is looked for all the same.
        """
        self._there(lambda: self._async.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Give records of these partitions again, or of all that are paused."""
        self._there(lambda: self._async.resume(partitions))

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return self._there(self._async.paused)

    def seek(
        self,
        partition: TopicPartition,
        offset: int | Position,
        leader_epoch: int | None = None,
        *,
        fetch_end_offset: int | None = None,
    ) -> None:
        """Go on at an offset.

        Args:
            partition: one that is assigned.
            offset: of the next record to read; or a position, as `position` or an error's `seek_to` gave it.
            leader_epoch: of the record *before* it, as `position` or the record itself gave it. Then the next poll
                finds out first whether the log was truncated since, and says so (KIP-320). A position has its own.
            fetch_end_offset: no fetch begins at or above it. Whoever reads a range gives the end of that. Otherwise the
                last fetch of the range is followed by one that waits at the broker, for up to `fetch_max_wait_ms`.
        """
        self._there(lambda: self._async.seek(partition, offset, leader_epoch, fetch_end_offset=fetch_end_offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the start of the log, in these partitions or in all that are assigned."""
        self._there(lambda: self._async.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = (), *, before: int = 0) -> None:
        """Go on at the end of the log as it is at the next poll, in these partitions or in all that are assigned.

        Args:
            before: so many offsets before the end, or at the start of a log that has fewer.
        """
        self._there(lambda: self._async.seek_to_end(partitions, before=before))

    def seek_to_time(self, when: int | datetime, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record at or after a time, in these partitions or in all that are assigned.

        A partition that has none so late is read on from its end.

        Args:
            when: ms since 1970, or a `datetime`.
        """
        self._there(lambda: self._async.seek_to_time(when, partitions))

    def position(self, partition: TopicPartition) -> Position:
        """Where reading goes on. Waits while that is being looked up.

        Raises:
            UnknownTopicError: there is no such partition.
            TimedOutError: it could not be looked up within `default_api_timeout_ms`.
            TidelogError: the partition stopped, as `poll` would say.
        """
        return self._thread.run(self._async.position(partition))

    def statistics(self) -> dict[TopicPartition, PartitionStatistics]:
        """How the consumer stands in each partition that is assigned, as of the last answers. Asks nobody."""
        return self._there(self._async.statistics)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets there are from where reading goes on to the end, as of the last answer. Asks nobody.

        Kafka: `Consumer.currentLag`.

        Returns:
            None if no answer has said it yet.

        Raises:
            TidelogError: the partition is not assigned.
        """
        return self._there(partial(self._async.lag, partition))

    # Reading.
    def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> ConsumerRecords[K, V]:
        """Records, in the order of their offsets within each partition; none if none came in time.

        Args:
            timeout_ms: how long to wait for the first.
            max_records: by default `max_poll_records`.

        Raises:
            LogTruncatedError: records that were read, or stood past, are gone, and `auto_offset_reset` is "none". So it
                does again, until the caller seeks; other partitions stay where they are.
            OffsetOutOfRangeError: the position is outside the log, likewise.
            TidelogError: why a partition cannot be read.
        """
        return self._fetch(timeout_ms, max_records, is_loop=False).take_all()

    def poll_batches(self, timeout_ms: int = 1_000) -> list[FetchedBatches]:
        """Whole batches, as the brokers sent them, for those who decode themselves. Otherwise as `poll`."""
        return self._deliver(self._polling.reading_batches(timeout_ms))

    def poll_arrow(
        self, timeout_ms: int = 1_000, columns: Iterable[str] | None = None, size_bytes: int = 64 * 1024 * 1024
    ) -> pa.RecordBatch:
        """Records as an Arrow batch, decoded without a Python object for any of them. Otherwise as `poll`.

        Args:
            timeout_ms: how long to wait for the first.
            columns: which of `tidelog.client.arrow.COLUMNS` to decode; by default all.
            size_bytes: stop after so much.

        Raises:
            MalformedBatchError: a batch is damaged. Every partition stands where it stood before the call; `poll`
                gives the records up to the damage, and says where it is.
        """
        return self._deliver(self._polling.reading_arrow(timeout_ms, columns, size_bytes))

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        """Records without end, one by one. Whoever leaves the loop goes on behind the last record it was given."""
        while True:
            yield from self._fetch(1_000, None, is_loop=True).one_by_one()

    def until_end(self) -> Iterator[ConsumerRecord[K, V]]:
        """Records one by one, up to where each log ends by now. A few that come meanwhile may be among them.

        In a group, the end of a partition that comes later is where it ends by then.
        """
        ends: dict[TopicPartition, int] = {}
        while self._thread.run(self._async._is_before(ends)):
            yield from self._fetch(1_000, None, is_loop=True).one_by_one()
        self._there(self._async._deliveries.on_back)

    def wakeup(self) -> None:
        """Have the call that waits for records raise `WakeupError`, or the next one.

        A loop over records ends behind the one that it works on. The blocking client's is for any thread.
        """
        self._thread.call_soon(self._async.wakeup)

    # Asking.
    def partitions_for(self, topic: str) -> list[PartitionIndex]:
        """The partitions of a topic, sorted; none if there is no such topic."""
        return self._thread.run(self._async.partitions_for(topic))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The first offset of each log, and the leader epoch of the record there."""
        return self._thread.run(self._async.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The offset behind the last record that can be read (under read_committed: that is decided).

        With it comes the *leader's* epoch, which may hold no record yet: do not give it to `seek`.
        """
        return self._thread.run(self._async.end_offsets(partitions))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """The first record at or after a time (ms since 1970), in each partition; None if there is none."""
        return self._thread.run(self._async.offsets_for_times(timestamps_ms))

    # What the group remembers.
    def commit(
        self,
        offsets: ConsumerRecord[Any, Any]
        | ConsumerRecords[Any, Any]
        | Mapping[TopicPartition, int | Position | CommittedOffset]
        | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Have the group remember how far it has read. With the offset goes the leader epoch, where it is known.

        Args:
            offsets: a record: all up to it is done; what a poll gave: all of that is; or the next offset to read, of
                each partition. By default all is done that the caller was given.
            wait: whether to wait until it is done. If not, `on_commit` is told what became of it.

        Raises:
            CommitFailedError: the partitions are another's by now. What was read since the last commit is read again.
            TimedOutError: not within `default_api_timeout_ms`. Whether it is done is not known.
            KafkaError: it was refused for another reason.
        """
        self._thread.run(self._async.commit(offsets, wait=wait))

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed, of these partitions or of all that are assigned; None for nothing.

        Raises:
            TimedOutError: not within `default_api_timeout_ms`, as while a transaction is about to commit some.
            KafkaError: it was refused.
        """
        return self._thread.run(self._async.committed(partitions))

    def group_metadata(self) -> GroupMetadata:
        """The consumer as a member of its group, for a transaction that takes its offsets along (KIP-447).

        Raises:
            CommitFailedError: it subscribes, and is no member at the moment.
        """
        return self._there(self._async.group_metadata)

    def close(self) -> None:
        """Commit what auto-commit has left, leave the group, and disconnect. A second call does nothing.

        Whoever closes has not come back from what it was given last: `commit` says that this is done too.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            try:
                self._tell(self._thread.run(self._async._before_leaving()))
            finally:
                self._thread.run(self._async._disconnect())
        finally:
            self._thread.close()

    # How.
    def _fetch(self, timeout_ms: int, max_records: int | None, *, is_loop: bool) -> Handing[K, V]:
        """Records on their way to the caller. If Ctrl-C comes before they are taken, they are delivered again."""
        from tidelog.client.polling import check_not_telling

        check_not_telling(self._teller == threading.get_ident())
        read = self._polling.reading(timeout_ms, max_records)

        async def hand() -> Handing[K, V] | Rebalance:
            found = await self._polling.step(read)
            return found if isinstance(found, Rebalance) else self._polling.hand(found, is_loop=is_loop)

        while isinstance(found := self._thread.run(hand()), Rebalance):
            self._tell(found)
        return found

    def _deliver(self, read: Callable[[Begins], Awaitable[T]]) -> T:
        """What is taken in one piece. If Ctrl-C comes before the caller has it, it is delivered again."""
        from tidelog.client.polling import check_not_telling

        check_not_telling(self._teller == threading.get_ident())
        while True:
            found = self._thread.run(self._polling.deliver(read))
            if isinstance(found, Rebalance):
                self._tell(found)
                continue
            result = found.take()
            if result is not None:
                return result

    def _tell(self, rebalance: Rebalance | None) -> None:
        """Call the listener here, on the caller's thread: there it may use this consumer."""
        if rebalance is None:
            return
        self._teller = threading.get_ident()
        try:
            self._polling.call_listener(rebalance)
        except BaseException:
            self._there(lambda: self._polling.on_listener_failed(rebalance))
            raise
        finally:
            self._teller = None
        self._there(lambda: self._polling.on_told(rebalance))

    def _there(self, work: Callable[[], T]) -> T:
        async def do() -> T:
            return work()

        return self._thread.run(do())
