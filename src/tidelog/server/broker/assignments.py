"""What the metadata gives one broker to hold, and what it takes away: read from an image and what changed before it.

Kafka: `TopicsDelta.localChanges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.base.ids import BrokerId, PartitionIndex, TopicId, TopicPartition
from tidelog.metadata import MetadataDelta, MetadataImage, PartitionImage


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition that the metadata assigns to a broker, as of one image."""

    topic_partition: TopicPartition
    topic_id: TopicId
    state: PartitionImage


def assigned(
    broker_id: BrokerId, delta: MetadataDelta, image: MetadataImage, *, all_there_are: bool = False
) -> list[Assigned]:
    """What a broker has to look at: the replicas it has of what changed, or of all there are."""
    changed: Mapping[TopicId, Iterable[int]] = delta.changed_partitions
    if all_there_are:
        changed = {topic_id: range(len(topic.partitions)) for topic_id, topic in image.topics_by_id.items()}
    found = []
    for topic_id, indexes in changed.items():
        topic = image.topics_by_id[topic_id]
        for index in sorted(indexes):
            state = topic.partitions[index]
            if broker_id in state.replicas:
                found.append(Assigned(TopicPartition(topic.name, PartitionIndex(index)), topic_id, state))
    return found


def taken_away(broker_id: BrokerId, delta: MetadataDelta, image: MetadataImage) -> list[tuple[TopicPartition, TopicId]]:
    """What a broker has no replica of any more: its topic was deleted, or it was assigned to others."""
    removed = [
        (TopicPartition(topic.name, PartitionIndex(index)), topic.topic_id)
        for topic in delta.deleted_topics.values()
        for index, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    ]
    for topic_id, indexes in delta.changed_partitions.items():
        topic = image.topics_by_id[topic_id]
        removed += [
            (TopicPartition(topic.name, index), topic_id)
            for index in sorted(indexes)
            if broker_id not in topic.partitions[index].replicas and is_held(broker_id, delta.base, topic_id, index)
        ]
    return removed


def is_held(broker_id: BrokerId, image: MetadataImage, topic_id: TopicId, index: PartitionIndex) -> bool:
    """Whether a broker has a replica of a partition."""
    topic = image.topic_by_id(topic_id)
    return topic is not None and index < len(topic.partitions) and broker_id in topic.partitions[index].replicas
