"""What is told of consumer groups to those who watch them. Kafka: `GroupMetadataManager`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.group_change import preferred_assignor
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import NEW_MEMBER, ConsumerSubscription, CurrentAssignment
from tidelog.metadata.image import TopicImage
from tidelog.wire.messages.api_16_list_groups import ListedGroup
from tidelog.wire.messages.api_69_consumer_group_describe import (
    MEMBER_TYPE_CLASSIC,
    MEMBER_TYPE_CONSUMER,
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeMember,
    ConsumerGroupDescribePartitions,
)
from tidelog.wire.messages.consumer_protocol import PROTOCOL_TYPE

CONSUMER = "consumer"
"""The type of these groups, as ListGroups shows it."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group as it was at one moment: nobody changes what is in it, so it may be told of on another thread."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    subscriptions: Mapping[str, ConsumerSubscription]
    currents: Mapping[str, CurrentAssignment]
    targets: Mapping[str, Assignment]
    topics: Mapping[TopicId, TopicImage]

    def described(self) -> ConsumerGroupDescribeGroup:
        """The group with its members. Partitions of topics that are no more are not told of."""
        nothing: Assignment = {}
        return ConsumerGroupDescribeGroup(
            group_id=self.group_id,
            group_state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=self.assignor,
            members=[
                ConsumerGroupDescribeMember(
                    member_id=member_id,
                    instance_id=one.instance_id,
                    rack_id=one.rack_id,
                    member_epoch=self.currents.get(member_id, NEW_MEMBER).member_epoch,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    subscribed_topic_names=list(one.topic_names),
                    subscribed_topic_regex=one.pattern,
                    assignment=self._assignment(self.currents.get(member_id, NEW_MEMBER).assigned),
                    target_assignment=self._assignment(self.targets.get(member_id, nothing)),
                    member_type=MEMBER_TYPE_CONSUMER if one.classic is None else MEMBER_TYPE_CLASSIC,
                )
                for member_id, one in self.subscriptions.items()
            ],
        )

    def _assignment(self, parts: Mapping[TopicId, Collection[int]]) -> ConsumerGroupDescribeAssignment:
        topics = self.topics
        return ConsumerGroupDescribeAssignment(
            [
                ConsumerGroupDescribePartitions(topic, topics[topic].name, sorted(parts[topic]))
                for topic in sorted(parts)
                if topic in topics
            ]
        )


def viewed(group: ConsumerGroup, known: KnownTopics | None, assignors: tuple[str, ...]) -> GroupView:
    """A group as it is now."""
    return GroupView(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=preferred_assignor(group.votes, assignors),
        subscriptions=dict(group.subscriptions),
        currents=dict(group.currents),
        targets=dict(group.targets),
        topics={} if known is None else known.view.topics_by_id,
    )


def listed(groups: Mapping[str, ConsumerGroup]) -> Iterator[ListedGroup]:
    """All groups."""
    for group_id, group in groups.items():
        yield ListedGroup(
            group_id=group_id, protocol_type=PROTOCOL_TYPE, group_state=group.state.value, group_type=CONSUMER
        )
