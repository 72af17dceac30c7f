"""The assignors of KIP-848: who gets what, and how little moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer import range_assignor, uniform_assignor
from tidelog.coordinator.groups.consumer.assignment import AssignableMember, Assignment, Members, finished

T, U, V = (TopicId(UUID(int=number)) for number in (1, 2, 3))
Assignor = Callable[[Members, Mapping[TopicId, int]], dict[str, Assignment]]


def uniform(members: Members, partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    return finished(uniform_assignor.uniform(members, partition_counts))


def range_(members: Members, partition_counts: Mapping[TopicId, int]) -> dict[str, Assignment]:
    return finished(range_assignor.range_(members, partition_counts))


BOTH = pytest.mark.parametrize("assignor", [uniform, range_])


def fresh(**topics: frozenset[TopicId]) -> dict[str, AssignableMember]:
    return {name: AssignableMember(wanted) for name, wanted in topics.items()}


def again(
    members: Mapping[str, AssignableMember], assigned: Mapping[str, Assignment], *, without: str = ""
) -> dict[str, AssignableMember]:
    """The members, with what they were assigned as their target."""
    return {
        name: AssignableMember(one.topics, assigned.get(name, {}), one.instance_id)
        for name, one in members.items()
        if name != without
    }


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def kept(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    return sum(
        len(partitions & after.get(name, {}).get(topic, frozenset()))
        for name, one in before.items()
        for topic, partitions in one.items()
    )


# Examples.


@BOTH
def test_without_members_there_is_nothing_to_assign(assignor: Assignor) -> None:
    assert assignor({}, {T: 3}) == {}


@BOTH
def test_a_member_without_topics_gets_nothing(assignor: Assignor) -> None:
    assert assignor(fresh(a=frozenset({T}), b=frozenset()), {T: 2}) == {"a": {T: {0, 1}}, "b": {}}


@BOTH
def test_a_topic_that_is_gone_is_not_assigned(assignor: Assignor) -> None:
    members = {"a": AssignableMember(frozenset({T, U}), {U: frozenset({0})})}
    assert assignor(members, {T: 1}) == {"a": {T: {0}}}


def test_range_cuts_topics_alike() -> None:
    wanted = frozenset({T, U})
    assigned = range_(fresh(a=wanted, b=wanted), {T: 3, U: 3})
    assert assigned == {"a": {T: {0, 1}, U: {0, 1}}, "b": {T: {2}, U: {2}}}


def test_range_places_static_members_first_by_their_names() -> None:
    members = {
        "a": AssignableMember(frozenset({T})),
        "z": AssignableMember(frozenset({T}), instance_id="i"),
        "y": AssignableMember(frozenset({T}), instance_id="j"),
    }
    assert range_(members, {T: 3}) == {"z": {T: {0}}, "y": {T: {1}}, "a": {T: {2}}}


def test_range_keeps_what_it_can() -> None:
    members = fresh(a=frozenset({T}), b=frozenset({T}))
    assigned = range_(members, {T: 6})
    members["c"] = AssignableMember(frozenset({T}))
    after = range_(again(members, assigned), {T: 6})
    assert after == {"a": {T: {0, 1}}, "b": {T: {3, 4}}, "c": {T: {2, 5}}}


def test_range_cuts_a_new_topic_like_the_old_one() -> None:
    wanted = frozenset({T, U})
    members = fresh(a=wanted, b=wanted)
    target = {"a": {U: frozenset({1})}, "b": {U: frozenset({0})}}
    after = range_(again(members, target), {T: 2, U: 2})
    assert after == {"a": {T: {1}, U: {1}}, "b": {T: {0}, U: {0}}}


def test_uniform_spreads_over_topics_not_within_them() -> None:
    wanted = frozenset({T, U})
    assigned = uniform(fresh(a=wanted, b=wanted), {T: 1, U: 1})
    assert assigned == {"a": {T: {0}}, "b": {U: {0}}}


def test_uniform_moves_one_share_to_a_new_member() -> None:
    members = fresh(a=frozenset({T}), b=frozenset({T}))
    assigned = uniform(members, {T: 9})
    members["c"] = AssignableMember(frozenset({T}))
    after = uniform(again(members, assigned), {T: 9})
    assert [size(after[name]) for name in "abc"] == [3, 3, 3]
    assert kept(assigned, after) == 6


def test_uniform_moves_nothing_but_what_a_lost_member_had() -> None:
    members = fresh(a=frozenset({T}), b=frozenset({T}), c=frozenset({T}))
    assigned = uniform(members, {T: 9})
    after = uniform(again(members, assigned, without="b"), {T: 9})
    assert kept(assigned, after) == 6
    assert sorted(size(one) for one in after.values()) == [4, 5]


def test_uniform_relieves_who_can_read_what_nobody_else_does() -> None:
    members = fresh(a=frozenset({T, U}), b=frozenset({T}))
    assert uniform(members, {T: 2, U: 2}) == {"a": {U: {0, 1}}, "b": {T: {0, 1}}}


def test_uniform_gives_what_nobody_has_to_who_has_least_in_turn() -> None:
    """Where subscriptions differ, too."""
    members = {
        "a": AssignableMember(frozenset({T}), {T: frozenset({0, 1})}),
        "b": AssignableMember(frozenset({T, U}), {T: frozenset({2})}),
    }
    assert uniform(members, {T: 7}) == {"a": {T: {0, 1, 4, 6}}, "b": {T: {2, 3, 5}}}


def test_of_two_that_claim_a_partition_one_keeps_it() -> None:
    members = {name: AssignableMember(frozenset({T}), {T: frozenset({0})}) for name in "ab"}
    for assignor in (uniform, range_):
        assert sorted(map(size, assignor(members, {T: 2}).values())) == [1, 1]


# Any group.

topics_of = st.frozensets(st.sampled_from([T, U, V]))
groups = st.dictionaries(st.sampled_from("abcdefg"), topics_of, max_size=7)
counts = st.dictionaries(st.sampled_from([T, U, V]), st.integers(1, 7))
claims = st.dictionaries(st.sampled_from([T, U, V]), st.frozensets(st.integers(0, 8), min_size=1))


def check_complete(
    members: Mapping[str, AssignableMember], partition_counts: Mapping[TopicId, int], after: Mapping[str, Assignment]
) -> None:
    """Each partition of a topic that somebody wants has one owner, who wants it."""
    assert set(after) == set(members)
    owned = Counter((topic, one) for part in after.values() for topic, partitions in part.items() for one in partitions)
    wanted = frozenset().union(*(one.topics for one in members.values()))
    assert owned == Counter((topic, one) for topic in wanted for one in range(partition_counts.get(topic, 0)))
    assert all(set(part) <= members[name].topics for name, part in after.items())
    assert all(all(part.values()) for part in after.values())


@BOTH
@given(data=st.data())
def test_every_partition_has_one_subscriber(assignor: Assignor, data: st.DataObject) -> None:
    partition_counts = data.draw(counts)
    members = {name: AssignableMember(wanted, data.draw(claims)) for name, wanted in data.draw(groups).items()}
    after = assignor(members, partition_counts)
    check_complete(members, partition_counts, after)
    assert assignor(dict(reversed(members.items())), partition_counts) == after, "it depends on the order"
    assert assignor(again(members, after), partition_counts) == after, "it moves what it assigned itself"


@given(data=st.data())
def test_range_differs_by_one_within_a_topic(data: st.DataObject) -> None:
    partition_counts = data.draw(counts)
    members = {name: AssignableMember(wanted, data.draw(claims)) for name, wanted in data.draw(groups).items()}
    after = range_(members, partition_counts)
    for topic in partition_counts:
        sizes = [len(after[name].get(topic, ())) for name, one in members.items() if topic in one.topics]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(names=st.frozensets(st.sampled_from("abcdefg"), min_size=1), data=st.data())
def test_uniform_differs_by_one_where_all_want_the_same(names: frozenset[str], data: st.DataObject) -> None:
    partition_counts = data.draw(counts)
    wanted = data.draw(topics_of)
    members = {name: AssignableMember(wanted, data.draw(claims)) for name in names}
    sizes = [size(one) for one in uniform(members, partition_counts).values()]
    assert max(sizes) - min(sizes) <= 1


@given(data=st.data())
def test_no_move_of_one_partition_makes_uniform_more_even(data: st.DataObject) -> None:
    partition_counts = data.draw(counts)
    members = {name: AssignableMember(wanted, data.draw(claims)) for name, wanted in data.draw(groups).items()}
    after = uniform(members, partition_counts)
    for part in after.values():
        for topic in part:
            others = [size(after[other]) for other, one in members.items() if topic in one.topics]
            assert size(part) - min(others) <= 1


@BOTH
@given(data=st.data())
def test_who_leaves_disturbs_no_more_than_it_must(assignor: Assignor, data: st.DataObject) -> None:
    """With one subscription for all, a member loses nothing when another one leaves."""
    names = data.draw(st.frozensets(st.sampled_from("abcdefg"), min_size=2))
    partition_counts = {T: data.draw(st.integers(1, 20))}
    members = {name: AssignableMember(frozenset({T})) for name in names}
    before = assignor(members, partition_counts)
    gone = min(names)
    after = assignor(again(members, before, without=gone), partition_counts)
    assert kept(before, after) == partition_counts[T] - size(before[gone])


# Very many groups, always the same ones.


def some(rng: Random, most: int) -> frozenset[TopicId]:
    return frozenset(topic for topic in (T, U, V) if rng.randrange(3) < most)


def drawn_group(rng: Random, *, is_alike: bool) -> tuple[dict[str, AssignableMember], dict[TopicId, int]]:
    """Members with what they had, which may be others' too, or not there any more."""
    alike = some(rng, 2)
    partition_counts = {topic: rng.choice((0, 1, 1, 2, 3, 6)) for topic in some(rng, 2)}
    members = {
        name: AssignableMember(
            alike if is_alike else some(rng, 2),
            {topic: frozenset(rng.sample(range(8), rng.randrange(1, rng.choice((2, 7))))) for topic in some(rng, 1)},
        )
        for name in "abcde"[: rng.randrange(1, 6)]
    }
    return members, partition_counts


