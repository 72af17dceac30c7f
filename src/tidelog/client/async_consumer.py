"""The consumer for event loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from tidelog.base.errors import MalformedBatchError, TidelogError, TimedOutError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, Position, TopicPartition
from tidelog.client.cluster import Cluster, World, real_world
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.client.core.handing import Delivered, Handing
from tidelog.client.core.needs import EARLIEST, LATEST
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import (
    RAW,
    ConsumerRecord,
    ConsumerRecords,
    Deserializers,
    FetchedBatches,
    IsolationLevel,
    K,
    OffsetAndEpoch,
    PartitionStatistics,
    V,
)
from tidelog.client.fetching import Fetching
from tidelog.client.leader_requests import Leaders
from tidelog.client.options import ConsumerConfig, ConsumerOptions, deserializers_of, parse_options, reset_policy
from tidelog.net.address import parse_bootstrap

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_ANSWERS_PER_POLL_MAX = 64


class AsyncConsumer(Generic[K, V]):
    """Reads records of the partitions it is assigned, and never skips any that the log lost without saying so.

        async with aio.Consumer("127.0.0.1:9092", auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            consumer.seek(TopicPartition("flights", 0), offset, leader_epoch)
            for record in await consumer.poll(timeout_ms=1000):
                ...

    Args:
        bootstrap_servers: `host:port`, several with commas between them or as a list.
        key_deserializer, value_deserializer: make a record's key and value of its bytes, or of None where it has none.
            They are called on the client's own thread. What one raises comes as a `RecordDeserializationError`.
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
        consistency: ConsistencyContextStore | None = None,
        deserializers: Deserializers = RAW,
    ) -> None:
        world = world or real_world()
        self._config = config
        self._clock = world.clock
        self._cluster = Cluster(parse_bootstrap(bootstrap_servers), config, world, consistency=consistency)
        self._isolation_level = IsolationLevel(config.isolation_level)
        policy, ago_ms = reset_policy(config)
        self._subscription = Subscription(
            policy,
            config.max_partition_fetch_bytes,
            self._cluster.backoff.delay_ms,
            deserializers=deserializers,
            unknown_ms_max=config.default_api_timeout_ms,
            begins_at=lambda: world.clock.wall_ms() - ago_ms,
        )
        self._fetching = Fetching(
            config,
            self._subscription,
            self._cluster,
            world.clock,
            settle=self._settle,
            stands_at=self._stands_at,
        )
        self._handing: Handing[K, V] | Delivered[Any] | None = None

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Where to read.
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, and no others. Those that were assigned before keep their positions.

        A new one starts where `auto_offset_reset` says, unless `seek` says otherwise.
        """
        self._fetching.check_open()
        self._settle()
        wanted = [TopicPartition(*partition) for partition in partitions]
        topics = {partition.topic for partition in wanted}
        self._cluster.want(topics, create=self._config.allow_auto_create_topics)
        self._subscription.assign(wanted, self._cluster.metadata, self._clock.now_ms())
        self._fetching.pump_soon()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned, sorted."""
        return sorted(self._subscription.readers)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Give no records of these partitions, or of all that are assigned, until `resume`. They keep their positions.

        Whether their logs were truncated is looked for all the same.
        """
        self._settle()
        for partition in self.assignment() if partitions is None else partitions:
            self._subscription.paused.add(self._reader(partition).topic_partition)

    def resume(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Give records of these partitions again, or of all that are paused."""
        for partition in self.paused() if partitions is None else partitions:
            self._subscription.paused.discard(self._reader(partition).topic_partition)
        self._fetching.pump_soon()

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return sorted(self._subscription.paused)

    def seek(self, partition: TopicPartition, offset: int | Position, leader_epoch: int | None = None) -> None:
        """Go on at an offset.

        Args:
            partition: one that is assigned.
            offset: of the next record to read; or a position, as `position` or an error's `seek_to` gave it.
            leader_epoch: of the record *before* it, as `position` or the record itself gave it. Then the next poll
                finds out first whether the log was truncated since, and says so (KIP-320). A position has its own.
        """
        if isinstance(offset, Position):
            if leader_epoch is not None:
                raise TypeError(
                    f"seek({offset}, leader_epoch={leader_epoch}): a position has a leader epoch of its own"
                )
            offset, leader_epoch = offset
        if offset < 0:
            raise ValueError(f"{partition}: offset {offset} is negative; see seek_to_beginning and seek_to_end")
        epoch = None if leader_epoch is None else LeaderEpoch(leader_epoch)
        self._settle()
        self._reader(partition).seek(Offset(offset), epoch)
        self._fetching.pump_soon()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the start of the log, in these partitions or in all that are assigned."""
        self._seek_by_time(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the end of the log as it is at the next poll, in these partitions or in all that are assigned."""
        self._seek_by_time(partitions, LATEST)

    async def position(self, partition: TopicPartition) -> Position:
        """Where reading goes on. Waits while that is being looked up.

        Raises:
            TimedOutError: it could not be looked up within `default_api_timeout_ms`.
            TidelogError: the partition stopped, as `poll` would say.
        """
        reader = self._reader(partition)
        if reader.error is not None:
            self._settle()  # the caller may not have come so far
        limit_ms = self._config.default_api_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while reader.error is not None or (position := self._position(reader)) is None:
                    if reader.error is not None:
                        raise reader.error.with_traceback(None)
                    self._fetching.check_open()
                    await self._fetching.wait_for_update()
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            last = self._cluster.last_error
            raise TimedOutError(
                f"{partition}: no position within {limit_ms} ms; last: {last or 'no broker answered yet'}"
            ).about(partition) from None
        return position

    def statistics(self) -> dict[TopicPartition, PartitionStatistics]:
        """How the consumer stands in each partition that is assigned, as of the last answers. Asks nobody."""
        is_committed_only = self._isolation_level is IsolationLevel.READ_COMMITTED
        readers = sorted(self._subscription.readers.items())
        places = {key: self._position(reader) for key, reader in readers}
        offsets = {key: None if place is None else place.offset for key, place in places.items()}
        return {key: reader.statistics(offsets[key], is_committed_only=is_committed_only) for key, reader in readers}

    # Reading.
    async def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> ConsumerRecords[K, V]:
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
        if max_records is not None and max_records < 1:
            raise ValueError(f"poll(max_records={max_records}): 1 or more are expected")
        self._settle()
        limit = self._config.max_poll_records if max_records is None else max_records
        deadline_ms = self._clock.now_ms() + timeout_ms
        moved: dict[TopicPartition, Position] = {}
        while await self._fetching.wait_for_some(deadline_ms):
            self._settle()  # another may have left a loop meanwhile
            records = self._subscription.take_records(limit)
            self._fetching.pump_soon(is_update=False)
            moved |= records.next_offsets()
            if records:
                return ConsumerRecords(records, self._positions(moved), records.begins, records.topic_ids)
        return ConsumerRecords((), self._positions(moved))

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        readers = {key: self._subscription.readers.get(key) for key in partitions}
        found = {key: None if reader is None else reader.position for key, reader in readers.items()}
        return {key: position for key, position in found.items() if position is not None}

    async def poll_batches(self, timeout_ms: int = 1_000) -> list[FetchedBatches]:
        """Whole batches, as the brokers sent them, for those who decode themselves. Otherwise as `poll`."""
        self._settle()
        if not await self._fetching.wait_for_some(self._clock.now_ms() + timeout_ms):
            return []
        batches = self._subscription.take_batches(_ANSWERS_PER_POLL_MAX)
        self._fetching.pump_soon(is_update=False)
        return batches

    async def poll_arrow(
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
        from tidelog.client.arrow import ArrowReader

        self._settle()
        reader = ArrowReader(columns)
        deadline_ms = self._clock.now_ms() + timeout_ms
        before: dict[TopicPartition, Position] = {}
        while reader.row_count == 0 and await self._fetching.wait_for_some(deadline_ms):
            while reader.size_bytes < size_bytes and self._subscription.has_some:
                for key, found in self._subscription.readers.items():
                    if found.held and key not in before and found.position is not None:
                        before[key] = found.position
                try:
                    for batch in self._subscription.take_batches(1):
                        reader.add(batch)
                except MalformedBatchError:
                    for key, position in before.items():  # all that this call took: none of it was returned
                        self.seek(key, *position)
                    raise
            self._fetching.pump_soon(is_update=False)
        return reader.finish()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records without end, one by one. Whoever leaves the loop goes on behind the last record it was given."""
        while True:
            for record in self._hand(await self.poll(), is_loop=True).one_by_one():
                yield record

    # Asking.
    async def partitions_for(self, topic: str) -> list[PartitionIndex]:
        """The partitions of a topic, sorted; none if there is no such topic."""

        async def send_request() -> list[PartitionIndex]:
            await self._cluster.fetch_metadata([topic])
            view = self._cluster.metadata.topics.get(topic)
            return [] if view is None else list(view.partitions)

        return await self._cluster.retrying(f"the partitions of {topic!r}", send_request)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The first offset of each log, and the leader epoch of the record there."""
        return await self._ends(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndEpoch]:
        """The offset behind the last record that can be read (under read_committed: that is decided).

        With it comes the *leader's* epoch, which may hold no record yet: do not give it to `seek`.
        """
        return await self._ends(partitions, LATEST)

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndEpoch | None]:
        """The first record at or after a time (ms since 1970), in each partition; None if there is none."""
        for partition, timestamp in timestamps_ms.items():
            if timestamp < 0:
                raise ValueError(f"{partition}: timestamp {timestamp} is negative")
        return await self._leaders().list_offsets(timestamps_ms, self._isolation_level)

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        await self._fetching.close()

    # How.
    def _hand(self, records: ConsumerRecords[K, V], *, is_loop: bool) -> Handing[K, V]:
        """Records on their way to the caller; `_settle` is called before anything else is done."""
        self._settle()
        self._handing = handing = Handing(records, is_loop=is_loop)
        return handing

    async def _deliver(self, work: Awaitable[T]) -> Delivered[T]:
        """As `_hand`, of what is taken in one piece."""
        self._settle()
        begins = {
            key: (reader.place(), reader.topic_id)
            for key, reader in self._subscription.readers.items()
            if reader.standing is not None
        }
        result = await work
        self._handing = delivered = Delivered(result, begins)
        return delivered

    def _settle(self) -> bool:
        """What the caller was given and has not taken is delivered again, to whoever reads next. Returns: anything."""
        handing, self._handing = self._handing, None
        if handing is None or not handing.give_back(self._subscription.readers):
            return False
        self._fetching.pump_soon()
        return True

    def _stands_at(self, partition: TopicPartition) -> Position | None:
        place = None if self._handing is None else self._handing.place_in(partition)
        return None if place is None else place.position

    def _position(self, reader: PartitionReader) -> Position | None:
        """Where the caller stands, who may not have taken all that was delivered."""
        place = None if self._handing is None else self._handing.place_in(reader.topic_partition)
        is_behind = place is not None and reader.offset is not None and place.offset < reader.offset
        return place.position if place is not None and is_behind else reader.position

    def _leaders(self) -> Leaders:
        self._fetching.check_open()
        return Leaders(
            self._cluster,
            request_timeout_ms=self._config.request_timeout_ms,
            timeout_ms=self._config.default_api_timeout_ms,
        )

    async def _ends(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, OffsetAndEpoch]:
        wanted = {TopicPartition(*partition): timestamp for partition in partitions}
        found = await self._leaders().list_offsets(wanted, self._isolation_level)
        return {
            key: (offset or OffsetAndEpoch(0, None, None))._replace(timestamp=None) for key, offset in found.items()
        }

    def _seek_by_time(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        self._settle()
        for partition in list(partitions) or self.assignment():
            self._reader(partition).seek_by_time(timestamp)
        self._fetching.pump_soon()

    def _reader(self, partition: TopicPartition) -> PartitionReader:
        self._fetching.check_open()
        reader = self._subscription.readers.get(partition)
        if reader is None:
            wanted = TopicPartition(*partition)
            raise TidelogError(f"{wanted} is not assigned to this consumer: call assign first").about(wanted)
        return reader
