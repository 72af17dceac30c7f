"""An Admin's values into messages, and what answers say into values and errors."""

from __future__ import annotations

from tidelog.base.ids import uuid_text
from tidelog.client.admin.descriptions import (
    ConfigEntry,
    CreatedTopic,
    NewTopic,
    PartitionDescription,
    TopicDescription,
)
from tidelog.client.core.metadata_cache import TopicView
from tidelog.wire.messages.api_19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
)
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsResourceResult

_SOURCES = (
    "unknown",
    "dynamic topic",
    "dynamic broker",
    "dynamic default broker",
    "static broker",
    "default",
    "dynamic broker logger",
    "dynamic client metrics",
    "dynamic group",
)


def creatable(topic: NewTopic) -> CreatableTopic:
    """A topic as CreateTopics takes it."""
    by_hand = bool(topic.replica_assignments)
    return CreatableTopic(
        topic.name,
        -1 if by_hand or topic.num_partitions is None else topic.num_partitions,
        -1 if by_hand or topic.replication_factor is None else topic.replication_factor,
        [CreatableReplicaAssignment(index, list(ids)) for index, ids in sorted(topic.replica_assignments.items())],
        [CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
    )


def created(row: CreatableTopicResult) -> CreatedTopic:
    """A topic that CreateTopics made."""
    return CreatedTopic(
        row.name,
        uuid_text(row.topic_id) if row.topic_id.int else None,
        row.num_partitions if row.num_partitions >= 0 else None,
        row.replication_factor if row.replication_factor >= 0 else None,
    )


def id_text(view: TopicView) -> str | None:
    """The topic's id as Kafka prints it."""
    return None if view.topic_id is None else uuid_text(view.topic_id)


def described(view: TopicView) -> TopicDescription:
    """A topic as metadata shows it."""
    partitions = tuple(
        PartitionDescription(
            found.partition, found.leader_id, found.leader_epoch, found.replicas, found.isr, found.offline_replicas
        )
        for found in view.partitions.values()
    )
    return TopicDescription(view.name, id_text(view), view.is_internal, partitions)


def config_entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    """One key of a configuration."""
    source = _SOURCES[row.config_source] if 0 <= row.config_source < len(_SOURCES) else _SOURCES[0]
    return ConfigEntry(row.name, row.value, source, row.read_only, row.is_sensitive, row.documentation)
