"""From a topic's records to the queues of its partitions."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.ports import Rng
from tidelog.client.core.accumulator import PartitionQueue
from tidelog.client.core.metadata_cache import TopicView
from tidelog.client.core.partitioner import StickyPartitioner
from tidelog.records.keys import partition_for_key


class Route:
    """Chooses the queue for each record of one topic. Made anew when the topic's partitions or leaders change.

    Args:
        topic: as the metadata shows it now; it has a partition.
        make_queue: the queue of a partition.
        sticky_bytes: how much goes to one partition before records without a key move on.
        rng: to choose among them.
    """

    __slots__ = ("_available", "_make_queue", "_name", "_queues", "_sticky", "partition_count")

    def __init__(
        self, topic: TopicView, make_queue: Callable[[TopicPartition], PartitionQueue], *, sticky_bytes: int, rng: Rng
    ) -> None:
        self.partition_count = topic.partition_count
        self._name = topic.name
        self._make_queue = make_queue
        self._queues: list[PartitionQueue | None] = [None] * topic.partition_count
        led = [index for index, view in topic.partitions.items() if view.leader_id is not None]
        self._available = led or list(topic.partitions)
        self._sticky = StickyPartitioner(sticky_bytes, rng)

    def queue(self, partition: int | None, key: bytes | None, size_bytes: int) -> PartitionQueue:
        """The queue for a record: of the partition asked for, else by its key, else the sticky one.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the topic has no such partition.
        """
        if partition is None:
            if key is None:
                partition = self.keyless_partition(size_bytes)
            else:
                partition = partition_for_key(key, self.partition_count)
        elif not 0 <= partition < self.partition_count:
            raise KafkaError(
                f"topic {self._name!r} has no partition {partition}: it has {self.partition_count}, counted from 0",
                code=Code.UNKNOWN_TOPIC_OR_PARTITION,
            )
        queue = self._queues[partition]
        if queue is None:
            queue = self._make_queue(TopicPartition(self._name, PartitionIndex(partition)))
            self._queues[partition] = queue
        return queue

    def keyless_partition(self, size_bytes: int) -> int:
        """Where records without a key go now, of which these are so many bytes."""
        return self._sticky.partition(size_bytes, self._available)
