"""Share groups with many topics, partitions and members: how much is done in one step, and what comes in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.executed_lines import executed_lines
from support.fixtures.coordinated_consumers import topic_id
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment, long_records
from tidelog.coordinator.groups.consumer.assignment import Pace, finished
from tidelog.coordinator.groups.group_record_types import GroupRecordType, MemberRecordKey
from tidelog.coordinator.groups.share import recorded, share_groups
from tidelog.coordinator.groups.share.assignment_runs import ShareAssignmentRuns
from tidelog.coordinator.groups.share.group import PARTITION_BYTES
from tidelog.coordinator.groups.share.group_states import GroupStates
from tidelog.coordinator.groups.share.member import ShareCurrent, ShareSubscription, target_value
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.states import RecordedStates, TopicStates
from tidelog.journal import RequestId, Send
from tidelog.journal.versioned_records import encode_key, encode_value, record_type

AT_ONCE = GroupSettings(share=ShareGroupSettings(assignment_interval_ms=0, group_size_max=1_000))
STEP_LINES_MAX = 30_000
"""That is a millisecond or a few."""
TARGET = GroupRecordType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER
LINES_OF_A_ROW = 3
"""What it takes to make a row of a request."""


@pytest.fixture(autouse=True, scope="module")
def made_codecs() -> None:
    """What the first request of a process does once is no part of what is counted."""
    world = Sharers(AT_ONCE)
    for _ in range(3):
        world.share("a")
    world.share_beat("a", -1)
    world.alter({"t": {0: 1}})
    world.forget("t")
    world.delete_group()


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything takes long."""
    monkeypatch.setattr(assignment, "PIECE", 1)


def named(count: int) -> list[str]:
    return [f"topic-{number:05d}" for number in range(count)]


def on_time(world: Sharers) -> None:
    world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()


