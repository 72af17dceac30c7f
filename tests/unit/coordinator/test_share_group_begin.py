"""Which states share groups (KIP-932) begin with, and when: how many at once, at which epoch, and what is left out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from uuid import UUID

import pytest

from support.executed_lines import Turns, counted_turns, executed_lines, in_turn
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment
from tidelog.coordinator.groups.share import group_states, share_groups
from tidelog.coordinator.groups.share.assignment_runs import ShareAssignmentRuns
from tidelog.coordinator.groups.share.group_states import LOOK_INTERVAL_MS, TOPICS_AT_ONCE_MAX, _may_have_any
from tidelog.coordinator.groups.share.group_work import GroupWork
from tidelog.coordinator.groups.share.requests import DeleteStates, InitializeStates, LookForStates, RaiseStates
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.states import STATE_BYTES, RecordedStates, TopicStates

AT_ONCE = GroupSettings(share=ShareGroupSettings(assignment_interval_ms=0))
LATER = Code.COORDINATOR_NOT_AVAILABLE


def asking(**topics: int) -> Sharers:
    """Share coordinators take their time."""
    return Sharers(AT_ONCE, topics=topics, answers_at_once=False)


def asked(world: Sharers) -> list[tuple[str, list[tuple[str, int]]]]:
    """What share coordinators were asked and have not answered: the kind, and the partitions."""
    names = {world.state_id(name, 0)[0]: name for name in world.topics}
    found = []
    for _, send in world.pending:
        request = send.request
        assert isinstance(request, InitializeStates | RaiseStates | LookForStates | DeleteStates)
        ids = [(names[topic_id], int(partition)) for topic_id, partition in request.ids]
        found.append((type(request).__name__.removesuffix("States"), ids))
    return found


def answer(world: Sharers, *codes: Code, index: int = 0) -> None:
    """One of them is answered, and does nothing where that is an error."""
    _, send = world.pending.pop(index)
    outcomes = world._done(send.request)
    told = tuple(one if code is Code.NONE else refusal(code) for one, code in zip(outcomes, codes, strict=True))
    world.coordinator.on_sent(send.send_id, told, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()


def of(name: str, *partitions: int) -> list[tuple[str, int]]:
    return [(name, one) for one in partitions]


# How many.


def test_no_more_is_begun_than_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 3)
    world = asking(t=2, u=3)
    world.share("a", "t")
    world.share("b", "u")
    assert asked(world) == [("Initialize", of("t", 0, 1)), ("Initialize", of("u", 0))]
    world.share_on("a")
    world.share_on("b")
    assert len(world.pending) == 2, "there is no place for more"
    answer(world, Code.NONE, Code.NONE)
    assert asked(world) == [("Initialize", of("u", 0))], "the other is waited for: then it goes on"
    answer(world, Code.NONE)
    assert asked(world) == [("Initialize", of("u", 1, 2))]
    world.answer_sends()
    assert world.starts("u") == dict.fromkeys(range(3))


def test_a_topic_that_is_as_large_as_may_be_under_way_is_begun_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 3)
    world = asking(t=3)
    world.share("a")
    assert asked(world) == [("Initialize", of("t", 0, 1, 2))]
    world.answer_sends()
    assert asked(world) == []


def test_what_was_not_begun_is_begun_with_a_later_heartbeat(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 2)
    world = asking(t=4)
    world.share("a")
    answer(world, Code.NONE, LATER)
    assert asked(world) == [], "an error is followed by a heartbeat, not by the next request at once"
    (told,) = [one.getMessage() for one in caplog.records]
    assert "is not begun" in told
    world.share_on("a")
    (beginning,) = asked(world)
    assert beginning == ("Initialize", of("t", 1, 2))
    world.answer_sends()
    assert world.starts("t") == dict.fromkeys(range(4))


def test_what_waits_for_a_place_is_begun_though_the_topic_that_had_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 2)
    world = asking(t=2, u=2)
    world.share("a", "t", "u")
    world.delete("t")
    world.pass_ms(0)
    world.share_on("a")
    assert len(world.pending) == 1
    end = len(world.log)
    world.answer_send()
    world.drive()
    assert (len(world.log), world.pending) == (end, []), "of what is gone, nothing is recorded"
    world.share_on("a")
    assert asked(world) == [("Initialize", of("u", 0, 1))]


def test_a_deletion_that_waits_is_not_kept_waiting_by_what_could_be_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 3)
    world = asking(t=1, v=1, x=1, u=3)
    world.share("a", "t", "v", "x")
    world.share_beat("a", -1)
    deletions = [world.forget("t"), world.forget("x")]
    world.share("b", "u")
    assert asked(world) == [("Initialize", [*of("t", 0), *of("v", 0), *of("x", 0)])]
    answer(world, Code.NONE, Code.NONE, Code.NONE)
    assert asked(world) == [("Delete", of("t", 0)), ("Delete", of("x", 0))]
    world.share_on("b")
    assert asked(world)[2:] == [("Initialize", of("u", 0, 1, 2))]
    world.answer_sends()
    assert [world.forgotten(one) for one in deletions] == [{"t": Code.NONE}, {"x": Code.NONE}]
    assert world.share_group.known_states.initialized.keys() == {world.state_id(name, 0)[0] for name in "vu"}
    assert not world.share_group.known_states.deleting


def test_a_heartbeat_that_is_refused_leaves_what_is_lacking_to_the_next() -> None:
    world = asking(t=2)
    world.share("a", "t")
    answer(world, LATER, LATER)
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 1_000
    names = [f"{number:0100}" for number in range(20)]
    assert world.refused(world.share_beat("a", 2, topics=["t", *names])) == Code.INVALID_REQUEST
    assert asked(world) == []
    world.share_on("a")
    assert asked(world) == [("Initialize", of("t", 0, 1))]


@pytest.mark.parametrize("room", [0, 1, 3])
def test_as_many_are_begun_as_find_room_in_memory(room: int, caplog: pytest.LogCaptureFixture) -> None:
    world = asking(t=1)
    world.share("a", "t")
    world.answer_sends()
    world.share_on("a")
    world.make(t=10)
    world.memory.limit_bytes = world.memory.used_bytes + room * 2 * STATE_BYTES + 1
    if room == 0:
        world.memory.limit_bytes = 1  # far less than there is
    for _ in range(2):
        world.share_on("a")
    assert asked(world) == ([("Initialize", of("t", *range(1, 1 + room)))] if room else [])
    assert f"group g: {9 - room} partitions more find no room beside the" in caplog.text
    world.memory.limit_bytes = 1 << 30
    world.share_on("a")
    assert asked(world)[-1] == ("Initialize", of("t", *range(1 + room, 10))), "it is looked at again"


@pytest.mark.parametrize(("room", "begun"), [(2, [("t", 2)]), (3, [("t", 3)]), (5, [("t", 3), ("u", 2)])])
def test_topics_find_room_in_memory_one_after_the_other(room: int, begun: list[tuple[str, int]]) -> None:
    world = asking(v=1)
    world.share("a", "t", "u", "v")
    world.answer_sends()
    world.share_on("a")
    world.make(t=3, u=4)
    world.memory.limit_bytes = world.memory.used_bytes + room * 2 * STATE_BYTES
    world.share_on("a")
    ((kind, ids),) = asked(world)
    assert (kind, ids) == ("Initialize", [one for name, count in begun for one in of(name, *range(count))])


def test_a_record_that_is_too_long_already_is_made_no_longer(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody lowered max.message.bytes: the group goes on with what it has."""
    world = asking(t=100)
    for one in "ab":
        world.share(one, "t")
        world.answer_sends()
    for one in "abab":
        world.share_on(one)
    assert [len(world.reads(one)["t"]) for one in "ab"] == [50, 50]
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 520
    world.make(t=250)
    world.share_on("a")
    assert asked(world) == []
    assert "no batch of 520 bytes holds 150 partitions more" in caplog.text