def check_kept(members: Members, partition_counts: Mapping[TopicId, int], after: Mapping[str, Assignment]) -> None:
    """Where all want the same, as much stays as can. Of those who claim a partition, the first has had it."""
    had: dict[str, dict[TopicId, frozenset[int]]] = {name: {} for name in members}
    taken: set[tuple[TopicId, int]] = set()
    for name in sorted(members):
        for topic in members[name].target.keys() & members[name].topics:
            mine = {
                (topic, partition)
                for partition in members[name].target[topic]
                if partition < partition_counts.get(topic, 0)
            } - taken
            taken |= mine
            had[name][topic] = frozenset(partition for _, partition in mine)
    loads, sizes = (sorted(map(size, one.values()), reverse=True) for one in (had, after))
    assert kept(had, after) == sum(map(min, zip(loads, sizes, strict=True))), (members, partition_counts)


def test_what_holds_of_any_group_holds_of_very_many() -> None:
    rng = Random(848)
    for number in range(1_200):
        members, partition_counts = drawn_group(rng, is_alike=number % 2 == 0)
        for assignor in (uniform, range_):
            after = assignor(members, partition_counts)
            check_complete(members, partition_counts, after)
            assert assignor(dict(reversed(members.items())), partition_counts) == after
            assert assignor(again(members, after), partition_counts) == after
            sizes = [size(one) for one in after.values()]
            for part in after.values():
                for topic in part:
                    subscribers = [other for other, one in members.items() if topic in one.topics]
                    if assignor is uniform:
                        assert size(part) - min(size(after[other]) for other in subscribers) <= 1
                    else:
                        assert len(part[topic]) - min(len(after[other].get(topic, ())) for other in subscribers) <= 1
            if assignor is uniform and number % 2 == 0:
                assert max(sizes) - min(sizes) <= 1
                check_kept(members, partition_counts, after)


def test_range_keeps_as_much_of_one_topic_as_can_be() -> None:
    rng = Random(849)
    for _ in range(300):
        members, _ = drawn_group(rng, is_alike=True)
        members = {
            name: AssignableMember(frozenset((T,)), {T: one.target.get(T, frozenset())})
            for name, one in members.items()
        }
        check_kept(members, {T: 6}, range_(members, {T: 6}))


@BOTH
def test_partitions_that_are_the_first_of_their_topics_move_as_others_do(assignor: Assignor) -> None:
    topics = [TopicId(UUID(int=number)) for number in range(1, 5)]
    members = {"a": AssignableMember(frozenset(topics), dict.fromkeys(topics, frozenset((0,))))}
    assert assignor(members, dict.fromkeys(topics, 1)) == {"a": members["a"].target}
    members["b"] = AssignableMember(frozenset(topics))
    if assignor is uniform:
        assert sorted(map(size, assignor(members, dict.fromkeys(topics, 1)).values())) == [2, 2]
