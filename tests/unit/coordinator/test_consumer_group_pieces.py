"""What takes long is done in pieces, each of them short whatever is large: topics, partitions, members or names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

import pytest

from support.executed_lines import longest_piece
from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment, long_records, recorded
from tidelog.coordinator.groups.consumer.assignment import (
    AssignableMember,
    Assignment,
    Members,
    Pace,
    Pieces,
    finished,
    sorted_names,
    sorted_topics,
)
from tidelog.coordinator.groups.consumer.consumer_groups import _is_same, _told
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.member import NEW_MEMBER, ConsumerSubscription, CurrentAssignment
from tidelog.coordinator.groups.consumer.range_assignor import range_
from tidelog.coordinator.groups.consumer.reconciliation import reconciled
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import AssignmentInput, _size_bytes
from tidelog.coordinator.groups.consumer.uniform_assignor import uniform
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState

PIECE = 20
COUNT = 600
LINES_MAX = 3_000
"""Of a piece. A loop over all that there is, and which counts nothing, takes twice as many."""
AT_ONCE_LINES_MAX = 6_500
"""Of one that looks at all members, or at all partitions of one topic: that is done in one go."""

Shape = tuple[Members, Mapping[TopicId, int]]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", PIECE)


def topics(count: int) -> list[TopicId]:
    return [TopicId(UUID(int=number)) for number in range(1, count + 1)]


def wanting(count: int, *wanted: TopicId) -> dict[str, AssignableMember]:
    return {f"m{number:04}": AssignableMember(frozenset(wanted)) for number in range(count)}


def reading(members: Members, assigned: Mapping[str, Assignment]) -> dict[str, AssignableMember]:
    return {name: AssignableMember(one.topics, assigned.get(name, {})) for name, one in members.items()}


def shapes() -> dict[str, Shape]:
    many, few = topics(COUNT), topics(2)
    different = {
        **wanting(1, *many),
        "n": AssignableMember(frozenset(many[1:])),
        "o": AssignableMember(frozenset(many[:-1])),
    }
    one_has_all = {
        "a": AssignableMember(frozenset(many), dict.fromkeys(many, frozenset((0,)))),
        "b": AssignableMember(frozenset(many[1:])),
    }
    has_many_partitions = {
        "a": AssignableMember(frozenset(few), {few[0]: frozenset(range(COUNT))}),
        "b": AssignableMember(frozenset(few)),
        "c": AssignableMember(frozenset(few[:1])),
    }
    return {
        "topics": (wanting(2, *many), dict.fromkeys(many, 1)),
        "topics that others want": (different, dict.fromkeys(many, 1)),
        "topics that one has": (one_has_all, dict.fromkeys(many, 1)),
        "topics without partitions": (wanting(2, *many), {}),
        "partitions": (wanting(2, few[0]), {few[0]: COUNT}),
        "partitions that one has": (has_many_partitions, dict.fromkeys(few, COUNT)),
        "members": (wanting(COUNT, *few), dict.fromkeys(few, 2)),
        "members of two kinds": (
            {**wanting(COUNT, *few), "x": AssignableMember(frozenset(few[:1]))},
            dict.fromkeys(few, 2),
        ),
    }


@pytest.mark.parametrize("shape", shapes())
@pytest.mark.parametrize("assignor", [uniform, range_])
def test_assigning_is_done_in_short_pieces(
    assignor: Callable[[Members, Mapping[TopicId, int]], Pieces[dict[str, Assignment]]], shape: str
) -> None:
    members, counts = shapes()[shape]
    is_at_once = "members" in shape or (assignor is range_ and "topics" not in shape)
    lines_max = AT_ONCE_LINES_MAX if is_at_once else LINES_MAX
    lines, assigned = longest_piece(assignor(members, counts))
    assert lines < lines_max
    assert assigned == finished(assignor(members, counts))
    lines, again = longest_piece(assignor(reading(members, assigned), counts))
    assert lines < lines_max
    assert sum(map(len, again.values())) == sum(map(len, assigned.values()))


def test_sorting_is_done_in_short_pieces() -> None:
    lines, found = longest_piece(sorted_topics(reversed(topics(COUNT)), Pace()))
    assert (lines < LINES_MAX, found) == (True, topics(COUNT))
    names = [f"{number:04}" for number in range(COUNT)]
    lines, sorted_ = longest_piece(sorted_names(reversed(names), Pace()))
    assert (lines < LINES_MAX, sorted_) == (True, names)


def held(count: int, epoch: int = 3) -> dict[TopicId, Mapping[int, int]]:
    return {topic: {0: epoch} for topic in topics(count)}


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize("kept", [0, COUNT // 2, COUNT])
def test_moving_a_member_on_is_done_in_short_pieces(kept: int, is_away: bool) -> None:
    """It gives some up, or has given them up, and gets others."""
    current = CurrentAssignment(3, 2, assigned=held(COUNT))
    target = {topic: frozenset((0, 1)) for topic in [*topics(COUNT)[:kept], *topics(2 * COUNT)[COUNT:]]}
    lines, moved = longest_piece(
        reconciled(
            current,
            4,
            target,
            owned=None if not is_away else {topic: frozenset((5,)) for topic in topics(COUNT)},
            wanted=None,
            is_free=lambda topic, partition: True,
            pace=Pace(),
        )
    )
    assert lines < LINES_MAX
    gives_up = kept < COUNT and not is_away
    assert moved.state is (ConsumerMemberState.UNREVOKED_PARTITIONS if gives_up else ConsumerMemberState.STABLE)
    assert len(moved.assigned) == (kept if gives_up else kept + COUNT)
    assert len(moved.revoking) == (COUNT - kept if gives_up else 0)


@pytest.mark.parametrize("owns", [False, True])
def test_whether_a_member_gave_up_what_it_was_to_is_found_out_in_short_pieces(owns: bool) -> None:
    current = CurrentAssignment(3, 2, ConsumerMemberState.UNREVOKED_PARTITIONS, {}, held(COUNT))
    owned = {topics(COUNT)[-1]: frozenset((0,))} if owns else {}
    for wanted in (None, frozenset(topics(1))):
        lines, moved = longest_piece(
            reconciled(current, 4, {}, owned=owned, wanted=wanted, is_free=lambda topic, partition: True, pace=Pace())
        )
        assert lines < LINES_MAX
        assert (moved is current) == owns


def test_who_owns_partitions_is_noted_in_short_pieces() -> None:
    group = ConsumerGroup("g")
    few = {topics(1)[0]: dict.fromkeys(range(COUNT), 3)}
    for assigned, revoking in ((held(COUNT), {}), (few, {}), ({}, held(COUNT)), ({}, few)):
        current = CurrentAssignment(3, 3, assigned=assigned, revoking=revoking)
        lines, _ = longest_piece(group.index("a", NEW_MEMBER, current, Pace()))
        assert lines < LINES_MAX + 2 * COUNT * (few in (assigned, revoking)), "one topic is one piece"
        group.indexed = current
        group.set_current("a", current)
        assert group.owner(topics(1)[0], 0) == "a"
        group.currents.pop("a")
        lines, _ = longest_piece(group.forget_index("a", current, Pace()))
        assert lines < LINES_MAX + 20 * COUNT * (few in (assigned, revoking)), "one topic is one piece"
        assert group._owners == {}


def names(count: int) -> tuple[str, ...]:
    return tuple(f"t{number:04}" for number in range(count))


def test_long_records_are_made_in_short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_records, "ELEMENTS_AT_ONCE", 4)
    target = {topic: frozenset((0, 1)) for topic in topics(COUNT)}
    current = CurrentAssignment(3, 2, assigned=held(COUNT), revoking=held(COUNT))
    subscription = ConsumerSubscription("client", "host", topic_names=names(COUNT))
    matched = MatchedTopics(frozenset(names(COUNT)), 1, 2)
    for pieces in (
        long_records.target_record("g", "m", target, Pace()),
        long_records.current_record("g", "m", current, Pace()),
        long_records.member_record("g", "m", subscription, Pace()),
        long_records.pattern_record("g", "p", matched, Pace()),
    ):
        lines, _ = longest_piece(pieces)
        assert lines < 2 * LINES_MAX


@pytest.mark.parametrize("count", [COUNT, 1])
def test_what_a_member_has_is_told_in_short_pieces(count: int) -> None:
    one, other = held(count), {topic: dict(partitions) for topic, partitions in held(count).items()}
    lines, is_same = longest_piece(_is_same(one, other, Pace()))
    assert (lines < LINES_MAX, is_same) == (True, True)
    assert not finished(_is_same(one, {**other, topics(count)[-1]: {1: 3}}, Pace()))
    lines, told = longest_piece(_told(CurrentAssignment(3, 3, assigned=one), Pace()))
    assert lines < LINES_MAX
    assert [part.topic_id for part in told.topic_partitions] == topics(count)


@pytest.mark.parametrize("letter", ["\u20ac", "\U0001f600"])
@pytest.mark.parametrize(
    ("name_length", "topic_count", "partition_count"),
    [(1, 1, 1), (1, 1, 0), (30_000, 1, 1), (1, 1_000, 1), (1, 1, 10_000), (10, 100, 100)],
)
def test_it_is_known_beforehand_that_a_record_takes_no_more_than_so_much(
    name_length: int, topic_count: int, partition_count: int, letter: str
) -> None:
    target = {topic: frozenset(range(10**6, 10**6 + partition_count)) for topic in topics(topic_count)}
    name = letter * (name_length // len(letter.encode()) + 1)
    for group_id, member_id in ((name, "m"), ("g", name)):
        record = recorded.target_record(group_id, member_id, target)
        taken = sum(len(one or b"") for one in record)
        bound = _size_bytes(group_id, member_id, target)
        assert taken < bound < 3 * taken + 400


def test_what_a_member_has_is_the_same_if_the_partitions_are() -> None:
    one, other = topics(2)
    for held_before, held_now, is_same in (
        ({}, {}, True),
        ({one: {0: 1}}, {one: {0: 2}}, True),
        ({one: {0: 1}}, {other: {0: 1}}, False),
        ({one: {0: 1}}, {one: {1: 1}}, False),
        ({one: {0: 1}}, {one: {0: 1, 1: 1}}, False),
        ({one: {0: 1}}, {one: {0: 1}, other: {0: 1}}, False),
        ({one: {0: 1}, other: {0: 1}}, {one: {0: 1}}, False),
    ):
        assert finished(_is_same(held_before, held_now, Pace())) == is_same


SETTINGS = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))


def test_what_is_asked_of_the_metadata_is_answered_in_short_pieces() -> None:
    world = Consumers(SETTINGS, topics=dict.fromkeys(names(COUNT), 1))
    known = world.consumers.members.known
    missing = tuple(f"{name}?" for name in names(COUNT))
    for asked in (names(COUNT), names(COUNT), missing):
        lines, _ = longest_piece(known.look_at(asked, Pace()))
        assert lines < LINES_MAX
        lines, ids = longest_piece(known.ids_in_pieces(asked, Pace()))
        assert lines < LINES_MAX
        assert len(ids) == (0 if asked is missing else COUNT)
    for count, member_count in ((COUNT, 1), (1, COUNT)):
        subscription = ConsumerSubscription("client", "host", topic_names=names(count))
        wanted = AssignmentInput(
            subscriptions={f"m{number}": subscription for number in range(member_count)},
            targets={},
            wanted=[subscription.wanted],
            matched={},
            assignor="uniform",
        )
        lines, assigned = longest_piece(wanted.assigned(known))
        assert lines < (LINES_MAX if member_count == 1 else AT_ONCE_LINES_MAX)
        assert len(assigned) == member_count
    # Members that want different topics: their number times that of all topics would be too much.
    various = [ConsumerSubscription("client", "host", topic_names=(name,)) for name in names(COUNT)]
    wanted = AssignmentInput(
        subscriptions={f"m{number}": one for number, one in enumerate(various)},
        targets={},
        wanted=[one.wanted for one in various],
        matched={},
        assignor="range",
    )
    lines, assigned = longest_piece(wanted.assigned(known))
    assert lines < 2 * LINES_MAX
    assert assigned["m3"] == {topic_id(names(COUNT)[3]): {0}}