def test_what_no_record_holds_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    world = asking(t=300)
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 800
    world.share("a", "t")
    for _ in range(3):
        world.share_on("a")
    (told,) = [one.getMessage() for one in caplog.records]
    world.answer_sends()
    there = len(world.starts("t"))
    assert told.startswith(f"group g: no batch of 800 bytes holds {300 - there} partitions more")
    world.share_on("a")
    caplog.clear()
    for _ in range(3):
        world.share_on("a")
    assert asked(world) == []
    assert not caplog.records, "nothing has changed"


def test_what_cannot_be_recorded_is_told(caplog: pytest.LogCaptureFixture) -> None:
    world = asking(t=3)
    world.share("a", "t")
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 100
    world.answer_sends()
    assert "than a batch of 100 bytes holds" in caplog.text
    caplog.clear()
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 60
    world.pass_ms(45_000)  # nobody is told that a member cannot be put out
    assert "than a batch of 60 bytes holds" in caplog.text


def test_topics_find_room_in_one_record_together() -> None:
    world = asking(t=60, u=60, v=60)
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 700
    world.share("a", "t", "u", "v")
    world.answer_sends()
    begun = [len(world.starts(name)) for name in "tuv"]
    assert begun[0] == 60
    assert begun[1] > 0
    assert sum(begun) < 180
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 1 << 20
    world.share_beat("a", world.share_group.current("a").member_epoch, topics=["t", "u", "v", "w"])
    world.answer_sends()
    assert [len(world.starts(name)) for name in "tuv"] == [60] * 3


