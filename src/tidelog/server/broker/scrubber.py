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
from itertools import chain, islice

from tidelog.base.errors import DiskError, KafkaError
from tidelog.base.ids import Offset
from tidelog.base.ports import Clock, Disk, Executor, Rng
from tidelog.log.scrub import SegmentScrub
from tidelog.log.segment import Segment
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.broker import LOG_SCRUBBER_IO_MAX_BYTES_PER_SECOND
from tidelog.server.broker.broker import Broker
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.tasks import to_its_end

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
        self._has_begun = False

    async def run(self) -> None:
        """Look through what there is, for as long as the node runs."""
        while True:
            if self._bytes_per_second:
                await self.scrub_round()
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

    async def scrub_round(self) -> None:
        """Look through every cold segment once, unless that is turned off meanwhile."""
        partitions = self._broker.partitions
        start = self._rng.randrange(0, len(partitions)) if partitions and not self._has_begun else 0
        self._has_begun = True
        for index, partition in enumerate(chain(islice(partitions, start, None), islice(partitions, start))):
            if index % PARTITIONS_PER_TURN == PARTITIONS_PER_TURN - 1:
                await asyncio.sleep(0)
            offset = Offset(0)
            while is_ours(self._broker, partition) and (segment := next_cold_segment(partition, offset)) is not None:
                offset = segment.end_offset
                await self._scrub(partition, segment)
                if not self._bytes_per_second:
                    return

    async def _scrub(self, partition: Partition, segment: Segment) -> None:
        log = partition.log
        scrub = SegmentScrub(
            self._disk, segment, log.lineage.clone(), cleaned_end_offset=log.compaction.mark.end_offset
        )
        started_ms, read_bytes = self._clock.now_ms(), 0
        try:
            while (size_bytes := await to_its_end(self._executor.run(scrub.step))) is not None:
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
        if scrub.is_unreadable:
            self._broker.failures.on_read_error(partition)
        if scrub.damages or scrub.index_fault:
            async with partition.log_lock:
                if is_ours(self._broker, partition) and partition.log is log:
                    take_in(partition, scrub)
            self._notes.suspect(partition)


def is_ours(broker: Broker, partition: Partition) -> bool:
    """Whether a partition is led or followed here: neither deleted, nor offline, nor made again."""
    topic, index = partition.topic_partition
    try:
        return partition.role.is_active and broker.partition(topic, index) is partition
    except KafkaError:
        return False


def next_cold_segment(partition: Partition, offset: Offset) -> Segment | None:
    """The first closed segment from `offset` on of which all is committed and synced, and not all is deleted."""
    log = partition.log
    end_offset = min(partition.high_watermark, log.recovery_point)
    for segment in log.segments.overlapping(max(offset, log.log_start_offset), end_offset):
        if offset <= segment.base_offset and log.log_start_offset < segment.end_offset:
            return None if segment is log.segments.active or segment.end_offset > end_offset else segment
    return None


def cold_segments(partition: Partition) -> list[Segment]:
    """All of them, by offset."""
    log = partition.log
    start_offset, end_offset = log.log_start_offset, min(partition.high_watermark, log.recovery_point)
    closed = (segment for segment in log.segments if segment is not log.segments.active)
    return [segment for segment in closed if start_offset < segment.end_offset <= end_offset]


def take_in(partition: Partition, scrub: SegmentScrub) -> bool:
    """Have readers refused what is damaged. Returns whether the segment still is what was looked through."""
    segment, segments = scrub.segment, partition.log.segments
    if segment is segments.active or segment.version != scrub.version or not segments.holds_side_by_side([segment]):
        return False
    lost = {(one.start_offset, one.end_offset) for one in segment.damages if one.is_lost}
    segment.damages = tuple(one._replace(is_lost=(one.start_offset, one.end_offset) in lost) for one in scrub.damages)
    segment.has_index_fault = scrub.index_fault is not None
    return True
