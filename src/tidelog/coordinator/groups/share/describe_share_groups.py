"""What is told of share groups to those who watch them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Assignment
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.member import NEW_MEMBER, ShareCurrent, ShareSubscription, in_order
from tidelog.metadata.image import TopicImage
from tidelog.wire.messages.api_16_list_groups import ListedGroup
from tidelog.wire.messages.api_77_share_group_describe import (
    ShareGroupDescribeAssignment,
    ShareGroupDescribeGroup,
    ShareGroupDescribeMember,
    ShareGroupDescribePartitions,
)

SHARE = "share"
"""The type of these groups, and their protocol type, as ListGroups shows it."""
ASSIGNOR = "simple"


@dataclass(frozen=True, slots=True)
class ShareGroupView:
    """A group as it was at one moment: nobody changes what is in it, so it may be told of on another thread."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    subscriptions: Mapping[str, ShareSubscription]
    currents: Mapping[str, ShareCurrent]
    topics: Mapping[TopicId, TopicImage]

    @property
    def weight(self) -> int:
        """How many members there are, and topics that they name and read."""
        named = sum(1 + len(one.topic_names) for one in self.subscriptions.values())
        return named + sum(len(one.assigned) for one in self.currents.values())

    def described(self) -> ShareGroupDescribeGroup:
        """The group with its members. Partitions of topics that are no more are not told of."""
        return ShareGroupDescribeGroup(
            group_id=self.group_id,
            group_state=self.state,
            group_epoch=self.epoch,
            assignment_epoch=self.target_epoch,
            assignor_name=ASSIGNOR,
            members=[
                ShareGroupDescribeMember(
                    member_id=member_id,
                    rack_id=one.rack_id,
                    member_epoch=self.currents.get(member_id, NEW_MEMBER).member_epoch,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    subscribed_topic_names=list(one.topic_names),
                    assignment=self._assignment(self.currents.get(member_id, NEW_MEMBER).assigned),
                )
                for member_id, one in self.subscriptions.items()
            ],
        )

    def _assignment(self, assigned: Assignment) -> ShareGroupDescribeAssignment:
        topics = self.topics
        return ShareGroupDescribeAssignment(
            [
                ShareGroupDescribePartitions(topic, topics[topic].name, sorted(assigned[topic]))
                for topic in in_order(assigned)
                if topic in topics
            ]
        )


def viewed(group: ShareGroup, known: KnownTopics | None) -> ShareGroupView:
    """A group as it is now."""
    return ShareGroupView(
        group_id=group.group_id,
        state=group.state.value,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        subscriptions=dict(group.subscriptions),
        currents=dict(group.currents),
        topics={} if known is None else known.view.topics_by_id,
    )


def listed(groups: Mapping[str, ShareGroup]) -> Iterator[ListedGroup]:
    """All groups."""
    for group_id, group in groups.items():
        yield ListedGroup(group_id=group_id, protocol_type=SHARE, group_state=group.state.value, group_type=SHARE)
