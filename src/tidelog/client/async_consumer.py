"""The consumer for event loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Unpack

from tidelog.base.errors import (
    ClientClosedError,
    InvariantBrokenError,
    MalformedBatchError,
    NetworkError,
    TidelogError,
    TimedOutError,
)
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.cluster import Cluster, World, real_world
from tidelog.client.consistency import ConsistencyContextStore
from tidelog.client.core.fetch_messages import (
    LAST_FETCH_VERSION_WITH_NAMES,
    AskedByPartition,
    FetchSettings,
    epoch_end_request,
    fetch_request,
    look_up_request,
    on_epoch_end_response,
    on_fetch_response,
    on_look_up_response,
    on_no_answer,
)
from tidelog.client.core.metadata_cache import MetadataChanges
from tidelog.client.core.needs import EARLIEST, LATEST
from tidelog.client.core.reader import PartitionReader
from tidelog.client.core.subscription import Subscription
from tidelog.client.core.values import (
    ConsumerRecord,
    FetchedBatches,
    IsolationLevel,
    OffsetAndEpoch,
    Position,
    ResetPolicy,
)
from tidelog.client.lookups import Leaders
from tidelog.client.options import ConsumerConfig, ConsumerOptions, parse_options
from tidelog.net.address import parse_bootstrap
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchResponse
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsResponse
from tidelog.wire.messages.api_23_offset_for_leader_epoch import OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("tidelog.client")

_FETCH_LANES = ("fetch-1", "fetch-2", "fetch-3", "fetch-4")
"""Connections for fetches to one broker: while one waits at the end of some partitions, others can be read."""

_ANSWERS_PER_POLL_MAX = 64


class AsyncConsumer:
    """Reads records of the partitions it is assigned, and never skips any that the log lost without saying so.

        async with aio.Consumer("127.0.0.1:9092", auto_offset_reset="none") as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            consumer.seek(TopicPartition("flights", 0), offset, leader_epoch)
            for record in await consumer.poll(timeout_ms=1000):
                ...

    Args:
        bootstrap_servers: `host:port`, several with commas between them or as a list.
        options: see `tidelog.client.options.ConsumerConfig`; an unknown one is a TypeError.
    """

    def __init__(
        self, bootstrap_servers: str | Iterable[str] = "127.0.0.1:9092", **options: Unpack[ConsumerOptions]
    ) -> None:
        self._start(bootstrap_servers, parse_options(ConsumerConfig, "Consumer", options))

    def _start(
        self,
        bootstrap_servers: str | Iterable[str],
        config: ConsumerConfig,
        *,
        world: World | None = None,
        consistency: ConsistencyContextStore | None = None,
    ) -> None:
        world = world or real_world()
        self._config = config
        self._clock = world.clock
        self._cluster = Cluster(parse_bootstrap(bootstrap_servers), config, world, consistency=consistency)
        self._isolation_level = IsolationLevel(config.isolation_level)
        self._fetching = FetchSettings(
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            isolation_level=self._isolation_level,
            check_crcs=config.check_crcs,
        )
        self._subscription = Subscription(
            ResetPolicy(config.auto_offset_reset), config.max_partition_fetch_bytes, self._cluster.backoff.delay_ms
        )
        self._busy_lanes: set[tuple[BrokerId, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._progress: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_pumping = False
        self._is_news = False
        self._is_closed = False
        self._cluster.on_changes(self._on_metadata)

    async def __aenter__(self) -> AsyncConsumer:
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
        self._check_open()
        wanted = [TopicPartition(*partition) for partition in partitions]
        topics = {partition.topic for partition in wanted}
        self._cluster.want(topics, create=self._config.allow_auto_create_topics)
        self._subscription.assign(wanted, self._cluster.metadata, self._clock.now_ms())
        self._pump_soon()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are assigned, sorted."""
        return sorted(self._subscription.readers)

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Go on at an offset.

        Args:
            partition: one that is assigned.
            offset: of the next record to read.
            leader_epoch: of the record *before* it, as `position` or the record itself gave it. Then the next poll
                finds out first whether the log was truncated since, and says so (KIP-320).
        """
        if offset < 0:
            raise ValueError(f"{partition}: offset {offset} is negative; see seek_to_beginning and seek_to_end")
        epoch = None if leader_epoch is None else LeaderEpoch(leader_epoch)
        self._reader(partition).seek(Offset(offset), epoch)
        self._pump_soon()

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
        limit_ms = self._config.default_api_timeout_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                while (position := reader.position) is None:
                    if reader.error is not None:
                        raise reader.error.with_traceback(None)
                    self._check_open()
                    await asyncio.wait((self._next_progress(),))
        except TimeoutError as error:
            if isinstance(error, TidelogError):
                raise
            raise TimedOutError(f"{partition}: no position within {limit_ms} ms; last: {self._why()}") from None
        return position

    # Reading.
    async def poll(self, timeout_ms: int = 1_000, max_records: int | None = None) -> list[ConsumerRecord]:
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
        limit = self._config.max_poll_records if max_records is None else max_records
        deadline_ms = self._clock.now_ms() + timeout_ms
        while await self._wait_for_some(deadline_ms):
            records = self._subscription.take_records(limit)
            self._pump_soon(is_news=False)
            if records:
                return records
        return []

    async def poll_batches(self, timeout_ms: int = 1_000) -> list[FetchedBatches]:
        """Whole batches, as the brokers sent them, for those who decode themselves. Otherwise as `poll`."""
        if not await self._wait_for_some(self._clock.now_ms() + timeout_ms):
            return []
        batches = self._subscription.take_batches(_ANSWERS_PER_POLL_MAX)
        self._pump_soon(is_news=False)
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

        reader = ArrowReader(columns)
        deadline_ms = self._clock.now_ms() + timeout_ms
        before: dict[TopicPartition, Position] = {}
        while reader.row_count == 0 and await self._wait_for_some(deadline_ms):
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
            self._pump_soon(is_news=False)
        return reader.finish()

    # Asking.
    async def partitions_for(self, topic: str) -> list[PartitionIndex]:
        """The partitions of a topic, sorted; none if there is no such topic."""

        async def ask() -> list[PartitionIndex]:
            await self._cluster.fetch_metadata([topic])
            view = self._cluster.metadata.topics.get(topic)
            return [] if view is None else list(view.partitions)

        return await self._cluster.retrying(f"the partitions of {topic!r}", ask)

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
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._cluster.close()
        self._on_progress()

    # How.
    def _leaders(self) -> Leaders:
        self._check_open()
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
        for partition in list(partitions) or self.assignment():
            self._reader(partition).seek_by_time(timestamp)
        self._pump_soon()

    def _reader(self, partition: TopicPartition) -> PartitionReader:
        self._check_open()
        reader = self._subscription.readers.get(partition)
        if reader is None:
            raise TidelogError(f"{TopicPartition(*partition)} is not assigned to this consumer: call assign first")
        return reader

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")

    async def _wait_for_some(self, deadline_ms: int) -> bool:
        """Whether there is something to deliver. Raises what stopped a partition."""
        while True:
            self._check_open()
            error = self._subscription.error()
            if error is not None:
                raise error.with_traceback(None)
            if self._subscription.has_some:
                return True
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                await asyncio.sleep(0)  # whoever polls without waiting still lets fetches happen
                return self._subscription.has_some
            last = self._cluster.last_error
            if last is not None and not isinstance(last, NetworkError | TimedOutError) and not self._is_retriable(last):
                raise last.with_traceback(None)
            await asyncio.wait((self._next_progress(),), timeout=left_ms / 1000)

    @staticmethod
    def _is_retriable(error: TidelogError) -> bool:
        return bool(getattr(error, "retriable", False))

    def _why(self) -> str:
        return str(self._cluster.last_error or "no broker answered yet")

    def _next_progress(self) -> asyncio.Future[None]:
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        return self._progress

    def _on_progress(self) -> None:
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.set_result(None)

    def _on_metadata(self, changes: MetadataChanges) -> None:
        self._subscription.on_metadata(self._cluster.metadata, self._clock.now_ms())
        self._pump_soon()

    def _pump_soon(self, *, is_news: bool = True) -> None:
        """Pump in the next turn. What is no news is that somebody took what was here: it need wake nobody."""
        self._is_news |= is_news
        if not self._is_pumping and not self._is_closed:
            self._is_pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Ask what there is to ask, and tell what happened."""
        self._is_pumping = False
        if self._is_closed:
            return
        now_ms = self._clock.now_ms()
        plan = self._subscription.plan(now_ms)
        for broker_id, asked in plan.look_ups.items():
            self._start_task(self._look_up(broker_id, asked))
        for broker_id, asked in plan.validations.items():
            self._start_task(self._validate(broker_id, asked))
        for broker_id, wanted in plan.fetches.items():
            lane = next((lane for lane in _FETCH_LANES if (broker_id, lane) not in self._busy_lanes), None)
            if lane is not None:
                self._busy_lanes.add((broker_id, lane))
                self._start_task(self._fetch(broker_id, lane, self._subscription.start_fetches(wanted)))
        if plan.needs_metadata:
            self._cluster.refresh_soon()
        self._tell_resets()
        if self._is_news or self._subscription.error() is not None:
            self._is_news = False
            self._on_progress()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._subscription.next_deadline_ms(now_ms)
        if deadline_ms is not None:
            delay_s = (deadline_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._pump_soon)

    def _tell_resets(self) -> None:
        for reset in self._subscription.take_resets():
            logger.warning(
                "%s: %s: %s; it stood at %s, and goes on at %s",
                self._config.client_id,
                reset.topic_partition,
                reset.reason.value,
                reset.position.offset,
                reset.new_offset if reset.new_offset is not None else "what the policy finds",
            )
            if self._config.on_reset is not None:
                try:
                    self._config.on_reset(reset)
                except Exception:
                    logger.exception("on_reset failed")

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: a request failed unexpectedly", self._config.client_id, exc_info=task.exception())
        self._pump_soon()

    async def _fetch(self, broker_id: BrokerId, lane: str, asked: AskedByPartition) -> None:
        try:
            connection = await self._cluster.broker(broker_id, lane)
            request, has_ids = fetch_request(asked, self._fetching, self._config.fetch_max_wait_ms)
            highest = None if has_ids else LAST_FETCH_VERSION_WITH_NAMES
            response = await connection.request(
                request,
                FetchResponse,
                timeout_ms=self._config.request_timeout_ms + self._config.fetch_max_wait_ms,
                version=connection.versions.version(ApiKey.FETCH, max_version=highest),
            )
            stale = on_fetch_response(asked, response, self._fetching, self._clock.now_ms())
        except TidelogError as error:
            self._on_no_answer(asked, error)
        except Exception as error:
            self._on_bug(asked, error)
        else:
            self._on_stale(stale)
        finally:
            self._busy_lanes.discard((broker_id, lane))

    async def _look_up(self, broker_id: BrokerId, asked: AskedByPartition) -> None:
        try:
            connection = await self._cluster.broker(broker_id)
            response = await connection.request(
                look_up_request(asked, self._isolation_level),
                ListOffsetsResponse,
                timeout_ms=self._config.request_timeout_ms,
            )
            stale = on_look_up_response(asked, response, self._clock.now_ms())
        except TidelogError as error:
            self._on_no_answer(asked, error)
        except Exception as error:
            self._on_bug(asked, error)
        else:
            self._on_stale(stale)

    async def _validate(self, broker_id: BrokerId, asked: AskedByPartition) -> None:
        try:
            connection = await self._cluster.broker(broker_id)
            response = await connection.request(
                epoch_end_request(asked), OffsetForLeaderEpochResponse, timeout_ms=self._config.request_timeout_ms
            )
            stale = on_epoch_end_response(asked, response, self._clock.now_ms())
        except TidelogError as error:
            self._on_no_answer(asked, error)
        except Exception as error:
            self._on_bug(asked, error)
        else:
            self._on_stale(stale)

    def _on_no_answer(self, asked: AskedByPartition, error: TidelogError) -> None:
        logger.debug("%s: %s", self._config.client_id, error)
        if isinstance(error, NetworkError) or self._is_retriable(error):
            on_no_answer(asked.values(), self._clock.now_ms())
            self._cluster.last_error = error
            self._cluster.refresh_soon()
        else:
            for question in asked.values():
                question.reader.stop(question.generation, error)

    def _on_bug(self, asked: AskedByPartition, error: Exception) -> None:
        """Whoever reads these partitions is told, instead of waiting for ever."""
        logger.error("%s: a bug in Tidelog: an answer was not understood", self._config.client_id, exc_info=error)
        told = InvariantBrokenError(f"a bug in Tidelog's consumer: {type(error).__name__}: {error}")
        for question in asked.values():
            question.reader.stop(question.generation, told)

    def _on_stale(self, topics: set[str]) -> None:
        if topics:
            self._cluster.refresh_soon()
