"""A share group (KIP-932), as its records make it. Kafka: `ShareGroup`.

```
 group epoch      raised whenever a member, what it wants, a topic that it reads, or what may be assigned changes
 target epoch     the group epoch that the target assignment was made for; behind it while that is put off
 member epoch     the target epoch that a member has come to
```

Other than in a consumer group, several members read a partition, and nobody waits for anybody to give one up. Nothing
but a record changes a group: live and recovery are one path, and a failover loses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from tidelog.base.errors import Code, refusal
from tidelog.coordinator.groups.consumer.assignment import NOTHING, Assignment
from tidelog.coordinator.groups.consumer.known_topics import TopicsHash
from tidelog.coordinator.groups.group import GROUP_BYTES
from tidelog.coordinator.groups.share.member import NEW_MEMBER, ShareCurrent, ShareSubscription
from tidelog.coordinator.groups.share.states import NO_STATES, RecordedStates

FIRST_EPOCH = 1
"""Of a group that was never changed; and of its target assignment. As in Kafka."""
PARTITION_BYTES = 100
"""About what a partition takes in memory that a member reads, or is to read."""


class ShareGroupState(StrEnum):
    """The states, by the names that ListGroups shows."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """A group. Its `set_*` methods are for records only.

    Attributes:
        recorded_epoch: the group epoch that the log says; None if it says none.
        metadata_hash: of the topics that it reads, as they were seen last.
        target_epoch: the group epoch that the target assignment was made for.
        assigned_at_ms: when the target assignment was made, by the wall clock; None if never.
        states: the partitions that it may read.
        topics_hash: of the topics that it reads; None until it is taken. Not recorded.
        seen_version: of the metadata in which its topics were looked at last. Not recorded.
        lacks_states: whether there may be partitions to begin with. Not recorded.
        look_ms: when to look whether its states are kept. Not recorded.
        epoch_step: by how much the group epoch is raised for states that were asked for before. Not recorded.
        lacks_assignment: whether there may be partitions that nobody is to read. Not recorded.
        target_count: the partitions that members are to read, each counted for each of them.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.recorded_epoch: int | None = None
        self.metadata_hash = 0
        self.target_epoch = FIRST_EPOCH
        self.assigned_at_ms: int | None = None
        self.subscriptions: dict[str, ShareSubscription] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, ShareCurrent] = {}
        self.states: RecordedStates | None = None
        self.topics_hash: TopicsHash | None = None
        self.seen_version = -1
        self.lacks_states = True
        self.look_ms: int | None = None
        self.lacks_assignment = True
        self.epoch_step = 1
        self.size_bytes = GROUP_BYTES + 2 * len(group_id)
        self.target_count = 0
        self._has_target_epoch = False
        self._topics: Counter[str] = Counter()  # how many members name each

    # What it is.

    @property
    def epoch(self) -> int:
        """The group epoch."""
        return FIRST_EPOCH if self.recorded_epoch is None else self.recorded_epoch

    @property
    def is_gone(self) -> bool:
        """Whether no record of it is left."""
        has_items = self.subscriptions or self.targets or self.currents or self.states is not None
        return self.recorded_epoch is None and not self._has_target_epoch and not has_items

    @property
    def state(self) -> ShareGroupState:
        """Follows from its members."""
        return ShareGroupState.STABLE if self.subscriptions else ShareGroupState.EMPTY

    @property
    def known_states(self) -> RecordedStates:
        """The partitions that it may read; there may be none."""
        return self.states or NO_STATES

    @property
    def topics(self) -> Mapping[str, int]:
        """All that members are subscribed to, and how many members name it."""
        return self._topics

    def member(self, member_id: str) -> ShareSubscription:
        """A member.

        Raises:
            KafkaError: UNKNOWN_MEMBER_ID.
        """
        subscription = self.subscriptions.get(member_id)
        if subscription is None:
            raise refusal(Code.UNKNOWN_MEMBER_ID, f"group {self.group_id!r} has no member {member_id!r}: join again")
        return subscription

    def current(self, member_id: str) -> ShareCurrent:
        """What a member reads."""
        return self.currents.get(member_id, NEW_MEMBER)

    def target(self, member_id: str) -> Assignment:
        """What a member is to read."""
        return self.targets.get(member_id, NOTHING)

    # What its records say.

    def set_epoch(self, epoch: int | None, metadata_hash: int) -> None:
        """The group; None for a tombstone."""
        self.recorded_epoch = epoch
        self.metadata_hash = metadata_hash

    def set_target_epoch(self, target_epoch: int | None, assigned_at_ms: int | None) -> None:
        """For which epoch the target assignment was made; None for a tombstone."""
        self._has_target_epoch = target_epoch is not None
        self.target_epoch = FIRST_EPOCH if target_epoch is None else target_epoch
        self.assigned_at_ms = assigned_at_ms

    def set_subscription(self, member_id: str, subscription: ShareSubscription | None) -> None:
        """A member; None for a tombstone."""
        old = self.subscriptions.pop(member_id, None) if subscription is None else self.subscriptions.get(member_id)
        if old is not None:
            self.size_bytes -= old.size_bytes + 2 * len(member_id)
        if subscription is not None:
            self.subscriptions[member_id] = subscription
            self.size_bytes += subscription.size_bytes + 2 * len(member_id)
        before, after = (() if one is None else one.topic_names for one in (old, subscription))
        if before != after:
            self._topics.update(after)
            for name in before:
                self._topics[name] -= 1
                if not self._topics[name]:
                    del self._topics[name]
            self.topics_hash = None
            self.lacks_states = True

    def set_target(self, member_id: str, target: Assignment | None) -> None:
        """What a member is to read; None for a tombstone."""
        old = self.targets.pop(member_id, NOTHING)
        more = -sum(map(len, old.values()))
        if target is not None:
            self.targets[member_id] = target
            more += sum(map(len, target.values()))
        self.target_count += more
        self.size_bytes += PARTITION_BYTES * more

    def set_current(self, member_id: str, current: ShareCurrent | None) -> None:
        """What a member reads; None for a tombstone."""
        old = self.currents.pop(member_id, NEW_MEMBER)
        self.size_bytes -= PARTITION_BYTES * old.partition_count
        if current is not None:
            self.currents[member_id] = current
            self.size_bytes += PARTITION_BYTES * current.partition_count

    def set_states(self, states: RecordedStates | None) -> None:
        """The partitions that it may read; None for a tombstone."""
        self.size_bytes += (states or NO_STATES).size_bytes - self.known_states.size_bytes
        self.states = states
        self.lacks_states = self.lacks_assignment = True

    def clone(self) -> ShareGroup:
        """A copy down to the values, which nobody changes."""
        copy = ShareGroup(self.group_id)
        copy.set_epoch(self.recorded_epoch, self.metadata_hash)
        if self._has_target_epoch:
            copy.set_target_epoch(self.target_epoch, self.assigned_at_ms)
        for member_id, subscription in self.subscriptions.items():
            copy.set_subscription(member_id, subscription)
        for member_id, target in self.targets.items():
            copy.set_target(member_id, target)
        for member_id, current in self.currents.items():
            copy.set_current(member_id, current)
        if self.states is not None:
            copy.set_states(self.states)
        return copy

    def canonical(self) -> Mapping[str, object]:
        """All that is recorded: two groups with the same are the same."""
        return {
            "epochs": (self.recorded_epoch, self.metadata_hash, self.target_epoch, self.assigned_at_ms),
            "subscriptions": self.subscriptions,
            "targets": self.targets,
            "currents": self.currents,
            "states": self.states,
            "topics": self._topics,
            "size_bytes": self.size_bytes,
        }
