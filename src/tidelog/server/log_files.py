"""The node's files: which directory is whose, how it was left, and what is written to it now and then.

Opening, closing and keeping logs is the world's business and may take long; it runs on the executor's threads where it
waits for the disk. What the logs mean is for `Broker` and `Controller`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol
from uuid import UUID

from tidelog.base.errors import ConfigError, CorruptLogError, DiskError, KafkaError, TidelogError
from tidelog.base.ids import (
    CLUSTER_METADATA,
    BrokerEpoch,
    ClusterId,
    Offset,
    TopicId,
    TopicPartition,
    parse_uuid,
    uuid_text,
)
from tidelog.base.ports import Clock, Disk, Executor, Rng
from tidelog.log import Log, LogConfig
from tidelog.log.checkpoint import MetaProperties, parse_partition_metadata
from tidelog.log.continuity import holds_whole_batch
from tidelog.log.directory import CLEAN_SHUTDOWN_FILE, LOCK_FILE, NAME_SIZE_MAX, LogDirectory
from tidelog.log.recovery import CUT_SUFFIX, PARTITION_METADATA_FILE
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs import broker_settings, topic_values
from tidelog.quorum import QuorumState, format_quorum_state, parse_quorum_state
from tidelog.server.config import NodeConfig
from tidelog.server.partition import Partition

logger = logging.getLogger("tidelog.server.log_files")

TICK_MS = 1000
METADATA_BATCH_SIZE_BYTES_MAX = 256 << 20
"""A decision is one batch, however many partitions it is about (30,000 that change hands take 1 MiB)."""
METADATA_LOG_CONFIG = LogConfig(
    retention_ms=None, message_timestamp_after_ms_max=None, message_size_bytes_max=METADATA_BATCH_SIZE_BYTES_MAX
)
PRODUCER_ID_EXPIRATION = "producer.id.expiration.ms"
OWN_FILES = {LOCK_FILE, CLEAN_SHUTDOWN_FILE, "lost+found"}
"""What an empty directory may hold."""


class Hosted(Protocol):
    """Whoever serves the logs (the broker)."""

    @property
    def partitions(self) -> list[Partition]: ...

    def on_disk_error(self, partition: Partition, error: DiskError) -> None: ...


class LogFiles:
    """The log directory and the metadata log directory of one node; mostly one and the same."""

    def __init__(self, config: NodeConfig, *, disk: Disk, clock: Clock, rng: Rng, executor: Executor) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._executor = executor
        self._directory: LogDirectory | None = None
        self._metadata_directory: LogDirectory | None = None
        self._metadata_log: Log | None = None
        self._was_clean = False
        self._recovery_points: dict[TopicPartition, Offset] = {}
        self._log_start_offsets: dict[TopicPartition, Offset] = {}
        self._high_watermarks: dict[TopicPartition, Offset] = {}
        self._checkpointed: set[TopicPartition] = set()  # whom the checkpoint files speak of
        self._checkpoint_lock = threading.Lock()  # they are written on the executor's threads
        self._logs: dict[TopicPartition, Log] = {}  # those that are open and not deleted
        self._failed_logs: set[TopicPartition] = set()
        self._removals: list[asyncio.TimerHandle] = []
        self._removing: set[asyncio.Task[None]] = set()
        self.cluster_id = ClusterId("")
        self.directory_id = UUID(int=0)

    # Start.

    def open(self) -> None:
        """Take the directories into use, formatting empty ones: this node is the only voter there is.

        Raises:
            ConfigError: a directory is another node's or cluster's, or holds something that is not ours.
            CorruptLogError: its meta.properties cannot be read, or is of another release.
            DiskError: another process uses it, or the disk refused.
        """
        config = self._config
        directory = self._directory = LogDirectory.open(self._disk, config.log_directory)
        metadata_directory = directory
        if config.metadata_log_directory != config.log_directory:
            metadata_directory = LogDirectory.open(self._disk, config.metadata_log_directory)
        self._metadata_directory = metadata_directory
        properties = self._identify(directory, None)
        self.cluster_id = properties.cluster_id
        self.directory_id = _directory_uuid(properties)
        if metadata_directory is not directory:
            self._identify(metadata_directory, properties.cluster_id)
        self._recovery_points = directory.read_recovery_points()
        self._log_start_offsets = directory.read_log_start_offsets()
        self._high_watermarks = directory.read_high_watermarks()
        self._checkpointed = {*self._recovery_points, *self._log_start_offsets, *self._high_watermarks}
        for fault in directory.faults:
            logger.warning("%s; it is taken for missing", fault)

    def _identify(self, directory: LogDirectory, cluster_id: ClusterId | None) -> MetaProperties:
        path, node_id = directory.path, self._config.node_id
        properties = directory.read_meta_properties()
        if properties is None:
            if set(self._disk.list(path)) - OWN_FILES:
                raise ConfigError(
                    f"{path} is neither empty nor formatted: name an empty directory, "
                    "or put back the meta.properties that was here"
                )
            properties = MetaProperties(
                cluster_id or ClusterId(uuid_text(self._rng.uuid())), node_id, uuid_text(self._rng.uuid())
            )
            directory.write_meta_properties(properties)
            logger.info("%s: formatted for node %s of cluster %s", path, node_id, properties.cluster_id)
        if properties.node_id != node_id:
            raise ConfigError(
                f"{path} belongs to node {properties.node_id}, this is node {node_id}: "
                "correct node.id, or name another directory"
            )
        if cluster_id is not None and properties.cluster_id != cluster_id:
            raise ConfigError(
                f"{path} belongs to cluster {properties.cluster_id}, the other log directory to {cluster_id}: "
                "name directories of one cluster"
            )
        return properties

    def open_metadata_log(self) -> Log:
        """The log of `__cluster_metadata-0`, from which on a crash is one.

        Raises:
            ConfigError: it is gone, though there are logs of topics: without it they are nobody's.
            CorruptLogError: as `Log.open`, and where committed metadata lies behind damage; DiskError likewise.
        """
        directory = self._held(self._metadata_directory)
        path = directory.log_path(CLUSTER_METADATA)
        orphans = self._held(self._directory).partitions()
        if orphans and not self._disk.exists(path):
            raise ConfigError(
                f"{path} is missing, and with it all that is known of the {len(orphans)} logs beside it, {orphans[0]} "
                "the first: is a disk not mounted, or metadata.log.dir another? Put it back, or name an empty directory"
            )
        self._was_clean = directory.take_clean_shutdown().was_clean
        if self._directory is not directory:
            self._was_clean &= self._held(self._directory).take_clean_shutdown().was_clean
        log = Log.open(
            self._disk,
            path,
            CLUSTER_METADATA,
            METADATA_LOG_CONFIG,
            topic_id=None,
            clean_shutdown=self._was_clean,
            recovery_point=self._recovery_points.get(CLUSTER_METADATA, Offset(0)),
            now_ms=self._clock.wall_ms(),
        )
        self._tell_recovery(log)
        self._check_nothing_committed_was_cut(log)
        self._metadata_log = log
        return self._metadata_log

    def _check_nothing_committed_was_cut(self, log: Log) -> None:
        """Every batch of metadata is synced before it counts: a whole one behind damage was committed.

        To go on without it would forget topics, and give their offsets, and tokens, to others.
        """
        for name in self._disk.list(log.directory):
            path = f"{log.directory}/{name}"
            if CUT_SUFFIX in name and holds_whole_batch(self._disk.read_bytes(path), log.log_end_offset):
                log.release()
                raise CorruptLogError(
                    f"{log.directory}: damaged at offset {log.log_end_offset}, committed metadata behind the damage "
                    f"(set aside in {name}). Put back a copy of the directory; or, to go on without what was committed "
                    f"since (topics made since are then set aside as strays), move {name} elsewhere and start again"
                )

    def read_quorum_state(self) -> QuorumState | None:
        """What this voter must not forget; None on the first start. Raises CorruptLogError."""
        path = self._quorum_state_path
        return parse_quorum_state(self._disk.read_bytes(path), path=path) if self._disk.exists(path) else None

    def write_quorum_state(self, state: QuorumState) -> None:
        """Return once it would survive a loss of power."""
        self._disk.write_atomically(self._quorum_state_path, format_quorum_state(state))

    @property
    def _quorum_state_path(self) -> str:
        return f"{self._held(self._metadata_directory).log_path(CLUSTER_METADATA)}/quorum-state"

    # Logs.

    def open_log(self, topic_partition: TopicPartition, topic_id: TopicId, image: MetadataImage) -> Log | TidelogError:
        """Open, recover or make the log of a replica. What is wrong with one must not keep the others from serving.

        A directory that holds a topic of the same name which was deleted while this node was down is removed.
        """
        directory = self._held(self._directory)
        path = directory.log_path(topic_partition)
        try:
            if self._holds_another_topic(path, topic_id, image):
                directory.doom(topic_partition, self._rng)
            if topic_partition in self._checkpointed and not self._disk.exists(path):
                self._forget_checkpoints()
            log = Log.open(
                self._disk,
                path,
                topic_partition,
                self.log_config(topic_partition.topic, image),
                topic_id=topic_id,
                clean_shutdown=self._was_clean,
                recovery_point=self._recovery_points.get(topic_partition, Offset(0)),
                now_ms=self._clock.wall_ms(),
                log_start_offset=self._log_start_offsets.get(topic_partition, Offset(0)),
            )
        except (DiskError, CorruptLogError, KafkaError) as error:
            return error
        self._failed_logs.discard(topic_partition)
        self._logs[topic_partition] = log
        self._tell_recovery(log)
        return log

    def _forget_checkpoints(self) -> None:
        """A log that is yet to be made has no past: what a deleted one of its name left in the checkpoints must go.

        On disk too, and before the new log is made: after a crash it would start where the old one did.
        """
        directory = self._held(self._directory)
        with self._checkpoint_lock:
            gone = {
                each
                for each in self._checkpointed
                if each != CLUSTER_METADATA and not self._disk.exists(directory.log_path(each))
            }
            for known, read, write in (
                (self._recovery_points, directory.read_recovery_points, directory.write_recovery_points),
                (self._log_start_offsets, directory.read_log_start_offsets, directory.write_log_start_offsets),
                (self._high_watermarks, directory.read_high_watermarks, directory.write_high_watermarks),
            ):
                for each in gone:
                    known.pop(each, None)
                offsets = read()
                if not gone.isdisjoint(offsets):
                    write({each: offset for each, offset in offsets.items() if each not in gone})
            self._checkpointed -= gone

    def on_failed(self, topic_partition: TopicPartition) -> None:
        """The log is not to be trusted: the next start has to look at it, however this run ends."""
        self._failed_logs.add(topic_partition)

    def log_config(self, topic: str, image: MetadataImage) -> LogConfig:
        """What is in force for a topic's logs at this broker."""
        settings = broker_settings(self._config.static, image.configs, self._config.node_id)
        values: dict[str, object] = {**topic_values(image.topic_configs(topic), settings)}
        text = settings.text(PRODUCER_ID_EXPIRATION)
        if text is not None:
            values[PRODUCER_ID_EXPIRATION] = text
        return LogConfig.from_configs(values)

    def min_insync_replicas(self, topic: str, image: MetadataImage) -> int:
        settings = broker_settings(self._config.static, image.configs, self._config.node_id)
        value = topic_values(image.topic_configs(topic), settings)["min.insync.replicas"]
        assert isinstance(value, int)
        return value

    def high_watermark(self, topic_partition: TopicPartition) -> Offset | None:
        """As it was checkpointed before this start; None if it was not."""
        return self._high_watermarks.get(topic_partition)

    def doom(self, deleted: list[tuple[TopicPartition, TopicId]]) -> None:
        """Topics are deleted: rename the directories of their partitions, those that are offline included."""
        directory = self._held(self._directory)
        for topic_partition, topic_id in deleted:
            for checkpoint in (self._recovery_points, self._log_start_offsets, self._high_watermarks):
                checkpoint.pop(topic_partition, None)
            log = self._logs.pop(topic_partition, None)
            try:
                if log is not None:
                    log.release()
                if self._topic_id_in(directory.log_path(topic_partition)) == topic_id:
                    directory.doom(topic_partition, self._rng)
                    self._failed_logs.discard(topic_partition)
            except (DiskError, CorruptLogError) as error:
                logger.error("%s: its files stay behind: %s", topic_partition, error)

    def remove_doomed_later(self) -> None:
        """Remove the files of what was deleted, after `file.delete.delay.ms`."""
        delay_ms = self._config.file_delete_delay_ms
        loop = asyncio.get_running_loop()
        self._removals = [timer for timer in self._removals if not timer.cancelled() and timer.when() > loop.time()]
        self._removals.append(loop.call_later(delay_ms / 1000, self._remove_doomed))

    def _remove_doomed(self) -> None:
        task = asyncio.ensure_future(self._in_background(self._held(self._directory).remove_doomed))
        self._removing.add(task)
        task.add_done_callback(self._removing.discard)

    def set_strays_aside(self, image: MetadataImage) -> None:
        """Rename the logs that the metadata assigns to nobody here, and remove what was to be removed before."""
        directory = self._held(self._directory)
        for topic_partition in directory.partitions():
            if topic_partition == CLUSTER_METADATA:
                continue
            state = image.partition(topic_partition.topic, topic_partition.partition)
            if state is None or self._config.node_id not in state.replicas:
                path = directory.log_path(topic_partition)
                suffix = f"-{topic_partition.partition}.{self._rng.uuid().hex}-stray"
                aside = f"{directory.path}/{topic_partition.topic[: NAME_SIZE_MAX - len(suffix)]}{suffix}"
                self._disk.rename(path, aside)
                logger.warning(
                    "%s is in no topic that the metadata assigns to this node: renamed to %s; "
                    "remove it once you are sure that nobody misses it",
                    path,
                    aside,
                )
        directory.remove_doomed()

    def _holds_another_topic(self, path: str, topic_id: TopicId, image: MetadataImage) -> bool:
        """Whether the directory is of a topic that no longer is."""
        held = self._topic_id_in(path)
        return held is not None and held != topic_id and held not in image.topics_by_id

    def _topic_id_in(self, path: str) -> TopicId | None:
        """Of the topic that a directory belongs to. Raises CorruptLogError."""
        file = f"{path}/{PARTITION_METADATA_FILE}"
        return parse_partition_metadata(self._disk.read_bytes(file), file) if self._disk.exists(file) else None

    def _tell_recovery(self, log: Log) -> None:
        for fact in log.recovery.lines():
            logger.warning("%s: %s", log.topic_partition, fact)

    # While it runs.

    async def keep(self, hosted: Hosted) -> None:
        """Sync, checkpoint and delete what the settings ask for, for as long as the node runs."""
        config = self._config
        chores: tuple[tuple[int, Callable[[list[Partition]], None]], ...] = (
            (config.high_watermark_checkpoint_interval_ms, self._write_high_watermarks),
            (config.recovery_point_checkpoint_interval_ms, self._write_recovery_points),
        )
        due_ms = [self._clock.now_ms() + interval for interval, _ in chores]
        retention_due_ms = self._clock.now_ms() + config.retention_check_interval_ms
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            now_ms = self._clock.now_ms()
            partitions = hosted.partitions
            await self._flush(partitions, hosted, now_ms)
            for index, (interval_ms, chore) in enumerate(chores):
                if now_ms >= due_ms[index]:
                    due_ms[index] = now_ms + interval_ms
                    await self._in_background(partial(chore, partitions))
            if now_ms >= retention_due_ms:
                retention_due_ms = now_ms + config.retention_check_interval_ms
                await self._retain(partitions, hosted)

    async def flush(self, partition: Partition) -> None:
        """Return once all that was appended is synced. Raises DiskError."""
        await self._executor.run(partition.log.flush)

    async def _flush(self, partitions: list[Partition], hosted: Hosted, now_ms: int) -> None:
        for partition in partitions:
            log = partition.log
            if log.is_flush_due(now_ms):
                try:
                    await self._executor.run(partial(log.maybe_flush, now_ms))
                except DiskError as error:
                    hosted.on_disk_error(partition, error)

    async def _retain(self, partitions: list[Partition], hosted: Hosted) -> None:
        """Delete old segments, never beyond the high watermark (rule 11)."""
        for partition in partitions:
            log, replica = partition.log, partition.replica
            if replica is None:
                continue
            try:
                if log.apply_retention(high_watermark=replica.high_watermark, now_ms=self._clock.wall_ms()):
                    partition.on_log_start_moved()
                    await self._executor.run(partial(self._write_recovery_points, partitions))  # before they go
                    count = log.delete_segments_before(log.log_start_offset)
                    logger.info(
                        "%s: %d old segments deleted, starts at %d", log.topic_partition, count, log.log_start_offset
                    )
                    await self._in_background(log.remove_deleted_files)
            except DiskError as error:
                hosted.on_disk_error(partition, error)

    async def _in_background(self, work: Callable[[], object]) -> None:
        """Run a chore off the loop. If the disk refuses, the next turn tries again; recovery covers the rest."""
        try:
            await self._executor.run(work)
        except DiskError as error:
            logger.error("%s", error)

    async def persist_log_starts(self, partitions: Iterable[Partition]) -> None:
        """Return once no crash can bring back what lies below the log starts. Raises DiskError."""
        await self._executor.run(partial(self._write_recovery_points, list(partitions)))

    async def delete_segments(self, partition: Partition) -> None:
        """Give back the space of what lies below the log start, which is persisted already. Raises DiskError."""
        partition.log.delete_segments_before(partition.log.log_start_offset)
        await self._in_background(partition.log.remove_deleted_files)

    def _write_high_watermarks(self, partitions: Iterable[Partition]) -> None:
        with self._checkpoint_lock:
            offsets = {each.topic_partition: each.high_watermark for each in self._kept(partitions)}
            self._checkpointed |= offsets.keys()
            self._held(self._directory).write_high_watermarks(self._high_watermarks | offsets)

    def _write_recovery_points(self, partitions: Iterable[Partition]) -> None:
        directory = self._held(self._directory)
        with self._checkpoint_lock:
            logs = [partition.log for partition in self._kept(partitions)]
            self._checkpointed |= {log.topic_partition for log in logs}
            directory.write_log_start_offsets(
                self._log_start_offsets | {log.topic_partition: log.log_start_offset for log in logs}
            )
            if self._metadata_log is not None:
                logs.append(self._metadata_log)
            directory.write_recovery_points(
                self._recovery_points | {log.topic_partition: log.recovery_point for log in logs}
            )

    def _kept(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those whose topics were not deleted since the list was made."""
        return [each for each in partitions if self._logs.get(each.topic_partition) is each.log]

    # Stop.

    def close(self, partitions: list[Partition], broker_epoch: BrokerEpoch | None) -> bool:
        """Close every log and let go of the directories; marked as clean only if all of it went well.

        Args:
            broker_epoch: of this incarnation; None if not all logs were open or something failed: no clean stop.

        Returns:
            Whether every log that was open could be closed.
        """
        directory, metadata_directory = self._directory, self._metadata_directory
        try:
            if directory is None or metadata_directory is None or self._metadata_log is None:
                return False  # the start did not come so far
            are_closed = True
            for log in [*(partition.log for partition in partitions), self._metadata_log]:
                try:
                    log.close()
                except DiskError as error:
                    are_closed = False
                    logger.error("%s was not closed cleanly: %s", log.topic_partition, error)
            self._write_recovery_points(partitions)
            self._write_high_watermarks(partitions)
            if are_closed and broker_epoch is not None and not self._failed_logs:
                metadata_directory.mark_clean_shutdown(broker_epoch)
                if directory is not metadata_directory:
                    directory.mark_clean_shutdown(broker_epoch)
            return are_closed
        finally:
            for timer in self._removals:
                timer.cancel()
            for held in {directory, metadata_directory} - {None}:
                held.close()  # type: ignore[union-attr]

    @staticmethod
    def _held(directory: LogDirectory | None) -> LogDirectory:
        assert directory is not None
        return directory


def _directory_uuid(properties: MetaProperties) -> UUID:
    try:
        return parse_uuid(properties.directory_id)
    except ValueError:
        return UUID(int=0)
