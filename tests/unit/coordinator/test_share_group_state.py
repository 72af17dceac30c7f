"""What a share group knows follows from its records: whatever comes and goes, it is as if counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.examples import examples
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces, finished
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics, TopicsHash
from tidelog.coordinator.groups.consumer.member import NAME_BYTES
from tidelog.coordinator.groups.group import GROUP_BYTES
from tidelog.coordinator.groups.member import MEMBER_BYTES
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.group import PARTITION_BYTES, ShareGroup, ShareGroupState
from tidelog.coordinator.groups.share.group_change import ShareGroupChange
from tidelog.coordinator.groups.share.member import (
    NEW_MEMBER,
    ShareCurrent,
    ShareSubscription,
    current_of,
    in_order,
    subscription_of,
    target_of,
    target_value,
)
from tidelog.coordinator.groups.share.states import (
    NO_STATES,
    PARTITION_RECORD_BYTES,
    STATE_BYTES,
    TOPIC_BYTES,
    TOPIC_RECORD_BYTES,
    RecordedStates,
    StateId,
    TopicStates,
    ids_of,
    partitions_in,
    record_bytes_of,
    states_of,
)
from tidelog.journal import KeyValue
from tidelog.metadata.image import MetadataImage

T, U, V = (TopicId(UUID(int=number)) for number in (1, 2, 3))
TOPIC_NAMES = {T: "t", U: "uu", V: "vvv"}
IDS = st.sampled_from(["a", "bb", "ccc"])
SUBSCRIPTIONS = st.builds(
    lambda names: ShareSubscription("client", "host", None, tuple(sorted(names))),
    st.frozensets(st.sampled_from(["t", "u", "v"])),
)
PARTITIONS = st.dictionaries(st.sampled_from([T, U]), st.frozensets(st.integers(0, 3), min_size=1))
TOPICS = st.dictionaries(st.sampled_from([T, U, V]), st.frozensets(st.integers(0, 3), min_size=1)).map(
    lambda topics: {topic: TopicStates(TOPIC_NAMES[topic], some) for topic, some in topics.items()}
)
STATES = st.builds(RecordedStates, TOPICS, TOPICS, st.dictionaries(st.sampled_from([T, U]), st.just("t")))


class ShareGroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ShareGroup("group")
        self.has_target_epoch = False

    @rule(epoch=st.none() | st.integers(1, 3))
    def set_epoch(self, epoch: int | None) -> None:
        self.group.set_epoch(epoch, 7)
        assert self.group.epoch == (epoch or 1)

    @rule(epoch=st.none() | st.integers(1, 3))
    def set_target_epoch(self, epoch: int | None) -> None:
        self.group.set_target_epoch(epoch, epoch and 9)
        self.has_target_epoch = epoch is not None
        assert (self.group.target_epoch, self.group.assigned_at_ms) == (epoch or 1, epoch and 9)

    @rule(member_id=IDS, subscription=st.none() | SUBSCRIPTIONS)
    def set_subscription(self, member_id: str, subscription: ShareSubscription | None) -> None:
        before = set(self.group.topics)
        self.group.topics_hash, self.group.lacks_states = TopicsHash(1, 2), False
        self.group.set_subscription(member_id, subscription)
        assert self.group.subscriptions.get(member_id) == subscription
        if set(self.group.topics) != before:
            assert self.group.topics_hash is None
            assert self.group.lacks_states

    @rule(member_id=IDS, assigned=st.none() | PARTITIONS)
    def set_target(self, member_id: str, assigned: dict[TopicId, frozenset[int]] | None) -> None:
        self.group.set_target(member_id, assigned)
        assert self.group.target(member_id) == (assigned or {})

    @rule(member_id=IDS, assigned=st.none() | PARTITIONS)
    def set_current(self, member_id: str, assigned: dict[TopicId, frozenset[int]] | None) -> None:
        current = None if assigned is None else ShareCurrent(2, 1, assigned)
        self.group.set_current(member_id, current)
        assert self.group.current(member_id) == (current or NEW_MEMBER)

    @rule(states=st.none() | STATES)
    def set_states(self, states: RecordedStates | None) -> None:
        self.group.lacks_states = self.group.lacks_assignment = False
        self.group.set_states(states)
        assert self.group.lacks_states
        assert self.group.lacks_assignment
        assert self.group.known_states == (states or NO_STATES)

    @invariant()
    def all_is_as_if_counted_anew(self) -> None:
        group = self.group
        assert group.topics == Counter(name for one in group.subscriptions.values() for name in one.topic_names)
        assert group.target_count == sum(len(some) for one in group.targets.values() for some in one.values())
        partition_count = group.target_count + sum(one.partition_count for one in group.currents.values())
        assert group.size_bytes == (
            GROUP_BYTES
            + 2 * len("group")
            + sum(one.size_bytes + 2 * len(member_id) for member_id, one in group.subscriptions.items())
            + PARTITION_BYTES * partition_count
            + group.known_states.size_bytes
        )
        has_items = group.subscriptions or group.targets or group.currents or group.states is not None
        assert group.is_gone == (group.recorded_epoch is None and not self.has_target_epoch and not has_items)
        assert group.state is (ShareGroupState.STABLE if group.subscriptions else ShareGroupState.EMPTY)
        copy = group.clone()
        assert copy.canonical() == group.canonical()
        assert copy.is_gone == group.is_gone


ShareGroupModel.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
TestShareGroupState = ShareGroupModel.TestCase


def test_a_new_group_has_seen_nothing_and_may_lack_everything() -> None:
    group = ShareGroup("g")
    assert (group.epoch, group.target_epoch, group.epoch_step, group.target_count) == (1, 1, 1, 0)
    assert (group.seen_version, group.lacks_states, group.lacks_assignment) == (-1, True, True)
    assert (group.assigned_at_ms, group.look_ms, group.topics_hash, group.metadata_hash) == (None, None, None, 0)
    with pytest.raises(KafkaError) as refused:
        group.member("a")
    assert refused.value.code is Code.UNKNOWN_MEMBER_ID


def test_groups_of_which_something_else_is_recorded_are_not_the_same() -> None:
    group = ShareGroup("g")
    group.set_epoch(2, 3)
    group.set_target_epoch(2, 4)
    changes: tuple[Callable[[ShareGroup], None], ...] = (
        lambda one: one.set_epoch(3, 3),
        lambda one: one.set_epoch(2, 4),
        lambda one: one.set_target_epoch(1, 4),
        lambda one: one.set_target_epoch(2, 5),
        lambda one: one.set_subscription("a", ShareSubscription("c", "h", None, ("t",))),
        lambda one: one.set_target("a", {T: frozenset((0,))}),
        lambda one: one.set_current("a", ShareCurrent(1, 1, {T: frozenset((0,))})),
        # As long as those before:
        lambda one: one.set_subscription("a", ShareSubscription("d", "h", None, ("t",))),
        lambda one: one.set_target("a", {T: frozenset((1,))}),
        lambda one: one.set_current("a", ShareCurrent(1, 1, {T: frozenset((1,))})),
        lambda one: one.set_states(RecordedStates({T: topic("t", 1)})),
        lambda one: one.set_states(RecordedStates({T: topic("t", 0)})),
    )
    told = [group.canonical()]
    for change in changes:
        copy = group.clone()
        assert copy.canonical() == told[0]
        change(copy)
        told.append(copy.canonical())
        assert (told[-1]["size_bytes"], told[-1]["topics"]) == (copy.size_bytes, copy.topics)
    assert all(told.count(one) == 1 for one in told)
    assert [name for name in told[0] if told[0][name] != told[-1][name]] == ["states", "size_bytes"]


def test_a_member_takes_the_bytes_of_all_that_it_says() -> None:
    assert ShareSubscription("", "").size_bytes == MEMBER_BYTES
    full = ShareSubscription("c", "hh", "rrrr", ("t", "uu"))
    assert full.size_bytes == MEMBER_BYTES + 7 + 3 + 2 * NAME_BYTES


def test_records_say_all_of_a_member() -> None:
    subscription = ShareSubscription("c", "h", "r", ("t", "u"))
    assert subscription_of(subscription.value()) == subscription
    current = ShareCurrent(5, 4, {U: frozenset((1, 0)), T: frozenset((2,))})
    assert current_of(current.value()) == current
    assert (current.partition_count, current.value().state) == (3, 0)
    parts = target_value(current.assigned).topic_partitions
    assert [(one.topic_id, one.partitions) for one in parts] == [(T, [2]), (U, [0, 1])]
    assert target_of(target_value(current.assigned)) == current.assigned
    assert in_order([V, T, U]) == [T, U, V]
    assert ShareCurrent(0, 0, {}) == NEW_MEMBER


# Changes.


def test_a_change_shows_the_members_that_there_will_be() -> None:
    group = ShareGroup("g")
    group.set_subscription("a", ShareSubscription("c", "h"))
    known = KnownTopics(MetadataImage(topics_by_name={}, topics_by_id={}, brokers={}), 1)
    new = ShareSubscription("c", "h", None, ("t",))
    for member_id, subscription, expected in (
        ("a", None, {}),
        ("b", None, {"a": ShareSubscription("c", "h")}),
        ("a", new, {"a": new}),
        ("b", new, {"a": ShareSubscription("c", "h"), "b": new}),
    ):
        change = ShareGroupChange(group, known)
        assert change.members() == group.subscriptions
        if subscription is None:
            change.remove(member_id)
        else:
            change.subscribe(member_id, subscription)
        assert change.members() == expected
        assert group.subscriptions.keys() == {"a"}


def test_an_assignment_weighs_its_members_with_what_they_name_and_its_partitions() -> None:
    group = ShareGroup("g")
    group.set_subscription("a", ShareSubscription("c", "h", None, ("t", "u")))
    group.set_subscription("b", ShareSubscription("c", "h", None, ("t",)))
    group.set_states(RecordedStates({T: topic("t", 0)}, {T: topic("t", 1, 2)}))
    change = ShareGroupChange(group, KnownTopics(MetadataImage(topics_by_name={}, topics_by_id={}, brokers={}), 1))
    assert change.weight == 2 + 3 + 3
    change.subscribe("c", ShareSubscription("c", "h", None, ("t", "u", "v", "w")))
    assert change.weight == 2 + 3 + 4 + 3


# States.


def topic(name: str, *partitions: int) -> TopicStates:
    return TopicStates(name, frozenset(partitions))


def told(states: RecordedStates) -> tuple[dict[str, set[int]], dict[str, set[int]], set[str]]:
    initializing, initialized = (
        {one.name: set(one.partitions) for one in part.values()} for part in (states.initializing, states.initialized)
    )
    return initializing, initialized, set(states.deleting.values())


def ids(*some: tuple[TopicId, int]) -> list[StateId]:
    return [(one, PartitionIndex(partition)) for one, partition in some]


def made(pieces: Pieces[RecordedStates]) -> RecordedStates:
    """The states; what they take is counted as for others."""
    states = finished(pieces)
    fresh = RecordedStates(states.initializing, states.initialized, states.deleting)
    assert (states.size_bytes, states.record_bytes) == (fresh.size_bytes, fresh.record_bytes)
    assert states_of(states.value()) == states
    return states


def test_states_are_asked_for_begun_lost_and_ended() -> None:
    states = made(NO_STATES.beginning({T: topic("t", 0, 1), U: topic("uu", 0)}, Pace()))
    assert told(states) == ({"t": {0, 1}, "uu": {0}}, {}, set())
    states = made(states.begun(ids((T, 0), (U, 0), (V, 0)), Pace()))
    assert told(states) == ({"t": {1}}, {"t": {0}, "uu": {0}}, set())
    states = made(states.beginning({T: topic("t", 0, 2)}, Pace()))
    assert told(states) == ({"t": {0, 1, 2}}, {"t": {0}, "uu": {0}}, set())
    assert states.assignable_of(T) == set(), "it is settled first"
    assert [set(states.of_topic(one)) for one in (T, U, V)] == [{0, 1, 2}, {0}, set()]
    states = made(states.not_begun(ids((T, 0), (T, 1), (T, 3)), Pace()))
    assert told(states) == ({"t": {2}}, {"t": {0}, "uu": {0}}, set())
    for change in (states.begun, states.not_begun, states.lost):
        assert made(change(ids((T, 9)), Pace())) == states, "of what is not there, nothing becomes"
    states = made(states.begun(ids((T, 2)), Pace()))
    assert told(states) == ({}, {"t": {0, 2}, "uu": {0}}, set())
    assert [set(states.assignable_of(one)) for one in (T, V)] == [{0, 2}, set()]
    states = made(states.lost(ids((T, 2), (U, 0), (V, 1)), Pace()))
    assert told(states) == ({"t": {2}, "uu": {0}}, {"t": {0}}, set())
    states = made(states.ending({T: "t"}, Pace()))
    assert told(states) == ({"uu": {0}}, {}, {"t"})
    assert [states.has(one) for one in (T, U, V)] == [True, True, False]
    assert states.topic_ids == {T, U}
    states = made(states.beginning({T: topic("t", 5)}, Pace()))
    assert told(states) == ({"uu": {0}, "t": {5}}, {}, set())
    states = made(states.ending({T: "t"}, Pace()))
    states = made(states.without([T, U], Pace()))
    assert states == NO_STATES


def test_a_partition_has_a_state_once_that_is_initialized() -> None:
    states = RecordedStates({T: topic("t", 1)}, {T: topic("t", 0)}, {U: "uu"})
    assert [states.is_initialized(*one) for one in ((T, 0), (T, 1), (U, 0))] == [True, False, False]


def test_states_take_the_bytes_of_their_names_and_partitions() -> None:
    states = RecordedStates({T: topic("t", 0, 1)}, {T: topic("t", 2), U: topic("uu", 0)}, {V: "vvv"})
    assert (states.topic_count, states.partition_count) == (4, 4)
    assert states.size_bytes == 7 + 4 * STATE_BYTES + 4 * TOPIC_BYTES
    assert states.record_bytes == 7 + 4 * PARTITION_RECORD_BYTES + 4 * TOPIC_RECORD_BYTES
    assert NO_STATES.size_bytes == NO_STATES.record_bytes == 0


@pytest.mark.parametrize("count", [1, 5])
def test_as_many_partitions_find_room_in_a_record_as_its_bytes_allow(count: int) -> None:
    room = record_bytes_of("name", count)
    assert room == TOPIC_RECORD_BYTES + 4 + count * PARTITION_RECORD_BYTES
    assert (partitions_in(room, "name"), partitions_in(room - 1, "name")) == (count, count - 1)


def test_ids_are_of_all_partitions_in_their_order() -> None:
    assert list(ids_of({T: topic("t", 2, 0), U: topic("uu", 1)})) == ids((T, 0), (T, 2), (U, 1))


# Records.


def shared_records() -> dict[str, KeyValue]:
    """One of each type."""
    pace = Pace()
    states = RecordedStates({T: topic("t", 0)}, {U: topic("uu", 1)}, {V: "vvv"})
    return {
        "group": recorded.group_record("g", 3, 7),
        "member": finished(recorded.member_record("g", "a", ShareSubscription("c", "h", "r", ("t",)), pace)),
        "target epoch": recorded.target_epoch_record("g", 2, 9),
        "target": finished(recorded.target_record("g", "a", {T: frozenset((0,))}, pace)),
        "current": finished(recorded.current_record("g", "a", ShareCurrent(2, 1, {T: frozenset((0,))}), pace)),
        "states": finished(recorded.states_record("g", states, pace)),
    }


def made_of(records: list[KeyValue]) -> tuple[dict[str, Mapping[str, object]], int]:
    """The groups that a log makes, and the bytes that they take."""
    groups: dict[str, ShareGroup] = {}
    taken = sum(recorded.apply(groups, record) for record in records)
    assert taken == sum(group.size_bytes for group in groups.values())
    return {group_id: group.canonical() for group_id, group in groups.items()}, taken


def test_all_that_is_left_of_members_goes_with_their_group() -> None:
    group = ShareGroup("g")
    group.set_subscription("a", ShareSubscription("c", "h"))
    group.set_target("b", {T: frozenset((0,))})
    group.set_current("c", ShareCurrent(1, 1, {}))
    gone = {key for key, _ in recorded.group_tombstones(group)}
    assert {key for member_id in "abc" for key, _ in recorded.member_tombstones("g", member_id)} <= gone


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize("name", shared_records())
def test_a_record_and_its_tombstone_leave_what_a_log_without_them_does(name: str, is_read: bool) -> None:
    """Compaction takes both away, whenever it likes. Who wrote a record knows what it says, and others read it."""
    records = shared_records()
    if is_read:
        records = {one: (key, bytes(value or b"")) for one, (key, value) in records.items()}
    record = records.pop(name)
    tombstone = record[0], None
    without = made_of(list(records.values()))
    assert made_of([*records.values(), record]) != without
    assert made_of([tombstone, *records.values(), record, tombstone]) == without
    assert made_of([tombstone, record, tombstone]) == ({}, 0)
