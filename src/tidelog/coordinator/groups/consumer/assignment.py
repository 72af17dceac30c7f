"""Which partitions a member has, and what an assignor works from. Kafka: `GroupSpec`, `MemberSubscriptionSpec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidelog.base.ids import TopicId

Assignment = Mapping[TopicId, frozenset[int]]
"""Partitions by topic; no topic is there without a partition."""

NOTHING: Assignment = {}


@dataclass(frozen=True, slots=True)
class AssignableMember:
    """A member, as an assignor sees it.

    Attributes:
        topics: that it is subscribed to, and that exist.
        target: what it was assigned before: as much of it as possible stays.
        instance_id: of a static member.
    """

    topics: frozenset[TopicId]
    target: Assignment = field(default_factory=dict)
    instance_id: str | None = None


Members = Mapping[str, AssignableMember]
"""By member id."""

Assignor = Callable[[Members, Mapping[TopicId, int]], dict[str, Assignment]]
"""From the members and the number of partitions of each topic to what each member is to read.

Every partition of a topic with a subscriber goes to exactly one of its subscribers, and every member is in the result.
An assignor depends on its arguments only, not on the order of a mapping.
"""


def contains(whole: Assignment, part: Assignment) -> bool:
    """Whether every partition of `part` is in `whole`."""
    return all(partitions <= whole.get(topic, frozenset()) for topic, partitions in part.items())


def intersects(one: Assignment, other: Assignment) -> bool:
    """Whether a partition is in both."""
    return any(not partitions.isdisjoint(other.get(topic, ())) for topic, partitions in one.items())


def frozen(parts: Mapping[TopicId, list[int]]) -> Assignment:
    """The lists of an assignor as an assignment."""
    return {topic: frozenset(partitions) for topic, partitions in parts.items() if partitions}
