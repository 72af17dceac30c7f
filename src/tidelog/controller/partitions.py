"""Partitions: giving a topic more of them, and what any new one starts as.

No record moves when a topic grows: keys go to other partitions from then on.

Kafka: `ReplicationControlManager.createPartitions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId, TopicId
from tidelog.base.ports import Rng
from tidelog.controller.leaders import NO_DIRECTORY, is_active_in
from tidelog.controller.limits import Room
from tidelog.controller.placement import place
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings, GrownTopic, TopicToGrow
from tidelog.journal import Decision
from tidelog.metadata.configs.limits import MAX_PARTITIONS
from tidelog.metadata.features import knows_directories
from tidelog.metadata.image import MetadataView, TopicImage
from tidelog.metadata.records.topics import PartitionRecord
from tidelog.metadata.topic_names import INTERNAL_TOPICS, RESERVED_TOPICS

PARTITIONS_PER_REQUEST_MAX = 10_000
"""What a request asks for is worked out in one step of the event loop, and counts as a whole."""


def decide_create_partitions(
    metadata: MetadataView,
    settings: ControllerSettings,
    topics: Sequence[TopicToGrow],
    *,
    partition_count: int,
    rng: Rng,
    validate_only: bool,
) -> Decision[tuple[GrownTopic, ...]]:
    """Add partitions: each topic on its own, those that can grow in one batch. Results in the order of the request.

    Args:
        partition_count: of all topics.
        validate_only: say what would become of them, and do nothing.
    """
    rules = TopicRules(metadata, settings)
    room = Room(metadata, settings, MAX_PARTITIONS, partition_count)
    counts = Counter(topic.name for topic in topics)
    added_in_all = 0
    records: list[object] = []
    grown: list[GrownTopic] = []
    for topic in topics:
        try:
            if counts[topic.name] > 1:
                raise refusal(Code.INVALID_REQUEST, f"the request names topic {topic.name!r} more than once")
            image = _find(metadata, topic)
            added = _check_count(image, topic)
            added_in_all += added
            if added_in_all > PARTITIONS_PER_REQUEST_MAX:
                raise refusal(
                    Code.POLICY_VIOLATION,
                    f"the request adds {added_in_all} partitions or more; {PARTITIONS_PER_REQUEST_MAX} is the limit",
                )
            assignments = _assign(metadata, image, topic, added, rng)
            if topic.name not in INTERNAL_TOPICS:
                room.take(added)
        except KafkaError as error:
            grown.append(GrownTopic(topic.name, error.code, str(error)))
            continue
        records += partition_records(
            metadata,
            image.topic_id,
            assignments,
            min_insync_replicas=rules.min_insync(topic.name),
            first_index=len(image.partitions),
        )
        grown.append(GrownTopic(topic.name, Code.NONE))
    return Decision(() if validate_only else tuple(records), tuple(grown))


def partition_records(
    metadata: MetadataView,
    topic_id: TopicId,
    assignments: Sequence[tuple[BrokerId, ...]],
    *,
    min_insync_replicas: int | None,
    first_index: int = 0,
) -> list[PartitionRecord]:
    """New partitions, led by the first of their replicas that may lead; there is one of each.

    A replica that is fenced is not in sync. It is eligible to lead where fewer are in sync than must be: nothing is
    committed without another one, so an empty log has all that is (KIP-966). Else a partition that begins with one
    replica in sync would be nobody's once that one lost its power.

    Args:
        min_insync_replicas: None where the metadata has no words for who is eligible.
    """
    is_active = is_active_in(metadata)
    directory = only_directories(metadata)
    records = []
    for index, replicas in enumerate(assignments, first_index):
        isr: list[int] = [broker for broker in replicas if is_active(broker)]
        directories = [directory.get(broker, NO_DIRECTORY) for broker in replicas]
        is_short = min_insync_replicas is not None and len(isr) < min(min_insync_replicas, len(replicas))
        eligible: list[int] = [broker for broker in replicas if broker not in isr] if is_short else []
        records.append(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=isr,
                leader=isr[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=directories if any(d != NO_DIRECTORY for d in directories) else [],
                eligible_leader_replicas=eligible or None,
            )
        )
    return records


def only_directories(metadata: MetadataView) -> dict[BrokerId, UUID]:
    """Where a new replica comes to lie at brokers that have one log directory; empty where nobody keeps that."""
    if not knows_directories(metadata.features):
        return {}
    return {
        broker_id: broker.log_dirs[0] for broker_id, broker in metadata.brokers.items() if len(broker.log_dirs) == 1
    }


def check_replicas(
    metadata: MetadataView, index: int, assigned: Sequence[BrokerId], replication_factor: int, *, as_in: str
) -> None:
    """Whether a partition's replicas, chosen by hand, can be.

    Args:
        replication_factor: how many there must be.
        as_in: what has that many.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    wrong = None
    unknown = [broker for broker in assigned if broker not in metadata.brokers]
    if not assigned:
        wrong = "has no replicas"
    elif len(set(assigned)) < len(assigned):
        wrong = f"has a broker twice in {list(assigned)}"
    elif len(assigned) != replication_factor:
        wrong = f"has {len(assigned)} replicas, {as_in} has {replication_factor}"
    elif unknown:
        wrong = f"is assigned to broker {unknown[0]}, which is not registered"
    elif not any(map(is_active_in(metadata), assigned)):
        wrong = f"is assigned to {list(assigned)}, all of them fenced"
    if wrong is not None:
        raise refusal(Code.INVALID_REPLICA_ASSIGNMENT, f"partition {index} {wrong}")


def _find(metadata: MetadataView, topic: TopicToGrow) -> TopicImage:
    if topic.name in RESERVED_TOPICS or topic.name in INTERNAL_TOPICS:
        raise refusal(
            Code.INVALID_TOPIC_EXCEPTION,
            f"{topic.name} belongs to the cluster: what it holds is found by its number of partitions",
        )
    image = metadata.topics_by_name.get(topic.name)
    if image is None:
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic.name!r}")
    if any(partition.adding_replicas or partition.removing_replicas for partition in image.partitions):
        raise refusal(
            Code.REASSIGNMENT_IN_PROGRESS, f"replicas of topic {topic.name} are moving: try again once they have moved"
        )
    return image


def _check_count(image: TopicImage, topic: TopicToGrow) -> int:
    """How many partitions are to be added."""
    current = len(image.partitions)
    if topic.count == current:
        raise refusal(Code.INVALID_PARTITIONS, f"topic {image.name} has {current} partitions already")
    if topic.count < current:
        raise refusal(
            Code.INVALID_PARTITIONS,
            f"topic {image.name} has {current} partitions; it cannot shrink to {topic.count}, for they hold records",
        )
    added = topic.count - current
    if topic.assignments is not None and len(topic.assignments) != added:
        raise refusal(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"from {current} to {topic.count} partitions takes {added} assignments, "
            f"one for each new one, not {len(topic.assignments)}",
        )
    return added


def _assign(
    metadata: MetadataView, image: TopicImage, topic: TopicToGrow, added: int, rng: Rng
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each new partition, as many as partition 0 has; at least one of each may lead."""
    factor = len(image.partitions[0].replicas)
    if topic.assignments is not None:
        for index, assigned in enumerate(topic.assignments, len(image.partitions)):
            check_replicas(metadata, index, assigned, factor, as_in="partition 0")
        return [tuple(assigned) for assigned in topic.assignments]
    return place(metadata.brokers.values(), added, factor, rng=rng)
