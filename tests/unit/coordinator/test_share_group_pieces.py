"""What takes long about share groups is done in pieces, each of them short whatever is large."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from uuid import UUID

import pytest

from support.executed_lines import longest_piece
from support.fixtures.coordinated_consumers import topic_id
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.coordinator.groups.consumer import assignment, long_records
from tidelog.coordinator.groups.consumer.assignment import AssignableMember, Assignment, Members, Pace, finished
from tidelog.coordinator.groups.share import group_change, recorded
from tidelog.coordinator.groups.share.member import ShareCurrent, ShareSubscription
from tidelog.coordinator.groups.share.simple_assignor import simple
from tidelog.coordinator.groups.share.states import RecordedStates, StateId, TopicStates

PIECE = 20
COUNT = 600
LINES_MAX = 3_800
"""Of a piece. A loop over all that there is, and which counts nothing, takes more."""
AT_ONCE_LINES_MAX = 9_000
"""Of one that looks at all members, or at all partitions of one topic: that is done in one go."""

Shape = tuple[Members, Mapping[TopicId, Collection[int]]]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", PIECE)
    monkeypatch.setattr(long_records, "ELEMENTS_AT_ONCE", 4)
    monkeypatch.setattr(recorded, "TOPICS_AT_ONCE", 4)


def topics(count: int, start: int = 1) -> list[TopicId]:
    return [TopicId(UUID(int=number)) for number in range(start, count + start)]


def wanting(count: int, *wanted: TopicId) -> dict[str, AssignableMember]:
    return {f"m{number:04}": AssignableMember(frozenset(wanted)) for number in range(count)}


def shapes() -> dict[str, Shape]:
    many, one = topics(COUNT), topics(1)
    different = {**wanting(1, *many), "n": AssignableMember(frozenset(many[1:]))}
    return {
        "topics": (wanting(2, *many), dict.fromkeys(many, (0,))),
        "topics that others want": (different, dict.fromkeys(many, (0,))),
        "topics that are not there": (wanting(2, *many), {}),
        "topics that nobody wants": (wanting(1, *one), dict.fromkeys(many, (0,))),
        "partitions": (wanting(2, *one), {one[0]: range(COUNT)}),
        "members": (wanting(COUNT, *one), {one[0]: (0, 1)}),
    }


@pytest.mark.parametrize("shape", shapes())
def test_assigning_is_done_in_short_pieces(shape: str) -> None:
    members, partitions = shapes()[shape]
    lines_max = LINES_MAX if "topics" in shape else AT_ONCE_LINES_MAX
    lines, assigned = longest_piece(simple(members, partitions))
    assert lines < lines_max
    assert assigned == finished(simple(members, partitions))
    again = {name: AssignableMember(one.topics, assigned[name]) for name, one in members.items()}
    lines, same = longest_piece(simple(again, partitions))
    assert lines < lines_max
    assert same == assigned


def test_what_members_want_is_gathered_in_short_pieces() -> None:
    names = [f"t{number:04}" for number in range(3 * COUNT)]
    known = Sharers(topics=dict.fromkeys(names, 1)).consumers.members.known
    members = {name: ShareSubscription("c", "h", topic_names=(name,)) for name in names}
    states = RecordedStates(initialized={topic_id(name): TopicStates(name, frozenset((0,))) for name in names})
    lines, found = longest_piece(group_change.assigned(members, {}, RecordedStates(), known))
    assert lines < LINES_MAX
    assert found == {name: {} for name in names}
    lines, _ = longest_piece(group_change.assigned({}, {}, states, known))
    assert lines < LINES_MAX


def states_of(ids: Collection[TopicId], *partitions: int) -> dict[TopicId, TopicStates]:
    return {topic: TopicStates("name", frozenset(partitions)) for topic in ids}


def ids_of(ids: Collection[TopicId], *partitions: int) -> list[StateId]:
    return [(topic, PartitionIndex(one)) for topic in ids for one in partitions]


MANY, OTHERS = topics(COUNT), topics(COUNT, COUNT + 1)
STATES = RecordedStates(states_of(MANY, 0, 1), states_of(MANY, 1, 2), dict.fromkeys(OTHERS, "name"))
NAMED = dict.fromkeys(MANY, "name")


@pytest.mark.parametrize(
    "change",
    [
        STATES.counted,
        lambda pace: RecordedStates(deleting=STATES.deleting).counted(pace),
        lambda pace: RecordedStates(deleting=STATES.deleting).beginning(states_of(OTHERS, 0), pace),
        lambda pace: STATES.beginning(states_of(MANY, 3), pace),
        lambda pace: STATES.begun(ids_of(MANY, 0), pace),
        lambda pace: STATES.begun(ids_of(MANY[:1], *range(COUNT)), pace),
        lambda pace: STATES.not_begun(ids_of(MANY, 0, 1), pace),
        lambda pace: STATES.lost(ids_of(MANY, 2), pace),
        lambda pace: STATES.ending(NAMED, pace),
        lambda pace: STATES.without(MANY, pace),
        lambda pace: recorded.states_record("g", STATES, pace),
        lambda pace: recorded.states_record("g", RecordedStates(deleting=STATES.deleting), pace),
    ],
)
def test_states_are_changed_and_recorded_in_short_pieces(change: Callable[[Pace], assignment.Pieces[object]]) -> None:
    lines, _ = longest_piece(change(Pace()))
    assert lines < LINES_MAX


def test_long_records_are_made_in_short_pieces() -> None:
    target: Assignment = {topic: frozenset((0, 1)) for topic in MANY}
    subscription = ShareSubscription("client", "host", topic_names=tuple(f"t{number:04}" for number in range(COUNT)))
    for pieces in (
        recorded.target_record("g", "m", target, Pace()),
        recorded.current_record("g", "m", ShareCurrent(3, 2, target), Pace()),
        recorded.member_record("g", "m", subscription, Pace()),
    ):
        lines, _ = longest_piece(pieces)
        assert lines < LINES_MAX
