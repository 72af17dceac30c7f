"""What the share coordinator is to keep for share groups (KIP-932): begun, altered, deleted, and finished by others."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import Code
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import assignment
from tidelog.coordinator.groups.share import group_states
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.recorded import member_tombstones
from tidelog.coordinator.groups.share.requests import DeleteStates, InitializeStates, LookForStates, RaiseStates
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.states import STATE_BYTES, TOPIC_BYTES
from tidelog.wire.messages.api_92_delete_share_group_offsets import DeleteShareGroupOffsetsResponse

AT_ONCE = GroupSettings(share=ShareGroupSettings(assignment_interval_ms=0))


def world_of(*members: str, **topics: int) -> Sharers:
    world = Sharers(AT_ONCE, topics=topics or {"t": 2})
    for member_id in members:
        world.share(member_id, *world.topics)
    for _ in range(2):
        for member_id in members:
            world.share_on(member_id)
    return world


def emptied(**topics: int) -> Sharers:
    """A group that has begun, without members."""
    world = world_of("a", **topics)
    world.share_beat("a", -1)
    return world


# Begin.


def test_what_is_under_way_is_not_asked_for_again() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    world.share("a")
    world.share("b")
    world.share_on("a")
    assert len(world.pending) == 1


def test_an_error_is_asked_about_again_with_the_next_heartbeat() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    world.share("a")
    world.error = Code.INVALID_REQUEST
    world.answer_sends()
    world.error = None
    assert not world.share_group.known_states.initializing
    world.share_on("a")
    world.answer_sends()
    assert world.share_group.known_states.of_topic(world.state_id("t", 0)[0]) == {0, 1, 2, 3}


def test_a_request_that_comes_late_does_not_begin_anew_what_members_work_on() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    world.share("a")
    late = world.pending[0]
    world.fail_over()
    world.pending.clear()
    world.share_on("a")
    world.answer_sends()
    assert world.kept["g", world.state_id("t", 0)][0] == world.share_group.epoch
    world.pending.append(late)
    world.answer_sends()
    assert world.kept["g", world.state_id("t", 0)][0] == world.share_group.epoch, "it is fenced"
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1, 2, 3}}


def test_a_lost_answer_raises_the_epoch_of_the_next_request() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    world.share("a")
    before = world.share_group.epoch
    world.lose_answer()
    world.share_on("a")
    assert world.share_group.epoch == before + 1
    world.answer_sends()
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1, 2, 3}}


def test_an_answer_that_is_lost_after_another_heartbeat_is_asked_for_again() -> None:
    world = Sharers(AT_ONCE, answers_at_once=False)
    world.share("a")
    world.share_on("a")
    world.lose_answer()
    world.share_on("a")
    world.answer_sends()
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1, 2, 3}}


def test_a_state_of_an_earlier_group_of_the_name_is_begun_anew() -> None:
    world = Sharers(AT_ONCE)
    for partition in range(4):
        world.kept["g", world.state_id("t", partition)] = (5, 77)
    world.share("a")
    for _ in range(6):
        world.share_on("a")
    assert world.starts("t") == dict.fromkeys(range(4))
    assert world.reads("a") == {"t": {0, 1, 2, 3}}


def test_what_was_looked_at_is_not_looked_at_again_with_each_member() -> None:
    world = world_of("a", t=2)
    world.share("b", "t", "nowhere")
    assert not world.share_group.lacks_states
    world.share_beat("b", -1)
    assert not world.share_group.lacks_states
    world.topics["nowhere"] = 1
    world.tell("nowhere")
    world.share("c", "nowhere")
    for _ in range(2):
        world.share_on("c")
    assert world.reads("c") == {"nowhere": {0}}


def test_many_partitions_are_begun_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 3)
    world = Sharers(AT_ONCE, topics={"t": 5, "u": 3}, answers_at_once=False)
    world.share("a", "t", "u")
    sizes = []
    while world.pending:
        request = world.pending[0][1].request
        assert isinstance(request, InitializeStates)
        sizes.append(len(request.ids))
        world.answer_send()
        world.drive()
    assert sizes == [3, 3, 2]
    world.share_on("a")
    assert world.reads("a") == {"t": {0, 1, 2, 3, 4}, "u": {0, 1, 2}}


def test_states_that_no_record_holds_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_states, "BEGUN_AT_ONCE_MAX", 100)
    world = Sharers(AT_ONCE, topics={"t": 300}, answers_at_once=False, batch_bytes=1_200)
    world.share("a")
    for _ in range(10):
        if world.pending:
            world.answer_send()
            world.drive()
    assert not world.pending, "they would be asked for without end"
    world.share_on("a")
    (read,) = world.reads("a").values()
    assert read == set(range(len(read)))
    assert 200 < len(read) < 300, "as many as one record holds"


# Begin elsewhere.


def test_a_group_without_members_begins_elsewhere() -> None:
    world = emptied(t=2)
    before = world.share_group.epoch
    answer = world.alter({"t": {0: 7, 1: -1, 2: 5}, "nowhere": {0: 1}})
    assert world.share_group.epoch == before + 1
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert world.altered(answer) == {
        ("t", 0): Code.NONE,
        ("t", 1): Code.NONE,
        ("t", 2): unknown,
        ("nowhere", 0): unknown,
    }
    assert world.starts("t") == {0: 7, 1: None}
    assert world.kept["g", world.state_id("t", 0)][0] == world.share_group.epoch, "who worked on it is fenced"


def test_it_is_answered_once_it_is_kept() -> None:
    world = emptied()
    world.answers_at_once = False
    answer = world.alter({"t": {0: 7}})
    assert answer not in world.answers
    world.answer_sends()
    assert world.altered(answer) == {("t", 0): Code.NONE}
    world.error = Code.COORDINATOR_NOT_AVAILABLE
    answer = world.alter({"t": {0: 8}})
    world.answer_sends()
    assert world.altered(answer) == {("t", 0): Code.COORDINATOR_NOT_AVAILABLE}


def test_a_group_that_is_not_there_is_made() -> None:
    world = Sharers(AT_ONCE)
    world.altered(world.alter({"t": {1: 3}}))
    assert world.share_described().group_state == "Empty"
    assert world.starts("t") == {1: 3}
    world.share("a")
    world.share_on("a")
    assert world.starts("t") == {0: None, 1: 3, 2: None, 3: None}, "it keeps where it is to begin"


def test_a_group_is_not_made_under_an_id_that_no_record_holds() -> None:
    world = Sharers(AT_ONCE)
    assert world.refused(world.alter({"t": {0: 7}}, group_id="g" * 32_768)) == Code.INVALID_GROUP_ID
    assert world.refused(world.alter({"t": {0: 7}}, group_id="\u20ac" * 10_923)) == Code.INVALID_GROUP_ID
    assert world.altered(world.alter({"t": {0: 7}}, group_id="g" * 32_767)) == {("t", 0): Code.NONE}


def test_groups_are_made_as_far_as_there_is_room() -> None:
    world = Sharers(AT_ONCE, memory_bytes=20_000)
    codes = []
    for number in range(40):
        outcome = world.answers[world.alter({"t": {0: 7, 1: 7, 2: 7}}, group_id=f"g{number}")]
        codes.append(getattr(outcome, "code", Code.NONE))
    assert codes[0] is Code.NONE
    assert codes[-1] is Code.GROUP_MAX_SIZE_REACHED
    assert world.memory.used_bytes <= 20_000


def test_a_group_with_members_stays_where_it_is() -> None:
    world = world_of("a")
    assert world.refused(world.alter({"t": {0: 7}})) == Code.NON_EMPTY_GROUP
    assert world.refused(world.forget("t")) == Code.NON_EMPTY_GROUP
    assert world.refused(world.delete_group()) == Code.NON_EMPTY_GROUP
    assert world.starts("t") == {0: None, 1: None}


def test_what_cannot_be_an_offset_is_refused() -> None:
    world = emptied()
    assert world.altered(world.alter({"t": {0: -2}})) == {("t", 0): Code.INVALID_REQUEST}
    assert world.refused(world.alter({"t": {0: 1}}, "")) == Code.INVALID_GROUP_ID
    assert world.refused(world.forget("t", group_id="")) == Code.INVALID_GROUP_ID


def test_an_alteration_that_comes_late_does_not_undo_what_members_have_done_since() -> None:
    for is_next_leader in (False, True):
        world = emptied(t=2)
        world.answers_at_once = False
        answer = world.alter({"t": {0: 7}})
        late = world.pending[0]
        if is_next_leader:
            world.fail_over()
        else:
            world.error = Code.COORDINATOR_NOT_AVAILABLE
            world.answer_sends()
            world.error = None
            assert world.altered(answer) == {("t", 0): Code.COORDINATOR_NOT_AVAILABLE}
        world.pending.clear()
        world.share("b")
        world.share_on("b")
        assert world.reads("b") == {"t": {1}}, "the other is not settled"
        world.answer_sends()
        settled = world.kept["g", world.state_id("t", 0)]
        assert settled == (world.share_group.epoch, None), "it keeps where it was"
        world.share_on("b")
        assert world.reads("b") == {"t": {0, 1}}
        world.pending.append(late)
        world.answer_sends()
        assert world.kept["g", world.state_id("t", 0)] == settled


def test_an_alteration_that_was_done_and_of_which_nobody_knows_stands() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    world.alter({"t": {0: 7}})
    world.lose_answer()
    world.share("b")
    world.error = Code.COORDINATOR_NOT_AVAILABLE
    world.answer_sends()
    world.error = None
    before = world.share_group.epoch
    world.share_on("b")
    assert world.share_group.epoch == before + 1, "what was asked before may come yet"
    world.answer_sends()
    world.share_on("b")
    assert world.reads("b") == {"t": {0, 1}}
    assert world.starts("t") == {0: 7, 1: None}


def test_a_state_that_is_gone_when_its_alteration_is_settled_is_begun_anew(caplog: pytest.LogCaptureFixture) -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    world.alter({"t": {0: 7}})
    world.pending.clear()
    world.fail_over()
    del world.kept["g", world.state_id("t", 0)]
    world.share("b")
    world.answer_sends()
    assert "group g: THE POSITION IN t-0 IS LOST" in caplog.text
    world.share_on("b")
    world.answer_sends()
    world.share_on("b")
    assert world.reads("b") == {"t": {0, 1}}
    assert world.starts("t") == {0: None, 1: None}


# Forget topics.


def test_a_topic_is_forgotten_and_begun_anew() -> None:
    world = emptied(t=2, u=1)
    answer = world.forget("t", "nowhere")
    assert world.forgotten(answer) == {"t": Code.NONE, "nowhere": Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert (world.starts("t"), world.starts("u")) == ({}, {0: None})
    assert world.forgotten(world.forget("t")) == {"t": Code.UNKNOWN_TOPIC_OR_PARTITION}
    world.share("b", "t")
    world.share_on("b")
    assert world.reads("b") == {"t": {0, 1}}


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_an_alteration_finds_room_to_the_last_byte(missing_bytes: int) -> None:
    world = Sharers(AT_ONCE, topics={"t": 2})
    assert world.altered(world.alter({"t": {0: 1}})) == {("t", 0): Code.NONE}
    more_bytes = TOPIC_BYTES + STATE_BYTES + len("t")  # it is begun anew beside what is there
    world.memory.limit_bytes = world.memory.used_bytes + more_bytes - missing_bytes
    again = world.alter({"t": {0: 2}})
    if missing_bytes:
        assert world.refused(again) == Code.GROUP_MAX_SIZE_REACHED
    else:
        assert world.altered(again) == {("t", 0): Code.NONE}


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_a_group_that_is_made_finds_room_to_the_last_byte(missing_bytes: int) -> None:
    world = Sharers(AT_ONCE, topics={"t": 2})
    more_bytes = ShareGroup("g").size_bytes + TOPIC_BYTES + 2 * STATE_BYTES + len("t")
    world.memory.limit_bytes = more_bytes - missing_bytes
    made = world.alter({"t": {0: 2, 1: 3}})
    if missing_bytes:
        assert world.refused(made) == Code.GROUP_MAX_SIZE_REACHED
        assert not world.log
    else:
        assert set(world.altered(made).values()) == {Code.NONE}
        assert world.memory.used_bytes == more_bytes


def test_what_is_recorded_as_going_is_not_recorded_again() -> None:
    world = emptied(t=2, u=1)
    world.error = Code.COORDINATOR_NOT_AVAILABLE
    for is_group in (False, True):
        for is_again in (False, True):
            end = len(world.log)
            world.delete_group() if is_group else world.forget("t")
            assert (len(world.log) == end) == is_again


def test_it_is_told_why_there_is_nothing_to_forget() -> None:
    world = Sharers(AT_ONCE, topics={"t": 1, "u": 1})
    world.alter({"t": {0: 1}})
    answer = world.taken(world.forget("u", "x"), DeleteShareGroupOffsetsResponse)
    told = {row.topic_name: row.error_message or "" for row in answer.responses}
    assert told["u"].endswith("has read nothing of u")
    assert told["x"] == "there is no topic x"


def test_what_is_not_deleted_can_be_asked_for_again() -> None:
    world = emptied(t=2)
    world.error = Code.COORDINATOR_NOT_AVAILABLE
    assert world.forgotten(world.forget("t")) == {"t": Code.COORDINATOR_NOT_AVAILABLE}
    assert not world.share_group.known_states.initialized
    world.error = None
    assert world.forgotten(world.forget("t")) == {"t": Code.NONE}
    assert not world.starts("t")


def test_members_that_join_meanwhile_begin_after_the_deletion() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    answer = world.forget("t")
    world.share("b", "t")
    assert [type(send.request) for _, send in world.pending] == [DeleteStates]
    assert world.refused(world.alter({"t": {0: 1}})) == Code.NON_EMPTY_GROUP
    world.answer_sends()
    assert world.forgotten(answer) == {"t": Code.NONE}
    world.share_on("b")
    world.answer_sends()
    assert world.starts("t") == {0: None, 1: None}


def test_a_deletion_that_comes_late_spares_what_was_begun_since() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    world.forget("t")
    late = world.pending[0]
    world.fail_over()
    world.pass_ms(0)
    world.answer_sends()
    world.share("b", "t")
    world.answer_sends()
    world.share_on("b")
    assert world.reads("b") == {"t": {0, 1}}
    world.pending.append(late)
    world.answer_sends()
    assert world.starts("t") == {0: None, 1: None}


def test_nothing_is_altered_that_is_being_deleted() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    world.forget("t")
    assert world.altered(world.alter({"t": {0: 1}})) == {("t", 0): Code.COORDINATOR_NOT_AVAILABLE}


def test_who_hangs_up_before_its_turn_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    world = emptied(t=2)
    monkeypatch.setattr(assignment, "PIECE", 1)
    first = world.alter({"t": {0: 7}})
    second = world.alter({"t": {0: 8}})
    world.coordinator.on_disconnected(second, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(0)
    assert world.altered(first) == {("t", 0): Code.NONE}
    assert second not in world.answers
    assert world.starts("t")[0] == 7


# Forget a group.


def test_a_group_is_deleted_after_all_that_is_kept_of_it() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    answer = world.delete_group()
    assert answer not in world.answers
    assert "g" in world.shares.groups
    world.answer_sends()
    assert world.group_deleted(answer) is Code.NONE
    assert not world.kept
    assert "g" not in world.shares.groups
    assert world.memory.used_bytes == 0
    assert world.refused(world.delete_group()) == Code.GROUP_ID_NOT_FOUND


def test_a_group_that_is_deleted_twice_at_once_is_gone_for_both() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    answers = [world.delete_group(), world.delete_group()]
    for _ in range(4):  # each would ask again because of the other, without end
        if world.pending:
            world.answer_send()
            world.drive()
    assert not world.pending
    assert [world.group_deleted(one) for one in answers] == [Code.NONE, Code.NONE]
    assert not world.shares.groups


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("fails", [0, 1])
def test_of_two_deletions_at_once_one_is_enough(fails: int, order: tuple[int, int]) -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    answers = [world.forget("t"), world.forget("t")]
    sends = list(world.pending)
    world.pending.clear()
    for number in order:
        assert world.altered(world.alter({"t": {0: 1}})) == {("t", 0): Code.COORDINATOR_NOT_AVAILABLE}
        world.pending = [sends[number]]
        world.error = Code.COORDINATOR_NOT_AVAILABLE if number == fails else None
        world.answer_send()
        world.drive()
        world.error = None
        if number == 1:
            break  # the last that was asked for: what comes late says nothing that is not known
    expected = Code.COORDINATOR_NOT_AVAILABLE if fails == 1 else Code.NONE
    assert world.forgotten(answers[1]) == {"t": expected}
    is_gone = order == (0, 1) or fails == 0
    assert (not world.share_group.known_states.deleting) == is_gone


def test_of_two_deletions_at_once_the_first_may_be_answered_last() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    answers = [world.forget("t"), world.forget("t")]
    for index in (1, 0):
        world.answer_send(index)
        world.drive()
    assert [world.forgotten(one) for one in answers] == [{"t": Code.NONE}, {"t": Code.NONE}]
    assert not world.share_group.known_states.deleting


def test_a_late_answer_says_nothing_of_a_later_deletion() -> None:
    """Of a topic that was begun and is to go again: what is left of it would be nobody's."""
    world = emptied(t=2)
    world.answers_at_once = False
    world.forget("t")
    late = world.pending.pop()
    world.forget("t")
    world.answer_sends()
    world.alter({"t": {0: 7}})
    world.answer_sends()
    world.forget("t")
    (last,) = world.pending
    world.coordinator.on_sent(late[1].send_id, (None,) * 2, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert set(world.share_group.known_states.deleting.values()) == {"t"}, "it is kept yet"
    assert world.pending == [last]
    world.answer_sends()
    assert not world.kept
    assert not world.share_group.known_states.deleting


def test_a_group_of_which_something_is_left_stays() -> None:
    world = emptied(t=2)
    world.error = Code.COORDINATOR_NOT_AVAILABLE
    assert world.refused(world.delete_group()) == Code.COORDINATOR_NOT_AVAILABLE
    assert "g" in world.shares.groups
    world.error = None
    assert world.group_deleted(world.delete_group()) is Code.NONE
    assert not world.kept


def test_a_group_that_is_joined_meanwhile_stays() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    answer = world.delete_group()
    world.share("b")
    world.answer_sends()
    assert world.refused(answer) == Code.NON_EMPTY_GROUP
    world.share_on("b")
    world.answer_sends()
    world.share_on("b")
    assert world.reads("b") == {"t": {0, 1}}


def test_a_deletion_waits_for_what_is_being_begun() -> None:
    world = Sharers(AT_ONCE, topics={"t": 2}, answers_at_once=False)
    world.share("a")
    world.share_beat("a", -1)
    answer = world.delete_group()
    assert [type(send.request) for _, send in world.pending] == [InitializeStates]
    world.answer_sends()
    assert world.group_deleted(answer) is Code.NONE
    assert not world.kept


def test_what_is_begun_during_the_deletion_of_its_group_goes_as_well() -> None:
    world = emptied(t=2, u=1)
    world.forget("u")
    world.answers_at_once = False
    answer = world.delete_group()
    altered = world.alter({"u": {0: 7}})
    world.answer_sends()
    assert world.altered(altered) == {("u", 0): Code.NONE}
    assert world.group_deleted(answer) is Code.NONE
    assert not world.kept, "nobody would delete it any more, and its epoch would fence the next group of the name"
    assert "g" not in world.shares.groups


def test_the_next_leader_finishes_a_deletion() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    world.delete_group()
    world.pending.clear()
    world.fail_over()
    world.pass_ms(0)
    world.answer_sends()
    assert not world.kept
    assert not world.share_group.known_states.topic_ids
    assert world.group_deleted(world.delete_group()) is Code.NONE


# What is lost.


def test_what_is_not_kept_any_more_is_begun_anew_and_told(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of("a", t=2)
    world.share_on("a")
    lost = "g", world.state_id("t", 1)
    del world.kept[lost]
    for _ in range(2):
        world.pass_ms(group_states.LOOK_INTERVAL_MS // 2)
        world.share_on("a")
    assert [one.levelname for one in caplog.records] == ["WARNING"]
    assert "group g: THE POSITION IN t-1 IS LOST" in caplog.text
    for _ in range(3):
        world.share_on("a")
    assert world.kept[lost][0] > 2, "late requests about the state before are fenced"
    assert world.reads("a") == {"t": {0, 1}}
    assert world.begun["g", world.state_id("t", 0)] == 1
    assert not world.share_group.known_states.initializing


def test_a_look_of_before_says_nothing_of_what_was_begun_since() -> None:
    world = world_of("a", t=2)
    world.answers_at_once = False
    del world.kept["g", world.state_id("t", 1)]
    for _ in range(2):
        world.pass_ms(group_states.LOOK_INTERVAL_MS // 2)
        world.share_on("a")
    assert [type(send.request) for _, send in world.pending] == [LookForStates]
    world.share_beat("a", -1)
    world.alter({"t": {1: 7}})
    world.pending.reverse()
    world.answer_send()
    world.drive()
    world.kept.pop(("g", world.state_id("t", 0)))
    world.answer_sends()
    assert world.share_group.known_states.is_initialized(*world.state_id("t", 0)), "it is looked for again"


def test_an_error_is_no_loss() -> None:
    world = world_of("a", t=2)
    world.error = Code.COORDINATOR_NOT_AVAILABLE
    for _ in range(3):
        world.pass_ms(group_states.LOOK_INTERVAL_MS // 2)
        world.share_on("a")
    assert not world.share_group.known_states.initializing


def test_a_topic_that_is_gone_is_forgotten() -> None:
    world = world_of("a", t=2, u=1)
    world.delete("t")
    world.pass_ms(0)
    assert set(world.share_group.known_states.initialized) == {world.state_id("u", 0)[0]}
    world.shares.on_topics({}, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.pass_ms(0)
    assert not world.share_group.known_states.topic_ids


def test_what_was_to_begin_anew_is_settled_by_the_next_leader_and_not_begun() -> None:
    world = emptied(t=2)
    world.answers_at_once = False
    world.alter({"t": {0: 7}})
    assert world.share_group.known_states.initializing
    world.pending.clear()
    world.fail_over()
    world.share("a")
    assert [type(send.request) for _, send in world.pending] == [RaiseStates], (
        "nobody was told that it begins elsewhere"
    )
    world.answer_sends()
    assert not world.share_group.known_states.initializing


@pytest.mark.parametrize("gone", [(2,), (0, 2), (1, 2)])
def test_what_is_left_of_a_member_goes_with_the_next_leader_and_counts_no_more(gone: tuple[int, ...]) -> None:
    world = world_of("a", t=2)
    assert world.share_group.currents.keys() == world.share_group.targets.keys() == {"a"}
    removals = member_tombstones("g", "a")
    for one in gone:
        world.log.append((Offset(world.log[-1][0] + 1), removals[one]))
    world.fail_over()
    assert not world.share_group.currents
    assert not world.share_group.targets
    assert world.group_deleted(world.delete_group()) is Code.NONE
    assert world.memory.used_bytes == 0
