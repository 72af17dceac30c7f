"""What the logs of one directory lack of what they had, as far as this directory can tell.

Kafka: none; there a log that is gone is made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import NamedTuple

from tidelog.base.ids import Offset, TopicPartition
from tidelog.base.ports import Disk
from tidelog.log import Log
from tidelog.log.directory import LogDirectory
from tidelog.log.files.replica_list import ListedReplica
from tidelog.log.recovery import first_segment, has_segment, is_truncated_end, lost_segments, set_aside_from
from tidelog.server.storage.checkpoints import Checkpoints
from tidelog.server.storage.listed_replicas import ListedReplicas
from tidelog.server.storage.run_evidence import RunEvidence

logger = logging.getLogger("tidelog.server.log_files")


class LogLoss(NamedTuple):
    """What a log lacks of what it had."""

    reason: str
    is_whole: bool = False
    """Nothing is left of it, or nothing that the start has not made."""


class LogLosses:
    """See the module. On the executor's threads, several at once.

    Args:
        evidence: without which nobody asks: the broker is registered as one that may have lost anything.
    """

    def __init__(
        self,
        directory: LogDirectory,
        evidence: RunEvidence,
        listed: ListedReplicas,
        checkpoints: Checkpoints,
        *,
        disk: Disk,
    ) -> None:
        self._directory = directory
        self._evidence = evidence
        self._listed = listed
        self._checkpoints = checkpoints
        self._disk = disk
        self._accepted: set[ListedReplica] = set()

    def before_opening(
        self,
        topic_partition: TopicPartition,
        replica: ListedReplica,
        *,
        is_new: bool = False,
        names: Sequence[str] | None = None,
    ) -> LogLoss | None:
        """What a log that is yet to be opened lacks of what it had, as far as its files tell; see `of`.

        A log has a file with records before it is listed. Where the list is lost, who has none may have been listed.
        The file is not made before the loss is committed: without a list, nothing else tells the next start of it.

        Args:
            is_new: nobody can have written to it yet.
            names: all that are in its directory; None to look.
        """
        path = self._directory.log_path(topic_partition)
        if replica in self._listed.found_lost:
            return LogLoss("records of it were found to be gone", is_whole=True)
        if self._evidence.previous.broker_epoch is None or replica in self._accepted:
            return None
        if names is None:
            if not self._disk.exists(path):
                return None
            names = self._disk.list(path)
        may_be_listed = replica in self._listed or (self._listed.is_lost and not is_new)
        if may_be_listed and not has_segment(names):
            return LogLoss("no file of it with records is left", is_whole=True)
        lost_from = self._lost_from(topic_partition, names)
        return None if lost_from is None else LogLoss(f"the file of records from offset {lost_from} on is gone")

    def end_before(
        self, topic_partition: TopicPartition, *, is_only_replica: bool, names: Sequence[str] | None = None
    ) -> bool:
        """Let a log that lacks a segment end there: others have what it lacks, and what follows.

        Args:
            is_only_replica: nobody has what a log that lacks its beginning lacks; so what follows is kept.
            names: all that are in its directory; None to look.

        Returns:
            Whether something followed, which has another name now.

        Raises:
            DiskError: the disk refused.
        """
        path = self._directory.log_path(topic_partition)
        if names is None:
            names = self._disk.list(path) if self._disk.exists(path) else []
        lost_from = self._lost_from(topic_partition, names, knows_beginning=not is_only_replica)
        kept = [] if lost_from is None else set_aside_from(self._disk, path, lost_from)
        if kept:
            logger.warning(
                "%s: the log ends at offset %d, where a file of it is gone; what followed is kept in %s",
                *(topic_partition, lost_from, ", ".join(kept)),
            )
        return bool(kept)

    def _lost_from(
        self, topic_partition: TopicPartition, names: Sequence[str], *, knows_beginning: bool = True
    ) -> Offset | None:
        """Where the first segment began that is gone from a log that lies here, as far as can be told.

        Its indexes tell, if they are left. The first one is gone, too, where the log was noted to start below the
        first that is there: no segment goes before that start is noted.

        Args:
            names: all that are in its directory.
        """
        lost = lost_segments(names)
        if knows_beginning and self._checkpoints.were_log_starts_noted:
            started_at = self._checkpoints.log_start(topic_partition)
            first = first_segment(names)
            if started_at is not None and first is not None and started_at < first:
                lost.append(started_at)
        return min(lost, default=None)

    def of(self, log: Log, replica: ListedReplica) -> LogLoss | None:
        """What a log that was opened lacks of what it had, as far as this directory can tell; None for nothing.

        Nobody asks where the last run cannot show that it lost nothing: it is registered as one that did, and a log
        that a loss of power has shortened is no surprise.

        Where the list is lost, it may have said of a log that ends where a start truncated it that this is yet to be
        committed.
        """
        if self._evidence.previous.broker_epoch is None or replica in self._accepted:
            return None
        synced_end_offset = self._checkpoints.recovery_point(log.topic_partition)
        if self._evidence.was_clean and log.log_end_offset < synced_end_offset:
            return LogLoss(f"it ends at offset {log.log_end_offset}, and was closed at {synced_end_offset}")
        truncation = log.recovery.truncation
        is_unknown = self._listed.is_lost and is_truncated_end(self._disk, log.directory, log.log_end_offset)
        if is_unknown or (truncation is not None and truncation.kept_as):
            return LogLoss(f"what came after offset {log.log_end_offset} cannot be read any more")
        high_watermark = self._checkpoints.high_watermark(log.topic_partition) or Offset(0)
        if log.log_end_offset < high_watermark:
            return LogLoss(f"it ends at offset {log.log_end_offset}, and {high_watermark} was committed")
        return None

    def accept(self, replicas: Collection[ListedReplica]) -> None:
        """That these logs are gone is committed: from now on they may begin anew. Raises DiskError."""
        self._accepted.update(replicas)
        if self._listed.is_lost:
            self._listed.renew()
        self._listed.remove(replicas)
