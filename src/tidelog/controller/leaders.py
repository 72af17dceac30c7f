"""Who leads: elections, and what a broker's coming and going does to the partitions that it holds.

Every election, and every loss of a leader, moves the leader epoch by one; so no two periods of leadership, not even two
of the same broker, share an epoch (KIP-101).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from tidelog.base.ids import BrokerId, PartitionIndex, TopicId
from tidelog.metadata.image import MetadataView, PartitionImage
from tidelog.metadata.records.topics import NO_LEADER, PartitionChangeRecord

IsActive = Callable[[BrokerId], bool]


def elect(partition: PartitionImage, isr: Collection[BrokerId], is_active: IsActive) -> BrokerId | None:
    """The first of the replicas, in their preferred order, that is in sync and active; None if there is none."""
    return next((broker for broker in partition.replicas if broker in isr and is_active(broker)), None)


def is_active_in(metadata: MetadataView) -> IsActive:
    """Whether a broker may be elected, according to `metadata`."""

    def is_active(broker_id: BrokerId) -> bool:
        broker = metadata.brokers.get(broker_id)
        return broker is not None and broker.is_active

    return is_active


def partitions_of(metadata: MetadataView) -> Iterator[tuple[TopicId, PartitionIndex, PartitionImage]]:
    """Every partition there is. O(partitions): for what happens when brokers come and go."""
    for topic_id, topic in metadata.topics_by_id.items():
        for index, partition in enumerate(topic.partitions):
            yield topic_id, PartitionIndex(index), partition


def changes_on_leaving(metadata: MetadataView, broker_id: BrokerId) -> list[PartitionChangeRecord]:
    """What follows when a broker may lead no longer: it was fenced, or a new incarnation of it takes its place.

    It loses every leadership, and every seat in an ISR that holds others too. As the last member it keeps its seat,
    for nobody else has what was acknowledged: the partition has no leader, in a new leader epoch, until it is back.
    """
    is_active = is_active_in(metadata)
    records = []
    for topic_id, index, partition in partitions_of(metadata):
        if broker_id not in partition.isr and partition.leader != broker_id:
            continue
        others = tuple(broker for broker in partition.isr if broker != broker_id)
        record = PartitionChangeRecord(partition_id=index, topic_id=topic_id)
        if others and others != partition.isr:
            record.isr = list(others)
        if partition.leader == broker_id:
            leader = elect(partition, others, is_active)
            record.leader = NO_LEADER if leader is None else leader
        if record.isr is not None or partition.leader == broker_id:
            records.append(record)
    return records


def changes_on_arrival(metadata: MetadataView, broker_id: BrokerId) -> list[PartitionChangeRecord]:
    """What follows when a broker may lead again: it is elected where there is no leader and it is in sync."""
    records = []
    for topic_id, index, partition in partitions_of(metadata):
        if partition.leader is None and broker_id in partition.isr and broker_id in partition.replicas:
            records.append(PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=broker_id))
    return records
