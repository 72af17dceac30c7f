"""Topics: creating and deleting them.

Kafka: `ReplicationControlManager`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tidelog.base.errors import Code, ConfigError, KafkaError, refusal
from tidelog.base.ids import BrokerId, TopicId, uuid_text
from tidelog.base.ports import Rng
from tidelog.controller.limits import Room
from tidelog.controller.partitions import PARTITIONS_PER_REQUEST_MAX, check_replicas, partition_records
from tidelog.controller.placement import place
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings, CreateTopicResult, DeletedTopic, TopicToCreate, TopicToDelete
from tidelog.journal import Decision
from tidelog.metadata.configs import BrokerSettings, EffectiveConfig, topic_entries, validate_topic_configs
from tidelog.metadata.configs.limits import MAX_PARTITIONS
from tidelog.metadata.image import MetadataView, ResourceType, TopicImage
from tidelog.metadata.records.cluster import ConfigRecord
from tidelog.metadata.records.topics import RemoveTopicRecord, TopicRecord
from tidelog.metadata.topic_names import INTERNAL_TOPICS, RESERVED_TOPICS, check_topic_name, collision_key

RESERVED_TOPIC_IDS_END = 2
"""Ids 0 and 1 stand for "none" and for the metadata log."""


def decide_create_topics(
    metadata: MetadataView,
    settings: ControllerSettings,
    topics: Sequence[TopicToCreate],
    *,
    names_taken: Mapping[str, str],
    partition_count: int,
    rng: Rng,
    validate_only: bool,
) -> Decision[tuple[CreateTopicResult, ...]]:
    """Create topics: each on its own, those that can be in one batch. The results are in the order of the request.

    Args:
        names_taken: `collision_key` of each topic's name, to the name.
        partition_count: of all topics.
        validate_only: say what would become of them, and do nothing.
    """
    counts = Counter(topic.name for topic in topics)
    partitions_in_all = sum(_partition_count(topic, settings) for topic in topics)
    records: list[object] = []
    created: list[CreateTopicResult] = []
    taken = dict[str, str]()
    rules = TopicRules(metadata, settings)
    room = Room(metadata, settings, MAX_PARTITIONS, partition_count)
    broker = settings.broker_settings(metadata)
    entries_of: dict[
        frozenset[tuple[str, str]], tuple[EffectiveConfig, ...]
    ] = {}  # most topics set the same, or nothing
    is_unset_right = False  # whether what a topic takes from its broker was checked already
    for topic in topics:
        try:
            if counts[topic.name] > 1:
                raise refusal(Code.INVALID_REQUEST, f"the request names topic {topic.name!r} more than once")
            if partitions_in_all > PARTITIONS_PER_REQUEST_MAX:
                raise refusal(
                    Code.POLICY_VIOLATION,
                    f"the request asks for {partitions_in_all} partitions; {PARTITIONS_PER_REQUEST_MAX} is the limit",
                )
            _check_name(metadata, topic.name, names_taken, taken)
            configs = _check_configs(topic, broker) if topic.configs or not is_unset_right else {}
            is_unset_right = is_unset_right or not topic.configs
            assignments = _assign(metadata, settings, topic, rng)
            if topic.name not in INTERNAL_TOPICS:
                room.take(len(assignments))
        except KafkaError as error:
            created.append(CreateTopicResult(topic.name, error.code, str(error)))
            continue
        taken[collision_key(topic.name)] = topic.name
        config_set = frozenset(configs.items())
        entries = entries_of.get(config_set)
        if entries is None:
            entries = entries_of[config_set] = tuple(topic_entries(configs, broker))
        topic_id = None if validate_only else _new_topic_id(metadata, rng)
        if topic_id is not None:
            min_insync = rules.min_insync(topic.name, configs)
            records += _topic_records(
                metadata, topic.name, topic_id, configs, assignments, min_insync_replicas=min_insync
            )
        created.append(
            CreateTopicResult(
                topic.name,
                Code.NONE,
                topic_id=topic_id,
                num_partitions=len(assignments),
                replication_factor=len(assignments[0]),
                configs=entries,
            )
        )
    return Decision(tuple(records), tuple(created))


def decide_delete_topics(
    metadata: MetadataView, settings: ControllerSettings, topics: Sequence[TopicToDelete]
) -> Decision[tuple[DeletedTopic, ...]]:
    """Delete topics: each on its own, those that can be in one batch. The results are in the order of the request."""
    found = [_find(metadata, topic) for topic in topics]
    counts = Counter(image.topic_id for image in found if image is not None)
    repeats = Counter(topics)
    records: list[object] = []
    deleted: list[DeletedTopic] = []
    for topic, image in zip(topics, found, strict=True):
        try:
            _check_deletion(settings, topic, image)
            if repeats[topic] > 1 or (image is not None and counts[image.topic_id] > 1):
                raise refusal(Code.INVALID_REQUEST, "the request names this topic more than once")
            if image is None:
                raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION if topic.topic_id is None else Code.UNKNOWN_TOPIC_ID)
        except KafkaError as error:
            deleted.append(DeletedTopic(topic.name, topic.topic_id, error.code, str(error)))
            continue
        records.append(RemoveTopicRecord(topic_id=image.topic_id))
        deleted.append(DeletedTopic(image.name, image.topic_id, Code.NONE))
    return Decision(tuple(records), tuple(deleted))


# Creating.


def _partition_count(topic: TopicToCreate, settings: ControllerSettings) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return max(0, settings.num_partitions if topic.num_partitions is None else topic.num_partitions)


def _check_name(metadata: MetadataView, name: str, *names_taken: Mapping[str, str]) -> None:
    wrong = check_topic_name(name)
    if wrong is not None:
        raise refusal(Code.INVALID_TOPIC_EXCEPTION, wrong)
    if name in RESERVED_TOPICS:
        raise refusal(Code.INVALID_TOPIC_EXCEPTION, f"{name} is the cluster's own log; choose another name")
    if name in metadata.topics_by_name:
        raise refusal(Code.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
    key = collision_key(name)
    for names in names_taken:
        if key in names:
            raise refusal(
                Code.INVALID_TOPIC_EXCEPTION,
                f"topic {name} differs from {names[key]} in '.' and '_' alone; metrics could not tell them apart",
            )


def _check_configs(topic: TopicToCreate, broker: BrokerSettings) -> dict[str, str]:
    configs: dict[str, str] = {}
    for key, value in topic.configs:
        if value is None:
            raise refusal(Code.INVALID_CONFIG, f"{key}: a new topic's setting needs a value")
        configs[key] = value
    try:
        validate_topic_configs(configs, broker)
    except ConfigError as error:
        raise refusal(Code.INVALID_CONFIG, str(error)) from error
    return configs


def _assign(
    metadata: MetadataView, settings: ControllerSettings, topic: TopicToCreate, rng: Rng
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each partition; at least one of each may lead."""
    if topic.assignments:
        return _check_assignments(metadata, topic)
    num_partitions = settings.num_partitions if topic.num_partitions is None else topic.num_partitions
    if num_partitions < 1:
        raise refusal(Code.INVALID_PARTITIONS, f"a topic needs at least one partition, not {num_partitions}")
    factor = settings.replication_factor if topic.replication_factor is None else topic.replication_factor
    if factor < 1:
        raise refusal(Code.INVALID_REPLICATION_FACTOR, f"the replication factor must be at least 1, not {factor}")
    return place(metadata.brokers.values(), num_partitions, factor, rng=rng)


