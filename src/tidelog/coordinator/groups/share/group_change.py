"""What one event changes of a share group: decided over the group as it is, written as records, and only then so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import AssignableMember, Assignment, Pace, Pieces
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics, TopicsHash
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.member import ShareCurrent, ShareSubscription
from tidelog.coordinator.groups.share.simple_assignor import simple
from tidelog.coordinator.groups.share.states import RecordedStates
from tidelog.journal import KeyValue


class ShareGroupChange:
    """A change of a group that is not made yet: one member comes, changes or goes, or none does.

    Attributes:
        epoch: the group epoch.
        target_epoch: that the target assignment is made for.
        states_record: of those that the share coordinator is to keep; None if they stay as they are.
    """

    def __init__(self, group: ShareGroup, known: KnownTopics) -> None:
        self.group = group
        self.epoch = group.epoch
        self.metadata_hash = group.metadata_hash
        self.target_epoch = group.target_epoch
        self.states_record: KeyValue | None = None
        self._known = known
        self._topics_hash: TopicsHash | None = None
        self._member_id = ""
        self._subscription: ShareSubscription | None = None
        self._targets: dict[str, Assignment] = {}
        self._assigned_at_ms: int | None = None
        self._current: ShareCurrent | None = None

    # The members.

    def subscribe(self, member_id: str, subscription: ShareSubscription) -> None:
        """A member joins, or says what it wants."""
        self._member_id, self._subscription = member_id, subscription

    def remove(self, member_id: str) -> None:
        """A member is out."""
        self._member_id, self._subscription = member_id, None

    def members(self) -> dict[str, ShareSubscription]:
        """All of them."""
        members = dict(self.group.subscriptions)
        if self._subscription is not None:
            members[self._member_id] = self._subscription
        else:
            members.pop(self._member_id, None)
        return members

    def topic_names(self) -> Iterator[str]:
        """All that members will be subscribed to. The group stays as it is until the last one is asked for."""
        added, removed = self._other_topics()
        gone = frozenset(removed)
        return chain((name for name in self.group.topics if name not in gone), added)

    def added_topics(self) -> list[str]:
        """Those that nobody was subscribed to before."""
        return self._other_topics()[0]

    def _other_topics(self) -> tuple[list[str], list[str]]:
        """The topics that the group will read, and those that it will not read any more."""
        old = self.group.subscriptions.get(self._member_id)
        before = () if old is None else old.topic_names
        after = () if self._subscription is None else self._subscription.topic_names
        if before is after or before == after:
            return [], []
        topics = self.group.topics
        kept = frozenset(after)
        return (
            [name for name in after if name not in topics],
            [name for name in before if name not in kept and topics[name] == 1],
        )

    # Epochs.

    def refresh(self, pace: Pace) -> Pieces[bool]:
        """Take the hash of the topics that the group reads. Returns whether it differs."""
        group, known = self.group, self._known
        if group.topics_hash is None or group.topics_hash.version != known.version:
            yield from known.look_at(list(group.topics), pace)
        for names in self._other_topics():
            yield from known.look_at(names, pace)
        if group.topics_hash is None or group.topics_hash.version != known.version:
            group.topics_hash = known.hash_now(group.topics_hash, group.topics) or known.hash_of(group.topics)
        self._topics_hash = known.hash_with(group.topics_hash, *self._other_topics())
        before = self.metadata_hash
        self.metadata_hash = self._topics_hash.recorded
        return self.metadata_hash != before

    def note_hash(self, group: ShareGroup) -> None:
        """It was written, and this is the group now: the next change begins from its hash."""
        if self._topics_hash is not None:
            group.topics_hash = self._topics_hash

    def raise_epoch(self, by: int = 1) -> None:
        """A new target assignment is wanted, or another epoch for states."""
        self.epoch = max(self.epoch, self.group.epoch + by)

    # Assignments.

    @property
    def weight(self) -> int:
        """About how much work it is to assign: the members with their topics, and the partitions."""
        group = self.group
        names = len(self._subscription.topic_names) if self._subscription is not None else 0
        names += sum(len(one.topic_names) for one in group.subscriptions.values())
        return len(group.subscriptions) + names + group.known_states.partition_count

    def assigned(self) -> Pieces[dict[str, Assignment]]:
        """What each member is to read."""
        return assigned(self.members(), self.group.targets, self.group.known_states, self._known)

    def assign(self, assigned: Mapping[str, Assignment], wall_ms: int) -> None:
        """This is the target assignment for the group epoch."""
        targets = self.group.targets
        self._targets = {
            member_id: target for member_id, target in assigned.items() if targets.get(member_id) != target
        }
        self.target_epoch = self.epoch
        self._assigned_at_ms = wall_ms

    def move(self) -> ShareCurrent:
        """Have the member come to its target. Returns what it reads then."""
        member_id, subscription = self._member_id, self._subscription
        assert subscription is not None
        current = self.group.current(member_id)
        target = self._targets.get(member_id, self.group.target(member_id))
        wanted = None  # where the target is older than what members want
        if self.epoch > self.target_epoch:
            wanted = self._known.ids(subscription.topic_names)
        if current.member_epoch != self.target_epoch:
            moved = ShareCurrent(self.target_epoch, current.member_epoch, _part(target, wanted))
        else:
            moved = ShareCurrent(current.member_epoch, current.previous_epoch, _part(current.assigned, wanted))
        return self._moved(moved)

    def stay(self) -> ShareCurrent:
        """As `move`, while a target assignment is being made: then the member keeps of what it has what it wants."""
        assert self._subscription is not None
        current = self.group.current(self._member_id)
        wanted = self._known.ids(self._subscription.topic_names)
        epoch = current.member_epoch or self.target_epoch
        return self._moved(ShareCurrent(epoch, current.previous_epoch, _part(current.assigned, wanted)))

    def _moved(self, moved: ShareCurrent) -> ShareCurrent:
        if moved != self.group.currents.get(self._member_id):
            self._current = moved
        return moved

    # The records.

    def records(self, pace: Pace) -> Pieces[list[KeyValue]]:
        """All that changes. Any beginning of them, without the rest, leaves a group that goes on from there."""
        group, group_id = self.group, self.group.group_id
        records: list[KeyValue] = []
        if (self.epoch, self.metadata_hash) != (group.epoch, group.metadata_hash):
            records.append(recorded.group_record(group_id, self.epoch, self.metadata_hash))
        if self._subscription is not None:
            if group.subscriptions.get(self._member_id) != self._subscription:
                member = yield from recorded.member_record(group_id, self._member_id, self._subscription, pace)
                records.append(member)
        elif self._member_id:
            records += recorded.member_tombstones(group_id, self._member_id)
        for one in self._targets.items():
            records.append((yield from recorded.target_record(group_id, *one, pace)))
        if self._assigned_at_ms is not None:
            records.append(recorded.target_epoch_record(group_id, self.target_epoch, self._assigned_at_ms))
        if self._current is not None:
            records.append((yield from recorded.current_record(group_id, self._member_id, self._current, pace)))
        if self.states_record is not None:
            records.append(self.states_record)
        return records


def assigned(
    members: Mapping[str, ShareSubscription],
    targets: Mapping[str, Assignment],
    states: RecordedStates,
    known: KnownTopics,
) -> Pieces[dict[str, Assignment]]:
    """What each member is to read, of the partitions that have a state and are there."""
    pace = Pace()
    ids: dict[tuple[str, ...], frozenset[TopicId]] = {}
    assignable: dict[str, AssignableMember] = {}
    nothing: Assignment = {}
    for member_id, one in members.items():
        topics = ids.get(one.topic_names)
        if topics is None:
            topics = ids[one.topic_names] = yield from known.ids_in_pieces(one.topic_names, pace)
        assignable[member_id] = AssignableMember(topics, targets.get(member_id, nothing))
        if pace.counts(4):
            yield
    wanted: set[TopicId] = set()
    for topics in ids.values():
        wanted |= topics
        if pace.counts(len(topics)):
            yield
    partitions: dict[TopicId, frozenset[int]] = {}
    for topic in states.initialized:
        if topic in wanted and (some := states.assignable_of(topic)):
            partitions[topic] = some
        if pace.counts(2):
            yield
    return (yield from simple(assignable, partitions))


def _part(assignment: Assignment, wanted: frozenset[TopicId] | None) -> Assignment:
    if wanted is None or wanted.issuperset(assignment):
        return assignment
    return {topic: partitions for topic, partitions in assignment.items() if topic in wanted}