def answer(world: Sharers, send: Send, outcome: object) -> None:
    """Share coordinators answer."""
    world.coordinator.on_sent(send.send_id, outcome, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()


def longest_step(world: Sharers, ask: Callable[[], object] | None = None) -> int:
    """In lines: of a request, of what is done because of it, and of what share coordinators answer."""
    longest = 0 if ask is None else executed_lines(ask)
    while True:
        due_ms = world.coordinator.next_deadline_ms()
        if due_ms is not None and due_ms <= world.now_ms:
            longest = max(longest, executed_lines(lambda: on_time(world)))
        elif world.pending:
            _, send = world.pending.pop(0)
            longest = max(longest, executed_lines(partial(answer, world, send, world._done(send.request))))
        else:
            return longest


def epoch_of(world: Sharers, member_id: str) -> int:
    return world.share_group.current(member_id).member_epoch


def world_of(count: int, partitions: int = 1) -> Sharers:
    return Sharers(AT_ONCE, topics=dict.fromkeys(named(count), partitions), answers_at_once=False)


# How much is done in one step.


def test_no_step_is_long_though_members_name_thousands_of_topics() -> None:
    world, names = world_of(2_000), named(2_000)
    for number, member_id in enumerate("abc"):
        join = partial(world.share_beat, member_id, 0, topics=names[number:])
        assert longest_step(world, join) < STEP_LINES_MAX
    for member_id in "abcabc":
        beat = partial(world.share_beat, member_id, epoch_of(world, member_id))
        assert longest_step(world, beat) < STEP_LINES_MAX
    read = [partition for member_id in "abc" for partition in world.reads(member_id).items()]
    assert len({name for name, _ in read}) == 2_000
    world.delete(names[7])
    assert longest_step(world) < STEP_LINES_MAX
    assert longest_step(world, lambda: world.share_beat("c", -1)) < STEP_LINES_MAX
    assert not world.share_group.known_states.has(TopicId(topic_id(names[7])))
    before = world.share_group.clone().canonical()
    world.fail_over()
    assert world.share_group.canonical() == before


@pytest.mark.parametrize(("topics", "partitions"), [(5_000, 1), (5, 1_000)])
def test_no_step_is_long_though_a_group_stands_in_thousands_of_partitions(topics: int, partitions: int) -> None:
    world, names = world_of(topics, partitions), named(topics)
    for start in (3, 4):
        starts = {name: dict.fromkeys(range(partitions), start) for name in names}
        assert longest_step(world, partial(world.send_alter, world.alter_request(starts))) < STEP_LINES_MAX
        assert set(world.altered(RequestId(world.last_request)).values()) == {Code.NONE}
    assert world.starts(names[-1]) == dict.fromkeys(range(partitions), 4)
    assert longest_step(world, partial(world.forget, *names[1:])) < STEP_LINES_MAX + LINES_OF_A_ROW * topics
    assert set(world.forgotten(RequestId(world.last_request)).values()) == {Code.NONE}
    assert len(world.kept) == partitions
    assert longest_step(world, world.delete_group) < STEP_LINES_MAX
    assert world.group_deleted(RequestId(world.last_request)) == Code.NONE
    assert not world.kept
    assert not world.shares.groups


@pytest.mark.parametrize(("members", "partitions"), [(1_000, 10), (200, 1_000)])
def test_no_step_is_long_though_many_members_share_a_topic(members: int, partitions: int) -> None:
    world = world_of(1, partitions)
    for number in range(members):
        world.share_beat(f"m{number}", 0, topics=named(1))
    assert longest_step(world) < STEP_LINES_MAX
    for number in range(3):
        beat = partial(world.share_beat, f"m{number}", epoch_of(world, f"m{number}"))
        assert longest_step(world, beat) < STEP_LINES_MAX
    assert world.share_group.target_count == max(members, partitions)


def test_no_step_is_long_though_a_topic_of_many_groups_goes_and_many_members_are_gone() -> None:
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(200), 1))
    for number in range(60):
        world.share_beat("a", 0, topics=named(200), group_id=f"g{number}")
        world.pass_ms(0)
    world.delete("topic-00007")
    assert longest_step(world) < STEP_LINES_MAX
    gone = TopicId(topic_id("topic-00007"))
    assert not any(group.known_states.has(gone) for group in world.shares.groups.values())
    world.now_ms += 45_001
    assert longest_step(world) < STEP_LINES_MAX
    world.pass_ms(0)
    assert not any(group.subscriptions for group in world.shares.groups.values())


@pytest.mark.parametrize("read", [3, 20])
def test_no_step_is_long_though_thousands_of_topics_go_at_once_that_no_group_has_read(read: int) -> None:
    world = world_of(1_000)
    for number in range(60):
        world.share_beat("a", 0, topics=named(read), group_id=f"g{number}")
        world.answer_sends()
    gone = [TopicId(topic_id(name)) for name in named(1_000)[read - 1 :]]
    forget = partial(world.shares.on_topics_deleted, gone, now_ms=world.now_ms, wall_ms=world.wall_ms)
    assert longest_step(world, forget) < STEP_LINES_MAX
    kept = [len(group.known_states.topic_ids) for group in world.shares.groups.values()]
    assert kept == [read - 1] * 60


def test_no_step_is_long_though_a_new_leader_looks_for_the_topics_of_many_groups() -> None:
    world = world_of(300)
    for number in range(60):
        world.share_beat("a", 0, topics=named(300), group_id=f"g{number}")
        world.pass_ms(0)
        world.answer_sends()
    known = {TopicId(topic_id(name)): None for name in named(10)}
    look = partial(world.shares.on_topics, known, now_ms=world.now_ms, wall_ms=world.wall_ms)
    assert longest_step(world, look) < STEP_LINES_MAX
    for group in world.shares.groups.values():
        assert set(group.known_states.topic_ids) == set(known)


