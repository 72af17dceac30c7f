"""What the log says of a member of a share group: what it wants, and what it reads. Kafka: `ShareGroupMember`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer.member import NAME_BYTES
from tidelog.coordinator.groups.consumer_group_records import TargetAssignmentPartitions
from tidelog.coordinator.groups.member import MEMBER_BYTES
from tidelog.coordinator.groups.share_group_records import (
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
)

STABLE = 0
"""The only state of a member: nobody gives anything up first."""


@dataclass(frozen=True, slots=True)
class ShareSubscription:
    """A member, as its heartbeats said.

    Attributes:
        topic_names: sorted, none twice.
    """

    client_id: str
    client_host: str
    rack_id: str | None = None
    topic_names: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        names_bytes = NAME_BYTES * len(self.topic_names) + sum(map(len, self.topic_names))
        return MEMBER_BYTES + len(self.client_id) + len(self.client_host) + len(self.rack_id or "") + names_bytes

    def value(self) -> ShareGroupMemberMetadataValue:
        """What the log is to say of it."""
        return ShareGroupMemberMetadataValue(
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=list(self.topic_names),
        )


def subscription_of(value: ShareGroupMemberMetadataValue) -> ShareSubscription:
    """The member that a record tells of."""
    return ShareSubscription(
        value.client_id, value.client_host, value.rack_id, tuple(sorted(set(value.subscribed_topic_names)))
    )


@dataclass(frozen=True, slots=True)
class ShareCurrent:
    """What a member reads, together with others.

    Attributes:
        member_epoch: that it is to send.
        previous_epoch: accepted too, from a member that did not get our last answer.
    """

    member_epoch: int
    previous_epoch: int
    assigned: Assignment

    @property
    def partition_count(self) -> int:
        """How many partitions it reads."""
        return sum(map(len, self.assigned.values()))

    def value(self) -> ShareGroupCurrentMemberAssignmentValue:
        """What the log is to say of it."""
        return ShareGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_epoch,
            state=STABLE,
            assigned_partitions=_recorded(self.assigned),
        )


NEW_MEMBER = ShareCurrent(0, 0, {})


def current_of(value: ShareGroupCurrentMemberAssignmentValue) -> ShareCurrent:
    """What a record tells of a member."""
    return ShareCurrent(value.member_epoch, value.previous_member_epoch, _assigned(value.assigned_partitions))


def target_value(target: Assignment) -> ShareGroupTargetAssignmentMemberValue:
    """What the log is to say of a member's target assignment."""
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=_recorded(target))


def target_of(value: ShareGroupTargetAssignmentMemberValue) -> Assignment:
    """The target assignment that a record tells of."""
    return _assigned(value.topic_partitions)


def in_order(topics: Iterable[TopicId]) -> list[TopicId]:
    """Topics by their ids, which are compared as numbers: that is much faster."""
    return sorted(topics, key=attrgetter("int"))


def _recorded(assignment: Assignment) -> list[TargetAssignmentPartitions]:
    return [TargetAssignmentPartitions(topic, sorted(assignment[topic])) for topic in in_order(assignment)]


def _assigned(recorded: Iterable[TargetAssignmentPartitions]) -> Assignment:
    return {TopicId(one.topic_id): frozenset(one.partitions) for one in recorded if one.partitions}