def test_a_topic_that_no_record_holds_keeps_no_other_from_being_read() -> None:
    world = asking(t=300, u=1)
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 800
    world.share("a", "t")
    world.answer_sends()
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 1_000
    world.share_beat("a", world.share_group.current("a").member_epoch, topics=["u"])
    world.answer_sends()
    assert world.starts("u") == {0: None}


# At which epoch.


def epochs_asked(world: Sharers, code: Code, count: int) -> list[int]:
    """Of the states that are asked for, heartbeat by heartbeat, if each is answered so."""
    found = []
    for _ in range(count):
        _, send = world.pending[0]
        assert isinstance(send.request, InitializeStates)
        found.append(send.request.state_epoch)
        assert send.request.state_epoch == world.share_group.epoch
        answer(world, code)
        world.share_on("a")
    return found


def steps(epochs: list[int]) -> list[int]:
    return [after - before for before, after in pairwise(epochs)]


def test_states_of_a_higher_epoch_are_reached_in_steps_that_double() -> None:
    world = asking(t=1)
    world.share("a")
    assert steps(epochs_asked(world, Code.FENCED_STATE_EPOCH, 6)) == [2, 4, 8, 16, 32]
    assert steps(epochs_asked(world, LATER, 4)) == [1, 1, 1], "nothing says that it is too low"
    assert steps(epochs_asked(world, Code.FENCED_STATE_EPOCH, 3)) == [2, 4]


def test_steps_are_no_longer_than_they_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "EPOCH_STEP_MAX", 5)
    world = asking(t=1)
    world.share("a")
    assert steps(epochs_asked(world, Code.FENCED_STATE_EPOCH, 6)) == [2, 4, 5, 5, 5]


@pytest.mark.parametrize("below", [1, 0])
def test_from_a_high_epoch_on_steps_are_of_one(below: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = asking(t=1)
    world.share("a")
    monkeypatch.setattr(group_states, "STEPPED_EPOCH_MAX", world.share_group.epoch + below)
    assert steps(epochs_asked(world, Code.FENCED_STATE_EPOCH, 2)) == [2 if below else 1]


def test_a_step_is_of_one_again_once_states_were_begun() -> None:
    world = asking(t=1, u=1)
    world.share("a")
    epochs_asked(world, Code.FENCED_STATE_EPOCH, 4)
    answer(world, Code.NONE)
    world.share_beat("a", world.share_group.current("a").member_epoch, topics=["t", "u"])
    assert asked(world) == [("Initialize", of("u", 0))]
    assert steps(epochs_asked(world, LATER, 2)) == [1]


def test_one_state_that_was_asked_for_before_raises_the_epoch_of_all() -> None:
    world = asking(t=1, u=1)
    world.share("a", "t", "u")
    for codes in ((LATER, Code.INVALID_REQUEST), (Code.INVALID_REQUEST, LATER)):
        before = world.share_group.epoch
        answer(world, *codes)
        world.share_on("a")
        assert asked(world) == [("Initialize", [*of("t", 0), *of("u", 0)])]
        assert world.share_group.epoch == before + 1, codes


@pytest.mark.parametrize("what", ["begin", "look", "delete"])
def test_an_answer_that_is_not_of_each_state_is_a_bug(what: str) -> None:
    world = settled(t=2)
    if what == "begin":
        world.make(t=3)
        world.share_on("a")
    elif what == "look":
        keep_alive(world, LOOK_INTERVAL_MS)
    else:
        world.share_beat("a", -1)
        world.forget("t")
    ((_, send),) = world.pending
    with pytest.raises(ValueError, match="argument"):
        world.coordinator.on_sent(send.send_id, (None,) * 5, now_ms=world.now_ms, wall_ms=world.wall_ms)


def test_what_is_refused_for_good_is_not_asked_for_before() -> None:
    """Nothing is under way that a higher epoch would have to fence."""
    world = asking(t=1)
    world.share("a")
    before = world.share_group.epoch
    answer(world, Code.INVALID_REQUEST)
    assert not world.share_group.known_states.initializing
    world.share_on("a")
    assert asked(world) == [("Initialize", of("t", 0))]
    assert world.share_group.epoch == before
    answer(world, LATER)
    assert world.share_group.known_states.initializing, "it may be done yet"
    world.share_on("a")
    assert world.share_group.epoch == before + 1


def test_an_answer_counts_for_what_was_not_asked_for_anew_since() -> None:
    world = asking(t=2)
    world.share("a")
    first = world.pending[0][1]
    answer(world, LATER, LATER)
    world.share_on("a")
    late = tuple(refusal(Code.INVALID_REQUEST) for _ in range(2))
    world.coordinator.on_sent(first.send_id, late, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert world.share_group.known_states.initializing
    world.answer_sends()
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1}}