def test_no_step_is_long_though_the_deletions_of_many_groups_are_undone() -> None:
    world = world_of(100)
    for number in range(20):
        world.alter({name: {0: 1} for name in named(100)}, group_id=f"g{number}")
        world.pass_ms(0)
        world.answer_sends()
        world.pass_ms(0)
    for number in range(20):
        world.delete_group(f"g{number}")
        world.pass_ms(0)
    assert len(world.pending) == 20
    world.pending.clear()  # the leader is no more
    lines = []
    start = GroupStates.start
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GroupStates, "start", lambda *args: lines.append(executed_lines(lambda: start(*args))))
        world.fail_over()
    assert max(lines) < STEP_LINES_MAX
    assert longest_step(world) < STEP_LINES_MAX
    assert not world.kept


# What comes in between.


def pieces(world: Sharers, count: int) -> None:
    for _ in range(count):
        on_time(world)


@pytest.mark.usefixtures("in_pieces")
def test_what_is_asked_of_a_group_is_done_in_its_order() -> None:
    world = Sharers(AT_ONCE)
    join = world.share_beat("a", 0, topics=["t"])
    altered = world.alter({"t": {0: 7}})
    left = world.share_beat("a", -1)
    altered_again = world.alter({"t": {0: 8}})
    assert not world.answers
    world.pass_ms(0)
    assert world.share_heard(join).member_epoch > 0
    assert world.refused(altered) == Code.NON_EMPTY_GROUP
    assert world.share_heard(left).member_epoch == -1
    assert world.altered(altered_again) == {("t", 0): Code.NONE}
    assert world.starts("t")[0] == 8
    assert not world.shares._work._droppable, "nothing is held of what is done"


@pytest.mark.usefixtures("in_pieces")
def test_a_group_that_is_not_there_is_made_in_pieces_too() -> None:
    world = Sharers(AT_ONCE)
    altered = world.alter({"t": {0: 7}})
    assert altered not in world.answers
    world.pass_ms(0)
    assert world.altered(altered) == {("t", 0): Code.NONE}


@pytest.mark.usefixtures("in_pieces")
def test_other_groups_do_not_wait() -> None:
    world = Sharers(AT_ONCE, topics={"t": 4, **dict.fromkeys(named(500), 1)}, answers_at_once=False)
    long = world.alter({name: {0: 1} for name in named(500)}, group_id="long")
    short = world.share_beat("a", 0, topics=["t"], group_id="short")
    while short not in world.answers:
        on_time(world)
    assert long not in world.answers
    assert len(world.pending) == 1


@pytest.mark.usefixtures("in_pieces")
def test_an_id_that_another_kind_of_group_took_meanwhile_is_refused() -> None:
    for is_heartbeat in (False, True):
        world = Sharers(AT_ONCE)
        asked = world.share_beat("a", 0, topics=["t"]) if is_heartbeat else world.alter({"t": {0: 7}})
        pieces(world, 2)
        assert asked not in world.answers
        world.beat("b", 0, topics=["t"], owned={}, rebalance_ms=60_000)
        world.pass_ms(0)
        assert world.refused(asked) == Code.GROUP_ID_NOT_FOUND
        assert not world.shares.groups
        assert not world.pending


@pytest.mark.usefixtures("in_pieces")
def test_a_member_that_is_being_heard_is_not_thrown_out() -> None:
    world = Sharers(AT_ONCE)
    joined = world.share_beat("a", 0, topics=["t"])
    world.pass_ms(1)
    world.share_heard(joined)
    world.pass_ms(44_998)
    beat = world.share_beat("a", epoch_of(world, "a"), topics=["t"])
    assert beat not in world.answers
    world.pass_ms(10)  # its session would be over
    world.share_heard(beat)
    assert set(world.share_group.subscriptions) == {"a"}
    world.pass_ms(45_000)
    assert not world.share_group.subscriptions


