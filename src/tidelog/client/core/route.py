"""From a topic's records to the queues of its partitions."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.base.ports import Rng
from tidelog.client.core.accumulator import PartitionQueue
from tidelog.client.core.metadata_cache import TopicView
from tidelog.client.core.partitioner import ChoosePartition, Partitioner, check_partition


class Route:
    """Chooses the queue for each record of one topic. Made anew when the topic's partitions or leaders change.

    Args:
        topic: as the metadata shows it now; it has a partition.
        make_queue: the queue of a partition.
        given: the `partitioner` of the producer's options.
        sticky_bytes: how much goes to one partition before records without a key move on.
        rng: to choose among them.

    Attributes:
        partitioner: chooses where no partition is named.
    """

    __slots__ = ("_make_queue", "_name", "_queues", "partition_count", "partitioner")

    def __init__(
        self,
        topic: TopicView,
        make_queue: Callable[[TopicPartition], PartitionQueue],
        given: str | ChoosePartition = "murmur2",
        *,
        sticky_bytes: int,
        rng: Rng,
    ) -> None:
        self.partition_count = topic.partition_count
        self._name = topic.name
        self._make_queue = make_queue
        self._queues: list[PartitionQueue | None] = [None] * topic.partition_count
        led = [index for index, view in topic.partitions.items() if view.leader_id is not None]
        self.partitioner = Partitioner(
            given,
            topic.name,
            topic.partition_count,
            led or list(topic.partitions),
            sticky_bytes=sticky_bytes,
            rng=rng,
        )

    def queue(self, partition: int | None, key: bytes | None, size_bytes: int) -> PartitionQueue:
        """The queue for a record: of the partition asked for, else the partitioner's.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION if the topic has no such partition, as far as is known here.
        """
        if partition is None:
            partition = self.partitioner.partition(key, size_bytes)
        else:
            check_partition(self._name, partition, self.partition_count)
        queue = self._queues[partition]
        if queue is None:
            queue = self._make_queue(TopicPartition(self._name, PartitionIndex(partition)))
            self._queues[partition] = queue
        return queue