# What is to begin elsewhere.


def test_what_is_there_is_raised_and_what_is_not_is_begun() -> None:
    world = asking(t=3)
    world.alter({"t": {0: 5}})
    world.answer_sends()
    world.alter({"t": {0: 6, 2: 7}})
    world.pending.clear()
    world.fail_over()
    world.share("a")
    assert asked(world) == [("Raise", of("t", 0)), ("Initialize", of("t", 1, 2))]
    world.answer_sends()
    assert world.starts("t") == {0: 5, 1: None, 2: None}
    assert not world.share_group.known_states.initializing


def test_what_cannot_be_raised_is_raised_later_unless_it_is_lost() -> None:
    world = asking(t=2)
    world.alter({"t": {0: 5, 1: 5}})
    world.answer_sends()
    world.alter({"t": {0: 6, 1: 6}})
    world.pending.clear()
    world.fail_over()
    world.share("a")
    answer(world, Code.INVALID_REQUEST, LATER)
    group = world.share_group
    topic = world.state_id("t", 0)[0]
    assert not group.known_states.is_initialized(topic, 0)
    assert group.known_states.is_initialized(topic, 1)
    world.share_on("a")
    assert asked(world) == [("Raise", of("t", 1)), ("Initialize", of("t", 0))]


# Looking for them.


def settled(**topics: int) -> Sharers:
    """A member reads all, and share coordinators take their time from now on."""
    world = Sharers(AT_ONCE, topics=topics)
    world.share("a", *topics)
    for _ in range(2):
        world.share_on("a")
    world.answers_at_once = False
    return world


def keep_alive(world: Sharers, ms: int) -> None:
    """Let time pass, with a heartbeat now and then."""
    end_ms = world.now_ms + ms
    while world.now_ms < end_ms:
        world.pass_ms(min(20_000, end_ms - world.now_ms))
        world.share_on("a")


def test_states_are_looked_for_an_interval_apart() -> None:
    world = settled(t=2, u=1)
    look = ("LookFor", [*of("t", 0, 1), *of("u", 0)])
    for _ in range(2):
        keep_alive(world, LOOK_INTERVAL_MS - 1)
        assert asked(world) == []
        keep_alive(world, 1)
        assert asked(world) == [look]
        world.share_on("a")
        assert asked(world) == [look]
        world.answer_sends()


def test_one_look_waits_for_another() -> None:
    world = settled(t=2)
    keep_alive(world, 3 * LOOK_INTERVAL_MS)
    assert len(world.pending) == 1
    world.answer_sends()
    world.share_on("a")
    assert len(world.pending) == 1, "it is time for the next"


