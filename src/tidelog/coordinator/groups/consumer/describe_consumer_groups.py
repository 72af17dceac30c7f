"""What is told of consumer groups to those who watch them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tidelog.base.errors import Code
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.group_change import preferred_assignor
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
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


def described(
    group: ConsumerGroup | None, group_id: str, known: KnownTopics | None, assignors: tuple[str, ...]
) -> ConsumerGroupDescribeGroup:
    """A group with its members. Partitions of topics that are no more are not told of."""
    if group is None:
        return ConsumerGroupDescribeGroup(
            error_code=Code.GROUP_ID_NOT_FOUND.value,
            error_message=f"there is no consumer group {group_id!r}",
            group_id=group_id,
        )
    return ConsumerGroupDescribeGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch or 0,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.subscriptions, assignors),
        members=[
            ConsumerGroupDescribeMember(
                member_id=member_id,
                instance_id=one.instance_id,
                rack_id=one.rack_id,
                member_epoch=group.current(member_id).member_epoch,
                client_id=one.client_id,
                client_host=one.client_host,
                subscribed_topic_names=list(one.topic_names),
                subscribed_topic_regex=one.pattern,
                assignment=_assignment(group.current(member_id).assigned, known),
                target_assignment=_assignment(group.target(member_id), known),
                member_type=MEMBER_TYPE_CONSUMER if one.classic is None else MEMBER_TYPE_CLASSIC,
            )
            for member_id, one in group.subscriptions.items()
        ],
    )


def listed(groups: Mapping[str, ConsumerGroup]) -> Iterator[ListedGroup]:
    """All groups."""
    for group_id, group in groups.items():
        yield ListedGroup(
            group_id=group_id, protocol_type=PROTOCOL_TYPE, group_state=group.state.value, group_type=CONSUMER
        )


def _assignment(parts: Mapping[TopicId, Collection[int]], known: KnownTopics | None) -> ConsumerGroupDescribeAssignment:
    names = {topic: known.name(topic) for topic in sorted(parts)} if known is not None else {}
    return ConsumerGroupDescribeAssignment(
        [
            ConsumerGroupDescribePartitions(topic, name, sorted(parts[topic]))
            for topic, name in names.items()
            if name is not None
        ]
    )
