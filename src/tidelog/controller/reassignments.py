"""Reassignments: who is to hold which partitions, as an operator orders, takes back, and asks about (KIP-455).

What becomes of one partition is decided in `replica_moves.py`; that it has moved, where its leader says who is in sync.

Kafka: `ReplicationControlManager.alterPartitionReassignments`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.controller.leaders import is_active_in, with_replica_online
from tidelog.controller.partition_changes import IsActive, change_record
from tidelog.controller.partitions import PARTITIONS_PER_REQUEST_MAX, only_directories
from tidelog.controller.replica_moves import cancelled, is_moving, reassigned, target_of
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import (
    ControllerSettings,
    OngoingReassignment,
    PartitionToReassign,
    ReassignedPartition,
)
from tidelog.journal import Decision
from tidelog.metadata.image import MetadataView, PartitionImage, TopicImage


def decide_alter_reassignments(
    metadata: MetadataView,
    settings: ControllerSettings,
    partitions: Sequence[PartitionToReassign],
    *,
    allows_factor_change: bool,
) -> Decision[tuple[ReassignedPartition, ...]]:
    """Begin reassignments, or cancel them: each on its own, those that can be in one batch.

    The second of a partition takes the place of the first; both in one request contradict each other, and are refused.

    Args:
        allows_factor_change: whether partitions may get more replicas than they have, or fewer.

    Returns:
        What became of each, in the order of the request. Where brokers do not live that would have to come into sync,
        the message says so: it waits for them.

    Raises:
        KafkaError: POLICY_VIOLATION: too many for one batch of the metadata log.
    """
    if len(partitions) > PARTITIONS_PER_REQUEST_MAX:
        raise refusal(
            Code.POLICY_VIOLATION,
            f"the request names {len(partitions)} partitions; {PARTITIONS_PER_REQUEST_MAX} is the limit",
        )
    counts = Counter(one.topic_partition for one in partitions)
    rules = TopicRules(metadata, settings)
    is_active = is_active_in(metadata)
    directories = only_directories(metadata)
    records: list[object] = []
    results: list[ReassignedPartition] = []
    for one in partitions:
        requested = one.topic_partition
        try:
            if counts[requested] > 1:
                raise refusal(
                    Code.INVALID_REQUEST,
                    f"the request names {requested} {counts[requested]} times: say where it is to go once",
                )
            topic = _find(metadata, requested)
            before = topic.partitions[requested.partition]
            min_insync = rules.min_insync(topic.name)
            after: PartitionImage | None
            message = None
            may_lead = with_replica_online(is_active, metadata.brokers, before)
            if one.replicas is None:
                after = cancelled(before, min_insync_replicas=min_insync, is_active=may_lead)
            else:
                _check_target(metadata, before, one.replicas, allows_factor_change=allows_factor_change)
                after = reassigned(
                    before,
                    one.replicas,
                    min_insync_replicas=min_insync,
                    is_active=may_lead,
                    directories=directories,
                )
                message = _waits_for(before if after is None else after, is_active)
        except KafkaError as error:
            results.append(ReassignedPartition(requested, error.code, str(error)))
            continue
        if after is not None:
            records.append(change_record(topic.topic_id, requested.partition, before, after))
        results.append(ReassignedPartition(requested, Code.NONE, message))
    return Decision(tuple(records), tuple(results))


def reassignments(
    metadata: MetadataView, partitions: Sequence[TopicPartition] | None = None
) -> tuple[OngoingReassignment, ...]:
    """Those that are under way, by topic and partition; of those named, which may not exist, or of all."""
    if partitions is None:
        found = [
            (TopicPartition(name, PartitionIndex(index)), state)
            for name, topic in metadata.topics_by_name.items()
            for index, state in enumerate(topic.partitions)
            if is_moving(state)
        ]
    else:
        found = []
        for requested in dict.fromkeys(partitions):
            topic = metadata.topics_by_name.get(requested.topic)
            if topic is not None and 0 <= requested.partition < len(topic.partitions):
                found.append((requested, topic.partitions[requested.partition]))
    return tuple(
        OngoingReassignment(requested, state.replicas, state.adding_replicas, state.removing_replicas)
        for requested, state in sorted(found, key=lambda each: each[0])
        if is_moving(state)
    )


def _find(metadata: MetadataView, requested: TopicPartition) -> TopicImage:
    topic = metadata.topics_by_name.get(requested.topic)
    if topic is None or not 0 <= requested.partition < len(topic.partitions):
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {requested}")
    return topic


def _check_target(
    metadata: MetadataView, partition: PartitionImage, target: Sequence[BrokerId], *, allows_factor_change: bool
) -> None:
    """Whether brokers can hold a partition at all; whether they live makes no difference.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT; INVALID_REPLICATION_FACTOR.
    """
    wrong = None
    unknown = [broker for broker in target if broker not in metadata.brokers]
    if not target:
        wrong = "a partition needs at least one replica; the list is empty"
    elif len(set(target)) < len(target):
        wrong = f"a broker stands twice in {list(target)}"
    elif unknown:
        wrong = f"broker {unknown[0]} is not registered"
    if wrong is not None:
        raise refusal(Code.INVALID_REPLICA_ASSIGNMENT, wrong)
    factor = len(target_of(partition))
    if not allows_factor_change and len(target) != factor:
        raise refusal(
            Code.INVALID_REPLICATION_FACTOR,
            f"{list(target)} are {len(target)} replicas, the partition has {factor}, and that was not to change",
        )


def _waits_for(partition: PartitionImage, is_active: IsActive) -> str | None:
    dead = [broker for broker in target_of(partition) if is_moving(partition) and not is_active(broker)]
    if not dead:
        return None
    return f"waits for {', '.join(f'broker {broker}' for broker in dead)}, not alive at present"
