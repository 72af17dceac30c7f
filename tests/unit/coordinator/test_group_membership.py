"""Stories of classic groups: joining, assigning, staying, leaving, on a virtual clock."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated import REBALANCE_MS, SESSION_MS, Coordinated, subscription
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.records import decode_group, group_key
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse

DELAY_MS = 3_000


def test_a_new_member_comes_back_with_the_id_it_is_given() -> None:
    world = Coordinated()
    member = world.member_id_required(client_id="app")
    assert member.startswith("app-")
    join = world.join(member)
    assert join not in world.answers
    world.pass_ms(2 * DELAY_MS)
    answer = world.taken(join, JoinGroupResponse)
    assert (answer.error_code, answer.generation_id, answer.member_id) == (0, 1, member)
    assert (answer.leader, answer.protocol_name, answer.protocol_type) == (member, "range", "consumer")
    assert [one.member_id for one in answer.members] == [member]


@pytest.mark.parametrize("api_version", [0, 3])
def test_old_clients_are_in_at_once(api_version: int) -> None:
    world = Coordinated()
    join = world.join(api_version=api_version, rebalance_ms=-1)
    world.pass_ms(2 * DELAY_MS)
    assert world.taken(join, JoinGroupResponse).generation_id == 1


def test_an_id_that_nobody_comes_back_with_is_forgotten() -> None:
    world = Coordinated()
    member = world.member_id_required()
    world.pass_ms(SESSION_MS - 1)
    assert "g" in world.coordinator.groups
    world.pass_ms(1)
    assert not world.coordinator.groups
    assert world.refused(world.join(member)) == Code.UNKNOWN_MEMBER_ID
    assert not world.log


def test_the_first_rebalance_waits_while_members_come() -> None:
    world = Coordinated()
    joins = [world.join(api_version=3)]
    for _ in range(3):
        world.pass_ms(DELAY_MS - 1)
        joins.append(world.join(api_version=3))
        world.pass_ms(1)
    world.pass_ms(DELAY_MS - 1)
    assert not any(join in world.answers for join in joins)
    world.pass_ms(1)
    answers = [world.taken(join, JoinGroupResponse) for join in joins]
    assert {answer.generation_id for answer in answers} == {1}
    assert [len(answer.members) for answer in answers] == [4, 0, 0, 0]


def test_the_first_rebalance_waits_no_longer_than_members_allow() -> None:
    world = Coordinated()
    join = world.join(api_version=3, rebalance_ms=2 * DELAY_MS + 500)
    for _ in range(4):
        world.pass_ms(2_000)
        world.join(api_version=3, rebalance_ms=1_000)
    assert join in world.answers
    assert world.taken(join, JoinGroupResponse).generation_id == 1


def test_a_member_that_stays_alone_waits_once() -> None:
    world = Coordinated()
    join = world.join(api_version=3)
    world.pass_ms(DELAY_MS - 1)
    assert join not in world.answers
    world.pass_ms(1)
    assert world.taken(join, JoinGroupResponse).generation_id == 1


def test_while_members_keep_coming_the_first_waits_to_the_end_of_its_time() -> None:
    world = Coordinated()
    join = world.join(api_version=3, rebalance_ms=2 * DELAY_MS + 500)
    for _ in range(2 * DELAY_MS // 500):
        world.pass_ms(500)
        assert join not in world.answers
        world.join(api_version=3, rebalance_ms=1_000)
    world.pass_ms(499)
    assert join not in world.answers
    world.pass_ms(1)
    assert join in world.answers


def test_an_assignment_is_no_sign_of_life_of_who_does_not_ask_for_its_part() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    world.join(second)
    world.pass_ms(SESSION_MS - 1)
    world.heartbeat(first, 2)
    world.sync(first, 2, {second: b"x"})
    assert len(world.described().members) == 2
    world.pass_ms(1)
    assert [one.member_id for one in world.described().members] == [first]


def test_who_has_waited_for_its_part_has_a_whole_session_afterwards() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    world.join(second)
    sync = world.sync(second, 2)
    for _ in range(4):
        world.pass_ms(SESSION_MS // 2)
        world.heartbeat(first, 2)
    assert sync not in world.answers, "who waits for us is not expected to be heard of"
    world.sync(first, 2, {second: b"x"})
    assert world.taken(sync, SyncGroupResponse).assignment == b"x"
    for passed_ms, count in ((SESSION_MS - 1, 2), (1, 1)):
        world.pass_ms(passed_ms)
        world.heartbeat(first, 2)
        assert len(world.described().members) == count


def test_members_that_have_no_longer_than_the_first_wait_are_not_kept_waiting() -> None:
    for rebalance_ms in (DELAY_MS - 1, DELAY_MS):
        world = Coordinated()
        join = world.join(api_version=3, rebalance_ms=rebalance_ms)
        world.pass_ms(DELAY_MS - 1)
        world.join(api_version=3, rebalance_ms=rebalance_ms)
        assert join not in world.answers
        world.pass_ms(1)
        assert len(world.taken(join, JoinGroupResponse).members) == 2


def test_without_a_delay_a_member_is_alone_at_first() -> None:
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=0))
    answer = world.taken(world.join(api_version=3), JoinGroupResponse)
    assert answer.generation_id == 1


def test_all_learn_their_part_from_the_leader() -> None:
    world = Coordinated()
    members = world.stable_group("a", "b", "c")
    described = world.described()
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert {one.member_id: one.member_assignment for one in described.members} == {one: one.encode() for one in members}
    again = world.sync(members[1], 1)
    assert world.taken(again, SyncGroupResponse).assignment == members[1].encode()


def test_a_newcomer_makes_all_join_again() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    third = world.member_id_required(client_id="c")
    join = world.join(third)
    assert world.refused(world.heartbeat(first, 1)) == Code.REBALANCE_IN_PROGRESS
    joins = [world.join(first), world.join(second), join]
    answers = [world.taken(one, JoinGroupResponse) for one in joins]  # at once: nobody is waited for
    assert [answer.generation_id for answer in answers] == [2, 2, 2]
    assert [answer.leader for answer in answers] == [first] * 3
    world.synced([first, second, third], 2, leader=first)


def test_who_does_not_join_again_is_out() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    join = world.join(first)
    for _ in range(REBALANCE_MS // 5_000):
        assert join not in world.answers
        world.heartbeat(second, 1)  # alive, but deaf
        world.pass_ms(5_000)
    answer = world.taken(join, JoinGroupResponse)
    assert [one.member_id for one in answer.members] == [first]
    assert world.refused(world.heartbeat(second, 2)) == Code.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_when_its_session_ends() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    for _ in range(3):
        world.pass_ms(SESSION_MS - 1)
        assert world.taken(world.heartbeat(first, 1), HeartbeatResponse)
        world.commit({("t", 0): 1}, second, 1)  # a commit is a sign of life too
    world.pass_ms(SESSION_MS - 1)
    world.heartbeat(first, 1)
    world.pass_ms(1)
    assert world.refused(world.heartbeat(first, 1)) == Code.REBALANCE_IN_PROGRESS
    answer = world.taken(world.join(first), JoinGroupResponse)
    assert [one.member_id for one in answer.members] == [first]


def test_when_the_last_one_goes_the_group_is_empty_and_recorded_so() -> None:
    world = Coordinated()
    world.stable_group()
    world.pass_ms(SESSION_MS)
    assert world.described().group_state == "Empty"
    value = dict(world.committed)[group_key("g")]
    assert value is not None
    recorded = decode_group(value)
    assert (recorded.generation, recorded.members, recorded.protocol, recorded.leader) == (2, [], None, None)
    assert recorded.protocol_type == "consumer"


def test_a_leader_that_leaves_hands_over() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    assert world.leave_codes(world.leave((first, None))) == [0]
    answer = world.taken(world.join(second), JoinGroupResponse)
    assert (answer.leader, answer.generation_id) == (second, 2)


@pytest.mark.parametrize("api_version", [1, 3])
def test_the_others_go_on_as_soon_as_the_last_one_that_was_waited_for_leaves(api_version: int) -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    join = world.join(first)
    assert join not in world.answers
    world.leave((second, None), api_version=api_version)
    assert [one.member_id for one in world.taken(join, JoinGroupResponse).members] == [first]


def test_the_others_go_on_as_soon_as_an_id_is_given_back() -> None:
    world = Coordinated()
    (first,) = world.stable_group()
    second = world.member_id_required()
    world.join(second)
    third = world.member_id_required()
    join = world.join(first)
    assert join not in world.answers, "the third may come back with its id"
    world.leave((third, None))
    assert len(world.taken(join, JoinGroupResponse).members) == 2


def test_a_member_that_joins_again_has_the_session_that_it_asks_for_now() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    joined = world.taken(world.join(member, session_ms=3 * SESSION_MS, rebalance_ms=1), JoinGroupResponse)
    world.synced([member], joined.generation_id, leader=member)
    world.pass_ms(3 * SESSION_MS - 1)
    assert world.taken(world.heartbeat(member, joined.generation_id), HeartbeatResponse)
    world.pass_ms(3 * SESSION_MS)
    assert world.described().group_state == "Empty"


def test_old_clients_leave_one_by_one() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    assert world.taken(world.leave((first, None), api_version=1), LeaveGroupResponse).error_code == 0
    again = world.taken(world.leave((first, None), api_version=1), LeaveGroupResponse)
    assert again.error_code == Code.UNKNOWN_MEMBER_ID
    assert world.taken(world.join(second), JoinGroupResponse).generation_id == 2


def test_one_that_has_only_an_id_can_leave() -> None:
    world = Coordinated()
    member = world.member_id_required()
    assert world.leave_codes(world.leave((member, None))) == [0]
    assert not world.coordinator.groups
    assert world.coordinator.next_deadline_ms() == world.settings.retention_check_interval_ms


def test_a_leader_that_joins_again_wants_to_assign_anew() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    follower = world.taken(world.join(second), JoinGroupResponse)
    assert (follower.generation_id, follower.members) == (1, [])  # it missed an answer: nothing changed
    leader = world.join(first)
    assert leader not in world.answers
    world.join(second)
    assert world.taken(leader, JoinGroupResponse).generation_id == 2


def test_one_that_wants_something_else_starts_a_rebalance() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    join = world.join(second, protocols=(("range", subscription("t", "u")),))
    assert join not in world.answers
    answer = world.taken(world.join(first), JoinGroupResponse)
    assert [one.metadata for one in answer.members] == [subscription("t"), subscription("t", "u")]


def test_an_answer_that_was_lost_is_given_again() -> None:
    world = Coordinated()
    member = world.member_id_required()
    world.join(member)
    world.pass_ms(6_000)
    again = world.taken(world.join(member), JoinGroupResponse)
    assert (again.generation_id, [one.member_id for one in again.members]) == (1, [member])


def test_the_same_member_on_two_connections_is_one() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    join = world.join(first)
    again = world.join(first)
    assert world.refused(join) == Code.REBALANCE_IN_PROGRESS
    world.join(second)
    assert world.taken(again, JoinGroupResponse).generation_id == 2
    sync = world.sync(second, 2)
    sync_again = world.sync(second, 2)
    assert world.refused(sync) == Code.REBALANCE_IN_PROGRESS
    world.sync(first, 2, {second: b"x"})
    assert world.taken(sync_again, SyncGroupResponse).assignment == b"x"


def test_who_does_not_sync_in_time_is_out() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    world.join(second)
    sync = world.sync(first, 2, {first: b"all"})
    assert world.taken(sync, SyncGroupResponse).assignment == b"all"
    for _ in range(REBALANCE_MS // 5_000):
        world.heartbeat(first, 2)
        world.heartbeat(second, 2)
        world.pass_ms(5_000)
    assert [one.member_id for one in world.described().members] == [first]
    assert world.refused(world.heartbeat(first, 2)) == Code.REBALANCE_IN_PROGRESS


def test_those_who_wait_for_a_leader_that_is_gone_join_again() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    world.join(second)
    sync = world.sync(second, 2)
    assert sync not in world.answers
    world.pass_ms(SESSION_MS)  # the leader is silent
    assert world.refused(sync) == Code.REBALANCE_IN_PROGRESS
    assert world.taken(world.join(second), JoinGroupResponse).leader == second


def test_the_protocol_that_most_prefer_is_chosen_among_those_that_all_support() -> None:
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=1))
    joins = [
        world.join(api_version=3, protocols=tuple((name, name.encode()) for name in names))
        for names in (("only-a", "x", "y"), ("y", "x"), ("y", "x"))
    ]
    world.pass_ms(1_000)
    answers = [world.taken(join, JoinGroupResponse) for join in joins]
    assert {answer.protocol_name for answer in answers} == {"y"}
    assert {one.metadata for one in answers[0].members} == {b"y"}


def test_members_of_other_types_have_groups_too() -> None:
    world = Coordinated()
    world.stable_group(protocol_type="connect", protocols=(("default", b"urls"),))
    assert world.described().protocol_type == "connect"
    assert world.described().members[0].member_metadata == b"urls"


def test_an_empty_group_may_change_its_type() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.leave((member, None))
    world.stable_group(protocol_type="connect", protocols=(("default", b"urls"),))
    assert world.described().protocol_type == "connect"


def test_members_survive_a_failover_and_have_a_whole_session() -> None:
    world = Coordinated()
    members = world.stable_group("a", "b")
    before = world.described()
    world.pass_ms(SESSION_MS - 1)
    world.fail_over()
    assert world.described() == before
    world.pass_ms(SESSION_MS - 1)
    for member in members:
        assert world.taken(world.heartbeat(member, 1), HeartbeatResponse)
        assert world.taken(world.sync(member, 1), SyncGroupResponse).assignment == member.encode()
    world.pass_ms(SESSION_MS)
    assert world.described().group_state == "Empty"


def test_a_group_that_is_too_large_after_a_failover_shrinks() -> None:
    world = Coordinated()
    first, second, third = world.stable_group("a", "b", "c")
    world.settings = GroupSettings(group_size_max=2)
    world.fail_over()
    assert world.refused(world.heartbeat(first, 1)) == Code.REBALANCE_IN_PROGRESS
    join, _ = world.join(first), world.join(second)
    assert world.refused(world.join(third)) == Code.GROUP_MAX_SIZE_REACHED
    assert len(world.taken(join, JoinGroupResponse).members) == 2


def test_who_hangs_up_before_it_has_an_id_holds_nobody_up() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    stray = world.join(api_version=3)
    join = world.join(member)
    assert join in world.answers  # both are there: generation 2
    world.synced([member, world.taken(stray, JoinGroupResponse).member_id], 2, leader=member)
    lost = world.join(api_version=3)
    world.coordinator.on_disconnected(lost, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert len(world.described().members) == 2
    world.coordinator.on_disconnected(world.request_id(), now_ms=world.now_ms, wall_ms=world.wall_ms)


def test_who_hangs_up_while_its_answer_is_on_its_way_stays() -> None:
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=0))
    world.commits_at_once = False
    world.commit({("t", 0): 1})
    join = world.join(api_version=3)
    assert join not in world.answers, "it waits for what was written before"
    world.coordinator.on_disconnected(join, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.commit_log()
    world.drive()
    assert list(world.coordinator.groups["g"].members) == [world.taken(join, JoinGroupResponse).member_id]


def test_who_hangs_up_with_an_id_may_come_back() -> None:
    world = Coordinated()
    member = world.member_id_required()
    join = world.join(member)
    world.coordinator.on_disconnected(join, now_ms=world.now_ms, wall_ms=world.wall_ms)
    again = world.join(member)
    world.pass_ms(2 * DELAY_MS)
    assert world.taken(again, JoinGroupResponse).generation_id == 1


def test_a_new_member_that_waits_too_long_is_out() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b", rebalance_ms=600_000)
    third = world.join(api_version=3, rebalance_ms=600_000)
    world.join(first, rebalance_ms=600_000)
    for _ in range(5 * 60 // 5):
        assert third not in world.answers
        world.heartbeat(second, 1)
        world.pass_ms(5_000)
    assert world.refused(third) == Code.UNKNOWN_MEMBER_ID


def test_groups_are_listed_by_state_and_type() -> None:
    world = Coordinated()
    world.stable_group()
    world.commit({("t", 0): 1}, group_id="simple")

    def listed(states: list[str], types: list[str]) -> list[tuple[str, str, str, str]]:
        request_id = world.request_id()
        world.coordinator.on_list_groups(request_id, states, types, now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        found = world.taken(request_id, tuple)
        return sorted((one.group_id, one.protocol_type, one.group_state, one.group_type) for one in found)

    stable, simple = ("g", "consumer", "Stable", "classic"), ("simple", "", "Empty", "classic")
    assert listed([], []) == [stable, simple]
    assert listed(["stable"], []) == [stable]
    assert listed(["Empty", "Dead"], ["CLASSIC"]) == [simple]
    assert listed([], ["consumer"]) == []
    world.commit({("t", 0): 1}, world.described().members[0].member_id, 1)
    assert listed([], []) == [stable, simple], "each is told of once"
    world.member_id_required(group_id="pending")
    assert listed([], []) == [stable, ("pending", "", "Empty", "classic"), simple]


@pytest.mark.parametrize(("api_version", "code"), [(5, Code.NONE), (6, Code.GROUP_ID_NOT_FOUND)])
def test_a_group_that_is_not_there_is_dead(api_version: int, code: Code) -> None:
    described = Coordinated().described("nothing", api_version=api_version)
    assert (described.group_state, described.error_code) == ("Dead", code)
    assert bool(described.error_message) == (code != Code.NONE)
