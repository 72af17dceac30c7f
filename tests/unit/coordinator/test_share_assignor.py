"""The `simple` assignor of share groups: everybody is employed, every partition is read, and little moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer.assignment import AssignableMember, Assignment, Members, finished
from tidelog.coordinator.groups.share import simple_assignor

T, U, V = (TopicId(UUID(int=number)) for number in (1, 2, 3))


def simple(members: Members, partitions: Mapping[TopicId, Collection[int]]) -> dict[str, Assignment]:
    return finished(simple_assignor.simple(members, partitions))


def again(members: Mapping[str, AssignableMember], assigned: Mapping[str, Assignment]) -> dict[str, AssignableMember]:
    return {name: AssignableMember(one.topics, assigned.get(name, {})) for name, one in members.items()}


def wanting(count: int, *topics: TopicId) -> dict[str, AssignableMember]:
    return {f"m{number}": AssignableMember(frozenset(topics)) for number in range(count)}


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def readers(assigned: Mapping[str, Assignment]) -> Counter[tuple[TopicId, int]]:
    return Counter((topic, one) for its in assigned.values() for topic, some in its.items() for one in some)


def test_one_member_reads_all() -> None:
    assert simple(wanting(1, T, U), {T: range(2), U: range(1)}) == {"m0": {T: {0, 1}, U: {0}}}


def test_three_members_share_two_partitions_as_in_kafka() -> None:
    assigned = simple(wanting(3, T), {T: range(2)})
    assert sorted(map(size, assigned.values())) == [1, 1, 2]
    assert set(readers(assigned).values()) == {2}


def test_nothing_is_assigned_that_may_not_be() -> None:
    assert simple(wanting(2, T), {T: (), U: (1,)}) == {"m0": {}, "m1": {}}
    assert simple({}, {T: (1,)}) == {}
    assert simple(wanting(1, T), {T: (3, 7)}) == {"m0": {T: {3, 7}}}


def test_topics_are_divided_one_by_one_where_members_want_others() -> None:
    members = {
        "a": AssignableMember(frozenset((T,))),
        "b": AssignableMember(frozenset((U,))),
        "c": AssignableMember(frozenset((T, U))),
    }
    assigned = simple(members, {T: range(4), U: range(4)})
    assert {name: size(one) for name, one in assigned.items()} == {"a": 2, "b": 2, "c": 4}


def test_who_stays_keeps_what_it_had() -> None:
    members = wanting(3, T)
    first = simple(members, {T: range(9)})
    left = again({name: one for name, one in members.items() if name != "m1"}, first)
    second = simple(left, {T: range(9)})
    for name in ("m0", "m2"):
        assert first[name][T] <= second[name][T]
    assert simple(again(left, second), {T: range(9)}) == second


MEMBERS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(12)]),
    st.tuples(
        st.frozensets(st.sampled_from((T, U, V))),
        st.dictionaries(st.sampled_from((T, U, V)), st.frozensets(st.integers(0, 9), min_size=1)),
    ),
    max_size=12,
)
PARTITIONS = st.dictionaries(st.sampled_from((T, U, V)), st.frozensets(st.integers(0, 9), max_size=10))


@given(MEMBERS, PARTITIONS)
def test_whatever_there_was_before(
    drawn: dict[str, tuple[frozenset[TopicId], Assignment]], partitions: dict[TopicId, frozenset[int]]
) -> None:
    check({name: AssignableMember(topics, target) for name, (topics, target) in drawn.items()}, partitions)


def check(members: dict[str, AssignableMember], partitions: dict[TopicId, frozenset[int]]) -> None:
    """Everybody is employed, every partition that somebody wants is read, and the next assignment moves nothing."""
    assigned = simple(members, partitions)
    assert assigned.keys() == members.keys()
    for name, its in assigned.items():
        assert its.keys() <= members[name].topics
        assert all(some <= partitions[topic] for topic, some in its.items())
    count = readers(assigned)
    wanted = {topic for one in members.values() for topic in one.topics}
    there = {topic for topic, some in partitions.items() if some}
    choices = {one.topics & there for one in members.values()}
    assert count.keys() == {(topic, one) for topic in wanted for one in partitions.get(topic, ())}
    for topic in wanted:
        subscribers = [name for name, one in members.items() if topic in one.topics]
        if partitions.get(topic) and len(choices) > 1:
            sizes = {len(assigned[name].get(topic, ())) for name in subscribers}
            assert max(sizes) - min(sizes) <= 1
            assert len({count[topic, one] for one in partitions[topic]}) == 1
    if len(choices) == 1:
        sizes = set(map(size, assigned.values()))
        assert max(sizes) - min(sizes) <= 1
        assert len(set(count.values())) <= 1
    assert simple(again(members, assigned), partitions) == assigned, "the next one moves nothing"
    assert simple(dict(reversed(members.items())), dict(reversed(partitions.items()))) == assigned


def test_what_holds_of_any_group_holds_of_very_many() -> None:
    rng = Random(932)

    def some(most: int) -> frozenset[TopicId]:
        return frozenset(topic for topic in (T, U, V) if rng.randrange(3) < most)

    for number in range(1_000):
        alike = some(2)
        partitions = {topic: frozenset(rng.sample(range(6), rng.randrange(5))) for topic in some(2)}
        members = {
            f"m{one}": AssignableMember(
                alike if number % 2 else some(2),
                {topic: frozenset(rng.sample(range(6), rng.randrange(1, 5))) for topic in some(1)},
            )
            for one in range(rng.randrange(9))
        }
        check(members, partitions)


def test_what_each_has_stays_as_far_as_it_is_its_share() -> None:
    """Of one topic that all want: nobody who has no more than its share gives anything to another."""
    rng = Random(933)
    for _ in range(500):
        count = rng.randrange(1, 5)
        owned = {partition: f"m{rng.randrange(count)}" for partition in range(6) if rng.randrange(3)}
        members = {
            name: AssignableMember(
                frozenset((T,)), {T: frozenset(partition for partition, owner in owned.items() if owner == name)}
            )
            for name in (f"m{one}" for one in range(count))
        }
        assigned = simple(members, {T: range(6)})
        for name, one in members.items():
            stays = assigned[name][T] & one.target[T]
            assert len(stays) == min(len(one.target[T]), len(assigned[name][T])), (members, assigned)


def looked_at(topic_count: int) -> int:
    """How often targets of members that want different topics are looked into while they are assigned again."""
    looked = 0

    class Target(dict[TopicId, frozenset[int]]):
        def __iter__(self) -> Iterator[TopicId]:
            nonlocal looked
            looked += len(self)
            return super().__iter__()

        def get(self, *args: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().get(*args)

    topics = [TopicId(UUID(int=number)) for number in range(1, topic_count + 3)]
    partitions = {topic: range(1) for topic in topics}
    members = {f"m{one}": AssignableMember(frozenset(topics[one : one + topic_count])) for one in range(3)}
    targets = simple(members, partitions)
    simple(again(members, {name: Target(target) for name, target in targets.items()}), partitions)
    return looked


def test_the_work_grows_with_the_topics_and_not_with_their_square() -> None:
    assert looked_at(200) < 12 * looked_at(20)