@pytest.mark.parametrize("what", ["begin", "delete"])
def test_a_look_waits_for_what_is_begun_or_deleted(what: str) -> None:
    world = settled(t=2)
    if what == "begin":
        world.make(t=3)
        world.share_on("a")
    else:
        world.share_beat("a", -1)
        world.forget("t")
        world.share("a", "t")
    (before,) = asked(world)
    keep_alive(world, LOOK_INTERVAL_MS)
    assert asked(world) == [before]
    world.answer_sends()
    world.share_on("a")
    if what == "begin":
        assert asked(world) == [("LookFor", of("t", 0, 1, 2))]
        return
    world.answer_sends()
    keep_alive(world, LOOK_INTERVAL_MS)
    assert asked(world) == [("LookFor", of("t", 0, 1))], "it is looked for again"


def test_a_group_that_works_with_nothing_looks_for_nothing() -> None:
    world = Sharers(AT_ONCE, topics={"t": 1})
    world.share("a", "nowhere")
    keep_alive(world, 2 * LOOK_INTERVAL_MS)
    assert asked(world) == []


@pytest.mark.parametrize("code", [Code.FENCED_STATE_EPOCH, Code.UNKNOWN_TOPIC_OR_PARTITION, LATER])
def test_an_error_of_another_kind_is_no_loss(code: Code) -> None:
    world = settled(t=2)
    keep_alive(world, LOOK_INTERVAL_MS)
    answer(world, code, Code.NONE)
    assert not world.share_group.known_states.initializing


def test_a_look_that_finds_all_writes_nothing() -> None:
    world = settled(t=2)
    keep_alive(world, LOOK_INTERVAL_MS)
    end = len(world.log)
    answer(world, Code.NONE, Code.NONE)
    assert len(world.log) == end


def test_what_goes_with_its_topic_while_it_is_looked_for_is_no_loss(caplog: pytest.LogCaptureFixture) -> None:
    world = settled(t=2, u=1)
    keep_alive(world, LOOK_INTERVAL_MS)
    world.delete("t")
    world.pass_ms(0)
    answer(world, Code.INVALID_REQUEST, Code.INVALID_REQUEST, Code.NONE)
    assert not caplog.records
    assert set(world.share_group.known_states.topic_ids) == {world.state_id("u", 0)[0]}


# Forgetting them.


def test_a_deletion_that_waits_is_not_taken_for_the_one_before_it() -> None:
    """Else the topic would be begun before the deletion, which would take what was begun."""
    world = Sharers(AT_ONCE, topics={"t": 2, "u": 1})
    world.alter({"t": {0: 1, 1: 1}})
    world.answers_at_once = False
    world.forget("t")
    world.pending.clear()
    world.fail_over()
    world.pass_ms(0)
    world.share("b", "u")
    world.share_beat("b", -1)
    waits = world.forget("t")
    assert asked(world) == [("Delete", of("t", 0, 1)), ("Initialize", of("u", 0))]
    answer(world, Code.NONE, Code.NONE)
    assert world.altered(world.alter({"t": {0: 1}})) == {("t", 0): LATER}
    world.answer_sends()
    assert world.forgotten(waits) == {"t": Code.NONE}


@pytest.mark.parametrize(
    ("gone", "there", "has_some", "expected"),
    [
        (1, 1, False, False),
        (1, 1, True, True),
        (TOPICS_AT_ONCE_MAX, 100, False, False),
        (TOPICS_AT_ONCE_MAX, 100, True, True),
        (TOPICS_AT_ONCE_MAX + 1, TOPICS_AT_ONCE_MAX, False, False),
        (TOPICS_AT_ONCE_MAX + 1, TOPICS_AT_ONCE_MAX, True, True),
        (TOPICS_AT_ONCE_MAX + 1, TOPICS_AT_ONCE_MAX + 1, False, True),
    ],
)
def test_a_group_is_looked_at_where_little_tells_that_it_may_have_something(
    gone: int, there: int, has_some: bool, expected: bool
) -> None:
    ids = [TopicId(UUID(int=number)) for number in range(gone + there)]
    states = RecordedStates({}, {topic: TopicStates("t", frozenset((0,))) for topic in ids[gone:]})
    assert _may_have_any(states, frozenset((*ids[: gone - has_some], *ids[gone : gone + has_some]))) == expected


