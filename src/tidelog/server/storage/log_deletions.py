"""Deletes the logs of a node that are nobody's here any more: those of deleted topics, those that moved away, strays.

Kafka: `LogManager`, its `kafka-delete-logs` task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import PartitionIndex, TopicId, TopicPartition
from tidelog.base.ports import Executor
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs import BrokerSettings
from tidelog.metadata.configs.broker import LOG_SEGMENT_DELETE_DELAY_MS
from tidelog.server.settings.config import NodeConfig
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.removed_replicas import RemovedReplicas
from tidelog.server.tasks import Tasks

if TYPE_CHECKING:
    from tidelog.server.storage.log_files import LogFiles

logger = logging.getLogger("tidelog.server.log_files")


class LogDeletions:
    """See the module; each directory's own is its `LogRemoval`.

    Args:
        log_dir_of: where each open log lies; shared with `LogFiles`.

    Attributes:
        file_delete_delay_ms: how long files stay on the disk that were deleted; changes while the node runs.
        removed: replicas of this node that the metadata log has removed since it began to be replayed.
    """

    def __init__(
        self,
        files: LogFiles,
        log_dir_of: dict[TopicPartition, LogDir],
        config: NodeConfig,
        *,
        executor: Executor,
        tasks: Tasks,
    ) -> None:
        self.file_delete_delay_ms = BrokerSettings.of(config.static)[LOG_SEGMENT_DELETE_DELAY_MS]
        self.removed = RemovedReplicas()
        self._files = files
        self._log_dir_of = log_dir_of
        self._node_id = config.node_id
        self._executor = executor
        self._removals: list[asyncio.TimerHandle] = []
        self._tasks = tasks.branch("removals of logs")

    async def delete(self, deleted: list[tuple[TopicPartition, TopicId]]) -> None:
        """Logs are to go: out of everybody's way when this returns, and from the disk later."""
        if deleted:
            await self._executor.run(partial(self.mark_for_deletion, deleted))
            self.remove_marked_later()

    def mark_for_deletion(self, deleted: list[tuple[TopicPartition, TopicId]]) -> None:
        """Topics are deleted: rename the directories of their partitions, those that are offline included."""
        for log_dir in self._files.directories:
            try:
                log_dir.listed.remove((topic_id, topic_partition.partition) for topic_partition, topic_id in deleted)
            except DiskError as error:
                logger.error("%s: what is deleted stays in its list: %s", log_dir.path, error)
        for topic_partition, topic_id in deleted:
            self._log_dir_of.pop(topic_partition, None)
            for log_dir in self._files.directories:
                try:
                    if log_dir.topic_id_of(topic_partition) == topic_id:
                        log_dir.removal.mark_for_deletion(topic_partition)
                except (DiskError, CorruptLogError) as error:
                    logger.error("%s: its files stay behind: %s", topic_partition, error)

    async def delete_strays(self, topic_ids: Collection[TopicId]) -> None:
        """The metadata log has just removed these topics: what was set aside of them goes as well, later."""

        def mark_for_deletion() -> None:
            for log_dir in self._files.online:
                try:
                    log_dir.removal.mark_strays_for_deletion(lambda replica: replica[0] in topic_ids)
                except DiskError as error:
                    logger.error("%s: strays stay: %s", log_dir.path, error)

        if topic_ids:
            await self._executor.run(mark_for_deletion)
            self.remove_marked_later()

    def remove_marked_later(self) -> None:
        """Remove the files of what was deleted, after `log.segment.delete.delay.ms`."""
        loop = asyncio.get_running_loop()
        self._removals = [timer for timer in self._removals if not timer.cancelled() and timer.when() > loop.time()]
        self._removals.append(loop.call_later(self.file_delete_delay_ms / 1000, self._remove_marked))

    def _remove_marked(self) -> None:
        for log_dir in self._files.online:
            self._tasks.start(self._files.in_background(log_dir.removal.remove_marked))

    def set_strays_aside(self, image: MetadataImage) -> None:
        """Rename the logs that the metadata assigns to nobody here: to be removed, if its log says that they were
        removed, else to be kept.
        """

        def is_ours(topic_partition: TopicPartition) -> bool:
            state = image.partition(topic_partition.topic, topic_partition.partition)
            return state is not None and self._node_id in state.replicas

        for log_dir in self._files.online:
            try:
                log_dir.listed.remove(
                    (topic_id, index)
                    for topic_id, index in self.removed
                    if not self._is_assigned(image, topic_id, index)
                )
                log_dir.removal.set_strays_aside(is_ours, self.removed)
            except DiskError as error:  # they are in nobody's way; the next start tries again
                logger.error("%s: what is not served there stays: %s", log_dir.path, error)
        for topic_partition, log_dir in list(self._log_dir_of.items()):
            if topic_partition not in log_dir.logs:
                del self._log_dir_of[topic_partition]

    def _is_assigned(self, image: MetadataImage, topic_id: TopicId, index: PartitionIndex) -> bool:
        topic = image.topic_by_id(topic_id)
        return topic is not None and self._node_id in topic.partitions[index].replicas

    def on_settings(self, old: SettingsInForce | None, new: SettingsInForce) -> None:
        """Files that are deleted from now on may have another time to stay."""
        self.file_delete_delay_ms = new.broker[LOG_SEGMENT_DELETE_DELAY_MS]

    def cancel(self) -> None:
        """The node stops: what is marked by then is removed after the next start."""
        for timer in self._removals:
            timer.cancel()
