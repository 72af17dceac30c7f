"""The logs of one directory that are copies: each is to take the place of the log in another directory of the node.

Kafka: the future logs of `LogManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.base.ports import Disk, Rng
from tidelog.log import Log, LogConfig
from tidelog.log.directory import LogDirectory
from tidelog.log.files.future_mark import FutureMark, read_future_mark, remove_future_mark, write_future_mark
from tidelog.replica.truncation import OwnLog

if TYPE_CHECKING:
    from tidelog.server.storage.log_dir import LogDir


class FutureLogs:
    """See the module; `log.files.future_mark` for what each copy says of itself. On the executor's threads."""

    def __init__(self, log_dir: LogDir, directory: LogDirectory, *, disk: Disk, rng: Rng) -> None:
        self._log_dir = log_dir
        self._directory = directory
        self._disk = disk
        self._rng = rng

    def mark_of(self, topic_partition: TopicPartition) -> FutureMark | None:
        """What a log that lies here is; None for an ordinary one. Raises CorruptLogError, DiskError."""
        return read_future_mark(self._disk, self._directory.log_path(topic_partition))

    def make(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId,
        *,
        log_start_offset: Offset,
        now_ms: int,
    ) -> Log:
        """Make and open a log that is to become the copy of another. Raises DiskError: there is none."""
        log_dir = self._log_dir
        log_dir.checkpoints.forget([topic_partition])
        if log_dir.holds(topic_partition):  # of a move that was ended
            log_dir.removal.mark_for_deletion(topic_partition)
        self._directory.make_future(topic_partition, topic_id, self._rng)
        log_dir.partition_count += 1
        return self._open(topic_partition, config, topic_id, log_start_offset=log_start_offset, now_ms=now_ms)

    def _open(
        self,
        topic_partition: TopicPartition,
        config: LogConfig,
        topic_id: TopicId,
        log_start_offset: Offset,
        now_ms: int,
    ) -> Log:
        return Log.open(
            self._disk,
            self._directory.log_path(topic_partition),
            topic_partition,
            config,
            topic_id=topic_id,
            clean_shutdown=False,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            rng=self._rng,
        )

    def recover(
        self, topic_partition: TopicPartition, config: LogConfig, topic_id: TopicId, now_ms: int, *, is_future: bool
    ) -> OwnLog:
        """Recover a log that is one of two, and let go of it. Raises CorruptLogError, DiskError."""
        if is_future:
            log = self._open(topic_partition, config, topic_id, log_start_offset=Offset(0), now_ms=now_ms)
        else:
            log = self._log_dir.open_log(topic_partition, config, topic_id=topic_id, now_ms=now_ms)
            del self._log_dir.logs[topic_partition]
        found = OwnLog(log.log_start_offset, log.log_end_offset, log.log_start_offset, log.lineage)
        log.close()
        return found

    def write_mark(self, topic_partition: TopicPartition, mark: FutureMark) -> None:
        """Synced when it returns. Raises DiskError: it is the former one, or this."""
        write_future_mark(self._disk, self._directory.log_path(topic_partition), mark)

    def remove_mark(self, topic_partition: TopicPartition) -> None:
        """A log that lies here is a log like any other. Raises DiskError."""
        remove_future_mark(self._disk, self._directory.log_path(topic_partition))

    def remove_unmade(self) -> None:
        """Remove copies that were being made at the last stop; at the start alone. Raises DiskError."""
        self._directory.remove_unmade()
