"""AlterPartition: a leader asks for another ISR, and says whether it has recovered from an unclean election.

What the leader believed is checked again, for the metadata may have moved on since (rule 5): by a request that was
overtaken nothing changes. A leader that was not answered asks for the ISR that there is already, and is granted it, so
that newer state settles what it asked before. The change that brings the last replica of a reassignment into sync ends
the reassignment as well.

Kafka: `ReplicationControlManager.alterPartition`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tidelog.base.errors import Code, FencedLeaderEpochError, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId
from tidelog.controller.leaders import lies_online
from tidelog.controller.partition_changes import change_record, with_isr
from tidelog.controller.replica_moves import completed
from tidelog.controller.topic_rules import TopicRules
from tidelog.controller.values import ControllerSettings
from tidelog.journal import Decision
from tidelog.metadata.image import BrokerImage, MetadataView, PartitionImage, TopicImage

PartitionKey = tuple[TopicId, PartitionIndex]


class IsrMember(NamedTuple):
    """A replica that is to be in sync, in the incarnation in which it proved that it is (KIP-903).

    `broker_epoch` is None where the leader does not tell.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch | None


@dataclass(frozen=True, slots=True)
class IsrChange:
    """What a leader asks for one partition.

    Attributes:
        leader_epoch: the one that it leads in.
        partition_epoch: of the state that it asks on top of.
        isr: everyone who is to be in sync, the leader among them.
        is_recovering: whether it has not recovered from an unclean election yet.
    """

    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    isr: tuple[IsrMember, ...]
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class PartitionToAlter:
    """A partition, and what its leader asks for it."""

    topic_id: TopicId
    partition: PartitionIndex
    change: IsrChange


@dataclass(frozen=True, slots=True)
class AlteredPartition:
    """What became of one partition to alter.

    Attributes:
        state: as it is once the change is committed; None where it was refused.
    """

    topic_id: TopicId
    partition: PartitionIndex
    code: Code
    message: str | None = None
    state: PartitionImage | None = None


def pieces_to_alter(
    settings: ControllerSettings, partitions: Sequence[PartitionToAlter]
) -> Iterator[Sequence[PartitionToAlter]]:
    """What a request asks for, in portions that are to be decided one by one; at least one."""
    for start in range(0, max(len(partitions), 1), settings.partition_changes_max):
        yield partitions[start : start + settings.partition_changes_max]


def repeated_in(partitions: Iterable[PartitionToAlter]) -> Collection[PartitionKey]:
    """The partitions that a request names more than once."""
    counts = Counter((one.topic_id, one.partition) for one in partitions)
    return {one for one, count in counts.items() if count > 1}


def decide_alter_partitions(
    metadata: MetadataView,
    settings: ControllerSettings,
    sender: BrokerId,
    sender_epoch: BrokerEpoch,
    partitions: Sequence[PartitionToAlter],
    *,
    repeated: Collection[PartitionKey] | None = None,
) -> Decision[tuple[AlteredPartition, ...]]:
    """Alter partitions, each on its own; those that can be in one batch. The results are in the order of the request.

    Args:
        partitions: all of a request, or one of its `pieces_to_alter`.
        repeated: what the request names more than once; None where `partitions` is all of it.

    Raises:
        KafkaError: STALE_BROKER_EPOCH: an earlier incarnation of the sender asks.
    """
    check_sender(metadata.brokers, sender, sender_epoch)
    if repeated is None:
        repeated = repeated_in(partitions)
    rules = TopicRules(metadata, settings)
    records: list[object] = []
    results: list[AlteredPartition] = []
    for one in partitions:
        try:
            if (one.topic_id, one.partition) in repeated:
                raise refusal(Code.INVALID_REQUEST, "the request names this partition more than once")
            topic = _find(metadata, one)
            before = topic.partitions[one.partition]
            after = alter_partition(
                before,
                one.change,
                metadata.brokers,
                sender=sender,
                sender_epoch=sender_epoch,
                min_insync_replicas=rules.min_insync(topic.name),
            )
        except KafkaError as error:
            results.append(AlteredPartition(one.topic_id, one.partition, error.code, str(error)))
            continue
        records.append(change_record(topic.topic_id, one.partition, before, after))
        results.append(AlteredPartition(one.topic_id, one.partition, Code.NONE, state=after))
    return Decision(tuple(records), tuple(results))


def check_sender(brokers: Mapping[BrokerId, BrokerImage], sender: BrokerId, broker_epoch: BrokerEpoch) -> None:
    """Whether it is the registered incarnation that asks; for a whole request.

    Raises:
        KafkaError: STALE_BROKER_EPOCH.
    """
    broker = brokers.get(sender)
    if broker is None or broker.broker_epoch != broker_epoch:
        known = "not registered" if broker is None else f"registered at {broker.broker_epoch}"
        raise refusal(Code.STALE_BROKER_EPOCH, f"broker {sender} asks at broker epoch {broker_epoch}, but is {known}")


