"""What groups take in memory: counted as they change, and bounded."""

from __future__ import annotations

import random

import pytest

from support.fixtures.coordinated import Coordinated
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.member import MEMBER_BYTES, protocols_bytes
from tidelog.coordinator.groups.records import offset_key
from tidelog.coordinator.groups.state import OFFSET_BYTES
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse

KB = 1 << 10
AT_ONCE = GroupSettings(initial_rebalance_delay_ms=0)


def metadata(size_bytes: int) -> tuple[tuple[str, bytes], ...]:
    return (("range", bytes(size_bytes)),)


def generation_of(world: Coordinated, group_id: str, size_bytes: int) -> tuple[str, int]:
    """A group of one member, that has joined."""
    joined = world.taken(
        world.join(group_id=group_id, api_version=3, protocols=metadata(size_bytes)), JoinGroupResponse
    )
    return joined.member_id, joined.generation_id


def test_a_member_that_finds_no_room_is_refused_and_others_stay() -> None:
    world = Coordinated(AT_ONCE, memory_bytes=100 * KB)
    member, generation = generation_of(world, "first", 20 * KB)
    assert world.refused(world.join(group_id="second", api_version=3, protocols=metadata(30 * KB))) == (
        Code.GROUP_MAX_SIZE_REACHED
    )
    assert list(world.coordinator.groups) == ["first"]
    assert world.refused(world.join(member, group_id="first", protocols=metadata(60 * KB))) == (
        Code.GROUP_MAX_SIZE_REACHED
    )
    world.heartbeat(member, generation, group_id="first")
    rejoined = world.join(member, group_id="first", protocols=metadata(10 * KB))
    assert world.taken(rejoined, JoinGroupResponse).error_code == 0
    generation_of(world, "second", 30 * KB)  # the first one takes less now


def test_who_wants_no_more_than_it_has_stays_whatever_others_have_taken() -> None:
    world = Coordinated(AT_ONCE)
    member, _ = generation_of(world, "g", 5 * KB)
    world.memory.limit_bytes = KB
    for size_bytes in (5 * KB, 4 * KB):
        joined = world.join(member, group_id="g", protocols=metadata(size_bytes))
        assert world.taken(joined, JoinGroupResponse).error_code == 0
    assert world.refused(world.join(member, group_id="g", protocols=metadata(4 * KB + 1))) == (
        Code.GROUP_MAX_SIZE_REACHED
    )


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_a_member_finds_room_to_the_last_byte(missing_bytes: int) -> None:
    world = Coordinated(AT_ONCE)
    generation_of(world, "g", KB)
    protocols = metadata(KB)
    world.memory.limit_bytes = world.memory.used_bytes + MEMBER_BYTES + protocols_bytes(protocols) - missing_bytes
    again = world.join(group_id="g", api_version=3, protocols=protocols)
    if missing_bytes:
        assert world.refused(again) == Code.GROUP_MAX_SIZE_REACHED
    else:
        assert again not in world.answers, "it waits for the other to join again"


def test_an_assignment_that_finds_no_room_does_not_come_to_pass() -> None:
    world = Coordinated(AT_ONCE, memory_bytes=100 * KB)
    member, generation = generation_of(world, "g", 10 * KB)
    sync = world.sync(member, generation, {member: bytes(60 * KB)})
    assert world.refused(sync) == Code.UNKNOWN_SERVER_ERROR
    assert world.memory.used_bytes < 40 * KB


@pytest.mark.parametrize("missing_bytes", [0, 1])
def test_an_assignment_finds_room_to_the_last_byte_or_takes_no_more_than_before(missing_bytes: int) -> None:
    world = Coordinated(AT_ONCE)
    member, generation = generation_of(world, "g", KB)
    world.memory.limit_bytes = world.memory.used_bytes + 2 * KB - missing_bytes
    sync = world.sync(member, generation, {member: bytes(KB)})
    if missing_bytes:
        assert world.refused(sync) == Code.UNKNOWN_SERVER_ERROR
        return
    assert len(world.taken(sync, SyncGroupResponse).assignment) == KB
    world.memory.limit_bytes = 1
    joined = world.taken(world.join(member, group_id="g", protocols=metadata(KB)), JoinGroupResponse)
    assert joined.generation_id == generation + 1
    again = world.sync(member, generation + 1, {member: bytes(KB)})
    assert len(world.taken(again, SyncGroupResponse).assignment) == KB


def test_parts_of_before_take_no_memory_once_nobody_has_assigned_anew() -> None:
    world = Coordinated(AT_ONCE)
    member, generation = generation_of(world, "g", KB)
    world.sync(member, generation, {member: bytes(5 * KB)})
    world.join(member, group_id="g", protocols=metadata(KB))
    used_bytes = world.memory.used_bytes
    world.join(group_id="g", api_version=3, protocols=metadata(0))
    assert world.described().group_state == "PreparingRebalance"
    assert world.memory.used_bytes < used_bytes - 8 * KB


