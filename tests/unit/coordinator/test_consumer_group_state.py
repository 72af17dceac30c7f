"""What a consumer group knows follows from its records: whatever comes and goes, it is as if counted anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.examples import examples
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import Pace, finished
from tidelog.coordinator.groups.consumer.group import (
    PARTITION_BYTES,
    ConsumerGroup,
    ConsumerGroupState,
    MatchedTopics,
)
from tidelog.coordinator.groups.consumer.known_topics import TopicsHash
from tidelog.coordinator.groups.consumer.member import (
    NAME_BYTES,
    NEW_MEMBER,
    ConsumerSubscription,
    CurrentAssignment,
    current_of,
    subscription_of,
    target_of,
    target_value,
)
from tidelog.coordinator.groups.consumer.recorded import group_tombstones, member_tombstones
from tidelog.coordinator.groups.consumer_group_records import ClassicMemberMetadata, ConsumerMemberState
from tidelog.coordinator.groups.group import GROUP_BYTES
from tidelog.coordinator.groups.member import MEMBER_BYTES

T, U = (TopicId(UUID(int=number)) for number in (1, 2))
IDS = st.sampled_from(["a", "bb", "ccc"])
NAMES = st.frozensets(st.sampled_from(["t", "u", "v", "w"]))
CLASSIC = ClassicMemberMetadata(session_timeout_ms=7, supported_protocols=[])
SUBSCRIPTIONS = st.builds(
    lambda names, pattern, assignor, classic: ConsumerSubscription(
        "client", "host", None, None, tuple(sorted(names)), pattern, 5, assignor, classic
    ),
    NAMES,
    st.sampled_from([None, None, "p", "q"]),
    st.sampled_from([None, "uniform", "range"]),
    st.sampled_from([None, None, CLASSIC]),
)
PARTITIONS = st.dictionaries(st.sampled_from([T, U]), st.frozensets(st.integers(0, 3), min_size=1))
EPOCHS = st.integers(1, 3)


class GroupModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ConsumerGroup("group")
        self.has_epoch = False

    @rule(epoch=st.none() | EPOCHS)
    def epoch(self, epoch: int | None) -> None:
        self.group.set_epoch(epoch, 7)

    @rule(epoch=st.just(0) | EPOCHS)
    def target_epoch(self, epoch: int) -> None:
        self.group.set_target_epoch(epoch, 9 if epoch else None)

    @rule(member_id=IDS, subscription=st.none() | SUBSCRIPTIONS)
    def subscription(self, member_id: str, subscription: ConsumerSubscription | None) -> None:
        before = set(self.group.topics)
        self.group.topics_hash = TopicsHash(1, 2)
        self.group.set_subscription(member_id, subscription)
        assert set(self.group.topics) == before or self.group.topics_hash is None
        assert self.group.subscriptions.get(member_id) == subscription

    @rule(member_id=IDS, assigned=st.none() | PARTITIONS)
    def target(self, member_id: str, assigned: dict[TopicId, frozenset[int]] | None) -> None:
        self.group.set_target(member_id, assigned)
        assert self.group.target(member_id) == (assigned or {})

    @rule(member_id=IDS, data=st.data(), is_none=st.integers(0, 3), state=st.sampled_from(ConsumerMemberState))
    def current(self, member_id: str, data: st.DataObject, is_none: int, state: ConsumerMemberState) -> None:
        """No two members ever have a partition: it was free, or its own."""
        free = [
            (topic, partition)
            for topic in (T, U)
            for partition in range(4)
            if self.group.owner(topic, partition) in (None, member_id)
        ]
        some = data.draw(st.lists(st.sampled_from(free), unique=True)) if free else []
        kept, revoking = some[::2], some[1::2]
        current = CurrentAssignment(data.draw(EPOCHS), 0, state, held(kept), held(revoking)) if is_none else None
        self.group.set_current(member_id, current)
        assert self.group.current(member_id) == (current or NEW_MEMBER)

    @rule(pattern=st.sampled_from(["p", "q"]), topics=st.none() | NAMES)
    def matched(self, pattern: str, topics: frozenset[str] | None) -> None:
        before = set(self.group.topics)
        self.group.topics_hash = TopicsHash(1, 2)
        self.group.set_matched(pattern, None if topics is None else MatchedTopics(topics, 3, 4))
        assert set(self.group.topics) == before or self.group.topics_hash is None
        assert self.group.matched_topics(pattern) == (topics or frozenset())

    @invariant()
    def all_is_as_if_counted_anew(self) -> None:
        group = self.group
        members = group.subscriptions.values()
        patterns = Counter(one.pattern for one in members if one.pattern is not None)
        assert group.patterns == patterns
        assert group.has_patterns == bool(patterns)
        names = Counter(name for one in members for name in one.topic_names)
        for pattern in patterns:
            names.update(group.matched_topics(pattern))
        assert group.topics == names
        assert group.wanted() == Counter(one.wanted for one in members)
        assert group.votes == Counter(one.assignor for one in members)
        assert group.consumer_count == sum(one.classic is None for one in members)
        partition_count = sum(len(some) for one in group.targets.values() for some in one.values())
        partition_count += sum(one.partition_count for one in group.currents.values())
        assert group.size_bytes == (
            GROUP_BYTES
            + 2 * len("group")
            + sum(one.size_bytes + 2 * len(member_id) for member_id, one in group.subscriptions.items())
            + PARTITION_BYTES * partition_count
            + sum(len(pattern) + NAME_BYTES * len(one.topics) for pattern, one in group.matched.items())
        )
        assert group.is_gone == (
            group.recorded_epoch is None
            and group.target_epoch == 0
            and not (group.subscriptions or group.targets or group.currents or group.matched)
        )
        for topic in (T, U):
            for partition in range(4):
                owners = [
                    member_id
                    for member_id, one in group.currents.items()
                    if one.assignment_epoch(topic, partition) is not None
                ]
                assert group.owner(topic, partition) == (owners[0] if owners else None)

    @invariant()
    def the_state_follows_from_members_and_epochs(self) -> None:
        group = self.group
        if not group.subscriptions:
            expected = ConsumerGroupState.EMPTY
        elif group.epoch > group.target_epoch:
            expected = ConsumerGroupState.ASSIGNING
        elif all(
            (one.state, one.member_epoch) == (ConsumerMemberState.STABLE, group.target_epoch)
            for one in map(group.current, group.subscriptions)
        ):
            expected = ConsumerGroupState.STABLE
        else:
            expected = ConsumerGroupState.RECONCILING
        assert group.state is expected

    @invariant()
    def who_owns_what_is_as_members_have_it(self) -> None:
        """Nothing is left of who has it no more: topics come and go."""
        owners: dict[TopicId, dict[int, str]] = {}
        for member_id, current in self.group.currents.items():
            for holding in (current.assigned, current.revoking):
                for topic, partitions in holding.items():
                    owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))
        assert self.group._owners == owners

    @invariant()
    def a_copy_is_the_same(self) -> None:
        copy = self.group.clone()
        assert copy.canonical() == self.group.canonical()
        assert (copy.topics_hash, copy.seen_version) == (self.group.topics_hash, self.group.seen_version)


def held(places: list[tuple[TopicId, int]]) -> dict[TopicId, dict[int, int]]:
    found: dict[TopicId, dict[int, int]] = {}
    for topic, partition in places:
        found.setdefault(topic, {})[partition] = 5
    return found


GroupModel.TestCase.settings = settings(max_examples=examples(50), stateful_step_count=40, deadline=None)
TestConsumerGroupState = GroupModel.TestCase


def test_an_instance_id_is_of_the_member_that_had_it_last() -> None:
    group = ConsumerGroup("g")

    def static(instance_id: str | None) -> ConsumerSubscription:
        return ConsumerSubscription("client", "host", instance_id)

    group.set_subscription("a", static("i"))
    group.set_subscription("b", static("j"))
    assert group.static_members == {"i": "a", "j": "b"}
    group.set_subscription("c", static("i"))
    group.set_subscription("a", None)
    assert group.static_members == {"i": "c", "j": "b"}
    group.set_subscription("c", static("k"))
    assert group.static_members == {"k": "c", "j": "b"}
    group.set_subscription("b", static(None))
    group.set_subscription("c", None)
    assert group.static_members == {}


def test_a_new_group_has_seen_nothing() -> None:
    group = ConsumerGroup("g")
    assert (group.recorded_epoch, group.metadata_hash, group.consumer_count) == (None, 0, 0)
    assert (group.epoch, group.target_epoch) == (0, 0)
    assert (group.seen_version, group.is_to_be_looked_at, group.topics_hash, group.indexed) == (-1, False, None, None)
    assert (group.assigned_at_ms, group.size_bytes) == (None, GROUP_BYTES + 2)
    assert group.is_gone
    assert group.state is ConsumerGroupState.EMPTY
    assert CurrentAssignment() == NEW_MEMBER == CurrentAssignment(0, 0, ConsumerMemberState.STABLE, {}, {})
    assert ConsumerSubscription("c", "h") == ConsumerSubscription("c", "h", None, None, (), None, -1, None, None)


def test_nobody_owns_what_it_is_only_about_to_have() -> None:
    group = ConsumerGroup("g")
    before, after = CurrentAssignment(1, 1, assigned={U: {0: 1}}), CurrentAssignment(2, 1, assigned={T: {0: 2}})
    finished(group.index("a", NEW_MEMBER, after, Pace()))
    assert group.owner(T, 0) is None, "it has nothing yet"
    group.set_current("a", before)
    finished(group.index("a", before, after, Pace()))
    assert (group.owner(T, 0), group.owner(U, 0)) == (None, "a")
    group.indexed = after
    group.set_current("a", after)
    assert (group.owner(T, 0), group.owner(U, 0)) == ("a", None)


def test_groups_of_which_something_else_is_recorded_are_not_the_same() -> None:
    group = ConsumerGroup("g")
    group.set_epoch(2, 3)
    group.set_target_epoch(2, 4)
    changes: tuple[Callable[[ConsumerGroup], None], ...] = (
        lambda one: one.set_epoch(3, 3),
        lambda one: one.set_epoch(2, 4),
        lambda one: one.set_target_epoch(1, 4),
        lambda one: one.set_target_epoch(2, 5),
        lambda one: one.set_subscription("a", ConsumerSubscription("c", "h", topic_names=("t",))),
        lambda one: one.set_target("a", {T: frozenset((0,))}),
        lambda one: one.set_current("a", CurrentAssignment(1, 1, assigned={T: {0: 1}})),
        lambda one: one.set_matched("p", MatchedTopics(frozenset(("t",)), 1, 2)),
        # As long as those before:
        lambda one: one.set_subscription("a", ConsumerSubscription("d", "h", topic_names=("t",))),
        lambda one: one.set_target("a", {T: frozenset((1,))}),
        lambda one: one.set_current("a", CurrentAssignment(1, 1, assigned={T: {1: 1}})),
        lambda one: one.set_matched("p", MatchedTopics(frozenset(("u",)), 1, 2)),
    )
    told = [group.canonical()]
    for change in changes:
        copy = group.clone()
        assert copy.canonical() == told[0]
        change(copy)
        told.append(copy.canonical())
        assert (told[-1]["size_bytes"], told[-1]["topics"]) == (copy.size_bytes, copy.topics)
        assert (told[-1]["votes"], told[-1]["consumer_count"]) == (copy.votes, copy.consumer_count)
    assert all(told.count(one) == 1 for one in told)


def test_a_partition_is_of_the_member_that_had_it_last() -> None:
    group = ConsumerGroup("g")
    old, new = CurrentAssignment(1, 1, assigned={T: {0: 1}}), CurrentAssignment(2, 1)
    group.set_current("a", old)
    group.set_current("b", CurrentAssignment(2, 2, assigned={T: {0: 2}}))
    group.set_current("a", new)
    assert group.owner(T, 0) == "b", "it is not forgotten with who had it before"
    group.indexed = old
    group.set_current("b", new)
    assert group.owner(T, 0) is None, "that another change was prepared does not count"
    group.indexed = old
    group.set_current("c", CurrentAssignment(3, 3, assigned={T: {0: 3}}))
    assert group.owner(T, 0) == "c"


def test_a_member_that_wants_something_else_keeps_its_place() -> None:
    group = ConsumerGroup("g")
    for member_id in ("b", "a", "b"):
        group.set_subscription(member_id, ConsumerSubscription("c", "h"))
    assert list(group.subscriptions) == ["b", "a"]


@pytest.mark.parametrize(
    ("epoch", "currents", "state"),
    [
        (2, {"a": CurrentAssignment(2, 2), "b": CurrentAssignment(2, 1)}, ConsumerGroupState.STABLE),
        (3, {"a": CurrentAssignment(2, 2), "b": CurrentAssignment(2, 1)}, ConsumerGroupState.ASSIGNING),
        (2, {"a": CurrentAssignment(2, 2), "b": CurrentAssignment(1, 1)}, ConsumerGroupState.RECONCILING),
        (2, {"a": CurrentAssignment(2, 2)}, ConsumerGroupState.RECONCILING),
        *(
            (2, {"a": CurrentAssignment(2, 2), "b": CurrentAssignment(2, 1, state)}, ConsumerGroupState.RECONCILING)
            for state in (ConsumerMemberState.UNREVOKED_PARTITIONS, ConsumerMemberState.UNRELEASED_PARTITIONS)
        ),
    ],
)
def test_a_group_is_in_the_state_that_its_members_are_in(
    epoch: int, currents: dict[str, CurrentAssignment], state: ConsumerGroupState
) -> None:
    group = ConsumerGroup("g")
    group.set_epoch(epoch, 0)
    group.set_target_epoch(2, None)
    assert group.state is ConsumerGroupState.EMPTY
    for member_id in "ab":
        group.set_subscription(member_id, ConsumerSubscription("c", "h"))
    for member_id, current in currents.items():
        group.set_current(member_id, current)
    assert group.state is state


def test_all_that_is_left_of_members_goes_with_their_group() -> None:
    group = ConsumerGroup("g")
    group.set_subscription("a", ConsumerSubscription("c", "h"))
    group.set_target("b", {T: frozenset((0,))})
    group.set_current("c", CurrentAssignment(1, 1))
    gone = {key for key, _ in group_tombstones(group)}
    assert {key for member_id in "abc" for key, _ in member_tombstones("g", member_id)} <= gone


def test_who_is_no_member_is_unknown() -> None:
    group = ConsumerGroup("g")
    with pytest.raises(KafkaError) as refused:
        group.member("a")
    assert refused.value.code is Code.UNKNOWN_MEMBER_ID
    assert (group.current("a"), group.target("a")) == (NEW_MEMBER, {})


def test_a_member_takes_the_bytes_of_all_that_it_says() -> None:
    assert ConsumerSubscription("", "").size_bytes == MEMBER_BYTES
    assert ConsumerSubscription("c", "hh").size_bytes == MEMBER_BYTES + 3
    full = ConsumerSubscription("c", "hh", "iii", "rrrr", ("t", "uu"), "ppppp")
    assert full.size_bytes == MEMBER_BYTES + 15 + 3 + 2 * NAME_BYTES
    assert full.with_names(("x",)).topic_names == ("x",)


def test_what_a_member_is_subscribed_to_is_what_it_names_and_what_its_pattern_matches() -> None:
    group = ConsumerGroup("g")
    group.set_matched("p", MatchedTopics(frozenset("uv"), 1, 2))
    for pattern, topics in ((None, "t"), ("p", "tuv"), ("q", "t")):
        assert group.topics_of(ConsumerSubscription("c", "h", topic_names=("t",), pattern=pattern)) == set(topics)


def test_records_say_all_of_a_member() -> None:
    subscription = ConsumerSubscription("c", "h", "i", "r", ("t", "u"), "p", 9, "range", CLASSIC)
    assert subscription_of(subscription.value()) == subscription
    bare = ConsumerSubscription("c", "h")
    assert subscription_of(bare.value()) == bare
    current = CurrentAssignment(
        5, 4, ConsumerMemberState.UNREVOKED_PARTITIONS, {U: {1: 3, 0: 2}, T: {2: 5}}, {T: {0: 1}}
    )
    assert current_of(current.value()) == current
    target = {U: frozenset((2, 0)), T: frozenset((1,))}
    assert target_of(target_value(target)) == target
    value = target_value(target)
    assert [(one.topic_id, one.partitions) for one in value.topic_partitions] == [(T, [1]), (U, [0, 2])]
    parts = current.value().assigned_partitions
    assert [(one.topic_id, one.partitions, one.assignment_epochs) for one in parts] == [
        (T, [2], [5]),
        (U, [0, 1], [2, 3]),
    ]


def test_what_a_member_has_is_what_it_may_read_and_what_it_is_to_give_up() -> None:
    current = CurrentAssignment(
        5, 4, ConsumerMemberState.UNREVOKED_PARTITIONS, {T: {0: 3, 1: 5}}, {T: {2: 1}, U: {0: 0}}
    )
    assert current.partition_count == 4
    epochs = {(T, 0): 3, (T, 1): 5, (T, 2): 1, (T, 3): None, (U, 0): 0, (U, 1): None}
    assert {place: current.assignment_epoch(*place) for place in epochs} == epochs
    assert current.holds({T: frozenset((0, 2)), U: frozenset((0,))})
    assert current.holds({})
    assert not current.holds({T: frozenset((0, 3))})
    assert not current.holds({U: frozenset((1,))})
    assert not current.is_away
    assert CurrentAssignment(-2).is_away
    assert CurrentAssignment(0, 0, ConsumerMemberState.STABLE, {}, {}) == NEW_MEMBER
