"""Looks through the closed segments of a node, one after the other and round and round, at a bounded rate.

    loop     the next segment | wait, if the rate says so | put down what was found | ...
    thread                    a step: about 1 ms            the next step

Records that nobody reads would rot unnoticed until the other replicas are gone. What is found is refused to readers at
once, and handed to `DamageRepair`.

A node remembers nothing of a round: the first begins anywhere, so that nodes that are started often come by every
segment all the same.

Kafka: none. ZFS calls it a scrub.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right

from tidelog.base.errors import DiskError, KafkaError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Clock, Disk, Executor, Rng
from tidelog.log.scrub import SegmentScrub
from tidelog.log.segment import Segment
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.broker import LOG_SCRUBBER_IO_MAX_BYTES_PER_SECOND
from tidelog.server.broker.broker import Broker
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.in_force import SettingsInForce

logger = logging.getLogger("tidelog.server.scrubber")

REST_MS = 60_000
"""Between two rounds, and while there is nothing to look through."""
PARTITIONS_PER_TURN = 100


class Scrubber:
    """The chore.

    Args:
        settings: of the broker, as they are in force at first.
        rng: where the first round begins.
    """

    def __init__(
        self, broker: Broker, settings: BrokerSettings, *, disk: Disk, clock: Clock, executor: Executor, rng: Rng
    ) -> None:
        self._broker = broker
        self._notes = broker.replication.damage_notes
        self._bytes_per_second = settings[LOG_SCRUBBER_IO_MAX_BYTES_PER_SECOND]
        self._has_new_rate = asyncio.Event()
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._rng = rng
        self._last: tuple[TopicPartition, Offset] | None = None

    async def run(self) -> None:
        """Look through what there is, for as long as the node runs."""
        self._begin_anywhere()
        while True:
            if not self._bytes_per_second or not await self.scrub_next():
                await self._rest(REST_MS)

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Another rate counts from the next step on."""
        rate = new.broker[LOG_SCRUBBER_IO_MAX_BYTES_PER_SECOND]
        if rate != self._bytes_per_second:
            self._bytes_per_second = rate
            self._has_new_rate.set()

    async def _rest(self, rest_ms: float) -> None:
        """Wait, but for no longer than the rate stays."""
        self._has_new_rate.clear()
        try:
            async with asyncio.timeout(rest_ms / 1000):
                await self._has_new_rate.wait()
        except TimeoutError:
            pass

    def _begin_anywhere(self) -> None:
        names = sorted(partition.topic_partition for partition in self._broker.partitions)
        if names:
            self._last = names[self._rng.randrange(0, len(names))], Offset(-1)

    async def scrub_next(self) -> bool:
        """Look through the next segment. Returns whether there is one before the round ends; then the next begins."""
        found = await self._next()
        if found is None:
            self._last = None
            return False
        partition, segment = found
        self._last = partition.topic_partition, segment.base_offset
        await self._scrub(partition, segment)
        return True

    async def _next(self) -> tuple[Partition, Segment] | None:
        """The first cold segment behind the last one, by partition and offset."""
        partitions = sorted(self._broker.partitions, key=_name_of)
        last_name, last_base = (None, Offset(-1)) if self._last is None else self._last
        start = 0 if last_name is None else max(bisect_right(partitions, last_name, key=_name_of) - 1, 0)
        for index, partition in enumerate(partitions[start:]):
            if index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            if last_name is not None and partition.topic_partition < last_name:
                continue
            after = last_base if partition.topic_partition == last_name else -1
            if partition.role.is_active:
                for segment in cold_segments(partition):
                    if segment.base_offset > after:
                        return partition, segment
        return None

    async def _scrub(self, partition: Partition, segment: Segment) -> None:
        log = partition.log
        scrub = SegmentScrub(
            self._disk, segment, log.lineage.clone(), cleaned_end_offset=log.compaction.mark.end_offset
        )
        started_ms, read_bytes = self._clock.now_ms(), 0
        try:
            while (size_bytes := await self._executor.run(scrub.step)) is not None:
                self._notes.scrubbed_bytes += size_bytes
                read_bytes += size_bytes
                rate = self._bytes_per_second
                if not rate:
                    return
                ahead_ms = read_bytes / rate * 1000 - (self._clock.now_ms() - started_ms)
                if ahead_ms > 0:
                    await self._rest(ahead_ms)
        except DiskError as error:
            if is_ours(self._broker, partition) and not segment.is_retired:
                logger.error("%s: a segment cannot be looked through: %s", partition.topic_partition, error)
                self._broker.failures.on_read_error(partition)
            return
        finally:
            await self._executor.run(scrub.abandon)
        if scrub.damages or scrub.index_fault:
            async with partition.log_lock:
                if is_ours(self._broker, partition) and partition.log is log:
                    take_in(partition, scrub)
            self._notes.suspect(partition)


def _name_of(partition: Partition) -> TopicPartition:
    return partition.topic_partition


def is_ours(broker: Broker, partition: Partition) -> bool:
    """Whether a partition is led or followed here: neither deleted, nor offline, nor made again."""
    topic, index = partition.topic_partition
    try:
        return partition.role.is_active and broker.partition(topic, index) is partition
    except KafkaError:
        return False


def cold_segments(partition: Partition) -> list[Segment]:
    """The closed segments of which all is committed and synced, and not all is deleted, by offset."""
    log = partition.log
    end_offset = min(partition.high_watermark, log.recovery_point)
    return [
        segment
        for segment in log.segments
        if segment is not log.segments.active and log.log_start_offset < segment.end_offset <= end_offset
    ]


def take_in(partition: Partition, scrub: SegmentScrub) -> bool:
    """Have readers refused what is damaged. Returns whether the segment still is what was looked through."""
    segment, segments = scrub.segment, partition.log.segments
    if (
        segment is segments.active
        or segment.size_bytes != scrub.size_bytes
        or not segments.holds_side_by_side([segment])
    ):
        return False
    lost = {(one.start_offset, one.end_offset) for one in segment.damages if one.is_lost}
    segment.damages = tuple(one._replace(is_lost=(one.start_offset, one.end_offset) in lost) for one in scrub.damages)
    segment.has_index_fault = scrub.index_fault is not None
    return True
