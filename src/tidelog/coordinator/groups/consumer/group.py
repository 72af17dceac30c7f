"""A group of the consumer protocol (KIP-848), as its records make it. Kafka: `ConsumerGroup`.

```
 group epoch      raised whenever a member, or what it wants, or a topic that it reads changes
 target epoch     the group epoch that the target assignment was made for; behind it while that is put off
 member epoch     the target epoch that a member has come to
```

Nothing but a record changes a group: live and recovery are one path, and a failover loses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import NOTHING, Assignment, Pace, Pieces, finished
from tidelog.coordinator.groups.consumer.known_topics import TopicsHash
from tidelog.coordinator.groups.consumer.member import (
    NAME_BYTES,
    NEW_MEMBER,
    ConsumerSubscription,
    CurrentAssignment,
    Wanted,
)
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.coordinator.groups.group import GROUP_BYTES

K = TypeVar("K")

PARTITION_BYTES = 200
"""About what a partition takes in memory that a member has, and is to have."""


class ConsumerGroupState(StrEnum):
    """The states, by the names that ListGroups shows."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class MatchedTopics:
    """The topics that match a pattern.

    Attributes:
        version: of the metadata in which they were looked up.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class ConsumerGroup:
    """A group. Its `set_*` methods are for records only.

    Attributes:
        recorded_epoch: the group epoch that the log says; None if it says none.
        metadata_hash: of the topics that it reads, as they were seen last.
        target_epoch: the group epoch that the target assignment was made for.
        assigned_at_ms: when the target assignment was made, by the wall clock; None if never.
        static_members: the id of the member of each instance id.
        indexed: what a member is about to have, where it is entered as the owner already. Not recorded.
        topics_hash: of the topics that it reads; None until it is taken. Not recorded.
        seen_version: of the metadata in which its topics were looked at last. Not recorded.
        is_to_be_looked_at: whether all its topics may have changed, and are to be looked at in pieces. Not recorded.
        unconfirmed: members that were told to read something else than before, and have not said yet that they do. Not
            recorded.
        untold: members that were told nothing since the coordinator became active: what they were told before, nobody
            knows. Not recorded.
        downgraded_count_max: with more members it is known not to fit into a batch as a classic group. Not recorded.
        consumer_count: how many members speak the consumer protocol.
        votes: how many members ask for each assignor, or for none.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.recorded_epoch: int | None = None
        self.metadata_hash = 0
        self.target_epoch = 0
        self.assigned_at_ms: int | None = None
        self.subscriptions: dict[str, ConsumerSubscription] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.matched: dict[str, MatchedTopics] = {}
        self.topics_hash: TopicsHash | None = None
        self.seen_version = -1
        self.is_to_be_looked_at = False
        self.unconfirmed: set[str] = set()
        self.untold: set[str] = set()
        self.downgraded_count_max = 2**31
        self.consumer_count = 0
        self.votes: Counter[str | None] = Counter()
        self.size_bytes = GROUP_BYTES + 2 * len(group_id)
        self.indexed: CurrentAssignment | None = None
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._topics: Counter[str] = Counter()  # how many members and patterns name each
        self._patterns: Counter[str] = Counter()
        self._wanted: Counter[Wanted] = Counter()

    # What it is.

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return 0 if self.recorded_epoch is None else self.recorded_epoch

    @property
    def is_gone(self) -> bool:
        """Whether no record of it is left."""
        has_items = self.subscriptions or self.targets or self.currents or self.matched
        return self.recorded_epoch is None and self.target_epoch == 0 and not has_items

    @property
    def state(self) -> ConsumerGroupState:
        """Follows from its members and its epochs."""
        if not self.subscriptions:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        for member_id in self.subscriptions:
            current = self.current(member_id)
            if current.state is not ConsumerMemberState.STABLE or current.member_epoch != self.target_epoch:
                return ConsumerGroupState.RECONCILING
        return ConsumerGroupState.STABLE

    @property
    def patterns(self) -> Counter[str]:
        """Those that members are subscribed to, and how many are. Nobody changes it."""
        return self._patterns

    def matched_topics(self, pattern: str) -> frozenset[str]:
        """The topics that match a pattern, as far as that is known."""
        matched = self.matched.get(pattern)
        return frozenset() if matched is None else matched.topics

    @property
    def has_patterns(self) -> bool:
        """Whether a member is subscribed to one."""
        return bool(self._patterns)

    def wanted(self) -> Counter[Wanted]:
        """What members want, and how many want it. The counter is the caller's."""
        return self._wanted.copy()

    def member(self, member_id: str) -> ConsumerSubscription:
        """A member.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        subscription = self.subscriptions.get(member_id)
        if subscription is None:
            raise refusal(Code.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no member {member_id!r}: join again")
        return subscription

    def current(self, member_id: str) -> CurrentAssignment:
        """What a member has."""
        return self.currents.get(member_id, NEW_MEMBER)

    def target(self, member_id: str) -> Assignment:
        """What a member is to have."""
        return self.targets.get(member_id, NOTHING)

    def owner(self, topic: TopicId, partition: int) -> str | None:
        """The member that has a partition, be it to give it up."""
        owner = self._owners.get(topic, {}).get(partition)
        if owner is None:
            return None
        current = self.currents.get(owner)
        return None if current is None or current.assignment_epoch(topic, partition) is None else owner

    @property
    def topics(self) -> Mapping[str, int]:
        """All that members are subscribed to, be it by a pattern, and how many members and patterns name it."""
        return self._topics

    def topics_of(self, subscription: ConsumerSubscription) -> frozenset[str]:
        """What one is subscribed to."""
        names = frozenset(subscription.topic_names)
        matched = self.matched.get(subscription.pattern or "")
        return names if matched is None else names | matched.topics

    # What its records say.

    def set_epoch(self, epoch: int | None, metadata_hash: int) -> None:
        """The group; None for a tombstone."""
        self.recorded_epoch = epoch
        self.metadata_hash = metadata_hash

    def set_target_epoch(self, target_epoch: int, assigned_at_ms: int | None) -> None:
        """For which epoch the target assignment was made; 0 for a tombstone."""
        self.target_epoch = target_epoch
        self.assigned_at_ms = assigned_at_ms

    def set_subscription(self, member_id: str, subscription: ConsumerSubscription | None) -> None:
        """A member; None for a tombstone."""
        old = self.subscriptions.pop(member_id, None) if subscription is None else self.subscriptions.get(member_id)
        if old is None or subscription is None or old.wanted != subscription.wanted:
            self._want(None if old is None else old.wanted, None if subscription is None else subscription.wanted)
        if old is not None:
            self.size_bytes -= old.size_bytes + 2 * len(member_id)
            _take(self.votes, (old.assignor,))
            self.consumer_count -= old.classic is None
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if subscription is None:
            self.unconfirmed.discard(member_id)
            self.untold.discard(member_id)
            return
        self.subscriptions[member_id] = subscription
        self.size_bytes += subscription.size_bytes + 2 * len(member_id)
        self.votes[subscription.assignor] += 1
        self.consumer_count += subscription.classic is None
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def _want(self, old: Wanted | None, new: Wanted | None) -> None:
        """A member is subscribed to something else; what both want goes on being there all along."""
        if new is not None:
            names, pattern = new
            self._topics.update(names)
            self._wanted[new] += 1
            if pattern is not None:
                if pattern not in self._patterns and pattern in self.matched:
                    self._topics.update(self.matched[pattern].topics)
                self._patterns[pattern] += 1
        if old is not None:
            names, pattern = old
            _take(self._topics, names)
            _take(self._wanted, (old,))
            if pattern is not None:
                _take(self._patterns, (pattern,))
                if pattern not in self._patterns and pattern in self.matched:
                    _take(self._topics, self.matched[pattern].topics)
        self.topics_hash = None

    def set_target(self, member_id: str, target: Assignment | None) -> None:
        """What a member is to have; None for a tombstone."""
        old = self.targets.pop(member_id, NOTHING)
        self.size_bytes -= PARTITION_BYTES * sum(map(len, old.values()))
        if target is not None:
            self.targets[member_id] = target
            self.size_bytes += PARTITION_BYTES * sum(map(len, target.values()))

    def set_current(self, member_id: str, current: CurrentAssignment | None) -> None:
        """What a member has; None for a tombstone.

        The index of owners follows at once, unless it is kept in pieces (`index`, `forget_index`).
        """
        old = self.currents.pop(member_id, None)
        if old is not None:
            self.size_bytes -= PARTITION_BYTES * old.partition_count
        if current is not None:
            self.currents[member_id] = current
            self.size_bytes += PARTITION_BYTES * current.partition_count
        if self.indexed is None or self.indexed is not current:
            finished(self.forget_index(member_id, old, Pace()))
            if current is not None:
                finished(self.index(member_id, NEW_MEMBER if old is None else old, current, Pace()))
        self.indexed = None

    def index(self, member_id: str, before: CurrentAssignment, current: CurrentAssignment, pace: Pace) -> Pieces[None]:
        """Enter a member as the owner of what it is about to have: nobody takes it for that before it has."""
        owners = self._owners
        for holding in (current.assigned, current.revoking):
            for topic, partitions in holding.items():
                if before.assigned.get(topic) is partitions:
                    continue
                owners_of_topic = owners.get(topic)
                if owners_of_topic is None:
                    owners_of_topic = owners[topic] = {}
                for partition in partitions:
                    owners_of_topic[partition] = member_id
                if pace.counts(1 + len(partitions)):
                    yield

    def forget_index(self, member_id: str, old: CurrentAssignment | None, pace: Pace) -> Pieces[None]:
        """Forget that a member owned what it has not any more."""
        current = self.currents.get(member_id, NEW_MEMBER)
        for holding in () if old is None else (old.assigned, old.revoking):
            for topic, partitions in holding.items():
                if current.assigned.get(topic) is partitions:
                    continue
                owners = self._owners.get(topic, {})
                for partition in partitions:
                    if owners.get(partition) == member_id and current.assignment_epoch(topic, partition) is None:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic, None)
                if pace.counts(1 + len(partitions)):
                    yield

    def set_matched(self, pattern: str, matched: MatchedTopics | None) -> None:
        """The topics of a pattern; None for a tombstone."""
        old = self.matched.pop(pattern, None)
        if old is not None:
            self.size_bytes -= len(pattern) + NAME_BYTES * len(old.topics)
        if matched is not None:
            self.matched[pattern] = matched
            self.size_bytes += len(pattern) + NAME_BYTES * len(matched.topics)
        if pattern in self._patterns:
            self._topics.update(() if matched is None else matched.topics)
            _take(self._topics, () if old is None else old.topics)
            self.topics_hash = None

    def clone(self) -> ConsumerGroup:
        """A copy down to the values, which nobody changes."""
        copy = ConsumerGroup(self.group_id)
        copy.set_epoch(self.recorded_epoch, self.metadata_hash)
        copy.set_target_epoch(self.target_epoch, self.assigned_at_ms)
        for member_id, subscription in self.subscriptions.items():
            copy.set_subscription(member_id, subscription)
        for member_id, target in self.targets.items():
            copy.set_target(member_id, target)
        for member_id, current in self.currents.items():
            copy.set_current(member_id, current)
        for pattern, matched in self.matched.items():
            copy.set_matched(pattern, matched)
        copy.topics_hash = self.topics_hash
        copy.seen_version = self.seen_version
        return copy

    def canonical(self) -> Mapping[str, object]:
        """All that is recorded: two groups with the same are the same."""
        return {
            "epochs": (self.recorded_epoch, self.metadata_hash, self.target_epoch, self.assigned_at_ms),
            "subscriptions": self.subscriptions,
            "targets": self.targets,
            "currents": self.currents,
            "matched": self.matched,
            "topics": self._topics,
            "votes": self.votes,
            "consumer_count": self.consumer_count,
            "size_bytes": self.size_bytes,
        }


def _take(counts: Counter[K], names: Iterable[K]) -> None:
    for name in names:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
