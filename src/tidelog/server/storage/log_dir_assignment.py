"""In which of a node's directories a log lies, or is to be made; and which of two it is, where a move was interrupted.

```
 elsewhere          and a copy says     the log is                          the other one
 the log            copying             the log                             goes; the move begins anew
 the log            level               the longer of the two; the log,     goes; if it was the copy, the move
                                        if they are alike                   begins anew
 the log, or not    complete            the copy                            goes
 nothing            copying, level      in a directory that is out of use,  is set aside
                                        or lost
```

Kafka: `LogManager`.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidelog.base.errors import CorruptLogError, DiskError, LostLogError, TidelogError
from tidelog.base.ids import Offset, TopicId, TopicPartition
from tidelog.base.ports import Clock
from tidelog.log import LogConfig
from tidelog.log.files.future_mark import FutureMark
from tidelog.log.files.replica_list import ListedReplica
from tidelog.metadata import MetadataImage
from tidelog.records.lineage import EpochEntry
from tidelog.replica.truncation import OwnLog
from tidelog.server.storage.log_dir import LogDir

if TYPE_CHECKING:
    from tidelog.server.storage.log_files import LogFiles

logger = logging.getLogger("tidelog.server.log_files")


NO_FILES_LEFT = (
    "no log can be made: this process has as many files open as its limit allows, but for some that it needs to go on; "
    "raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile= of a container) and start again, or "
    "delete topics"
)


class WantedLog(NamedTuple):
    """A log that this node is to have."""

    topic_partition: TopicPartition
    topic_id: TopicId
    is_new: bool
    """Nobody can have written to it yet: if it lies nowhere, it is made."""
    is_only_replica: bool = False

    @property
    def replica(self) -> ListedReplica:
        return self.topic_id, self.topic_partition.partition


class LogDirAssignment:
    """See the module. `place` runs on one of the executor's threads.

    Args:
        room: see `LogFiles`.

    Attributes:
        preferred: where logs are to be made that are not here yet, if somebody said so (KIP-113).
        interrupted: where logs were on their way to at the last stop.
    """

    def __init__(self, files: LogFiles, *, clock: Clock, room: Callable[[], int | None]) -> None:
        self.preferred: dict[TopicPartition, LogDir] = {}
        self.interrupted: dict[TopicPartition, LogDir] = {}
        self._files = files
        self._clock = clock
        self._room = room

    def place(
        self, wanted: Sequence[WantedLog], image: MetadataImage, configs: Mapping[str, LogConfig], *, makes: bool
    ) -> list[LogDir | TidelogError | None]:
        """Find where each log lies; make room for those that lie nowhere.

        Args:
            configs: of the topics.
            makes: whether the metadata is recent enough to go by. By an older state a log may be another topic's of the
                same name, or not be there yet: nothing is made then, and nothing goes.

        Returns:
            LostLogError for a log that is gone; None for one that is not to be made yet.
        """
        placed: list[LogDir | TidelogError | None] = []
        made: dict[LogDir, dict[TopicPartition, TopicId]] = {}
        room = self._room() if makes else None
        for each in wanted:
            try:
                log_dir = self._find(each, image, configs[each.topic_partition.topic], makes=makes)
            except LostLogError as error:
                placed.append(error)
                continue
            except (DiskError, CorruptLogError) as error:
                placed.append(error)
                for online in self._files.online:
                    if online.holds(each.topic_partition):
                        online.on_failed(each.topic_partition)
                continue
            if log_dir is None and not makes:
                placed.append(None)
                continue
            if log_dir is None and room is not None and room <= 0:
                placed.append(DiskError(self._files.online[0].path, NO_FILES_LEFT, errno=errno.EMFILE))
                continue
            if log_dir is None:
                log_dir = self._choose(each.topic_partition)
                log_dir.partition_count += 1
                room = None if room is None else room - 1
                made.setdefault(log_dir, {})[each.topic_partition] = each.topic_id
            placed.append(log_dir)
        for log_dir, topics in made.items():
            try:
                log_dir.make(topics)
            except DiskError as error:
                log_dir.partition_count -= len(topics)
                for index, each in enumerate(wanted):
                    if each.topic_partition in topics:
                        placed[index] = error
        return placed

    def _choose(self, topic_partition: TopicPartition) -> LogDir:
        preferred = self.preferred.pop(topic_partition, None)
        if preferred is not None and preferred.failure is None:
            return preferred
        return min(self._files.online, key=lambda online: (online.health.is_known_full, online.partition_count))

    def _find(self, wanted: WantedLog, image: MetadataImage, config: LogConfig, *, makes: bool) -> LogDir | None:
        """The directory that holds a log; None if none does, and it may be made.

        Raises:
            LostLogError: one held it, and it is gone.
            CorruptLogError: two hold it.
            DiskError: it is not to be made: it may lie in a directory that is out of use.
        """
        topic_partition, topic_id, is_new = wanted[:3]
        holders = []
        for log_dir in self._files.online:
            if log_dir.holds(topic_partition):
                held_id = log_dir.topic_id_of(topic_partition)
                if held_id is not None and held_id != topic_id and not makes:
                    return None
                if held_id is not None and held_id != topic_id and held_id not in image.topics_by_id:
                    log_dir.removal.mark_for_deletion_or_set_aside(
                        topic_partition, self._files.deletions.removed, "is of an older topic of this name"
                    )
                else:
                    holders.append(log_dir)
        marks = {log_dir: mark for log_dir in holders if (mark := log_dir.futures.mark_of(topic_partition)) is not None}
        if marks:
            holders = self._finish_assignment(wanted, holders, marks, config)
        if len(holders) > 1:
            first, second = (log_dir.log_path(topic_partition) for log_dir in holders[:2])
            raise CorruptLogError(
                f"{topic_partition} lies in two directories, {first} and {second}: which of them is the true one "
                "cannot be told; move one of them away, then start again"
            )
        if holders:
            return holders[0]
        self._check_not_lost(wanted)
        out_of_use = self._out_of_use
        if out_of_use and not is_new:
            raise DiskError(
                out_of_use[0],
                f"this directory is out of use, and {topic_partition} lies in none of the others; bring it back and "
                "start again, or delete the topic if it is lost",
            )
        return None

    def _check_not_lost(self, wanted: WantedLog) -> None:
        """Raises LostLogError: a directory in use had a log that lies nowhere."""
        for log_dir in self._files.online:
            if wanted.replica in log_dir.listed:
                raise LostLogError(f"its log is gone from {log_dir.path}, where it was")
            if log_dir.listed.is_lost and not wanted.is_new:
                raise LostLogError(f"it has no log here, and the list of those that {log_dir.path} had is gone")

    @property
    def _out_of_use(self) -> list[str]:
        files = self._files
        return [*files.left_out, *(log_dir.path for log_dir in files.directories if log_dir.failure is not None)]

    # Where a move was interrupted.

    def _finish_assignment(
        self,
        wanted: WantedLog,
        holders: Sequence[LogDir],
        marks: Mapping[LogDir, FutureMark],
        config: LogConfig,
    ) -> list[LogDir]:
        """Leave one log of several. After a stop at any step of this, the next start does the rest.

        Returns:
            Who holds the log: nobody, if it is in a directory out of use or lost; several, if that cannot be told.
        """
        topic_partition = wanted.topic_partition
        complete = [log_dir for log_dir, mark in marks.items() if mark == FutureMark.COMPLETE]
        ordinary = [log_dir for log_dir in holders if log_dir not in marks]
        if len(complete) > 1 or (not complete and len(ordinary) > 1):
            return list(holders)
        if complete:
            self._let_take_over(wanted, complete[0], holders)
            return complete
        if not ordinary:
            if not self._out_of_use:
                for log_dir in holders:
                    log_dir.removal.set_aside(topic_partition, "is a copy that was not complete, of a log that is gone")
            return []
        [current] = ordinary
        for log_dir, mark in marks.items():
            copy = self._if_ahead(wanted, log_dir, current, config) if mark == FutureMark.LEVEL else None
            if copy is not None:
                log_dir.checkpoints.adopt(topic_partition, current.checkpoints, copy.log_start_offset)
                log_dir.futures.write_mark(topic_partition, FutureMark.COMPLETE)
                self._let_take_over(wanted, log_dir, holders)
                return [log_dir]
        for log_dir in marks:
            log_dir.removal.mark_for_deletion(topic_partition)
            self.interrupted[topic_partition] = log_dir
        return ordinary

    def _let_take_over(self, wanted: WantedLog, copy: LogDir, holders: Sequence[LogDir]) -> None:
        topic_partition = wanted.topic_partition
        copy.listed.add([wanted.replica])
        for log_dir in holders:
            if log_dir is not copy:
                log_dir.removal.mark_for_deletion(topic_partition)
        if not self._out_of_use:  # else the former log may yet come back, and is to be known for what it is
            copy.futures.remove_mark(topic_partition)
        logger.info("%s: the move to %s, which was interrupted, is complete", topic_partition, copy.path)

    def _if_ahead(self, wanted: WantedLog, copy: LogDir, current: LogDir, config: LogConfig) -> OwnLog | None:
        """The copy, if it has all that the log has, and more."""
        topic_partition, topic_id = wanted.topic_partition, wanted.topic_id
        now_ms = self._clock.wall_ms()
        own = current.futures.recover(topic_partition, config, topic_id, now_ms, is_future=False)
        other = copy.futures.recover(topic_partition, config, topic_id, now_ms, is_future=True)
        return other if other.log_end_offset > own.log_end_offset and _is_prefix(own, other) else None


def _is_prefix(own: OwnLog, other: OwnLog) -> bool:
    """Whether a log says of its own records what the other, longer one says of them, and of nothing besides."""
    log_start_offset = max(own.log_start_offset, other.log_start_offset)
    ours, theirs = _entries_from(own, log_start_offset), _entries_from(other, log_start_offset)
    ours_below = [entry for entry in theirs if entry.start_offset < own.log_end_offset]
    return set(ours_below) <= set(ours) <= set(theirs)


def _entries_from(log: OwnLog, log_start_offset: Offset) -> tuple[EpochEntry, ...]:
    lineage = log.lineage.clone()
    lineage.truncate_from_start(log_start_offset)
    return lineage.entries