@pytest.mark.usefixtures("in_pieces")
def test_who_waits_is_told_once_that_another_coordinates() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    altered = world.alter({"t": {0: 7}})
    world.pass_ms(0)  # it is asked of the share coordinator
    waiting = [world.share_beat("a", 0, topics=["t"]), world.forget("t"), world.delete_group()]
    pieces(world, 2)
    assert not world.answers
    world.coordinator.resign()
    world.drive()
    for request_id in (altered, *waiting):
        assert world.refused(request_id) == Code.NOT_COORDINATOR


@pytest.mark.usefixtures("in_pieces")
def test_nothing_is_recorded_of_a_topic_that_is_deleted_meanwhile() -> None:
    for count in range(25):
        world = Sharers(AT_ONCE, topics={"t": 2, "u": 2})
        asked = world.share_beat("a", 0, topics=["t", "u"])
        pieces(world, count)
        gone = TopicId(topic_id("u"))
        world.delete("u")
        world.pass_ms(0)
        world.share_heard(asked)
        assert not world.share_group.known_states.has(gone), count


@pytest.mark.usefixtures("in_pieces")
def test_a_target_that_is_made_when_its_member_leaves_is_not_recorded() -> None:
    for count in range(60):
        world = Sharers(AT_ONCE, topics=dict.fromkeys(named(3), 2))
        for member_id in "ab":
            world.share_beat(member_id, 0, topics=named(3))
            world.pass_ms(0)
        world.share_beat("a", epoch_of(world, "a"))
        pieces(world, count)
        world.share_beat("b", -1)
        world.pass_ms(0)
        assert set(world.share_group.targets) <= {"a"}, count


@pytest.mark.usefixtures("in_pieces")
def test_a_group_that_is_deleted_while_it_is_assigned_is_not_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(30), 1))
    world.share_beat("a", 0, topics=named(30))
    world.pass_ms(0)
    world.share_beat("b", 0, topics=named(30))
    runs = world.shares._runs
    monkeypatch.setattr(ShareAssignmentRuns, "step", lambda self, at: None)  # it has its turn later
    world.now_ms += 1
    while not runs.group_ids or world.shares._work.group_ids:
        on_time(world)
    for member_id in ("a", "b", None):
        request_id = world.delete_group() if member_id is None else world.share_beat(member_id, -1)
        while request_id not in world.answers:
            on_time(world)
    assert not runs.is_idle
    monkeypatch.undo()
    world.pass_ms(0)
    assert runs.is_idle
    assert not world.shares.groups
    assert world.memory.used_bytes == 0


def test_members_stay_where_they_are_while_their_group_is_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics={"t": 4, "u": 1})
    world.share("a", "t", "u")
    for _ in range(2):
        world.pass_ms(0)
        world.share_on("a")
    before = world.share_group.current("a")
    assert before.partition_count == 5
    world.share("b", "t")
    world.pass_ms(0)
    target_epoch = world.share_group.target_epoch
    assert before.member_epoch < target_epoch
    assert world.share("c", "t").member_epoch == target_epoch
    assert not world.shares._runs.is_idle
    assert world.share("d", "t").member_epoch == target_epoch, "who joins now is at the epoch of the last assignment"
    assert world.share_on("a").member_epoch == before.member_epoch
    assert world.share_group.current("a") == before
    world.share_heard(world.share_beat("a", before.member_epoch, topics=["t"]))
    assert world.reads("a") == {"t": {0, 1, 2, 3}}, "but for what it does not want any more"
    world.pass_ms(0)
    assert world.share_on("a").member_epoch == world.share_group.target_epoch > target_epoch


def test_an_assignment_that_no_record_holds_is_told_once_and_not_begun_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics={"t": 100}, answers_at_once=False)
    world.share("a", "t")
    world.pass_ms(0)
    world.answer_sends()
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 400
    for _ in range(3):
        world.share_on("a")
        world.pass_ms(0)
    (told,) = [one.getMessage() for one in caplog.records]
    assert told.startswith("group g keeps the assignment that it has: ")
    assert world.reads("a") == {}
    world.share_on("a")
    assert world.shares.next_ms is None


