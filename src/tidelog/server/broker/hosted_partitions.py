"""The replicas that a broker has: those that it serves, and those that are offline, with the reason.

Kafka: `ReplicaManager.allPartitions`, `HostedPartition`.
"""

from __future__ import annotations

import logging

from tidelog.base.ids import LeaderEpoch, TopicId, TopicPartition
from tidelog.server.broker.listeners import BrokerListener
from tidelog.server.replication.partition import Partition
from tidelog.server.storage.log_files import LogFiles

logger = logging.getLogger("tidelog.server.broker")


class HostedPartitions:
    """See the module.

    Args:
        files: keeps the logs; it drops that of a replica which goes offline.
        listener: told of each that does not lead any more.

    Attributes:
        by_name: those that are served; by_id: the same. Only to be read.
        offline: why a replica is not served until this node is started again: its disk failed, or a bug. Only to be
            read.
    """

    def __init__(self, files: LogFiles, listener: BrokerListener) -> None:
        self.by_name: dict[tuple[str, int], Partition] = {}
        self.by_id: dict[tuple[TopicId, int], Partition] = {}
        self.offline: dict[TopicPartition, str] = {}
        self._files = files
        self._listener = listener

    def is_here(self, partition: Partition) -> bool:
        """Whether it is served still. One that was deleted is nobody's, though another may have its name."""
        return self.by_id.get((partition.topic_id, partition.topic_partition.partition)) is partition

    def add(self, partition: Partition) -> None:
        """The log of a replica is open."""
        self.offline.pop(partition.topic_partition, None)
        self.by_name[partition.topic_partition] = partition
        self.by_id[partition.topic_id, partition.topic_partition.partition] = partition

    def remove(self, topic_partition: TopicPartition, topic_id: TopicId) -> Partition | None:
        """There is no replica here any more: stop serving at once. Returns what is stopped."""
        self.offline.pop(topic_partition, None)
        partition = self.by_id.pop((topic_id, topic_partition.partition), None)
        if partition is None:
            return None
        if self.by_name.get(topic_partition) is partition:
            del self.by_name[topic_partition]
        self.stop_serving(partition)
        return partition

    def remove_all(self) -> None:
        """Serve nothing more."""
        for partition in list(self.by_name.values()):
            self.stop_serving(partition)
        self.by_name.clear()
        self.by_id.clear()

    def take_offline(self, topic_partition: TopicPartition, reason: str, *, is_alone: bool = True) -> None:
        """A replica cannot be served until this node is started again.

        Args:
            is_alone: whether it is logged. Where many go offline for one reason, the caller logs that.
        """
        if is_alone and self.offline.get(topic_partition) != reason:
            logger.error("%s goes offline: %s", topic_partition, reason)
        self.offline[topic_partition] = reason
        self._files.on_failed(topic_partition)
        partition = self.by_name.pop(topic_partition, None)
        if partition is not None:
            del self.by_id[partition.topic_id, topic_partition.partition]
            self.stop_serving(partition)

    def stop_serving(self, partition: Partition, leader_epoch: LeaderEpoch | None = None) -> None:
        """It neither leads nor follows here until it is given a role again."""
        has_led = partition.replica is not None
        partition.stop(leader_epoch)
        if has_led:
            self._listener.on_leadership_changed(partition)
