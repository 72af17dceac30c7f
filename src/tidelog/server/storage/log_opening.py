"""Opens, recovers or makes the logs that a node is to have, and tells which of them are not what they were.

Kafka: `LogManager.loadLogs` and `getOrCreateLog`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import CorruptLogError, DiskError, KafkaError, LostLogError, TidelogError
from tidelog.base.ids import TopicPartition
from tidelog.base.ports import Clock, Executor
from tidelog.log import Log, LogConfig
from tidelog.log.files.replica_list import ListedReplica
from tidelog.metadata import MetadataImage
from tidelog.server.storage.disk_health import is_full
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_dir_assignment import WantedLog
from tidelog.server.storage.log_losses import LogLoss

if TYPE_CHECKING:
    from tidelog.server.storage.log_files import LogFiles

logger = logging.getLogger("tidelog.server.log_files")

OPENED_TOGETHER_MAX = 256
"""Logs that one thread opens in one go: few enough that the threads end together, many enough to be worth it."""


class LogOpening:
    """See the module.

    Args:
        log_dir_of: where each open log lies; shared with `LogFiles`.

    Attributes:
        serves_what_is_left: whether a log that lacks records is served, as that of an only replica.
    """

    def __init__(
        self, files: LogFiles, log_dir_of: dict[TopicPartition, LogDir], *, clock: Clock, executor: Executor
    ) -> None:
        self.serves_what_is_left = False
        self._files = files
        self._log_dir_of = log_dir_of
        self._clock = clock
        self._executor = executor

    async def open(
        self, wanted: Sequence[WantedLog], image: MetadataImage, *, makes: bool = True
    ) -> list[Log | TidelogError | None]:
        """Open, recover or make logs, on several threads. What is wrong with one does not keep the others from serving.

        A directory that holds a topic of the same name which was deleted while this node was down is removed.

        Order: each log is there; its directory notes where it starts and lists it, synced; this returns, and it may be
        led or followed. So who is listed and has no log has lost it.

        Args:
            makes: see `LogDirAssignment.place`.

        Returns:
            LostLogError for a log that is gone, or the end of it; None for one that is not to be made yet.
        """
        configs = self._files.in_force(image).log_configs({each.topic_partition.topic for each in wanted})
        placed = await self._executor.run(
            partial(self._files.log_dir_assignment.place, wanted, image, configs, makes=makes)
        )

        def open_some(start: int) -> list[Log | TidelogError | None]:
            stop = start + OPENED_TOGETHER_MAX
            return [
                self._open_log(each, log_dir, configs[each.topic_partition.topic])
                for each, log_dir in zip(wanted[start:stop], placed[start:stop], strict=True)
            ]

        jobs = [self._executor.run(partial(open_some, start)) for start in range(0, len(wanted), OPENED_TOGETHER_MAX)]
        opened = [one for job in jobs for one in await job]
        return await self._executor.run(partial(self._list, wanted, opened))

    def _list(
        self, wanted: Sequence[WantedLog], opened: Sequence[Log | TidelogError | None]
    ) -> list[Log | TidelogError | None]:
        """Have each directory list the logs that were opened there."""
        listed = list(opened)
        at: dict[LogDir, list[int]] = {}
        for index, one in enumerate(opened):
            if isinstance(one, Log):
                at.setdefault(self._log_dir_of[one.topic_partition], []).append(index)
        for log_dir, indexes in at.items():
            try:
                log_dir.checkpoints.note_log_starts(log_dir.logs[wanted[index].topic_partition] for index in indexes)
                log_dir.listed.add(wanted[index].replica for index in indexes)
            except DiskError as error:
                for index in indexes:
                    listed[index] = self._not_opened(log_dir, wanted[index].topic_partition, error)
        return listed

    def _not_opened(self, log_dir: LogDir, topic_partition: TopicPartition, error: TidelogError) -> TidelogError:
        if isinstance(error, DiskError) and is_full(error):
            log_dir.health.on_full()
        log_dir.on_failed(topic_partition)
        return error

    def _open_log(
        self, wanted: WantedLog, log_dir: LogDir | TidelogError | None, config: LogConfig
    ) -> Log | TidelogError | None:
        if not isinstance(log_dir, LogDir):
            return log_dir
        topic_partition = wanted.topic_partition
        try:
            losses, names = log_dir.losses, log_dir.names_of(topic_partition)
            found = losses.before_opening(topic_partition, wanted.replica, is_new=wanted.is_new, names=names)
            loss = self._counted(found, wanted)
            if loss is None:
                if (
                    not wanted.is_only_replica or "compact" in config.cleanup_policy
                ) and losses.end_before(  # where a hole is no sign of a loss
                    topic_partition, is_only_replica=wanted.is_only_replica, names=names
                ):
                    names = None
                log = log_dir.open_log(
                    topic_partition, config, topic_id=wanted.topic_id, now_ms=self._clock.wall_ms(), names=names
                )
                loss = self._counted(losses.of(log, wanted.replica), wanted)
            if loss is not None:  # recovery removes what tells of it, so the list has to
                log_dir.listed.note_lost(wanted.replica)
                return LostLogError(f"its log in {log_dir.path} is not what it was: {loss.reason}")
        except (DiskError, CorruptLogError, KafkaError) as error:
            return self._not_opened(log_dir, topic_partition, error)
        self._log_dir_of[topic_partition] = log_dir
        return log

    def _counted(self, loss: LogLoss | None, wanted: WantedLog) -> LogLoss | None:
        """The loss of a replica. What is left of an only one is all that there is: it is served, in a new leader epoch.

        By later metadata others may have it too: so the node registers as one that may have lost anything.
        """
        if loss is None or loss.is_whole or not wanted.is_only_replica:
            return loss
        self.serves_what_is_left = True
        logger.error(
            "%s: RECORDS ARE LOST: of its only replica %s. What is left is served; if the files were moved, stop this "
            "node and put them back before it starts again",
            *(wanted.topic_partition, loss.reason),
        )
        return None

    @property
    def has_lost_list(self) -> bool:
        """Whether a directory in use does not know any more which logs it had."""
        return any(log_dir.listed.is_lost for log_dir in self._files.online)

    async def accept_losses(self, replicas: Iterable[ListedReplica]) -> None:
        """That these logs are gone is committed: they may begin anew. Raises DiskError."""
        every = list(replicas)
        for log_dir in self._files.online:
            await self._executor.run(partial(log_dir.losses.accept, every))
