"""Takes logs out of one directory: a log that is deleted goes, one that is nobody's here stays under another name.

A directory is renamed at once, which puts it out of everybody's way, and its files are removed later.

Kafka: `LogManager`, as it deletes logs and renames strays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import CLUSTER_METADATA, TopicPartition
from tidelog.base.ports import Disk, Rng
from tidelog.log.directory import LogDirectory
from tidelog.log.files.future_mark import is_unfinished
from tidelog.log.files.lineage_file import read_lineage
from tidelog.log.files.replica_list import ListedReplica
from tidelog.server.storage.removed_replicas import RemovedReplicas

if TYPE_CHECKING:
    from tidelog.server.storage.log_dir import LogDir

logger = logging.getLogger("tidelog.server.log_files")


class LogRemoval:
    """See the module. On the executor's threads, several at once."""

    def __init__(self, log_dir: LogDir, directory: LogDirectory, *, disk: Disk, rng: Rng) -> None:
        self._log_dir = log_dir
        self._directory = directory
        self._disk = disk
        self._rng = rng

    def mark_for_deletion(self, topic_partition: TopicPartition) -> None:
        """Rename a log's directory, to be removed by `remove_marked`. Raises DiskError."""
        log_dir = self._log_dir
        self._unlist(topic_partition)
        log = log_dir.checkpoints.let_go_of(topic_partition)
        if log is not None:
            log.retire()
        self._directory.mark_for_deletion(topic_partition, self._rng)
        log_dir.evidence.failed_logs.discard(topic_partition)
        log_dir.partition_count -= 1

    def _unlist(self, topic_partition: TopicPartition) -> None:
        """Before its log goes: else a crash in between would leave a loss."""
        path = self._directory.log_path(topic_partition)
        try:
            topic_id = None if is_unfinished(self._disk, path) else self._directory.topic_id_in(path)
        except CorruptLogError:
            return  # whose it is nobody knows
        if topic_id is not None:
            self._log_dir.listed.remove([(topic_id, topic_partition.partition)])

    def remove_marked(self) -> None:
        """Remove the files of what was deleted. May take long."""
        self._directory.remove_marked()

    def set_strays_aside(self, is_ours: Callable[[TopicPartition], bool], removed: RemovedReplicas) -> None:
        """Rename the logs that are nobody's here, so that they are in nobody's way, nor lost.

        Those that the metadata log has removed, and strays of topics that it has removed, are to be deleted. What a
        kill left of a log that was being made holds nothing, and goes at once.
        """
        for topic_partition in self._directory.partitions():
            if topic_partition == CLUSTER_METADATA or is_ours(topic_partition):
                continue
            if self._directory.is_log(topic_partition):  # else it is somebody's own, like `backup-2024`
                self.mark_for_deletion_or_set_aside(
                    topic_partition, removed, "is in no topic that the metadata assigns to this node"
                )
            elif self._directory.is_unmade_log(topic_partition):
                self._directory.remove_unmade_log(topic_partition)
        self.mark_strays_for_deletion(removed.has_topic_of)

    def mark_strays_for_deletion(self, is_removed: Callable[[ListedReplica], bool]) -> None:
        """Have the strays deleted whose topics the metadata log has removed. Raises DiskError."""
        for path, topic_partition in self._directory.strays():
            try:
                topic_id = self._directory.topic_id_in(path)
            except CorruptLogError as error:
                logger.warning("%s: whose log it is cannot be told: %s", path, error)
                continue
            if topic_id is not None and is_removed((topic_id, topic_partition.partition)):
                marked = self._directory.mark_stray_for_deletion(path, topic_partition, self._rng)
                logger.info("%s is of a topic that the metadata log has removed: renamed to %s", path, marked)

    def mark_for_deletion_or_set_aside(
        self, topic_partition: TopicPartition, removed: RemovedReplicas, why: str
    ) -> None:
        """Have a log that is nobody's here deleted, if the metadata log has removed it; else keep it under another
        name. Raises DiskError.
        """
        if not self._is_removed(topic_partition, removed):
            self.set_aside(topic_partition, why)
            return
        self.mark_for_deletion(topic_partition)
        logger.info("%s: the metadata log has removed it from this node, and its log goes", topic_partition)

    def _is_removed(self, topic_partition: TopicPartition, removed: RemovedReplicas) -> bool:
        path = self._directory.log_path(topic_partition)
        try:
            topic_id = self._directory.topic_id_in(path)
            if topic_id is None:
                return False
            replica = topic_id, topic_partition.partition
            removed_in = removed.removed_in(replica)
            if removed.has_topic_of(replica) or removed_in is None:
                return removed.has_topic_of(replica)
            latest = read_lineage(self._disk, path).latest_leader_epoch
        except CorruptLogError as error:
            logger.warning("%s: whose log it is, or how old, cannot be told: %s", topic_partition, error)
            return False
        return latest is None or latest < removed_in

    def set_aside(self, topic_partition: TopicPartition, why: str) -> None:
        """Rename a log. Raises DiskError."""
        log_dir = self._log_dir
        self._unlist(topic_partition)
        path = self._directory.log_path(topic_partition)
        log = log_dir.logs.pop(topic_partition, None)
        if log is not None:
            log.retire()
        aside = self._directory.set_aside(topic_partition, self._rng)
        log_dir.evidence.failed_logs.discard(topic_partition)
        log_dir.partition_count -= 1
        logger.warning("%s %s: renamed to %s; remove it once you are sure that nobody misses it", path, why, aside)