def _check_assignments(metadata: MetadataView, topic: TopicToCreate) -> list[tuple[BrokerId, ...]]:
    if topic.num_partitions is not None or topic.replication_factor is not None:
        raise refusal(
            Code.INVALID_REQUEST,
            "with a replica assignment, the number of partitions and the replication factor must both be -1",
        )
    by_index: dict[int, tuple[BrokerId, ...]] = {}
    for index, replicas in topic.assignments:
        if index in by_index:
            raise refusal(Code.INVALID_REPLICA_ASSIGNMENT, f"partition {index} is assigned twice")
        by_index[index] = tuple(replicas)
    if sorted(by_index) != list(range(len(by_index))):
        raise refusal(
            Code.INVALID_REPLICA_ASSIGNMENT, "the partitions assigned must be 0, 1, 2 and so on, without gaps"
        )
    for index, assigned in sorted(by_index.items()):
        check_replicas(metadata, index, assigned, len(by_index[0]), as_in="partition 0")
    return [by_index[index] for index in range(len(by_index))]


def _new_topic_id(metadata: MetadataView, rng: Rng) -> TopicId:
    """An id that nobody has, and whose text does not look like a command line option."""
    while True:
        topic_id = TopicId(rng.uuid())
        is_free = topic_id not in metadata.topics_by_id and topic_id.int >= RESERVED_TOPIC_IDS_END
        if is_free and not uuid_text(topic_id).startswith("-"):
            return topic_id


def _topic_records(
    metadata: MetadataView,
    name: str,
    topic_id: TopicId,
    configs: Mapping[str, str],
    assignments: list[tuple[BrokerId, ...]],
    *,
    min_insync_replicas: int | None,
) -> list[object]:
    records: list[object] = [TopicRecord(name=name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value)
        for key, value in configs.items()
    ]
    records += partition_records(metadata, topic_id, assignments, min_insync_replicas=min_insync_replicas)
    return records


# Deleting.


def _find(metadata: MetadataView, topic: TopicToDelete) -> TopicImage | None:
    """The topic meant, if it is clear which, and if it is there."""
    if topic.name is None:
        return None if topic.topic_id is None else metadata.topics_by_id.get(topic.topic_id)
    return metadata.topics_by_name.get(topic.name) if topic.topic_id is None else None


def _check_deletion(settings: ControllerSettings, topic: TopicToDelete, image: TopicImage | None) -> None:
    if not settings.delete_topic_enable:
        raise refusal(Code.TOPIC_DELETION_DISABLED)
    if topic.name is None and topic.topic_id is None:
        raise refusal(Code.INVALID_REQUEST, "neither a topic's name nor its id was given")
    if topic.name is not None and topic.topic_id is not None:
        raise refusal(Code.INVALID_REQUEST, "give a topic's name or its id, not both")
    name = topic.name if image is None else image.name
    if name in RESERVED_TOPICS or name in INTERNAL_TOPICS:
        raise refusal(Code.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the cluster and cannot be deleted")
