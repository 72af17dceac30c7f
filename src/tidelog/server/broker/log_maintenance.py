"""What is done with the logs of a node now and then: syncs, checkpoints, and the removal of what is old enough.

Kafka: `LogManager`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from tidelog.base.errors import DiskError
from tidelog.base.ports import Clock, Executor
from tidelog.server.broker.partition_failures import PartitionFailures
from tidelog.server.broker.remembered_producers import RememberedProducers
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.checkpoints import Checkpoints
from tidelog.server.storage.disk_health import is_full
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.transport.turns import in_turns

logger = logging.getLogger("tidelog.server.log_upkeep")

TICK_MS = 1000
RETAINED_AT_ONCE_MAX = 8
"""Partitions, before others have their turn: one that gets a new segment takes half a millisecond and more."""


class Hosted(Protocol):
    """Whoever serves the logs (the broker)."""

    @property
    def partitions(self) -> list[Partition]: ...

    @property
    def failures(self) -> PartitionFailures: ...
    @property
    def producers(self) -> RememberedProducers: ...


class LogMaintenance:
    """See the module.

    Args:
        hosted: whoever serves the logs: all of them are looked at in each turn.
    """

    def __init__(
        self, config: NodeConfig, files: LogFiles, hosted: Hosted, *, clock: Clock, executor: Executor
    ) -> None:
        self._config = config
        self._files = files
        self._hosted = hosted
        self._clock = clock
        self._executor = executor

    async def run(self) -> None:
        """Sync, checkpoint and delete what the settings ask for, for as long as the node runs."""
        config = self._config
        chores: tuple[tuple[int, Callable[[Checkpoints, list[Partition]], None]], ...] = (
            (config.high_watermark_checkpoint_interval_ms, Checkpoints.write_high_watermarks),
            (config.recovery_point_checkpoint_interval_ms, Checkpoints.write_recovery_points),
        )
        due_ms = [self._clock.now_ms() + interval for interval, _ in chores]
        retention_due_ms = self._clock.now_ms() + config.retention_check_interval_ms
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            now_ms = self._clock.now_ms()
            partitions = self._hosted.partitions
            await self._flush(partitions, now_ms)
            await self._hosted.producers.forget_excess()
            for index, (interval_ms, chore) in enumerate(chores):
                if now_ms >= due_ms[index]:
                    due_ms[index] = now_ms + interval_ms
                    for log_dir in self._files.online:
                        await self._checkpoint(log_dir, partial(chore, log_dir.checkpoints, partitions))
            if now_ms >= retention_due_ms:
                retention_due_ms = now_ms + config.retention_check_interval_ms
                await self._retain(partitions)

    async def _checkpoint(self, log_dir: LogDir, chore: Callable[[], None]) -> None:
        """If the disk refuses, the next turn tries again; recovery covers the rest."""
        try:
            await self._executor.run(chore)
            if log_dir.health.is_known_full:
                await self._executor.run(log_dir.health.look_for_room)
        except DiskError as error:
            if is_full(error):
                log_dir.health.on_full()
            else:
                logger.error("%s", error)
                self._hosted.failures.on_suspicion(log_dir)

    async def _flush(self, partitions: list[Partition], now_ms: int) -> None:
        async for partition in in_turns(partitions):
            log = partition.log
            if not partition.log_lock.locked() and log.is_flush_due(now_ms):
                try:
                    async with partition.log_lock:
                        await self._executor.run(partial(partition.log.maybe_flush, now_ms))
                except DiskError as error:
                    self._hosted.failures.on_disk_error(partition, error)

    async def _retain(self, partitions: list[Partition]) -> None:
        """Delete old segments, never beyond the high watermark (rule 11).

        Order: the log starts move, then they are checkpointed, then the segments go. After a crash in between, or if
        some of them come back with the power, readers are kept from what was deleted.
        """
        moved: dict[LogDir, list[Partition]] = {}
        async for each in in_turns(partitions, turn_size=RETAINED_AT_ONCE_MAX):
            log_dir = self._files.directory_of(each.topic_partition)
            if log_dir is None or not each.role.is_active or each.log_lock.locked():
                continue
            try:
                if self._move_log_start(each):
                    moved.setdefault(log_dir, []).append(each)
            except DiskError as error:
                self._hosted.failures.on_disk_error(each, error)
        for log_dir, its in moved.items():
            try:
                await self._executor.run(partial(log_dir.checkpoints.write_recovery_points, partitions))
            except DiskError as error:
                logger.error("%s: old segments stay: %s", log_dir.path, error)
                self._hosted.failures.on_suspicion(log_dir)
                continue
            for each in its:
                async with each.log_lock:
                    try:
                        count = each.log.delete_segments_before(log_dir.checkpoints.noted_log_start(each.log))
                    except DiskError as error:
                        self._hosted.failures.on_disk_error(each, error)
                        continue
                    if count:
                        start = each.log.log_start_offset
                        logger.info("%s: %d old segments deleted, starts at %d", each.topic_partition, count, start)
                        await self._files.in_background(each.log.segments.remove_deleted_files)

    def _move_log_start(self, partition: Partition) -> bool:
        """A leader's retention says where its log starts, and followers go by what it says. Returns whether there are
        segments below. Raises DiskError.
        """
        log = partition.log
        if partition.replica is None:
            now_ms = self._clock.wall_ms()
            log.producers.forget_expired(now_ms, log.config.producer_id_expiration_ms)
            if log.log_start_offset == log.log_end_offset:
                log.roll(now_ms)
            return len(log.segments.base_offsets) > 1 and log.segments.base_offsets[1] <= log.log_start_offset
        if not log.apply_retention(high_watermark=partition.high_watermark, now_ms=self._clock.wall_ms()):
            return False
        partition.on_log_start_moved()
        return True
