"""The checkpoints of one log directory: how far its logs are synced and committed, and where they start.

Kafka: `OffsetCheckpointFile`, as `LogManager` and `ReplicaManager` keep it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

from tidelog.base.errors import DiskError
from tidelog.base.ids import CLUSTER_METADATA, Offset, TopicPartition
from tidelog.log import Log
from tidelog.log.directory import HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, LogDirectory


class Replica(Protocol):
    """A partition whose log may lie in this directory, or in another one."""

    @property
    def topic_partition(self) -> TopicPartition: ...
    @property
    def log(self) -> Log: ...
    @property
    def high_watermark(self) -> Offset: ...


class Checkpoints:
    """Three files of one directory, and what they say. Methods run on the executor's threads, several at once.

    Args:
        directory: whose they are.
        logs: those that are open there and not deleted, the metadata log included; shared with the directory's owner.

    Attributes:
        were_log_starts_noted: whether each log's start was on the disk before segments below it went. Kafka notes it
            later than that.
    """

    def __init__(self, directory: LogDirectory, logs: dict[TopicPartition, Log]) -> None:
        self._directory = directory
        self._logs = logs
        self._lock = threading.Lock()
        self._recovery_points = directory.read_offsets(RECOVERY_POINT_FILE)
        self._log_start_offsets = directory.read_offsets(LOG_START_OFFSET_FILE)
        self._high_watermarks = directory.read_offsets(HIGH_WATERMARK_FILE)
        self._stale: dict[str, set[TopicPartition]] = {name: set() for name in self._all}
        """What a file names yet, though it is to be forgotten: logs that were let go of since it was written."""
        properties = directory.read_meta_properties()
        self.were_log_starts_noted = properties is not None and properties.has_replica_list

    def recovery_point(self, topic_partition: TopicPartition) -> Offset:
        """Exclusive: up to here a log is synced; 0 if nothing is known."""
        return self._recovery_points.get(topic_partition, Offset(0))

    def log_start(self, topic_partition: TopicPartition) -> Offset | None:
        """Where a log started when that was last written; None if it was not."""
        return self._log_start_offsets.get(topic_partition)

    def high_watermark(self, topic_partition: TopicPartition) -> Offset | None:
        """As it was last written; None if it was not."""
        return self._high_watermarks.get(topic_partition)

    def noted_log_start(self, log: Log) -> Offset:
        """Where a log starts, as far as that is written: what lies below may be deleted."""
        return min(log.log_start_offset, self._log_start_offsets.get(log.topic_partition, Offset(0)))

    def kept(self, replicas: Iterable[Replica]) -> list[Replica]:
        """Those whose logs lie here, and whose topics were not deleted since the list was made."""
        return [each for each in replicas if self._logs.get(each.topic_partition) is each.log]

    # Writing. Each raises DiskError.

    def write_high_watermarks(self, replicas: Iterable[Replica]) -> None:
        with self._lock:
            offsets = {each.topic_partition: each.high_watermark for each in self.kept(replicas)}
            self._high_watermarks |= offsets  # a log that goes offline keeps what was written last
            self._write(HIGH_WATERMARK_FILE, self._high_watermarks)

    def write_recovery_points(self, replicas: Iterable[Replica]) -> None:
        """With the log starts: before segments below one are deleted."""
        with self._lock:
            logs = [replica.log for replica in self.kept(replicas)]
            metadata_log = self._logs.get(CLUSTER_METADATA)
            self._write_recovery_points(logs if metadata_log is None else [*logs, metadata_log])

    def _write_recovery_points(self, logs: Sequence[Log]) -> None:
        of_partitions = [log for log in logs if log.topic_partition != CLUSTER_METADATA]
        self._write_log_starts(of_partitions)
        self._recovery_points |= {log.topic_partition: log.recovery_point for log in logs}
        self._write(RECOVERY_POINT_FILE, self._recovery_points)

    def on_shorter(self, log: Log) -> None:
        """If a log ends before what was synced of it once, its disk is damaged, and that is known by now: forget it."""
        with self._lock:
            if log.recovery_point < self.recovery_point(log.topic_partition):
                self._write_recovery_points([log])

    def note_log_starts(self, logs: Iterable[Log]) -> None:
        """Of logs that were opened here, so that a beginning that is lost is missed; synced when it returns."""
        with self._lock:
            self._write_log_starts(logs)

    def _write_log_starts(self, logs: Iterable[Log]) -> None:
        starts = {log.topic_partition: log.log_start_offset for log in logs}
        if not starts.items() <= self._log_start_offsets.items():
            every = self._log_start_offsets | starts
            self._write(LOG_START_OFFSET_FILE, every)
            self._log_start_offsets = every

    def _write(self, name: str, offsets: dict[TopicPartition, Offset]) -> None:
        stale = self._stale[name]
        try:
            self._directory.write_offsets(name, offsets)
        except DiskError:
            stale.update(offsets)  # it may have been written
            raise
        stale.clear()

    def _drop(self, name: str, topic_partitions: Iterable[TopicPartition]) -> None:
        known, stale = self._all[name], self._stale[name]
        for each in topic_partitions:
            if known.pop(each, None) is not None:
                stale.add(each)

    # Cutting. What is appended next is not synced, though there was a time when that much of the log was: a file that
    # says so still would have the next start take it for synced. Each raises DiskError: the log is out of use, if its
    # segments have changed; open it anew.

    def truncate(self, log: Log, end_offset: Offset) -> None:
        """Let a log forget its end."""
        with self._lock:
            log.truncate_to(end_offset)
            if log.recovery_point < self.recovery_point(log.topic_partition):  # else what is written stays true
                self._write_recovery_points([log])

    def start_anew(self, log: Log, offset: Offset) -> None:
        """Let a log forget everything and go on at an offset. Until it does nobody knows where it starts: at no moment
        is that noted to be below its first segment.
        """
        with self._lock:
            if log.topic_partition in self._log_start_offsets:
                self._drop(LOG_START_OFFSET_FILE, [log.topic_partition])
                self._write(LOG_START_OFFSET_FILE, self._log_start_offsets)
            log.truncate_fully_and_start_at(offset)
            self._write_recovery_points([log])

    def adopt(self, topic_partition: TopicPartition, former: Checkpoints, copy_start_offset: Offset) -> None:
        """Say of a copy what is said of its log in the directory where it was before; synced when it returns.

        Args:
            copy_start_offset: where the copy starts.
        """
        with self._lock:
            started_at = former._log_start_offsets.get(topic_partition, Offset(0))
            self._log_start_offsets[topic_partition] = max(started_at, copy_start_offset)
            if topic_partition in former._high_watermarks:
                self._high_watermarks[topic_partition] = former._high_watermarks[topic_partition]
            self._write(LOG_START_OFFSET_FILE, self._log_start_offsets)
            self._write(HIGH_WATERMARK_FILE, self._high_watermarks)

    # Forgetting.

    def forget(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """A log that is yet to be made has no past: what a deleted one of its name left in the checkpoints must go.

        On disk too, and before the new log is made: after a crash it would start where the old one did.
        """
        forgotten = set(topic_partitions)
        directory = self._directory
        with self._lock:
            for name, stale in self._stale.items():
                self._drop(name, forgotten)
                if forgotten.isdisjoint(stale):
                    continue
                offsets = directory.read_offsets(name)
                if not forgotten.isdisjoint(offsets):
                    directory.write_offsets(
                        name, {each: offset for each, offset in offsets.items() if each not in forgotten}
                    )
                stale.difference_update(forgotten)

    def let_go_of(self, topic_partition: TopicPartition) -> Log | None:
        """A log is to be deleted: it is none of the directory's from now on. Returns it, if it was open.

        The files name it until they are written next, or a log of its name is made.
        """
        with self._lock:
            for name in self._all:
                self._drop(name, [topic_partition])
            return self._logs.pop(topic_partition, None)

    def forget_metadata_log(self) -> None:
        """It was removed, and what is checkpointed of it holds for no other."""
        if self._log_start_offsets.pop(CLUSTER_METADATA, None) is not None:
            self._write(LOG_START_OFFSET_FILE, self._log_start_offsets)
        if self._recovery_points.pop(CLUSTER_METADATA, None) is not None:
            self._write(RECOVERY_POINT_FILE, self._recovery_points)

    @property
    def _all(self) -> dict[str, dict[TopicPartition, Offset]]:
        """What each file says, or is to say when it is written next."""
        return {
            RECOVERY_POINT_FILE: self._recovery_points,
            LOG_START_OFFSET_FILE: self._log_start_offsets,
            HIGH_WATERMARK_FILE: self._high_watermarks,
        }
