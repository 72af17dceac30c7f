"""Elections that an operator asks for (ElectLeaders): the preferred leader again, or any leader rather than none.

Kafka: `ReplicationControlManager.electLeaders`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.controller.leaders import ElectionType, elect_leader, is_active_in, with_replica_online
from tidelog.controller.partition_changes import arrived, change_record
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings, ElectedLeader
from tidelog.journal import Decision
from tidelog.metadata.image import MetadataView, TopicImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS


def decide_elect_leaders(
    metadata: MetadataView,
    settings: ControllerSettings,
    kind: ElectionType,
    partitions: Sequence[TopicPartition],
    *,
    is_of_all: bool,
) -> Decision[tuple[ElectedLeader, ...]]:
    """Elect leaders, in each partition on its own; those that can be in one batch.

    Args:
        is_of_all: they are a portion of all that there are; see `pieces_to_elect`.

    Returns:
        What became of each, in the order of the request; of an order for all, without those that needed none, or whose
        topic went meanwhile.
    """
    rules = TopicRules(metadata, settings)
    is_active = is_active_in(metadata)
    records: list[object] = []
    results: list[ElectedLeader] = []
    for requested in dict.fromkeys(partitions):
        try:
            topic = _find(metadata, requested)
            before = topic.partitions[requested.partition]
            may_lead = with_replica_online(is_active, metadata.brokers, before)
            after = elect_leader(before, kind, min_insync_replicas=rules.min_insync(topic.name), is_active=may_lead)
        except KafkaError as error:
            if not is_of_all or error.code not in (Code.ELECTION_NOT_NEEDED, Code.UNKNOWN_TOPIC_OR_PARTITION):
                results.append(ElectedLeader(requested, error.code, str(error)))
            continue
        records.append(change_record(topic.topic_id, requested.partition, before, arrived(before, after)))
        results.append(ElectedLeader(requested, Code.NONE))
    return Decision(tuple(records), tuple(results))


def partitions_to_elect(metadata: MetadataView, kind: ElectionType) -> list[TopicPartition]:
    """What an order for all means. An unclean election leaves the internal topics out (rule 12): what the coordinators
    know is lost only on an order that names it.
    """
    return [
        TopicPartition(name, PartitionIndex(index))
        for name, topic in metadata.topics_by_name.items()
        if kind is not ElectionType.UNCLEAN or name not in INTERNAL_TOPICS
        for index in range(len(topic.partitions))
    ]


def pieces_to_elect(
    metadata: MetadataView, settings: ControllerSettings, kind: ElectionType
) -> Iterator[list[TopicPartition]]:
    """What an order for all means, in portions that are to be decided one by one, with `is_of_all`."""
    partitions = partitions_to_elect(metadata, kind)
    for start in range(0, len(partitions), settings.partition_changes_max):
        yield partitions[start : start + settings.partition_changes_max]


def _find(metadata: MetadataView, requested: TopicPartition) -> TopicImage:
    topic = metadata.topics_by_name.get(requested.topic)
    if topic is None or not 0 <= requested.partition < len(topic.partitions):
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {requested}")
    return topic