def alter_partition(
    partition: PartitionImage,
    change: IsrChange,
    brokers: Mapping[BrokerId, BrokerImage],
    *,
    sender: BrokerId,
    sender_epoch: BrokerEpoch,
    min_insync_replicas: int | None,
) -> PartitionImage:
    """The partition as it is once the change is granted: always in a new partition epoch; in a new leader epoch if it
    has moved with that.

    Raises:
        FencedLeaderEpochError: there was an election since.
        KafkaError: STALE_BROKER_EPOCH: an earlier incarnation asks. NOT_CONTROLLER: the leader knows of more than this
            controller. INVALID_REQUEST: it does not lead, or asks for what cannot be. INVALID_UPDATE_VERSION: the state
            changed since. INELIGIBLE_REPLICA: a member is fenced, be it the leader, whose successor is about to be
            elected; or it shuts down, registered anew (KIP-841, KIP-903), or its log directory failed.
    """

    def is_active(broker_id: BrokerId) -> bool:
        broker = brokers.get(broker_id)
        return broker is not None and broker.is_active

    check_sender(brokers, sender, sender_epoch)
    if change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch:
        raise refusal(
            Code.NOT_CONTROLLER,
            f"the leader is at leader epoch {change.leader_epoch} and partition epoch {change.partition_epoch}, this "
            f"controller at {partition.leader_epoch} and {partition.partition_epoch}",
        )
    if change.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpochError(
            "AlterPartition",
            sent_epoch=change.leader_epoch,
            leader_epoch=partition.leader_epoch,
        )
    if partition.leader != sender:
        raise refusal(Code.INVALID_REQUEST, f"broker {sender} asks, but {partition.leader} leads")
    if change.partition_epoch < partition.partition_epoch:
        raise refusal(
            Code.INVALID_UPDATE_VERSION,
            f"asked on top of partition epoch {change.partition_epoch}; it is {partition.partition_epoch} by now",
        )
    _check_members(partition, change)
    for member in change.isr:
        if member.broker_id != sender or brokers[sender].is_fenced:  # it joins nothing, and leads while it shuts down
            _check_eligible(partition, member, brokers.get(member.broker_id))
    named = {member.broker_id for member in change.isr}
    isr = [broker for broker in partition.replicas if broker in named]
    if named == set(partition.isr):
        isr = list(partition.isr)
    changed = with_isr(partition, isr, min_insync_replicas=min_insync_replicas)
    changed = replace(changed, is_recovering=change.is_recovering)
    moved = completed(changed, min_insync_replicas=min_insync_replicas, is_active=is_active)
    return changed if moved is None else replace(moved, partition_epoch=changed.partition_epoch)


def _find(metadata: MetadataView, requested: PartitionToAlter) -> TopicImage:
    topic = metadata.topics_by_id.get(requested.topic_id)
    if topic is None:
        raise refusal(Code.UNKNOWN_TOPIC_ID, f"there is no topic {requested.topic_id}")
    if not 0 <= requested.partition < len(topic.partitions):
        raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {requested.partition}")
    return topic


def _check_members(partition: PartitionImage, change: IsrChange) -> None:
    """Whether the ISR asked for can be one of this partition, whoever is alive."""
    named = [member.broker_id for member in change.isr]
    wrong = None
    if len(set(named)) < len(named):
        wrong = f"the ISR {named} names a broker twice"
    elif not set(named) <= set(partition.replicas):
        wrong = f"the ISR {named} is not among the replicas {list(partition.replicas)}"
    elif partition.leader not in named:
        wrong = f"the ISR {named} lacks the leader {partition.leader}"
    elif change.is_recovering and not partition.is_recovering:
        wrong = "the leader did not come from an unclean election: it has nothing to recover from"
    elif partition.is_recovering and len(named) > 1:
        wrong = "nobody joins the ISR before the leader has recovered from its unclean election"
    if wrong is not None:
        raise refusal(Code.INVALID_REQUEST, wrong)


def _check_eligible(partition: PartitionImage, member: IsrMember, broker: BrokerImage | None) -> None:
    wrong = None
    if broker is None:
        wrong = "is not registered"
    elif broker.is_fenced:
        wrong = "is fenced"
    elif broker.in_controlled_shutdown:
        wrong = "is shutting down"
    elif member.broker_epoch is not None and member.broker_epoch != broker.broker_epoch:
        wrong = f"was in sync at broker epoch {member.broker_epoch}, and registered anew at {broker.broker_epoch}"
    elif not lies_online(partition, broker):
        wrong = "has its replica in a log directory that failed"
    if wrong is not None:
        raise refusal(Code.INELIGIBLE_REPLICA, f"broker {member.broker_id} {wrong}")