def test_the_next_leader_finishes_deletions_once_topics_are_known() -> None:
    world = Sharers(AT_ONCE, topics={"t": 3, "u": 1})
    world.alter({"t": {0: 1, 2: 1}, "u": {0: 1}})
    world.answers_at_once = False
    world.forget("t")
    world.pending.clear()
    world.fail_over()
    world.pass_ms(0)
    assert asked(world) == [("Delete", of("t", 0, 1, 2))], "it is not known any more which there were"
    (_, send) = world.pending[0]
    assert isinstance(send.request, DeleteStates)
    assert send.request.state_epoch == world.share_group.epoch
    world.answer_sends()
    assert not world.share_group.known_states.deleting


# In pieces.


@contextmanager
def watched_pieces(turns: Turns) -> Iterator[None]:
    """Every piece of what is done about share groups ends because a `Pace` says so."""

    is_done, made = GroupWork._is_done, ShareAssignmentRuns._pieces
    watched: set[int] = set()

    def watched_is_done(self: GroupWork, work: object) -> bool:
        if id(work) not in watched:
            watched.add(id(work))
            kept.append(work)
            work.pieces = in_turn(work.pieces, turns)  # type: ignore[attr-defined]
        return is_done(self, work)  # type: ignore[arg-type]

    kept: list[object] = []  # so that no id is used twice
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupWork, "_is_done", watched_is_done)
        patch.setattr(ShareAssignmentRuns, "_pieces", lambda self, group: in_turn(made(self, group), turns))
        yield


TURNS_MIN = 5_529
"""Of the life of a group with 12 topics. What looks at elements, and counts none of them, leaves it with fewer."""


def live(world: Sharers) -> None:
    """All that a group of many topics may go through."""
    names = sorted(world.topics)

    def settle() -> None:
        world.pass_ms(0)
        while world.pending:
            world.answer_send()
            world.drive()
            world.pass_ms(0)

    def beat(member_id: str) -> None:
        world.share_beat(member_id, world.share_group.current(member_id).member_epoch)
        settle()

    world.alter({name: {0: 3} for name in names})
    settle()
    for member_id in "ab":
        world.share_beat(member_id, 0, topics=names)
        settle()
    for number in range(8):  # others that want little
        world.share_beat(f"c{number}", 0, topics=names[number : number + 2])
        settle()
    for _ in range(2):
        for member_id in list(world.share_group.subscriptions):
            beat(member_id)
    assert all(world.reads(member_id) for member_id in world.share_group.subscriptions)
    assert world.share_group.assigned_at_ms == world.wall_ms
    for number in range(8):
        world.share_beat(f"c{number}", -1)
        settle()
    world.make(**dict.fromkeys(names, 2))
    for code in (LATER, Code.FENCED_STATE_EPOCH, Code.INVALID_REQUEST, None):
        world.error = code
        beat("a")
    for member_id in "abab":
        beat(member_id)
    assert sum(len(some) for one in "ab" for some in world.reads(one).values()) == 2 * len(names)
    world.kept.clear()
    keep = world.now_ms + LOOK_INTERVAL_MS
    while world.now_ms <= keep:
        world.pass_ms(20_000)
        for member_id in "ab":
            beat(member_id)
    for member_id in "abab":
        beat(member_id)
    assert len(world.kept) == 2 * len(names), "all that was lost is begun anew"
    world.delete(names[0])
    settle()
    world.shares.on_topics(
        {world.state_id(name, 0)[0] for name in names[2:]}, now_ms=world.now_ms, wall_ms=world.wall_ms
    )
    settle()
    for member_id in "ab":
        world.share_beat(member_id, -1)
        settle()
    world.error = LATER
    for ask in ("alter", "delete", "forget"):
        if ask == "alter":
            world.alter({name: {0: 4} for name in names[2:]})
        elif ask == "delete":
            world.delete_group()
        else:
            world.forget(*names[2:])
        settle()
    world.error = None
    world.forget(*names[2:])
    settle()
    world.delete_group()
    settle()
    assert not world.shares.groups


def test_whatever_is_looked_at_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each element is a piece, it is others' turn after each."""
    monkeypatch.setattr(assignment, "PIECE", 1)
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 1)
    world = Sharers(AT_ONCE, topics={f"t{number:03}": 1 for number in range(12)}, answers_at_once=False)
    with counted_turns() as (turns, _):
        live(world)
    assert turns.count >= TURNS_MIN