def test_a_target_that_stays_is_not_recorded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics={"t": 2, "u": 2})
    for member_id, topic in (("a", "t"), ("b", "u")):
        world.share(member_id, topic)
        for _ in range(2):
            world.pass_ms(0)
            world.share_on(member_id)
    end = len(world.log)
    world.now_ms += 5_000
    world.share("c", "u")
    world.pass_ms(0)
    assert set(world.share_group.targets) == {"a", "b", "c"}
    assert world.share_group.assigned_at_ms == world.wall_ms
    targets = {key for key, _ in world.committed[end:] if record_type(key) == TARGET}
    assert targets == {encode_key(TARGET, MemberRecordKey(group_id="g", member_id=one)) for one in "bc"}


@pytest.mark.usefixtures("in_pieces")
def test_nothing_is_left_to_do_for_who_resigned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(30), 1))
    world.share_beat("a", 0, topics=named(30))
    while not world.shares._runs.group_ids:
        on_time(world)
    world.share_beat("a", epoch_of(world, "a"), topics=named(30))
    assert world.shares.next_ms == 0
    world.coordinator.resign()
    assert world.shares.next_ms is None
    assert world.shares._runs.is_idle
    assert world.shares._work.is_idle


@pytest.mark.usefixtures("in_pieces")
def test_what_waits_for_its_turn_is_not_done_if_whoever_asked_is_gone() -> None:
    world = Sharers(AT_ONCE, topics={"t": 1, "u": 1})
    world.alter({"t": {0: 6}})
    world.pass_ms(0)
    end = len(world.log)
    done = world.alter({"t": {0: 7}})
    while len(world.log) == end:
        on_time(world)
    assert done not in world.answers
    waiting = [
        world.alter({"t": {0: 8}}),
        world.share_beat("a", 0, topics=["t"]),
        world.forget("t"),
        world.delete_group(),
    ]
    stays = world.alter({"u": {0: 9}})
    for request_id in (done, *waiting):
        world.coordinator.on_disconnected(request_id, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(0)
    assert world.altered(done) == {("t", 0): Code.NONE}, "it was written"
    assert world.altered(stays) == {("u", 0): Code.NONE}
    assert world.starts("t") == {0: 7}
    assert not set(waiting) & set(world.answers)


@pytest.mark.usefixtures("in_pieces")
def test_a_heartbeat_that_lists_nothing_is_heard_though_its_sender_hangs_up() -> None:
    world = Sharers(AT_ONCE)
    world.share_beat("a", 0, topics=["t"])
    world.pass_ms(0)
    world.share_beat("b", 0, topics=["t"])
    beat = world.share_beat("a", epoch_of(world, "a"))
    world.coordinator.on_disconnected(beat, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(0)
    world.share_heard(beat)


@pytest.mark.usefixtures("in_pieces")
def test_what_has_changed_nothing_yet_is_not_done_if_whoever_asked_is_gone() -> None:
    asked: dict[str, Callable[[Sharers], RequestId]] = {
        "alter": lambda world: world.alter({"t": {0: 8}}),
        "forget": lambda world: world.forget("t"),
        "delete": lambda world: world.delete_group(),
    }
    for what, ask in asked.items():
        outcomes = set()
        for count in range(40):
            world = Sharers(AT_ONCE, topics={"t": 1, "u": 1})
            world.alter({"t": {0: 7}})
            world.pass_ms(0)
            before, log = world.share_group.clone().canonical(), len(world.log)
            request_id = ask(world)
            pieces(world, count)
            is_kept = len(world.log) > log
            world.coordinator.on_disconnected(request_id, now_ms=world.now_ms, wall_ms=world.wall_ms)
            world.pass_ms(0)
            assert (request_id in world.answers) >= is_kept, (what, count)
            if request_id not in world.answers:
                assert world.share_group.canonical() == before, (what, count)
            outcomes.add(request_id in world.answers)
            later = world.share_beat("b", 0, topics=["u"])
            world.pass_ms(0)
            world.share_heard(later)
        assert outcomes == {False, True}, what


@pytest.mark.usefixtures("in_pieces")
def test_a_member_whose_heartbeat_is_being_done_is_in_though_it_hangs_up() -> None:
    """What the group lacks was noted already: nobody would look for it again."""
    world = Sharers(AT_ONCE)
    joined = world.share_beat("a", 0, topics=["t"])
    assert joined not in world.answers
    world.coordinator.on_disconnected(joined, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(0)
    world.share_heard(joined)
    assert set(world.share_group.subscriptions) == {"a"}
    assert len(world.kept) == 4


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_member_that_has_left_when_its_session_is_over_is_not_put_out_again(is_deleted: bool) -> None:
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(3), 1))
    for member_id in "ab":
        world.share_beat(member_id, 0, topics=named(3))
        world.pass_ms(0)
    world.share_beat("b", -1)
    world.pass_ms(0)
    epoch = world.share_group.epoch
    left = world.share_beat("a", -1)
    if is_deleted:
        world.delete_group()
    assert left not in world.answers
    world.now_ms += 45_000
    world.pass_ms(0)
    world.share_heard(left)
    assert ("g" in world.shares.groups) != is_deleted
    if not is_deleted:
        assert world.share_group.epoch == epoch + 1


@pytest.mark.usefixtures("in_pieces")
def test_a_member_that_leaves_and_does_not_wait_for_the_answer_is_out() -> None:
    world = Sharers(AT_ONCE)
    world.share_beat("a", 0, topics=["t"])
    world.pass_ms(0)
    world.share_beat("b", 0, topics=["t"])
    left = world.share_beat("a", -1, topics=["t"])
    world.coordinator.on_disconnected(left, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(0)
    assert set(world.share_group.subscriptions) == {"b"}


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("groups", [1, 3])
def test_a_group_is_assigned_though_heartbeats_always_wait_for_each_other(
    groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(3), 2))
    group_ids = [f"g{number}" for number in range(groups)]
    asked: dict[tuple[str, str], RequestId] = {}
    for _ in range(1_000 * groups):
        for group_id in group_ids:
            for member_id in "ab":
                key = group_id, member_id
                if key in asked and asked[key] not in world.answers:
                    continue
                group = world.shares.groups.get(group_id)
                epoch = 0 if group is None else group.current(member_id).member_epoch
                asked[key] = world.share_beat(member_id, epoch, topics=named(3), group_id=group_id)
        on_time(world)
    for group_id in group_ids:
        assert world.shares.groups[group_id].target_count == 6
        assert all(world.reads(member_id, group_id) for member_id in "ab")


# A refusal.


@pytest.mark.usefixtures("in_pieces")
def test_members_that_join_many_groups_at_once_find_the_room_that_there_is() -> None:
    one = Sharers(AT_ONCE, topics=dict.fromkeys(named(50), 0))
    one.share_beat("a", 0, topics=named(50))
    one.pass_ms(0)
    one_bytes = one.memory.used_bytes
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(50), 0), memory_bytes=3 * one_bytes)
    joined = [world.share_beat("a", 0, topics=named(50), group_id=f"g{number}") for number in range(20)]
    world.pass_ms(0)
    refused = [request_id for request_id in joined if isinstance(world.answers[request_id], KafkaError)]
    assert {world.refused(request_id) for request_id in refused} == {Code.GROUP_MAX_SIZE_REACHED}
    assert world.memory.used_bytes < 4 * one_bytes + 1_000
    assert len(world.shares.groups) == 20 - len(refused)


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_an_assignment_finds_room_to_the_last_byte(
    missing_bytes: int, is_large: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = Sharers(AT_ONCE, topics={"t": 7, "u": 1})
    world.share("a", "u")
    for _ in range(2):
        world.share_on("a")
    world.share_beat("a", epoch_of(world, "a"), topics=["t", "u"])
    if is_large:
        monkeypatch.setattr(share_groups, "AT_ONCE_MAX", 0)
    subscribed = world.share_group.epoch
    assert world.share_group.known_states.partition_count == 8
    assert world.share_group.target_count == 1
    world.memory.limit_bytes = world.memory.used_bytes + 2 * PARTITION_BYTES * 7 - missing_bytes
    for _ in range(3):
        world.share_on("a")
        world.pass_ms(0)
    assert world.share_group.target_count == (1 if missing_bytes else 8)
    told = [one for one in caplog.records if "finds no room" in one.getMessage()]
    assert len(told) == missing_bytes, "it is told once of an epoch"
    if missing_bytes:
        assert world.share_group.epoch > world.share_group.target_epoch
        world.memory.limit_bytes = 1 << 30
        world.share_on("a")
        world.pass_ms(0)
        assert world.share_group.target_count == 1, "nobody tries again before something changes"
        world.share("b", "u")
        assert is_large or world.share_group.target_epoch == world.share_group.epoch
        for _ in range(2):
            world.pass_ms(0)
            world.share_on("a")
        assert world.share_group.target_epoch > subscribed


def test_a_group_that_is_made_anew_is_not_refused_what_its_predecessor_was() -> None:
    world = Sharers(AT_ONCE, topics={"t": 2}, memory_bytes=30_000)
    world.make(t=130)
    world.share_beat("a", 0, topics=["t"])
    world.share_beat("a", epoch_of(world, "a"))
    assert world.share_group.target_count < 130, "it finds no room"
    for _ in range(3):
        world.share_beat("c", 0, topics=["t"])
        world.share_beat("c", -1)
    for _ in range(2):
        world.share_beat("a", epoch_of(world, "a"))
    refused_at = world.share_group.epoch
    world.share_beat("a", -1)
    assert world.group_deleted(world.delete_group()) == Code.NONE
    world.memory.limit_bytes = 1 << 30
    world.share_beat("b", 0, topics=["t"])
    world.share_beat("b", epoch_of(world, "b"))
    is_there = False
    while world.share_group.epoch < refused_at:
        if world.share_group.epoch == refused_at - 1:  # the assignment for the next epoch is put off
            world.shares.on_settings(ShareGroupSettings(assignment_interval_ms=1_000), {})
        world.share_beat("c", -1 if is_there else 0, topics=["t"])
        is_there = not is_there
        world.share_beat("b", epoch_of(world, "b"))
    assert world.share_group.target_epoch < world.share_group.epoch == refused_at
    world.pass_ms(1_000)
    world.share_beat("b", epoch_of(world, "b"))
    assert world.share_group.target_epoch == refused_at


def test_a_refusal_of_what_a_share_coordinators_answer_leads_to_is_told() -> None:
    world = Sharers(AT_ONCE, topics=dict.fromkeys(named(40), 1), answers_at_once=False)
    world.alter({name: {0: 1} for name in named(20)})
    world.answer_sends()
    deleted = world.delete_group()
    world.alter({name: {0: 1} for name in named(40)[20:]})
    world.coordinator.batch_size_bytes_max = world.batch_bytes = 500  # holds no record of what is to be deleted more
    world.answer_send(0)
    world.drive()
    assert world.refused(deleted) == Code.INVALID_REQUEST


# The epochs of states.


def test_states_of_a_much_higher_epoch_are_begun_anew_after_a_few_heartbeats() -> None:
    world = Sharers(AT_ONCE, topics={"t": 1})
    world.kept["g", world.state_id("t", 0)] = (1_000_000, 5)
    world.share("a")
    for _ in range(25):
        world.share_on("a")
    assert world.reads("a") == {"t": {0}}


def test_epochs_are_not_raised_beyond_what_can_be_recorded() -> None:
    world = Sharers(AT_ONCE, topics={"t": 1})
    world.kept["g", world.state_id("t", 0)] = ((1 << 31) - 1, 5)
    world.share("a")
    for _ in range(2_100):
        world.share_on("a")
    assert world.share_group.epoch < 1 << 31


# Records.

TOPIC_STATES = st.dictionaries(
    st.integers(0, 40), st.frozensets(st.integers(0, 9), min_size=1).map(lambda one: TopicStates("t" * len(one), one))
)


@given(TOPIC_STATES, TOPIC_STATES, st.dictionaries(st.integers(0, 40), st.just("t")), st.integers(1, 7))
def test_records_that_are_made_in_pieces_are_as_those_that_are_made_at_once(
    initializing: dict[int, TopicStates], initialized: dict[int, TopicStates], deleting: dict[int, str], at_once: int
) -> None:
    states = RecordedStates(
        {topic_id(str(number)): one for number, one in initializing.items()},
        {topic_id(str(number)): one for number, one in initialized.items()},
        {topic_id(str(number)): name for number, name in deleting.items()},
    )
    target = {topic: one.partitions for topic, one in states.initialized.items()}
    current = ShareCurrent(7, 5, target)
    subscription = ShareSubscription("c", "h", "r", tuple(map(str, initialized)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "TOPICS_AT_ONCE", at_once)
        patch.setattr(long_records, "ELEMENTS_AT_ONCE", at_once)
        for record, expected in (
            (finished(recorded.states_record("g", states, Pace())), states.value()),
            (finished(recorded.target_record("g", "m", target, Pace())), target_value(target)),
            (finished(recorded.current_record("g", "m", current, Pace())), current.value()),
            (finished(recorded.member_record("g", "m", subscription, Pace())), subscription.value()),
        ):
            assert record[1] == encode_value(expected, recorded.VERSION)
    value = finished(recorded.states_record("g", states, Pace()))[1]
    assert value is not None
    assert len(value) < states.record_bytes + 128


SMALL_PIECE = 20
SMALL_STEP_LINES_MAX = {
    "alter": 4_000,
    "join": 7_500,
    "beat": 7_500,
    "topics grow": 13_000,
    "look": 6_000,
    "leave": 8_000,
    "forget": 4_500,
    "delete": 3_000,
}
"""Of 600 topics. What looks at them all, and counts nothing, takes some thousands more."""


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment, "PIECE", SMALL_PIECE)
    monkeypatch.setattr(share_groups, "AT_ONCE_MAX", SMALL_PIECE)


@pytest.mark.usefixtures("small_pieces")
def test_steps_are_as_short_as_they_are_to_be() -> None:
    world, names = world_of(600), named(600)

    def check(what: str, ask: Callable[[], object]) -> None:
        assert longest_step(world, ask) < SMALL_STEP_LINES_MAX[what], what

    def beat(what: str, member_id: str) -> None:
        check(what, partial(world.share_beat, member_id, epoch_of(world, member_id)))

    check("alter", partial(world.send_alter, world.alter_request({name: {0: 3} for name in names})))
    for member_id in "ab":
        check("join", partial(world.share_beat, member_id, 0, topics=names))
    for member_id in "abab":
        beat("beat", member_id)
    world.make(**dict.fromkeys(names, 2))
    for member_id in "abab":
        beat("topics grow", member_id)
    assert sum(len(some) for member_id in "ab" for some in world.reads(member_id).values()) == 1_200
    world.now_ms += 60_001  # it is time to look for the states
    beat("look", "a")
    for member_id in "ab":
        check("leave", partial(world.share_beat, member_id, -1))
    check("forget", partial(world.forget, *names[1:]))
    check("delete", world.delete_group)
    assert not world.kept
