"""Who loses a replica by a record of the metadata log, and is to be told so (KIP-570)."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.metadata.draft import merge
from tidelog.metadata.image import MetadataView
from tidelog.metadata.records.topics import PartitionChangeRecord, RemoveTopicRecord


class LostReplica(NamedTuple):
    """A broker that holds a replica no more.

    Attributes:
        leader_epoch: that begins with the change, newer than any in which it was assigned (rule 8); None where the
            topic is deleted, which moves no epoch.
    """

    broker_id: BrokerId
    topic_partition: TopicPartition
    topic_id: TopicId
    leader_epoch: LeaderEpoch | None


def lost_replicas(before: MetadataView, record: object) -> list[LostReplica]:
    """Of one record, given the metadata that it is about to change: a topic that goes, replicas that are reassigned."""
    if isinstance(record, RemoveTopicRecord):
        topic = before.topics_by_id[TopicId(record.topic_id)]
        return [
            LostReplica(broker_id, TopicPartition(topic.name, PartitionIndex(index)), topic.topic_id, None)
            for index, state in enumerate(topic.partitions)
            for broker_id in state.replicas
        ]
    if not isinstance(record, PartitionChangeRecord) or record.replicas is None:
        return []
    topic, index = before.topics_by_id[TopicId(record.topic_id)], PartitionIndex(record.partition_id)
    state = topic.partitions[index]
    after = merge(state, record)
    return [
        LostReplica(broker_id, TopicPartition(topic.name, index), topic.topic_id, after.leader_epoch)
        for broker_id in state.replicas
        if broker_id not in after.replicas
    ]
