"""Compaction as the node does it: one log at a time, the dirtiest first, in small steps.

    loop     choose a log | look whether it still is ours, swap | wait, if the rate says so | ...
    thread                  a step: about 1 ms of computing      the next step

The steps run on the executor, so that no disk holds up the loop; each is short, since the interpreter runs one thread
at a time. What others can see of a log is changed on the loop alone (log/compaction/cleaner_swap.py).

Kafka: `LogCleaner`, `LogCleanerManager`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError
from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Clock, Disk, Executor
from tidelog.log import Log
from tidelog.log.compaction.cleaner import CleanedGroup, LogCleaner
from tidelog.log.compaction.cleaner_checkpoint import read_cleaner_offsets, write_cleaner_offsets
from tidelog.log.compaction.cleaner_range import DirtyRange
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs import broker as keys
from tidelog.server.broker.broker import Broker
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.tasks import start_kept, to_its_end

logger = logging.getLogger("tidelog.server.cleaner")

T = TypeVar("T")

RETRY_MS = 60_000
"""How long a log is left alone whose disk refused, or that changed while it was compacted."""


class CleanerSettings(NamedTuple):
    """What `log.cleaner.*` say."""

    is_enabled: bool
    backoff_ms: int
    dedupe_size_bytes: int
    bytes_per_second_max: float

    @staticmethod
    def of(settings: BrokerSettings) -> CleanerSettings:
        """As they are in force at a broker."""
        return CleanerSettings(
            is_enabled=settings[keys.LOG_CLEANER_ENABLE],
            backoff_ms=settings[keys.LOG_CLEANER_BACKOFF_MS],
            dedupe_size_bytes=settings[keys.LOG_CLEANER_DEDUPE_BUFFER_SIZE],
            bytes_per_second_max=settings[keys.LOG_CLEANER_IO_MAX_BYTES_PER_SECOND],
        )


class _Chosen(NamedTuple):
    partition: Partition
    dirty: DirtyRange


class Cleaner:
    """The chore. Nothing of it outlives the process but the checkpoint files and what it did to the logs.

    Args:
        settings: of the broker, as they are in force at first.
    """

    def __init__(
        self, broker: Broker, settings: BrokerSettings, *, disk: Disk, clock: Clock, executor: Executor
    ) -> None:
        self._broker = broker
        self._settings = CleanerSettings.of(settings)
        self._has_new_backoff = asyncio.Event()
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._first_dirty: dict[str, dict[TopicPartition, Offset]] = {}  # by directory
        self._left_alone: dict[TopicPartition, tuple[Log, int]] = {}  # until something is repaired; named once
        self._retry_at_ms: dict[TopicPartition, int] = {}

    async def run(self) -> None:
        """Compact what is worth it, for as long as the node runs."""
        while True:
            await self._rest()
            while self._settings.is_enabled and await self.clean_dirtiest(self._settings):
                pass

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """They count from the next log on; a rest begins anew with another length."""
        settings, before = CleanerSettings.of(new.broker), self._settings
        self._settings = settings
        if settings.backoff_ms != before.backoff_ms:
            self._has_new_backoff.set()

    async def _rest(self) -> None:
        while True:
            self._has_new_backoff.clear()
            try:
                async with asyncio.timeout(self._settings.backoff_ms / 1000):
                    await self._has_new_backoff.wait()
            except TimeoutError:
                return

    async def clean_dirtiest(self, settings: CleanerSettings) -> bool:
        """Compact one log. Returns whether there was one."""
        chosen = await self._choose()
        if chosen is None:
            return False
        partition, dirty = chosen
        del chosen  # the job alone holds the segments, and lets go of each that is replaced
        log = partition.log
        job = log.compaction.cleaner(
            dirty,
            log.config,
            log.producers,
            dedupe_size_bytes=settings.dedupe_size_bytes,
            now_ms=self._clock.wall_ms(),
        )
        dirty = dirty._replace(segments=())
        started_ms = self._clock.now_ms()
        try:
            async with partition.rewrite_lock:
                try:
                    is_done = await self._work_through(partition, job, settings)
                finally:  # before another may write files of the same names
                    await to_its_end(self._clear_up(partition, job))
        except CorruptLogError as error:
            logger.error(
                "%s is not compacted any more, its records stay as they are: %s", partition.topic_partition, error
            )
            self._left_alone[partition.topic_partition] = log, self._repaired
            partition.suspect(None)
            self._broker.replication.damage_notes.suspect(partition)
        except DiskError as error:
            self._on_refused(partition, error)
        else:
            if is_done:
                await self._on_done(partition, job, dirty, self._clock.now_ms() - started_ms)
        return True

    async def _clear_up(self, partition: Partition, job: LogCleaner) -> None:
        await self._executor.run(job.abandon)
        async with partition.log_lock:
            self._withdraw(partition)

    # Which log.

    async def _choose(self) -> _Chosen | None:
        best: _Chosen | None = None
        for partition in self._broker.partitions:
            log = partition.log
            if not log.config.is_compacted or not self._may_clean(partition):
                continue
            first_dirty = (await self._checkpoint_of(log)).get(partition.topic_partition, Offset(0))
            if not self._may_clean(partition) or partition.log is not log:
                continue  # others had their turn meanwhile
            dirty = log.compaction.dirty_range(
                log.config,
                first_dirty_offset=max(first_dirty, log.log_start_offset),
                end_offset_max=partition.last_stable_offset,
                now_ms=self._clock.wall_ms(),
            )
            if dirty is not None and (best is None or _urgency(dirty) > _urgency(best.dirty)):
                best = _Chosen(partition, dirty)
        return best

    async def _sync_closed(self, partition: Partition) -> None:
        """Sync the closed segments, while their keys are read: what is not synced must not replace anything."""
        try:
            async with partition.log_lock:
                await self._off_the_loop(partial(partition.log.maybe_flush, self._clock.now_ms()))
        except DiskError as error:
            self._broker.failures.on_disk_error(partition, error)

    @property
    def _repaired(self) -> int:
        return self._broker.replication.damage_notes.repaired

    def _may_clean(self, partition: Partition) -> bool:
        topic_partition = partition.topic_partition
        if not self._is_ours(partition) or self._left_alone.get(topic_partition) == (partition.log, self._repaired):
            return False
        return self._clock.now_ms() >= self._retry_at_ms.get(topic_partition, 0)

    def _is_ours(self, partition: Partition) -> bool:
        """Whether it is led or followed here: neither deleted, nor offline, nor made again. Each replica compacts its
        own log.
        """
        topic, index = partition.topic_partition
        try:
            return partition.role.is_active and self._broker.partition(topic, index) is partition
        except KafkaError:
            return False

    async def _checkpoint_of(self, log: Log) -> dict[TopicPartition, Offset]:
        directory = _parent(log)
        if directory not in self._first_dirty:
            try:
                offsets = await self._executor.run(partial(read_cleaner_offsets, self._disk, directory))
            except DiskError:
                offsets = {}
            self._first_dirty.setdefault(directory, offsets)
        return self._first_dirty[directory]

    # How.

    async def _work_through(self, partition: Partition, job: LogCleaner, settings: CleanerSettings) -> bool:
        """Do all steps. Returns whether nothing came in between."""
        syncing = start_kept(self._sync_closed(partition))
        try:
            return await self._step_through(partition, job, settings, syncing)
        finally:
            await to_its_end(syncing)

    async def _step_through(
        self, partition: Partition, job: LogCleaner, settings: CleanerSettings, syncing: Awaitable[None]
    ) -> bool:
        log = partition.log
        started_ms = self._clock.now_ms()
        moved_bytes = 0
        while True:
            step = await self._off_the_loop(job.step)
            if not self._is_ours(partition) or partition.log is not log:
                return False  # it may lie in another directory by now
            if step.is_done or step.ready is not None:
                await syncing
                async with partition.log_lock:  # nobody truncates the log meanwhile
                    if not self._is_ours(partition) or partition.log is not log:
                        return False
                    if log.recovery_point < job.end_offset:  # it was truncated meanwhile
                        self._retry_at_ms[partition.topic_partition] = self._clock.now_ms() + RETRY_MS
                        return False
                    if step.ready is None:
                        log.compaction.finish(job.end_offset)
                        return True
                    if not await self._swap(partition, job, step.ready):
                        return False
            moved_bytes += step.size_bytes
            ahead_ms = moved_bytes / settings.bytes_per_second_max * 1000 - (self._clock.now_ms() - started_ms)
            if ahead_ms > 0:
                await asyncio.sleep(ahead_ms / 1000)
                if not self._is_ours(partition):
                    return False

    async def _swap(self, partition: Partition, job: LogCleaner, ready: CleanedGroup) -> bool:
        log = partition.log
        if not log.compaction.announce(ready, job.end_offset):
            return False
        await self._off_the_loop(log.compaction.sync_names)
        if not self._is_ours(partition):
            return False
        try:
            if not log.compaction.complete(ready):
                return False
        except DiskError as error:
            self._broker.failures.on_disk_error(partition, error)
            return False
        await self._off_the_loop(log.compaction.sync_names)
        await self._off_the_loop(log.segments.remove_deleted_files)
        return self._is_ours(partition)

    async def _off_the_loop(self, work: Callable[[], T]) -> T:
        """Run work on a thread. Cancelled, this waits for the end of it: nobody is to come in between."""
        return await to_its_end(self._executor.run(work))

    def _withdraw(self, partition: Partition) -> None:
        try:
            partition.log.compaction.withdraw()
        except DiskError as error:
            self._broker.failures.on_disk_error(partition, error)

    # What came of it.

    async def _on_done(self, partition: Partition, job: LogCleaner, dirty: DirtyRange, took_ms: int) -> None:
        topic_partition, log = partition.topic_partition, partition.log
        self._retry_at_ms.pop(topic_partition, None)
        if job.end_offset <= dirty.first_dirty_offset:
            logger.warning("%s is not compacted any further: %s", topic_partition, job.why_shortened)
            self._left_alone[topic_partition] = log, self._repaired
            return
        logger.info(
            "%s: compacted up to offset %d: %d records superseded, %d bytes became %d, in %d ms%s",
            *(topic_partition, job.end_offset, job.removed_count, job.read_size_bytes, job.written_size_bytes),
            *(took_ms, f"; {job.why_shortened}" if job.why_shortened else ""),
        )
        directory = _parent(log)
        image = self._broker.image
        known = await self._checkpoint_of(log)
        known[topic_partition] = job.end_offset
        for each in [each for each in known if image.partition(each.topic, each.partition) is None]:
            del known[each]
        try:
            await self._executor.run(partial(write_cleaner_offsets, self._disk, directory, dict(known)))
        except DiskError as error:
            logger.error("%s: the next start compacts from its beginning: %s", topic_partition, error)

    def _on_refused(self, partition: Partition, error: DiskError) -> None:
        """The log is as it was. Its segments may have been deleted while they were read, which is nobody's fault."""
        topic_partition = partition.topic_partition
        if self._is_ours(partition):
            if topic_partition not in self._retry_at_ms and error.errno != errno.ENOENT:
                logger.error("%s was not compacted; tried again every minute: %s", topic_partition, error)
            self._retry_at_ms[topic_partition] = self._clock.now_ms() + RETRY_MS


def _urgency(dirty: DirtyRange) -> tuple[bool, float]:
    return dirty.is_overdue, dirty.ratio


def _parent(log: Log) -> str:
    return log.directory.rpartition("/")[0]
