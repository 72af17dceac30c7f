"""Static members (KIP-345): they come back under their name, and the group need not notice."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated import REBALANCE_MS, SESSION_MS, Coordinated, subscription
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse


def static_group(world: Coordinated, *names: str) -> list[str]:
    """Stable in generation 1; the first one leads."""
    joins = [world.join(instance_id=name) for name in names]
    world.pass_ms(world.settings.initial_rebalance_delay_ms * (1 + len(names)))
    members = [world.taken(join, JoinGroupResponse).member_id for join in joins]
    world.synced(members, 1, leader=members[0])
    return members


def test_a_static_member_needs_no_second_round() -> None:
    world = Coordinated()
    (member,) = static_group(world, "i")
    assert member.startswith("i-")
    assert world.described().members[0].group_instance_id == "i"


def test_one_that_comes_back_keeps_its_part_without_a_rebalance() -> None:
    world = Coordinated()
    leader, follower = static_group(world, "i", "j")
    batches = len(world.batches)
    answer = world.taken(world.join(instance_id="j"), JoinGroupResponse)
    assert (answer.generation_id, answer.leader, answer.members) == (1, leader, [])
    assert answer.member_id != follower
    assert len(world.batches) == batches + 1, "the new id is recorded"
    sync = world.sync(answer.member_id, 1, instance_id="j")
    assert world.taken(sync, SyncGroupResponse).assignment == follower.encode()
    assert world.taken(world.heartbeat(leader, 1), HeartbeatResponse)
    world.fail_over()
    assert world.taken(world.heartbeat(answer.member_id, 1, instance_id="j"), HeartbeatResponse)


def test_one_that_comes_back_is_told_of_as_it_is_now() -> None:
    world = Coordinated()
    static_group(world, "i", "j")
    world.join(instance_id="j", client_id="another", session_ms=3 * SESSION_MS, rebalance_ms=7)
    one = world.described().members[1]
    assert (one.group_instance_id, one.client_id, one.client_host) == ("j", "another", "/127.0.0.1")
    world.pass_ms(3 * SESSION_MS - 1)
    assert [one.group_instance_id for one in world.described().members] == ["j"], "it has the session it asked for"
    world.pass_ms(1)
    assert not world.described().members


def test_one_whose_new_id_no_batch_holds_joins_as_all_others_do() -> None:
    world = Coordinated()
    leader, _ = static_group(world, "i", "j")
    world.coordinator.batch_size_bytes_max = 100
    join = world.join(instance_id="j")
    assert join not in world.answers
    assert world.refused(world.heartbeat(leader, 1)) == Code.REBALANCE_IN_PROGRESS


def test_its_old_self_is_fenced() -> None:
    world = Coordinated()
    _, old = static_group(world, "i", "j")
    new = world.taken(world.join(instance_id="j"), JoinGroupResponse).member_id
    assert world.refused(world.heartbeat(old, 1, instance_id="j")) == Code.FENCED_INSTANCE_ID
    assert world.refused(world.sync(old, 1, instance_id="j")) == Code.FENCED_INSTANCE_ID
    assert world.refused(world.join(old, instance_id="j")) == Code.FENCED_INSTANCE_ID
    assert world.refused(world.commit({("t", 0): 1}, old, 1, instance_id="j")) == Code.FENCED_INSTANCE_ID
    assert world.leave_codes(world.leave((old, "j"))) == [Code.FENCED_INSTANCE_ID]
    assert world.commit_codes(world.commit({("t", 0): 1}, new, 1, instance_id="j")) == [0]
    assert world.refused(world.heartbeat(old, 1)) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("api_version", [5, 8])
def test_a_leader_that_comes_back_is_not_told_that_it_leads(api_version: int) -> None:
    world = Coordinated()
    old, _ = static_group(world, "i", "j")
    answer = world.taken(world.join(instance_id="i", api_version=api_version), JoinGroupResponse)
    assert (answer.leader, answer.members, answer.skip_assignment) == (old, [], False)


def test_a_leader_that_comes_back_and_can_skip_assigning_leads_on() -> None:
    world = Coordinated()
    static_group(world, "i", "j")
    answer = world.taken(world.join(instance_id="i", api_version=9), JoinGroupResponse)
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, True)
    assert [one.group_instance_id for one in answer.members] == ["i", "j"]


def test_one_that_comes_back_while_it_waits_fences_the_one_that_waits() -> None:
    world = Coordinated()
    first = world.join(instance_id="i")
    second = world.join(instance_id="i")
    assert world.refused(first) == Code.FENCED_INSTANCE_ID
    world.pass_ms(10_000)
    assert world.taken(second, JoinGroupResponse).generation_id == 1


def test_one_that_comes_back_fences_the_one_that_waits_for_its_part() -> None:
    world = Coordinated()
    joins = [world.join(instance_id=name) for name in "ij"]
    world.pass_ms(10_000)
    _, old = [world.taken(join, JoinGroupResponse).member_id for join in joins]
    sync = world.sync(old, 1, instance_id="j")
    assert sync not in world.answers
    world.join(instance_id="j")
    assert world.refused(sync) == Code.FENCED_INSTANCE_ID


def test_one_that_comes_back_with_another_protocol_starts_a_rebalance() -> None:
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=1))
    both = (("range", subscription("t")), ("sticky", subscription("t")))
    joins = [world.join(instance_id=name, protocols=both) for name in "ij"]
    world.pass_ms(10)
    members = [world.taken(join, JoinGroupResponse).member_id for join in joins]
    world.synced(members, 1, leader=members[0])
    join = world.join(instance_id="j", protocols=both[1:])
    assert join not in world.answers
    answer = world.taken(world.join(members[0], instance_id="i", protocols=both), JoinGroupResponse)
    assert (answer.generation_id, answer.protocol_name) == (2, "sticky")


def test_one_that_comes_back_before_the_assignment_starts_a_rebalance() -> None:
    world = Coordinated()
    joins = [world.join(instance_id=name) for name in "ij"]
    world.pass_ms(10_000)
    leader = world.taken(joins[0], JoinGroupResponse).member_id
    join = world.join(instance_id="j")
    assert join not in world.answers
    assert world.refused(world.sync(leader, 1, instance_id="i")) == Code.REBALANCE_IN_PROGRESS
    world.join(leader, instance_id="i")
    assert world.taken(join, JoinGroupResponse).generation_id == 2


def test_one_that_is_away_keeps_its_place_until_its_session_ends() -> None:
    world = Coordinated()
    first, _ = static_group(world, "i", "j")
    world.join(instance_id="k")
    join = world.join(first, instance_id="i", rebalance_ms=5_000)
    world.pass_ms(REBALANCE_MS)
    assert join in world.answers
    names = [one.group_instance_id for one in world.described().members]
    assert "j" not in names  # its session of 10 s is over long before


def test_one_that_is_alone_after_the_others_sessions_leads() -> None:
    world = Coordinated()
    static_group(world, "i", "j")
    third = world.join(instance_id="k", session_ms=1_800_000)
    world.pass_ms(SESSION_MS)
    answer = world.taken(third, JoinGroupResponse)
    assert (answer.generation_id, answer.leader) == (2, answer.member_id)
    assert [one.group_instance_id for one in world.described().members] == ["k"]


def test_a_full_group_has_its_place_still() -> None:
    world = Coordinated(GroupSettings(group_size_max=2))
    static_group(world, "i", "j")
    assert world.taken(world.join(instance_id="j"), JoinGroupResponse).generation_id == 1
    assert world.refused(world.join(instance_id="k")) == Code.GROUP_MAX_SIZE_REACHED


def test_an_administrator_removes_it_by_name() -> None:
    world = Coordinated()
    _, second = static_group(world, "i", "j")
    assert world.leave_codes(world.leave(("", "i"), ("", "nobody"))) == [0, Code.UNKNOWN_MEMBER_ID]
    assert world.refused(world.heartbeat(second, 1, instance_id="j")) == Code.REBALANCE_IN_PROGRESS


def test_an_id_for_a_dynamic_member_is_none_for_a_static_one() -> None:
    world = Coordinated()
    pending = world.member_id_required()
    assert world.refused(world.join(pending, instance_id="i")) == Code.UNKNOWN_MEMBER_ID
    world.pass_ms(SESSION_MS)
    assert not world.coordinator.groups


def test_all_static_members_away_is_looked_at_again() -> None:
    """The join phase cannot end without somebody to lead; it waits for whoever comes back."""
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=1))
    long_ms = 1_000_000
    joins = [world.join(instance_id=name, session_ms=long_ms, rebalance_ms=5_000) for name in "ij"]
    world.pass_ms(10)
    members = [world.taken(join, JoinGroupResponse).member_id for join in joins]
    for member, name in zip(reversed(members), "ji", strict=True):
        world.sync(member, 1, {}, instance_id=name)
    dynamic = world.member_id_required(session_ms=long_ms, rebalance_ms=5_000)
    join = world.join(dynamic, session_ms=long_ms, rebalance_ms=5_000)
    assert world.leave_codes(world.leave((dynamic, None))) == [0]
    assert world.refused(join) == Code.UNKNOWN_MEMBER_ID
    world.pass_ms(20_000)
    assert world.described().group_state == "PreparingRebalance"
    assert len(world.described().members) == 2
    back = world.join(members[0], instance_id="i", session_ms=long_ms, rebalance_ms=5_000)
    world.pass_ms(5_000)
    assert len(world.taken(back, JoinGroupResponse).members) == 2
