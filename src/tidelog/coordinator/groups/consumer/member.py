"""What the log says of a member of a consumer group: what it wants, and what it has. Kafka: `ConsumerGroupMember`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerMemberState,
    CurrentAssignmentPartitions,
    TargetAssignmentPartitions,
)
from tidelog.coordinator.groups.member import MEMBER_BYTES
from tidelog.wire.messages.api_68_consumer_group_heartbeat import LEAVE_STATIC_MEMBER_EPOCH

Holding = Mapping[TopicId, Mapping[int, int]]
"""The member epoch in which each partition was assigned, by topic and partition (KIP-1251)."""

NOTHING_HELD: Holding = {}

NAME_BYTES = 160
"""What the name of a topic takes beside its characters, with its place among all topics of its group."""


Wanted = tuple[tuple[str, ...], str | None]
"""The names, and the pattern, of topics that a member is subscribed to."""


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """A member, as its heartbeats said.

    Attributes:
        topic_names: sorted, none twice.
        pattern: of further topics.
        assignor: that it asked for.
        classic: of a member that speaks the classic protocol; None of one that speaks this one.
    """

    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    topic_names: tuple[str, ...] = ()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None

    @property
    def wanted(self) -> Wanted:
        """What it is subscribed to."""
        return self.topic_names, self.pattern

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        names = (self.client_id, self.client_host, self.instance_id or "", self.rack_id or "", self.pattern or "")
        names_bytes = NAME_BYTES * len(self.topic_names) + sum(map(len, self.topic_names))
        return MEMBER_BYTES + sum(map(len, names)) + names_bytes

    def with_names(self, topic_names: tuple[str, ...]) -> ConsumerSubscription:
        """The same member, subscribed to topics of other names."""
        return replace(self, topic_names=topic_names)

    def value(self) -> ConsumerGroupMemberMetadataValue:
        """What the log is to say of it."""
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
            subscribed_topic_regex=self.pattern,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.assignor,
            classic_member_metadata=self.classic,
        )


def subscription_of(value: ConsumerGroupMemberMetadataValue) -> ConsumerSubscription:
    """The member that a record tells of."""
    return ConsumerSubscription(
        client_id=value.client_id,
        client_host=value.client_host,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        topic_names=tuple(value.subscribed_topic_names),
        pattern=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor or None,
        classic=value.classic_member_metadata,
    )


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """How far a member has come.

    Attributes:
        member_epoch: that it is to send; -2 for a static member that is away.
        previous_epoch: accepted too, from a member that did not get our last answer.
        assigned: what it may read.
        revoking: what it has to give up first.
    """

    member_epoch: int = 0
    previous_epoch: int = 0
    state: ConsumerMemberState = ConsumerMemberState.STABLE
    assigned: Holding = field(default_factory=dict)
    revoking: Holding = field(default_factory=dict)

    @property
    def is_away(self) -> bool:
        """Whether it is of a static member that means to come back."""
        return self.member_epoch == LEAVE_STATIC_MEMBER_EPOCH

    @property
    def partition_count(self) -> int:
        """How many partitions nobody else may have."""
        return sum(map(len, self.assigned.values())) + sum(map(len, self.revoking.values()))

    def assignment_epoch(self, topic: TopicId, partition: int) -> int | None:
        """Since which member epoch it has a partition, be it one to give up; None if it has not."""
        for holding in (self.assigned, self.revoking):
            epoch = holding.get(topic, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def holds(self, owned: Assignment) -> bool:
        """Whether all of it is assigned, be it to be given up."""
        return all(
            self.assignment_epoch(topic, partition) is not None
            for topic, partitions in owned.items()
            for partition in partitions
        )

    def value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        """What the log is to say of it."""
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=self.state,
            assigned_partitions=_recorded(self.assigned),
            partitions_pending_revocation=_recorded(self.revoking),
        )


NEW_MEMBER = CurrentAssignment()


def current_of(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    """What a record tells of a member. A log of Kafka before 4.3 has no epochs: the member's own counts then.

    Raises:
        CorruptLogError: it has another number of epochs than of partitions.
    """
    try:
        state = ConsumerMemberState(value.state)
    except ValueError:
        state = ConsumerMemberState.UNRELEASED_PARTITIONS  # the next heartbeat finds out
    return CurrentAssignment(
        member_epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=state,
        assigned=_held(value.assigned_partitions, value.member_epoch),
        revoking=_held(value.partitions_pending_revocation, value.member_epoch),
    )


def _recorded(holding: Holding) -> list[CurrentAssignmentPartitions]:
    found = []
    for topic in sorted(holding):
        partitions = sorted(holding[topic])
        epochs = [holding[topic][one] for one in partitions]
        found.append(CurrentAssignmentPartitions(topic, partitions, epochs))
    return found


def _held(recorded: Iterable[CurrentAssignmentPartitions], member_epoch: int) -> Holding:
    found: dict[TopicId, dict[int, int]] = {}
    for one in recorded:
        epochs = one.assignment_epochs or [member_epoch] * len(one.partitions)
        try:
            found.setdefault(TopicId(one.topic_id), {}).update(zip(one.partitions, epochs, strict=True))
        except ValueError as error:
            raise CorruptLogError(
                "the assignment of a member has another number of epochs than of partitions"
            ) from error
    return {topic: partitions for topic, partitions in found.items() if partitions}


# Target assignments.


def target_value(target: Assignment) -> ConsumerGroupTargetAssignmentMemberValue:
    """What the log is to say of a member's target assignment."""
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[TargetAssignmentPartitions(topic, sorted(target[topic])) for topic in sorted(target)]
    )


def target_of(value: ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    """The target assignment that a record tells of."""
    return {TopicId(one.topic_id): frozenset(one.partitions) for one in value.topic_partitions if one.partitions}