def test_work_gives_way_as_often_as_its_pace_says_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", 20)
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 20)
    world = Sharers(AT_ONCE, topics={f"t{number:03}": 1 for number in range(60)}, answers_at_once=False)
    with counted_turns() as (turns, _), watched_pieces(turns):
        live(world)
    assert turns.count > 500


# What a heartbeat takes.


BEAT_LINES_MAX = 800
JOIN_LINES_MAX = 2_200
"""Somewhat more than they take. What looks at all 600 topics takes more."""


def lines_of_beat(world: Sharers, member_id: str) -> int:
    """Of one that says nothing new."""
    epoch = world.share_group.current(member_id).member_epoch
    return executed_lines(lambda: world.share_beat(member_id, epoch))


def test_a_heartbeat_of_a_group_at_rest_looks_at_none_of_its_topics() -> None:
    """Whatever has happened before, it is looked at once."""
    count = 600
    names = [f"t{number:03}" for number in range(count)]
    world = Sharers(AT_ONCE, topics=dict.fromkeys(names, 1))

    def epoch_of(member_id: str) -> int:
        return world.share_group.current(member_id).member_epoch

    def join(member_id: str, topics: list[str]) -> None:
        world.share_beat(member_id, 0, topics=topics)
        world.pass_ms(0)

    def leave(member_id: str) -> None:
        world.share_beat(member_id, -1)
        world.pass_ms(0)

    def alter() -> None:
        world.make(**{names[0]: 2})

    def delete() -> None:
        world.delete(names[-1])
        world.pass_ms(0)

    def want(member_id: str, topics: list[str]) -> None:
        world.share_beat(member_id, epoch_of(member_id), topics=topics)

    events: dict[str, Callable[[], None]] = {
        "one joins": lambda: join("a", names),
        "another joins": lambda: join("b", names[1:]),
        "a topic grows": alter,
        "a topic is made that nobody reads": lambda: world.make(another=1),
        "one wants something else": lambda: want("b", names[10:]),
        "a topic goes": delete,
        "brokers move": lambda: world.tell(has_moved=True),
        "another leaves": lambda: leave("b"),
        "another leader": world.fail_over,
        "nobody wants some any more": lambda: want("a", names[50:]),
        "it wants all again": lambda: want("a", names),
        "one joins who wants what is not there": lambda: join("c", ["nowhere"]),
    }
    for event, happen in events.items():
        before = world.share_group.epoch if "g" in world.shares.groups else 0
        happen()
        for _ in range(4):
            for member_id in list(world.share_group.subscriptions):
                world.share_beat(member_id, epoch_of(member_id))
                world.pass_ms(0)
        is_moot = event in ("a topic is made that nobody reads", "brokers move", "another leader")
        assert (world.share_group.epoch == before) == is_moot, event
        epoch, end = world.share_group.epoch, len(world.log)
        assert lines_of_beat(world, "a") < BEAT_LINES_MAX, event
        assert (world.share_group.epoch, len(world.log), world.shares.next_ms) == (epoch, end, None), event
    assert sum(map(len, world.reads("a").values())) == count


def test_an_assignment_that_is_made_in_pieces_is_of_the_time_when_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics={"t": 1})
    world.now_ms = 777
    world.share_beat("a", 0, topics=["t"])
    world.now_ms = 888
    world.pass_ms(0)
    assert world.share_group.assigned_at_ms == world.wall_ms


def test_who_joins_a_large_group_has_its_own_topics_looked_at_and_no_others() -> None:
    count = 600
    names = [f"t{number:03}" for number in range(count)]
    world = Sharers(
        GroupSettings(share=ShareGroupSettings(assignment_interval_ms=1 << 30)), topics=dict.fromkeys(names, 1)
    )

    def join(member_id: str, *topics: str) -> int:
        lines = executed_lines(lambda: world.share_beat(member_id, 0, topics=topics))
        world.pass_ms(0)
        return lines

    join("a", *names)
    join("b", names[0])
    assert join("c", names[1]) < JOIN_LINES_MAX
    world.share_beat("b", -1)
    world.pass_ms(0)
    assert join("d", names[2]) < JOIN_LINES_MAX, "nor after somebody left"
