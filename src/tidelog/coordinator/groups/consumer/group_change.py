"""What one event changes of a group: decided over the group as it is, written as records, and only then so.

Kafka: `TargetAssignmentBuilder`, and the records that `GroupMetadataManager` collects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer import long_records, recorded
from tidelog.coordinator.groups.consumer.assignment import Assignment, Pace, Pieces
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics, TopicsHash
from tidelog.coordinator.groups.consumer.member import (
    NEW_MEMBER,
    NOTHING_HELD,
    ConsumerSubscription,
    CurrentAssignment,
    Wanted,
)
from tidelog.coordinator.groups.consumer.reconciliation import reconciled
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import AssignmentInput
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.journal import KeyValue
from tidelog.wire.messages.api_68_consumer_group_heartbeat import LEAVE_STATIC_MEMBER_EPOCH


class GroupChange:
    """A change of a group that is not made yet. The group stays as it is; this shows it as it will be.

    Attributes:
        epoch: the group epoch.
        target_epoch: that the target assignment is made for.
        moved: what a member is to have, where all that takes long about writing it is done.
    """

    def __init__(self, group: ConsumerGroup, known: KnownTopics, settings: ConsumerGroupSettings) -> None:
        self.group = group
        self.epoch = group.epoch
        self.metadata_hash = group.metadata_hash
        self.target_epoch = group.target_epoch
        self._known = known
        self._settings = settings
        self._assigned_at_ms: int | None = None
        self._topics_hash: TopicsHash | None = None
        self.moved: CurrentAssignment | None = None
        self._moved_record: KeyValue | None = None
        self._subscriptions: dict[str, ConsumerSubscription | None] = {}
        self._targets: dict[str, Assignment] = {}
        self._currents: dict[str, CurrentAssignment] = {}
        self._member_records: dict[str, KeyValue] = {}  # those that were made beforehand
        self._pattern_records: dict[str, KeyValue] = {}
        self._matched: dict[str, MatchedTopics] = {}

    # The members.

    def members(self) -> dict[str, ConsumerSubscription]:
        """All of them."""
        members = dict(self.group.subscriptions)
        for member_id, one in self._subscriptions.items():
            if one is None:
                members.pop(member_id, None)
            else:
                members[member_id] = one
        return members

    def current(self, member_id: str) -> CurrentAssignment:
        """What a member has."""
        found = self._currents.get(member_id)
        return self.group.current(member_id) if found is None else found

    def subscribe(self, member_id: str, subscription: ConsumerSubscription, record: KeyValue | None = None) -> None:
        """A member joins, or wants something else. Whether the group epoch is raised is for the caller to say.

        Args:
            record: of it, if that is made already.
        """
        old = self.group.subscriptions.get(member_id)
        if old != subscription:
            self._subscriptions[member_id] = subscription
            if record is not None:
                self._member_records[member_id] = record

    def remove(self, member_id: str) -> None:
        """A member is out: all that it had is free."""
        self._subscriptions[member_id] = None
        self._currents.pop(member_id, None)

    def replace_static(self, old_id: str, member_id: str) -> None:
        """A static member that was away came back: it has what it had, and begins at epoch 0.

        The partitions count as assigned to it from now on: a commit of its former self is fenced (KIP-1251).
        """
        current, target = self.group.current(old_id), self.group.target(old_id)
        assigned = {
            topic: dict.fromkeys(partitions, self.target_epoch) for topic, partitions in current.assigned.items()
        }
        if old_id != member_id:
            self._subscriptions[old_id] = None
            self._targets[member_id] = target
        self._currents[member_id] = replace(NEW_MEMBER, assigned=assigned)

    def send_away(self, member_id: str) -> None:
        """A static member leaves, and means to come back: it keeps what it need not give up."""
        self._currents[member_id] = CurrentAssignment(
            member_epoch=LEAVE_STATIC_MEMBER_EPOCH,
            previous_epoch=LEAVE_STATIC_MEMBER_EPOCH,
            assigned=self.group.current(member_id).assigned,
            revoking=NOTHING_HELD,
        )

    # Epochs.

    def match(self, pattern: str, matched: MatchedTopics, record: KeyValue | None = None) -> None:
        """The topics of a pattern were looked up.

        Args:
            record: of them, if that is made already.
        """
        self._matched[pattern] = matched
        if record is not None:
            self._pattern_records[pattern] = record

    def refresh(self) -> bool:
        """Take the hash of the topics that the group reads. Returns whether it differs.

        Topics are looked at that have changed, or that nobody read before, or that nobody will read; all of them the
        first time only. Where these are many, it is done later.
        """
        group, known = self.group, self._known
        if group.is_to_be_looked_at:
            return False
        if group.topics_hash is None or group.topics_hash.version != known.version:
            group.topics_hash = known.hash_now(group.topics_hash, group.topics) or known.hash_of(group.topics)
        self._topics_hash = known.hash_with(group.topics_hash, *self._other_topics())
        before = self.metadata_hash
        self.metadata_hash = self._topics_hash.recorded
        return self.metadata_hash != before

    def _other_topics(self) -> tuple[Collection[str], Collection[str]]:
        """The topics that the group will read, and those that it will not read any more."""
        group = self.group
        added: Counter[str] = Counter()
        removed: Counter[str] = Counter()
        patterns: Counter[str] = Counter()
        for member_id, new in self._subscriptions.items():
            old = group.subscriptions.get(member_id)
            for one, names, sign in ((old, removed, -1), (new, added, 1)):
                if one is not None and (old is None or new is None or old.topic_names != new.topic_names):
                    names.update(one.topic_names)
                if one is not None and one.pattern is not None:
                    patterns[one.pattern] += sign
        for pattern in {*patterns, *self._matched}:
            count = group.patterns[pattern]
            before = group.matched_topics(pattern) if count else frozenset()
            after = self._matched_topics(pattern) if count + patterns[pattern] else frozenset()
            if before is not after:
                added.update(after)
                removed.update(before)
        topics = group.topics
        return added.keys() - topics.keys(), [
            name for name, count in removed.items() if name not in added and topics[name] == count
        ]

    def note_hash(self, group: ConsumerGroup) -> None:
        """It was written, and this is the group now: the next change begins from its hash."""
        if self._topics_hash is not None:
            group.topics_hash = self._topics_hash

    @property
    def is_raised(self) -> bool:
        """Whether the group epoch grows."""
        return self.epoch != self.group.epoch

    @property
    def is_outdated(self) -> bool:
        """Whether the group, or its topics, are others by now than when this was begun, though it changes neither."""
        return (self.epoch, self.metadata_hash) != (self.group.epoch, self.group.metadata_hash)

    def raise_epoch(self) -> None:
        """A new target assignment is wanted."""
        self.epoch += 1

    def assignor(self) -> str:
        """The assignor that makes the next target assignment."""
        votes = self.group.votes.copy()
        for member_id, new in self._subscriptions.items():
            old = self.group.subscriptions.get(member_id)
            for one, more in ((old, -1), (new, 1)):
                if one is not None:
                    votes[one.assignor] += more
        return preferred_assignor(votes, self._settings.assignors)

    # Assignments.

    def is_assignment_due(self, wall_ms: int) -> bool:
        """Whether a new target assignment is wanted and need not be put off (KIP-1263)."""
        if self.epoch <= self.target_epoch:
            return False
        before_ms = self.group.assigned_at_ms
        return before_ms is None or not before_ms <= wall_ms < before_ms + self._settings.assignment_interval_ms

    def assignment_input(self) -> AssignmentInput:
        """What the next target assignment is made from."""
        return AssignmentInput(
            subscriptions=self.members(),
            targets={**self.group.targets, **self._targets},
            wanted=self._wanted(),
            matched={**self.group.matched, **self._matched},
            assignor=self.assignor(),
        )

    @property
    def names_count(self) -> int:
        """About how many members and names of topics an assignment begins from; it costs nothing to ask."""
        count = len(self.group.subscriptions) + len(self.group.topics)
        for one in self._subscriptions.values():
            if one is not None:
                count += 1 + len(one.topic_names)
        return count

    def assign(self, assigned: Mapping[str, Assignment], wall_ms: int) -> None:
        """This is the target assignment for the group epoch."""
        for member_id, target in assigned.items():
            if target != self._target(member_id):
                self._targets[member_id] = target
        self.target_epoch = self.epoch
        self._assigned_at_ms = wall_ms

    def move_weight(self, member_id: str) -> int:
        """About how much work it is to move a member on: the partitions that it has, and is to have."""
        current = self.current(member_id)
        if current.member_epoch == self.target_epoch == self.epoch and current.state is ConsumerMemberState.STABLE:
            return 0
        return current.partition_count + sum(map(len, self._target(member_id).values()))

    def reconcile(self, member_id: str, owned: Assignment | None, pace: Pace) -> Pieces[CurrentAssignment]:
        """Move a member on. Returns what it has then."""
        before = self.current(member_id)
        subscription = self._subscriptions.get(member_id) or self.group.subscriptions[member_id]
        wanted = None
        if self.epoch > self.target_epoch:
            named = yield from self._known.ids_in_pieces(subscription.topic_names, pace)
            matched = yield from self._known.ids_in_pieces(self._matched_topics(subscription.pattern), pace)
            wanted = named | matched

        def is_free(topic: TopicId, partition: int) -> bool:
            owner = self.group.owner(topic, partition)
            is_out = owner in self._subscriptions and self._subscriptions[owner] is None
            return owner is None or owner == member_id or is_out

        after = yield from reconciled(
            before, self.target_epoch, self._target(member_id), owned=owned, wanted=wanted, is_free=is_free, pace=pace
        )
        if after != before:
            self._currents[member_id] = after
        return after

    def prepare_move(self, member_id: str, pace: Pace) -> Pieces[None]:
        """Do beforehand what takes long about writing what a member has, if that changes."""
        current = self._currents.get(member_id)
        if current is not None:
            self.moved = current
            self._moved_record = yield from long_records.current_record(self.group.group_id, member_id, current, pace)
            yield from self.group.index(member_id, self.group.current(member_id), current, pace)

    # The records.

    def records(self) -> list[KeyValue]:
        """All that changes. Any beginning of them, without the rest, leaves a group that goes on from there."""
        group_id = self.group.group_id
        records: list[KeyValue] = []
        if (self.epoch, self.metadata_hash) != (self.group.epoch, self.group.metadata_hash):
            records.append(recorded.group_record(group_id, self.epoch, self.metadata_hash))
        for member_id, subscription in self._subscriptions.items():
            if subscription is None:
                records += recorded.member_tombstones(group_id, member_id)
        for member_id, subscription in self._subscriptions.items():
            if subscription is not None:
                records.append(
                    self._member_records.get(member_id) or recorded.member_record(group_id, member_id, subscription)
                )
        for pattern, matched in self._matched.items():
            records.append(self._pattern_records.get(pattern) or recorded.pattern_record(group_id, pattern, matched))
        if self._subscriptions and self.group.matched:
            wanted = {one.pattern for one in self.members().values()}
            records += (recorded.pattern_record(group_id, one, None) for one in self.group.matched if one not in wanted)
        records += (recorded.target_record(group_id, *one) for one in self._targets.items())
        if self._assigned_at_ms is not None:
            records.append(recorded.target_epoch_record(group_id, self.target_epoch, self._assigned_at_ms))
        for member_id, current in self._currents.items():
            is_prepared = current is self.moved
            record = self._moved_record if is_prepared else recorded.current_record(group_id, member_id, current)
            assert record is not None
            records.append(record)
        return records

    @property
    def changed_currents(self) -> Mapping[str, CurrentAssignment]:
        """What the members have whose assignments change."""
        return self._currents

    def _wanted(self) -> list[Wanted]:
        """Each subscription that some member has."""
        wanted = self.group.wanted()
        for member_id, subscription in self._subscriptions.items():
            old = self.group.subscriptions.get(member_id)
            if old is not None:
                wanted[old.wanted] -= 1
            if subscription is not None:
                wanted[subscription.wanted] += 1
        return [one for one, count in wanted.items() if count]

    def _target(self, member_id: str) -> Assignment:
        found = self._targets.get(member_id)
        return self.group.target(member_id) if found is None else found

    def _matched_topics(self, pattern: str | None) -> frozenset[str]:
        if pattern is None:
            return frozenset()
        matched = self._matched.get(pattern)
        return self.group.matched_topics(pattern) if matched is None else matched.topics


def preferred_assignor(votes: Counter[str | None], assignors: tuple[str, ...]) -> str:
    """The assignor that most members ask for; among equals, and where none does, the one that stands first."""
    return max(assignors, key=lambda name: votes[name])
