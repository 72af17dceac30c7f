"""The consumer for event loops."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Unpack

from tidelog.base.errors import Code, ConfigError, TidelogError, TimedOutError
from tidelog.base.ids import PartitionIndex, Position, TopicPartition
from tidelog.client.cluster import Cluster, World, real_world
from tidelog.client.consumer_arguments import committing, place_of, position_of, timestamp_of, topics_to_read
from tidelog.client.core.deliveries import Deliveries
from tidelog.client.core.handing import Handing
from tidelog.client.core.needs import EARLIEST, LATEST
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import (
    RAW,
    CommittedOffset,
    ConsumerRecord,
    ConsumerRecords,
    Deserializers,
    FetchedBatches,
    IsolationLevel,
    K,
    OffsetAndEpoch,
    PartitionStatistics,
    Rebalance,
    V,
)
from tidelog.client.fetching import Fetching
from tidelog.client.leader_requests import Leaders
from tidelog.client.options import (
    ConsumerConfig,
    ConsumerOptions,
    deserializers_of,
    parse_options,
    reset_policy,
)
from tidelog.client.polling import Polling
from tidelog.net.address import parse_bootstrap

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.consumer_group import ConsumerGroup, Listener
    from tidelog.client.core.group_metadata import GroupMetadata
    from tidelog.client.options import Start


class AsyncConsumer(Generic[K, V]):
    """Reads records of the partitions it is assigned, and never skips any that the log lost without saying so.

        async with aio.Consumer("127.0.0.1:9092", auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            consumer.seek(TopicPartition("flights", 0), offset, leader_epoch)
            for record in await consumer.poll(timeout_ms=1000):
                ...

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
        world = world or real_world()
        self._config = config
        self._clock = world.clock
        self._cluster = Cluster(parse_bootstrap(bootstrap_servers), config, world)
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
        self._deliveries: Deliveries[K, V] = Deliveries(self._subscription)
        self._fetching = Fetching(config, self._subscription, self._deliveries, self._cluster, world.clock)
        self._group: ConsumerGroup | None = None
        if config.group_id is not None:
            from tidelog.client.consumer_group import ConsumerGroup

            self._group = ConsumerGroup(
                config, self._cluster, world, self._subscription, self._fetching, deliveries=self._deliveries
            )
        self._polling = Polling(
            self._subscription,
            self._deliveries,
            self._fetching,
            self._group,
            clock=world.clock,
            records_max=config.max_poll_records,
        )

    @property
    def client_id(self) -> str:
        """What brokers call this client in their logs, and Prometheus in its metrics."""
        return self._config.client_id

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._fetching.is_closed

    async def __aenter__(self) -> AsyncConsumer[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
        from tidelog.client.consumer_group import Listeners

        self._fetching.check_open()
        group = self._require_group("subscribe")
        if self._subscription.readers and not group.member.is_subscribed:
            raise TidelogError("subscribe: partitions are assigned by hand: call assign([]) first")
        place = place_of("subscribe", start, self._clock)
        self._fetching.settle()
        wanted = topics_to_read(topics, self._config.group_protocol)
        group.subscribe(wanted, Listeners(on_assigned, on_revoked, on_lost), place)
        self._fetching.pump_soon()

    def subscription(self) -> list[str]:
        """The topics that it subscribes to, sorted; of a pattern those that are found so far."""
        if self._group is None:
            return []
        found = self._group.member.subscription
        if found.pattern is None:
            return sorted(found.topics)
        return sorted(name for name in self._cluster.metadata.topics if found.pattern.fullmatch(name))

    async def unsubscribe(self) -> None:
        """Leave the group, and read nothing. `on_revoked` is told first. What auto-commit has left is committed."""
        await self._polling.tell(await self._before_unsubscribing())
        await self._leave()

    def assign(self, partitions: Iterable[TopicPartition], *, start: Start | None = None) -> None:
        """Read these partitions, and no others. Those that were assigned before keep their positions.

        A new one starts behind what the group has committed, if there is a `group_id`; else at `start`; else where
        `auto_offset_reset` says; unless `seek` says otherwise.

        Args:
            partitions: which.
            start: "earliest", "latest", or a `timedelta` ago.
        """
        self._fetching.check_open()
        if self._group is not None and self._group.member.is_subscribed:
            raise TidelogError("assign: the group gives this consumer its partitions: call unsubscribe first")
        place = place_of("assign", start, self._clock)
        self._fetching.settle()
        wanted = [TopicPartition(*partition) for partition in partitions]
        topics = {partition.topic for partition in wanted}
        self._cluster.forget_refusals(topics)
        self._cluster.want(topics, create=self._config.allow_auto_create_topics)
        is_awaiting = self._group is not None or place is not None
        self._subscription.assign(wanted, self._cluster.metadata, self._clock.now_ms(), is_awaiting=is_awaiting)
        if self._group is not None:
            self._group.on_assigned_by_hand(place)
        else:
            for partition in self._subscription.awaiting:
                self._subscription.readers[partition].start(place)
        self._fetching.pump_soon()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned, sorted."""
        return sorted(self._subscription.readers)

    def pause(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Give no records of these partitions, or of all that are assigned, until `resume`. They keep their positions.

        Whether their logs were truncated is looked for all the same.
        """
        self._fetching.settle()
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
        position = position_of(partition, offset, leader_epoch)
        self._fetching.settle()
        self._reader(partition).seek(*position, fetch_end_offset)
        self._fetching.pump_soon()

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the start of the log, in these partitions or in all that are assigned."""
        self._seek_by_time(partitions, EARLIEST)

    def seek_to_end(self, partitions: Iterable[TopicPartition] = (), *, before: int = 0) -> None:
        """Go on at the end of the log as it is at the next poll, in these partitions or in all that are assigned.

        Args:
            before: so many offsets before the end, or at the start of a log that has fewer.
        """
        if before < 0:
            raise ValueError(f"seek_to_end(before={before}): 0 or more are expected")
        self._seek_by_time(partitions, LATEST, before)

    def seek_to_time(self, when: int | datetime, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record at or after a time, in these partitions or in all that are assigned.

        A partition that has none so late is read on from its end.

        Args:
            when: ms since 1970, or a `datetime`.
        """
        self._seek_by_time(partitions, timestamp_of(when))

    async def position(self, partition: TopicPartition) -> Position:
        """Where reading goes on. Waits while that is being looked up.

        Raises:
            UnknownTopicError: there is no such partition.
            TimedOutError: it could not be looked up within `default_api_timeout_ms`.
            TidelogError: the partition stopped, as `poll` would say.
        """
        reader = self._reader(partition)
        if reader.error is not None:
            self._fetching.settle()  # the caller may not have come so far
        limit_ms = self._config.default_api_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while reader.error is not None or (position := self._deliveries.position(reader)) is None:
                    if reader.error is not None:
                        raise reader.error.with_traceback(None)
                    self._fetching.check_open()
                    if self._cluster.metadata.refusal(partition) is Code.UNKNOWN_TOPIC_OR_PARTITION:
                        await self._leaders().find(partition)
                    else:
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
        offsets = {key: position.offset for key, position in self._deliveries.positions().items()}
        readers = sorted(self._subscription.readers.items())
        return {
            key: reader.statistics(offsets.get(key), is_committed_only=is_committed_only) for key, reader in readers
        }

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets there are from where reading goes on to the end, as of the last answer. Asks nobody.

        Kafka: `Consumer.currentLag`.

        Returns:
            None if no answer has said it yet.

        Raises:
            TidelogError: the partition is not assigned.
        """
        self._reader(partition)
        return self.statistics()[partition].lag

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
        found = await self._polling.telling(self._polling.reading(timeout_ms, max_records))
        handing = Handing(found, is_loop=False)
        self._deliveries.on_taken(handing)
        return handing.take_all()

    async def poll_batches(self, timeout_ms: int = 1_000) -> list[FetchedBatches]:
        """Whole batches, as the brokers sent them, for those who decode themselves. Otherwise as `poll`."""
        return await self._polling.taken(self._polling.reading_batches(timeout_ms))

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
        return await self._polling.taken(self._polling.reading_arrow(timeout_ms, columns, size_bytes))

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records without end, one by one. Whoever leaves the loop goes on behind the last record it was given."""
        while True:
            found = await self._polling.telling(self._polling.reading(1_000, None))
            for record in self._polling.hand(found, is_loop=True).one_by_one():
                yield record

    async def until_end(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        """Records one by one, up to where each log ends by now. A few that come meanwhile may be among them.

        In a group, the end of a partition that comes later is where it ends by then.
        """
        ends: dict[TopicPartition, int] = {}
        while await self._is_before(ends):
            found = await self._polling.telling(self._polling.reading(1_000, None))
            for record in self._polling.hand(found, is_loop=True).one_by_one():
                yield record
        self._deliveries.on_back()

    def wakeup(self) -> None:
        """Have the call that waits for records raise `WakeupError`, or the next one.

        A loop over records ends behind the one that it works on. The blocking client's is for any thread.
        """
        self._polling.wakeup()

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

    # What the group remembers.
    async def commit(
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
        group = self._require_group("commit")
        if offsets is None:
            offsets = self._deliveries.positions()
        wanted = committing(offsets)
        if not wait:
            group.commit_soon(wanted)
        else:
            await group.commit(wanted)

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """What the group has committed, of these partitions or of all that are assigned; None for nothing.

        Raises:
            TimedOutError: not within `default_api_timeout_ms`, as while a transaction is about to commit some.
            KafkaError: it was refused.
        """
        group = self._require_group("committed")
        wanted = self.assignment() if partitions is None else [TopicPartition(*one) for one in partitions]
        self._cluster.want({partition.topic for partition in wanted})
        return await group.committed(wanted)

    def group_metadata(self) -> GroupMetadata:
        """The consumer as a member of its group, for a transaction that takes its offsets along (KIP-447).

        Raises:
            CommitFailedError: it subscribes, and is no member at the moment.
        """
        return self._require_group("group_metadata").metadata()

    async def close(self) -> None:
        """Commit what auto-commit has left, leave the group, and disconnect. A second call does nothing.

        Whoever closes has not come back from what it was given last: `commit` says that this is done too.
        """
        rebalance = await self._before_leaving()
        try:
            await self._polling.tell(rebalance)
        finally:
            await self._disconnect()

    async def _before_unsubscribing(self) -> Rebalance | None:
        self._require_group("unsubscribe")
        return await self._before_leaving()

    async def _before_leaving(self) -> Rebalance | None:
        """What the caller has to be told before the consumer leaves its group."""
        self._fetching.settle()
        return None if self._group is None or self._fetching.is_closed else await self._group.last_rebalance()

    async def _leave(self) -> None:
        if self._group is not None:
            await self._group.leave()

    async def _disconnect(self) -> None:
        if not self._fetching.is_closed:
            try:
                await self._leave()
            finally:
                await self._fetching.close()

    def _require_group(self, call: str) -> ConsumerGroup:
        self._fetching.check_open()
        if self._group is None:
            raise ConfigError(
                f"{call}: the consumer is in no group: make it with group_id='…', or read without one:"
                " assign(TopicPartition(topic, number) for number in consumer.partitions_for(topic))"
            )
        return self._group

    async def _is_before(self, ends: dict[TopicPartition, int]) -> bool:
        """Whether there is more to read, or to be told, before these ends. Those that are not known are looked up."""
        readers = self._subscription.readers
        found = await self.end_offsets([key for key in readers if key not in ends])
        for key, end in found.items():
            offset = readers[key].offset if key in readers else None
            if offset is None or offset <= end.offset:  # a position behind the end may be lost: to fetch there says so
                ends[key] = end.offset
        if self._group is not None and self._group.member.is_subscribed and not self._group.member.membership.is_stable:
            return True
        return any(key not in ends or reader.is_before(ends[key]) for key, reader in readers.items())

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

    def _seek_by_time(self, partitions: Iterable[TopicPartition], timestamp: int, before: int = 0) -> None:
        self._fetching.settle()
        for partition in list(partitions) or self.assignment():
            self._reader(partition).seek_by_time(timestamp, before)
        self._fetching.pump_soon()

    def _reader(self, partition: TopicPartition) -> PartitionReader:
        self._fetching.check_open()
        reader = self._subscription.readers.get(partition)
        if reader is None:
            wanted = TopicPartition(*partition)
            how = (
                "the group has not given it"
                if self._group and self._group.member.is_subscribed
                else "call assign first"
            )
            raise TidelogError(f"{wanted} is not assigned to this consumer: {how}").about(wanted)
        return reader
