"""The node's logs: in which directory each lies, and what is in force for them.

Opening and closing logs is the world's business and may take long; it runs on the executor's threads where it
waits for the disk. What the logs mean is for `Broker` and `Controller`.

Kafka: `LogManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import CLUSTER_METADATA, BrokerEpoch, ClusterId, Offset, TopicId, TopicPartition
from tidelog.base.ports import Clock, Disk, Executor, Rng
from tidelog.log.files.replica_list import REPLICA_LIST_FILE
from tidelog.metadata import MetadataImage
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.storage.checkpoints import Replica
from tidelog.server.storage.incarnations import Incarnations
from tidelog.server.storage.log_deletions import LogDeletions
from tidelog.server.storage.log_dir import LogDir, close_logs
from tidelog.server.storage.log_dir_assignment import LogDirAssignment
from tidelog.server.storage.log_directories import LogDirectories
from tidelog.server.storage.log_opening import OPENED_TOGETHER_MAX, LogOpening
from tidelog.server.storage.metadata_files import MetadataFiles, OpenedMetadata
from tidelog.server.storage.served_logs import ServedLogs
from tidelog.server.tasks import Tasks

logger = logging.getLogger("tidelog.server.log_files")


class LogFiles:
    """The log directories of one node, the metadata log's included, and the logs in them.

    Args:
        room_for_logs: how many logs may be made, each of which keeps a file open; None for any number.

    Attributes:
        log_dir_assignment: where each log lies, or is to be made.
        incarnations: who wrote in the directories before this run, and who does in this one.
        opening: of the logs that the node is to have.
        served: the logs that are open, and what is done to them.
        deletions: of logs that are nobody's here any more.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        disk: Disk,
        clock: Clock,
        rng: Rng,
        executor: Executor,
        tasks: Tasks,
        room_for_logs: Callable[[], int | None],
    ) -> None:
        self._config = config
        self._disk = disk
        self._clock = clock
        self._executor = executor
        self._directories = LogDirectories(config.node_id, disk=disk, rng=rng)
        self.log_dir_assignment = LogDirAssignment(self, clock=clock, room=room_for_logs)
        self.incarnations = Incarnations(self, executor=executor)
        self._metadata: MetadataFiles | None = None
        self._log_dir_of: dict[TopicPartition, LogDir] = {}  # where each open log lies
        self.opening = LogOpening(self, self._log_dir_of, clock=clock, executor=executor)
        self.served = ServedLogs(self, self._log_dir_of, clock=clock, executor=executor)
        self.deletions = LogDeletions(self, self._log_dir_of, config, executor=executor, tasks=tasks)

    # Start.

    def open(self) -> None:
        """Take the directories into use. Raises ConfigError, CorruptLogError, DiskError: see `LogDirectories.open`."""
        config = self._config
        self._directories.open(
            config.log_directories, config.metadata_log_directory, is_alone=config.quorum.is_standalone
        )
        self._metadata = MetadataFiles(self.metadata_directory, disk=self._disk)

    @property
    def disk(self) -> Disk:
        return self._disk

    @property
    def cluster_id(self) -> ClusterId:
        return self._directories.cluster_id

    @property
    def directories(self) -> list[LogDir]:
        """Those of `log.dirs` that could be used at the start, in their order, the failed ones included."""
        log_dir = self._directories.log_dir
        return [log_dir[path] for path in self._config.log_directories if path in log_dir]

    @property
    def left_out(self) -> dict[str, str]:
        """Those of `log.dirs` that could not be used at the start, with the reasons."""
        return self._directories.left_out

    @property
    def metadata_directory(self) -> LogDir:
        return self._directories.log_dir[self._config.metadata_log_directory]

    @property
    def directory_ids(self) -> tuple[UUID, ...]:
        """The ids of the log directories in use."""
        return tuple(each.directory_id for each in self.online)

    @property
    def online(self) -> list[LogDir]:
        """The log directories in use."""
        return [each for each in self.directories if each.failure is None]

    @property
    def is_known_full(self) -> bool:
        """Whether there is room for no further partition, or none for the metadata that tells of it."""
        return self.metadata_directory.health.is_known_full or all(each.health.is_known_full for each in self.online)

    def open_metadata_log(self) -> OpenedMetadata:
        """The log of `__cluster_metadata-0` and what lies beside it; from here on a crash is one.

        Raises:
            ConfigError: it is gone, though there are logs of topics, and nobody else knows whose they are.
            CorruptLogError: as `MetadataFiles.open`; DiskError likewise.
        """
        orphans: list[TopicPartition] = []
        for log_dir in self.directories:
            try:
                orphans += log_dir.partitions()
            except DiskError as error:
                self.give_up(log_dir, error)
        if self._config.quorum.is_standalone:
            self.metadata.check_not_lost(orphans)
        for log_dir in self._directories.log_dir.values():
            try:
                log_dir.evidence.take_clean_shutdown()
                log_dir.futures.remove_unmade()
                log_dir.listed.read()
                if log_dir.listed.is_lost:
                    logger.error(
                        "%s: its list of replicas (%s) is gone or damaged: a replica of this node that has no file "
                        "with records counts as lost",
                        *(log_dir.path, REPLICA_LIST_FILE),
                    )
            except DiskError as error:
                self.give_up(log_dir, error)
        return self.metadata.open(
            now_ms=self._clock.wall_ms(), has_run=any(each != CLUSTER_METADATA for each in orphans)
        )

    def give_up(self, log_dir: LogDir, error: DiskError) -> None:
        """A directory refused what it may not refuse. Raises DiskError: that one, if the node cannot go on without."""
        self.on_directory_failed(log_dir, str(error))
        if self.must_stop:
            raise error

    @property
    def metadata(self) -> MetadataFiles:
        """The files of the metadata log, once the directories are in use."""
        assert self._metadata is not None
        return self._metadata

    # Logs.

    def directory_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """Where the log of a partition lies, if it is open here."""
        return self._log_dir_of.get(topic_partition)

    def topic_id_at(self, topic_partition: TopicPartition) -> TopicId | None:
        """Of the log that lies under this name in a directory in use, open or not; None if there is none to be read."""
        for log_dir in self.online:
            try:
                if log_dir.holds(topic_partition):
                    return log_dir.topic_id_of(topic_partition)
            except (DiskError, CorruptLogError) as error:
                logger.warning("%s: whose log it is cannot be told: %s", topic_partition, error)
        return None

    def on_moved(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        """The log of a partition lies there from now on."""
        self._log_dir_of[topic_partition] = log_dir

    def high_watermark(self, topic_partition: TopicPartition) -> Offset | None:
        """As it was checkpointed before this start; None if it was not."""
        log_dir = self._log_dir_of.get(topic_partition)
        return None if log_dir is None else log_dir.checkpoints.high_watermark(topic_partition)

    async def room_in(self, log_dir: LogDir) -> tuple[int, int]:
        """(total, usable) bytes of the file system that a directory lies on. Raises DiskError."""
        return await self._executor.run(
            lambda: (self._disk.total_bytes(log_dir.path), self._disk.free_bytes(log_dir.path))
        )

    def in_force(self, image: MetadataImage) -> SettingsInForce:
        """The settings at this broker as of an image, which may be yet to be published."""
        return SettingsInForce.of(self._config.static, image.configs, self._config.node_id)

    # What goes wrong.

    def on_failed(self, topic_partition: TopicPartition) -> None:
        """The log is not to be trusted: the next start has to look at it, however this run ends."""
        log_dir = self._log_dir_of.get(topic_partition)
        if log_dir is not None:
            log_dir.on_failed(topic_partition)

    def on_directory_failed(self, log_dir: LogDir, reason: str) -> None:
        """Nothing is written to it, and nothing new is placed in it, until the next start."""
        log_dir.failure = reason
        for each in self._directories.log_dir.values():
            each.evidence.forget_incarnation()
        logger.critical(
            "log directory %s failed, and what lies in it goes offline: %s. Repair or replace the disk, then start "
            "the node again",
            log_dir.path,
            reason,
        )

    @property
    def must_stop(self) -> bool:
        """Whether a directory failed without which the node cannot go on."""
        return self.metadata_directory.failure is not None or not self.online

    # While it runs.

    async def in_background(self, work: Callable[[], object]) -> None:
        """Run a chore off the loop. If the disk refuses, the next turn tries again; recovery covers the rest."""
        try:
            await self._executor.run(work)
        except DiskError as error:
            logger.error("%s", error)

    # Stop.

    async def close(self, partitions: Sequence[Replica], broker_epoch: BrokerEpoch | None) -> bool:
        """Close every log, on several threads, and let go of the directories; each is marked as clean only if all of
        it went well.

        Args:
            broker_epoch: of this incarnation; None if not all logs were open or something failed: no clean stop.

        Returns:
            Whether every log that was served could be closed.
        """
        try:
            log_dir = list(self._directories.log_dir.values())
            if not any(CLUSTER_METADATA in each.logs for each in log_dir):
                return False  # the start did not come so far
            closed = [await self._close_logs_in(each, partitions) for each in log_dir]
            if not all(closed):
                for each in log_dir:
                    each.evidence.forget_incarnation()
            for index, each in enumerate(log_dir):
                epoch = broker_epoch if closed[index] else None
                closed[index] &= await self._executor.run(partial(each.leave, partitions, epoch))
            return all(closed)
        finally:
            self.deletions.cancel()
            self._directories.close()

    async def _close_logs_in(self, log_dir: LogDir, partitions: Sequence[Replica]) -> bool:
        logs = log_dir.logs_to_close(partitions)
        jobs = [
            self._executor.run(partial(close_logs, logs[start : start + OPENED_TOGETHER_MAX]))
            for start in range(0, len(logs), OPENED_TOGETHER_MAX)
        ]
        return all([await job for job in jobs])
