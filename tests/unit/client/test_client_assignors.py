"""How the leader of a classic group divides: everything to somebody, evenly, and with as few moves as that takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.core.assignors import (
    ASSIGNORS,
    Assignment,
    Subscriber,
    read_sticky_user_data,
    sticky_user_data,
)
from tidelog.wire.compile import encode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolPartitions, StickyUserData

T, U = "t", "u"


def partitions(text: str) -> frozenset[TopicPartition]:
    """`t0 t1 u0`."""
    return frozenset(TopicPartition(one[0], PartitionIndex(int(one[1:]))) for one in text.split())


def words(assignment: Assignment) -> dict[str, str]:
    return {
        member_id: " ".join(f"{one.topic}{one.partition}" for one in given_to)
        for member_id, given_to in assignment.items()
    }


def member(name: str, topics: str = "t u", owned: str = "", generation: int = -1) -> Subscriber:
    return Subscriber(name, frozenset(topics.split()), partitions(owned), generation)


def assign(name: str, members: Sequence[Subscriber], counts: Mapping[str, int]) -> Assignment:
    return ASSIGNORS[name].assign(members, counts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("range", {"a": "t0 t1 u0 u1", "b": "t2 u2"}),
        ("roundrobin", {"a": "t0 t2 u1", "b": "t1 u0 u2"}),
        ("sticky", {"a": "t0 t2 u1", "b": "t1 u0 u2"}),
        ("cooperative-sticky", {"a": "t0 t2 u1", "b": "t1 u0 u2"}),
    ],
)
def test_two_members_share_two_topics_of_three_partitions(name: str, expected: dict[str, str]) -> None:
    assert words(assign(name, [member("b"), member("a")], {T: 3, U: 3})) == expected


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_who_does_not_subscribe_to_a_topic_is_given_none_of_it(name: str) -> None:
    found = assign(name, [member("a", "t"), member("b", "u"), member("c", "v")], {T: 2, U: 1})
    assert words(found) == {"a": "t0 t1", "b": "u0", "c": ""}


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_come_first_whatever_their_ids_are(name: str) -> None:
    later = replace(member("z"), instance_id="one")
    assert words(assign(name, [member("a"), later], {T: 1})) == {"z": "t0", "a": ""}


def test_who_has_something_keeps_it_and_a_newcomer_gets_its_share() -> None:
    found = assign("sticky", [member("a", owned="t0 t1 t2 t3"), member("b")], {T: 4})
    assert words(found) == {"a": "t2 t3", "b": "t0 t1"}


def test_what_another_still_reads_is_given_on_only_in_the_next_round() -> None:
    before = [member("a", owned="t0 t1 t2 t3", generation=1), member("b", generation=1)]
    first = assign("cooperative-sticky", before, {T: 4})
    assert words(first) == {"a": "t2 t3", "b": ""}
    after = [member("a", owned="t2 t3", generation=2), member("b", generation=2)]
    assert words(assign("cooperative-sticky", after, {T: 4})) == {"a": "t2 t3", "b": "t0 t1"}


def test_of_two_that_claim_a_partition_the_one_that_was_given_it_last_keeps_it() -> None:
    old, new = member("a", owned="t0 t1", generation=3), member("b", owned="t0 t1", generation=4)
    assert words(assign("sticky", [old, new], {T: 2})) == {"a": "t0", "b": "t1"}
    assert words(assign("sticky", [replace(old, generation=4), new], {T: 2})) == {"a": "t0", "b": "t1"}
    alone = [member("a", owned="t0", generation=3), member("b", owned="t0", generation=4)]
    assert words(assign("sticky", alone, {T: 1})) == {"a": "", "b": "t0"}


def test_what_it_has_of_a_topic_that_shrank_or_that_it_left_is_forgotten() -> None:
    found = assign("sticky", [member("a", "t", owned="t5 u0 t0"), member("b", "t u")], {T: 1, U: 1})
    assert words(found) == {"a": "t0", "b": "u0"}


MEMBERS = st.lists(
    st.tuples(st.sampled_from(["t", "u", "v", "t u", "t v", "t u v"]), st.sets(st.integers(0, 20)), st.integers(0, 2)),
    min_size=1,
    max_size=6,
)
COUNTS = st.fixed_dictionaries({"t": st.integers(1, 9), "u": st.integers(0, 5), "v": st.integers(0, 3)})


def drawn(rows: list[tuple[str, set[int], int]]) -> list[Subscriber]:
    found = []
    for number, (topics, owned, generation) in enumerate(rows):
        names = frozenset(topics.split())
        has = frozenset(TopicPartition("tuv"[index % 3], PartitionIndex(index // 3)) for index in owned)
        kept = frozenset(one for one in has if one.topic in names)
        found.append(Subscriber(f"m{number}", names, kept, generation))
    return found


@given(rows=MEMBERS, counts=COUNTS, name=st.sampled_from(["range", "roundrobin", "sticky"]))
def test_each_partition_that_somebody_wants_is_one_members(
    rows: list[tuple[str, set[int], int]], counts: dict[str, int], name: str
) -> None:
    members = drawn(rows)
    wanted = {topic for one in members for topic in one.topics}
    found = assign(name, members, counts)
    given_out = [partition for given_to in found.values() for partition in given_to]
    everything = {TopicPartition(topic, PartitionIndex(i)) for topic in wanted for i in range(counts[topic])}
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == everything
    assert all(one.topic in member.topics for member in members for one in found[member.member_id])


@given(rows=MEMBERS, counts=COUNTS)
def test_sticky_leaves_nobody_with_two_more_than_who_could_take_one(
    rows: list[tuple[str, set[int], int]], counts: dict[str, int]
) -> None:
    members = drawn(rows)
    found = assign("sticky", members, counts)
    for taker in members:
        for giver in members:
            if any(one.topic in taker.topics for one in found[giver.member_id]):
                assert len(found[giver.member_id]) - len(found[taker.member_id]) <= 1


@given(rows=MEMBERS, counts=COUNTS)
def test_where_all_want_the_same_sticky_moves_only_what_is_too_much(
    rows: list[tuple[str, set[int], int]], counts: dict[str, int]
) -> None:
    members = drawn([("t u v", owned, generation) for _, owned, generation in rows])
    owners: dict[TopicPartition, list[Subscriber]] = {}
    for one in members:
        for partition in one.owned:
            if partition.partition < counts[partition.topic]:
                owners.setdefault(partition, []).append(one)
    has: dict[str, int] = {one.member_id: 0 for one in members}
    for claims in owners.values():
        newest = [one for one in claims if one.generation == max(each.generation for each in claims)]
        if len(newest) == 1:
            has[newest[0].member_id] += 1
    share, more = divmod(sum(counts.values()), len(members))
    full = sorted(has.values(), reverse=True)
    best = sum(min(count, share + (place < more)) for place, count in enumerate(full))
    found = assign("sticky", members, counts)
    kept = sum(
        1
        for one in members
        for partition in found[one.member_id]
        if partition in one.owned and one.generation == max(each.generation for each in owners[partition])
    )
    assert kept >= best


@given(rows=MEMBERS, counts=COUNTS)
def test_the_cooperative_one_gives_nothing_that_is_read_and_all_within_a_few_rounds(
    rows: list[tuple[str, set[int], int]], counts: dict[str, int]
) -> None:
    members = drawn(rows)
    free: set[TopicPartition] = set()
    apart = []
    for one in members:  # each is read by one
        apart.append(replace(one, owned=one.owned - free, generation=1))
        free |= one.owned
    wanted = {topic for one in members for topic in one.topics}
    everything = {TopicPartition(topic, PartitionIndex(i)) for topic in wanted for i in range(counts[topic])}
    for generation in range(2, 8):
        found = assign("cooperative-sticky", apart, counts)
        for one in apart:
            others = {partition for other in apart if other is not one for partition in other.owned}
            assert others.isdisjoint(found[one.member_id])
        given_out = {partition for given_to in found.values() for partition in given_to}
        if given_out == everything:
            return
        apart = [replace(one, owned=frozenset(found[one.member_id]), generation=generation) for one in apart]
    raise AssertionError(f"{everything - given_out} are nobody's")


def test_what_a_member_of_sticky_tells_is_read_in_both_versions() -> None:
    owned = partitions("t0 t1 u3")
    assert read_sticky_user_data(sticky_user_data(owned, 7)) == (owned, 7)
    old = encode(StickyUserData(previous_assignment=[ConsumerProtocolPartitions(T, [0, 1])]), 0)
    assert read_sticky_user_data(old) == (partitions("t0 t1"), -1)
    assert read_sticky_user_data(b"\x00") == (frozenset(), -1)