def test_ids_that_nobody_came_back_with_take_memory_until_they_are_forgotten() -> None:
    world = Coordinated(AT_ONCE, memory_bytes=1 << 20)
    for _ in range(10):
        world.member_id_required(client_id="x" * 10_000)
    assert world.memory.used_bytes > 100_000
    world.pass_ms(60_000)
    assert world.memory.used_bytes == 0


def test_what_is_above_the_bound_after_a_fail_over_stays() -> None:
    world = Coordinated(AT_ONCE)
    for name in "abc":
        member, generation = generation_of(world, name, 10 * KB)
        world.sync(member, generation, {member: bytes(10 * KB)}, group_id=name)
    world.memory.limit_bytes = KB
    world.fail_over()
    assert len(world.coordinator.groups) == 3
    assert world.memory.used_bytes > 120 * KB
    assert world.refused(world.join(group_id="d", api_version=3)) == Code.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("seed", range(5))
def test_the_books_balance_whatever_members_do(seed: int) -> None:
    rng = random.Random(seed)
    world = Coordinated(AT_ONCE)
    for _ in range(300):
        group_id, instance_id = rng.choice("abc"), rng.choice([None, "one", "two"])
        group = world.coordinator.groups.get(group_id)
        member_id = rng.choice(["", *(() if group is None else group.members)])
        kind = rng.randrange(5)
        if kind < 2:
            world.join(
                member_id,
                group_id=group_id,
                instance_id=instance_id,
                api_version=rng.choice([3, 5]),
                protocols=metadata(rng.randrange(3_000)),
            )
        elif kind == 2 and group is not None:
            sizes = {one: bytes(rng.randrange(3_000)) for one in group.members}
            world.sync(group.leader_id or "", group.generation_id, sizes, group_id=group_id)
        elif kind == 3:
            world.leave((member_id, instance_id), group_id=group_id)
        else:
            world.pass_ms(rng.randrange(20_000))
        assert world.memory.used_bytes == sum(group.size_bytes for group in world.coordinator.groups.values())
    world.pass_ms(10 * 60_000)
    assert world.memory.used_bytes < 10 * KB  # nobody is left
    world.fail_over()
    world.coordinator.resign()
    assert world.memory.used_bytes == 0


def offsets_memory(world: Coordinated) -> CoordinatorMemory:
    return world.coordinator._journal.offsets_memory


def test_offsets_in_new_places_find_no_room_and_those_that_are_there_move_on() -> None:
    world = Coordinated(AT_ONCE)
    assert world.commit_codes(world.commit({("t", 0): 1}, group_id="honest")) == [0]
    memory = offsets_memory(world)
    memory.limit_bytes = memory.used_bytes
    assert world.refused(world.commit({("t", 0): 1}, group_id="made-up")) == Code.INVALID_COMMIT_OFFSET_SIZE
    assert world.refused(world.commit({("t", 0): 2, ("t", 1): 2}, group_id="honest")) == Code.INVALID_COMMIT_OFFSET_SIZE
    assert world.commit_codes(world.commit({("t", 0): 2}, group_id="honest")) == [0]
    assert memory.refused == 2


def test_an_offset_that_grows_finds_no_room_and_one_that_shrinks_does() -> None:
    world = Coordinated(AT_ONCE)
    assert world.commit_codes(world.commit({("t", 0): 1}, metadata="some")) == [0]
    memory = offsets_memory(world)
    memory.limit_bytes = memory.used_bytes
    assert world.refused(world.commit({("t", 0): 2}, metadata="x" * 4_000)) == Code.INVALID_COMMIT_OFFSET_SIZE
    assert world.commit_codes(world.commit({("t", 0): 2}, metadata="same")) == [0]
    assert world.commit_codes(world.commit({("t", 0): 3}, metadata="")) == [0]
    assert memory.used_bytes < memory.limit_bytes


def test_offsets_of_a_transaction_find_no_room_where_others_find_none() -> None:
    world = Coordinated(AT_ONCE)
    assert world.commit_codes(world.commit({("t", 0): 1})) == [0]
    memory = offsets_memory(world)
    memory.limit_bytes = memory.used_bytes
    assert world.refused(world.txn_commit({("t", 1): 5})) == Code.INVALID_COMMIT_OFFSET_SIZE


def test_what_offsets_take_is_given_back_when_they_go() -> None:
    world = Coordinated(AT_ONCE)
    memory = offsets_memory(world)
    for number in range(3):
        world.commit({("t", 0): 1, ("u", number): 1}, group_id=f"g{number}")
    full_bytes = memory.used_bytes
    assert full_bytes > 6 * OFFSET_BYTES
    world.commit({("t", 0): 2}, group_id="g0")
    assert memory.used_bytes == full_bytes
    state = world.coordinator._journal.state
    assert state.clone().offsets_charge.size_bytes == full_bytes
    for number in range(3):
        for topic, partition in (("t", 0), ("u", number)):
            state.apply((offset_key(f"g{number}", topic, partition), None))
    assert memory.used_bytes == 0
