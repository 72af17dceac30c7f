"""One log directory that a node holds: how it was left, what is checkpointed in it, and the logs that are open there.

```
 online ──(asked after an error of the disk, it refuses too)──► failed: nothing is written to it, until a restart
```
A full disk is no failure; see `disk_health`.

Kafka: `LogManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import CLUSTER_METADATA, BrokerEpoch, Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk, Rng
from tidelog.log import Log, LogConfig
from tidelog.log.directory import LogDirectory
from tidelog.log.files.checkpoint import format_partition_metadata
from tidelog.log.files.future_mark import is_unfinished
from tidelog.log.files.replica_list import ListedReplica
from tidelog.log.recovery import PARTITION_METADATA_FILE
from tidelog.server.storage.checkpoints import Checkpoints, Replica
from tidelog.server.storage.disk_health import DiskHealth
from tidelog.server.storage.future_logs import FutureLogs
from tidelog.server.storage.listed_replicas import ListedReplicas
from tidelog.server.storage.log_losses import LogLosses
from tidelog.server.storage.log_removal import LogRemoval
from tidelog.server.storage.run_evidence import RunEvidence

logger = logging.getLogger("tidelog.server.log_files")


class LogDir:
    """One of the node's log directories, locked.

    Its methods run on the executor's threads, several at once.

    Attributes:
        directory_id: by which the metadata names it.
        failure: why it is out of use, until the node is started again.
        evidence: what is known of the last run, and is said of this one.
        partition_count: of the logs in it; new ones go where there are fewest.
        logs: those that are open and not deleted, the metadata log included.
        listed: the replicas that have, or had, a log here.
        health: whether its disk can be relied on, and has room.
        checkpoints: how far the logs are synced and committed, and where they start.
        losses: what the logs lack of what they had.
        removal: takes logs out of it.
        futures: the logs in it that are copies of others.
    """

    def __init__(self, directory: LogDirectory, directory_id: UUID, *, disk: Disk, rng: Rng) -> None:
        self.directory_id = directory_id
        self.failure: str | None = None
        self.evidence = RunEvidence(disk, directory.path)
        self.partition_count = len(directory.partitions())
        self.logs: dict[TopicPartition, Log] = {}
        self.listed = ListedReplicas(directory, self.replicas)
        self.health = DiskHealth(disk, directory.path)
        self._directory = directory
        self._disk = disk
        self._rng = rng
        self.checkpoints = Checkpoints(directory, self.logs)
        self.losses = LogLosses(directory, self.evidence, self.listed, self.checkpoints, disk=disk)
        self.removal = LogRemoval(self, directory, disk=disk, rng=rng)
        self.futures = FutureLogs(self, directory, disk=disk, rng=rng)
        for fault in directory.faults:
            logger.warning("%s; it is taken for missing", fault)

    @property
    def path(self) -> str:
        return self._directory.path

    def log_path(self, topic_partition: TopicPartition) -> str:
        """Where the log of a partition is, or would be."""
        return self._directory.log_path(topic_partition)

    def holds(self, topic_partition: TopicPartition) -> bool:
        return self._disk.exists(self.log_path(topic_partition))

    def topic_id_of(self, topic_partition: TopicPartition) -> TopicId | None:
        """Of the topic that a log's directory belongs to, if it says so. Raises CorruptLogError."""
        return self._directory.topic_id_in(self.log_path(topic_partition))

    def partitions(self) -> list[TopicPartition]:
        """The logs that lie here, whoever they belong to. A directory that merely has such a name is none."""
        return [each for each in self._directory.partitions() if self._directory.is_log(each)]

    def replicas(self) -> list[ListedReplica]:
        """Those whose logs lie here. Copies that are being made, and logs that do not say whose they are, are none."""
        found: list[ListedReplica] = []
        for topic_partition in self.partitions():
            try:
                topic_id = self.topic_id_of(topic_partition)
                if topic_id is not None and not is_unfinished(self._disk, self.log_path(topic_partition)):
                    found.append((topic_id, topic_partition.partition))
            except CorruptLogError as error:
                logger.warning("%s: whose log it is cannot be told: %s", topic_partition, error)
        return found

    # Logs.

    def make(self, topics: Mapping[TopicPartition, TopicId]) -> None:
        """Make the directories of logs that are yet to be opened, all at once: a sync for many, not five for each.

        Order: the names of the directories, then what ties them to their topics, all synced before this returns. A
        crash half way leaves directories that are empty; they are found, and given to the same topics, at the start.
        A log that was not made here, because the disk refused, is made when it is opened.

        Raises:
            DiskError: what the checkpoints say of deleted logs of these names cannot be taken out: open none of them.
        """
        self.checkpoints.forget(topics)
        try:
            for topic_partition in topics:
                self._disk.make_dirs(self.log_path(topic_partition))
            self._disk.sync_dir(self.path)
            self._disk.write_all_atomically(
                {
                    f"{self.log_path(topic_partition)}/{PARTITION_METADATA_FILE}": format_partition_metadata(topic_id)
                    for topic_partition, topic_id in topics.items()
                }
            )
        except DiskError as error:
            logger.warning("%s: logs are made one by one: %s", self.path, error)

    def names_of(self, topic_partition: TopicPartition) -> list[str] | None:
        """All that is in the directory of a log; None where it has none. Raises DiskError."""
        path = self.log_path(topic_partition)
        return self._disk.list(path) if self._disk.exists(path) else None

    def open_log(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        topic_id: TopicId | None,
        now_ms: int,
        names: Sequence[str] | None = None,
    ) -> Log:
        """Open, recover or make a log. Raises CorruptLogError, DiskError.

        Args:
            names: see `Log.open`.
        """
        before = self.logs.pop(topic_partition, None)
        if before is not None:
            before.retire()  # it failed: who still has it is to leave the files alone
        log = Log.open(
            self._disk,
            self.log_path(topic_partition),
            topic_partition,
            config,
            topic_id=topic_id,
            clean_shutdown=self.evidence.was_clean and topic_partition not in self.evidence.failed_logs,
            recovery_point=self.checkpoints.recovery_point(topic_partition),
            now_ms=now_ms,
            log_start_offset=self.checkpoints.log_start(topic_partition) or Offset(0),
            high_watermark=self.checkpoints.high_watermark(topic_partition),
            rng=self._rng,
            names=names,
        )
        self.evidence.failed_logs.discard(topic_partition)
        self.logs[topic_partition] = log
        for fact in log.recovery.lines():
            logger.warning("%s: %s", log.topic_partition, fact)
        return log

    def adopt(self, topic_partition: TopicPartition, log: Log) -> None:
        """A copy took over: it is the log of the partition, and lies here. On the loop."""
        self.logs[topic_partition] = log

    def on_failed(self, topic_partition: TopicPartition) -> None:
        """The log is not to be trusted: the next start has to look at it, however this run ends."""
        self.evidence.failed_logs.add(topic_partition)
        self.evidence.forget_incarnation()

    @property
    def has_quorum_state(self) -> bool:
        """Whether a `quorum-state` was written here, and has to be there. Raises CorruptLogError, DiskError."""
        properties = self._directory.read_meta_properties()
        return properties is not None and properties.has_quorum_state

    def note_quorum_state(self) -> None:
        """From now on it is missed; synced when this returns. Raises DiskError."""
        properties = self._directory.read_meta_properties()
        if properties is not None and not properties.has_quorum_state:
            self._directory.write_meta_properties(replace(properties, has_quorum_state=True))

    # Stop.

    def logs_to_close(self, partitions: Iterable[Replica]) -> list[Log]:
        """Of the partitions that are served, and the metadata log; what is offline is let go of as it is."""
        if self.failure is not None:
            return []
        logs = [partition.log for partition in self.checkpoints.kept(partitions)]
        if CLUSTER_METADATA in self.logs:
            logs.append(self.logs[CLUSTER_METADATA])
        return logs

    def leave(self, partitions: Iterable[Replica], broker_epoch: BrokerEpoch | None) -> bool:
        """The logs are closed: write the checkpoints, and mark the directory as clean if all of it went well.

        Args:
            partitions: those that were served.
            broker_epoch: of this incarnation; None if a log was not closed, or the start did not come so far.

        Returns:
            Whether the checkpoints were written.
        """
        if self.failure is not None:
            return True
        kept = self.checkpoints.kept(partitions)
        try:
            self.checkpoints.write_recovery_points(kept)
            self.checkpoints.write_high_watermarks(kept)
            if broker_epoch is not None:
                self.evidence.mark_clean_shutdown(broker_epoch)
        except DiskError as error:
            logger.error("%s was not left cleanly: %s", self.path, error)
            return False
        return True


def close_logs(logs: Iterable[Log]) -> bool:
    """Close logs, each whatever comes of the others. Returns whether all could be."""
    are_closed = True
    for log in logs:
        try:
            log.close()
        except DiskError as error:
            are_closed = False
            logger.error("%s was not closed cleanly: %s", log.topic_partition, error)
    return are_closed
