"""Groups that change between the classic and the consumer protocol while their members go on (KIP-848)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.executed_lines import executed_lines
from support.fixtures.coordinated import SESSION_MS, subscription
from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer import consumer_members
from tidelog.coordinator.groups.consumer.classic_members import _owned
from tidelog.coordinator.groups.consumer.member import CurrentAssignment
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.coordinator.groups.records import decode_group, group_key
from tidelog.journal import RequestId
from tidelog.wire.compile import encode
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupResponse
from tidelog.wire.messages.consumer_protocol import (
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    assigned_partitions,
)

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
T = topic_id("t")
EVERYTHING = b"\0\0\0\0\0\1\0\1t\0\0\0\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\3\xff\xff\xff\xff"


def world_with(policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL) -> tuple[Consumers, str]:
    """A stable classic group of one member that reads everything, and has committed."""
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0, migration_policy=policy)))
    join = world.join(api_version=3)
    world.pass_ms(3_000)
    member_id = world.taken(join, JoinGroupResponse).member_id
    sync = world.sync(member_id, 1, {member_id: EVERYTHING})
    assert parts(world.taken(sync, SyncGroupResponse)) == {0, 1, 2, 3}
    assert world.commit_codes(world.commit({("t", 0): 7}, member_id, 1)) == [0]
    return world, member_id


def parts(answer: SyncGroupResponse) -> set[int]:
    found = assigned_partitions(answer.assignment)
    assert all(one.topic == "t" for one in found)
    return {int(one.partition) for one in found}


def rejoin(world: Consumers, member_id: str) -> tuple[int, set[int]]:
    """A classic member that reads nothing meanwhile joins again. Returns its generation, and its part."""
    joined = world.taken(world.join(member_id), JoinGroupResponse)
    assert (joined.member_id, joined.leader, joined.members) == (member_id, "", [])
    return joined.generation_id, parts(world.taken(world.sync(member_id, joined.generation_id), SyncGroupResponse))


def upgraded() -> tuple[Consumers, str]:
    """The same, with a member of the consumer protocol beside; each reads its half."""
    world, classic = world_with()
    world.enter("a")
    assert world.refused(world.heartbeat(classic, 1)) == Code.REBALANCE_IN_PROGRESS
    generation, classic_part = rejoin(world, classic)
    assert generation == 2
    answer = world.heard(world.beat("a", 2))
    assert world.told(answer) == {"t": {0, 1, 2, 3} - classic_part}
    assert len(classic_part) == 2
    return world, classic


def test_a_classic_group_goes_on_as_a_consumer_group() -> None:
    world, classic = world_with()
    answer = world.enter("a")
    assert (answer.member_epoch, world.told(answer)) == (2, {}), "the classic member has everything still"
    assert not world.coordinator.groups
    assert set(world.group.subscriptions) == {"a", classic}
    assert world.fetched() == {("t", 0): 7}
    assert [one.member_type for one in world.consumer_group().members] in ([0, 1], [1, 0])


def test_members_of_both_protocols_share_the_partitions() -> None:
    world, classic = upgraded()
    assert world.taken(world.heartbeat(classic, 2), HeartbeatResponse)
    assert world.commit_codes(world.commit({("t", 0): 8}, classic, 2)) == [0]
    assert world.refused(world.commit({("t", 0): 9}, classic, 1)) == Code.ILLEGAL_GENERATION
    assert world.refused(world.heartbeat(classic, 1)) == Code.ILLEGAL_GENERATION
    assert world.refused(world.sync(classic, 1)) == Code.ILLEGAL_GENERATION
    assert world.refused(world.heartbeat("a", 2)) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "fits"),
    [
        (None, None, True),
        ("consumer", "range", True),
        ("consumer", None, True),
        (None, "range", True),
        ("connect", "range", False),
        ("connect", None, False),
        ("consumer", "other", False),
        (None, "other", False),
    ],
)
def test_a_classic_member_syncs_as_it_joined(protocol_type: str | None, protocol_name: str | None, fits: bool) -> None:
    world, classic = upgraded()
    sync = world.sync(classic, 2, protocol_type=protocol_type, protocol_name=protocol_name)
    if fits:
        answer = world.taken(sync, SyncGroupResponse)
        assert (answer.protocol_type, answer.protocol_name, len(parts(answer))) == ("consumer", "range", 2)
    else:
        assert world.refused(sync) == Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("is_upgrade", [False, True])
def test_of_what_a_classic_member_offers_the_first_says_what_it_wants(is_upgrade: bool) -> None:
    protocols = (("range", subscription("t")), ("other", subscription("u", "v")))
    if is_upgrade:
        world = Consumers(AT_ONCE)
        join = world.join(api_version=3, protocols=protocols)
        world.pass_ms(3_000)
        member_id = world.taken(join, JoinGroupResponse).member_id
        world.sync(member_id, 1, {member_id: EVERYTHING})
        world.enter("a")
    else:
        world, _ = upgraded()
        joined = world.taken(world.join(api_version=3, protocols=protocols), JoinGroupResponse)
        member_id = joined.member_id
        assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
        for _ in range(3):  # until the others have given their parts up
            generation = world.taken(world.join(member_id, protocols=protocols), JoinGroupResponse).generation_id
            world.heard(world.beat("a", world.group.current("a").member_epoch, owned={}))
        synced = world.taken(world.sync(member_id, generation, protocol_name="range"), SyncGroupResponse)
        assert synced.protocol_name == "range"
    assert world.group.subscriptions[member_id].topic_names == ("t",)


@pytest.mark.parametrize("api_version", [3, 4])
def test_old_classic_members_are_in_a_consumer_group_at_once(api_version: int) -> None:
    world, _ = upgraded()
    joined = world.taken(world.join(api_version=api_version), JoinGroupResponse)
    is_in = api_version < 4
    assert joined.error_code == (Code.NONE if is_in else Code.MEMBER_ID_REQUIRED)
    assert (joined.member_id in world.group.subscriptions) == is_in
    static = world.taken(world.join(instance_id="i", api_version=api_version), JoinGroupResponse)
    assert static.member_id in world.group.subscriptions, "its name is enough"


def test_classic_members_have_a_whole_session_once_their_group_is_another_one() -> None:
    world, classic = world_with()
    world.pass_ms(SESSION_MS - 1)
    world.enter("a")
    world.pass_ms(SESSION_MS - 1)
    assert classic in world.group.subscriptions
    world.pass_ms(1)
    assert classic not in world.group.subscriptions


def test_an_old_client_that_is_no_member_is_told_so_when_it_leaves() -> None:
    world, classic = upgraded()
    for member_id, code in (("nobody", Code.UNKNOWN_MEMBER_ID), (classic, Code.NONE)):
        answer = world.taken(world.leave((member_id, None), api_version=2), LeaveGroupResponse)
        assert (answer.error_code, answer.members) == (code, [])
    assert set(world.group.subscriptions) == {"a"}


def test_a_failover_keeps_members_of_both_protocols() -> None:
    world, classic = upgraded()
    world.fail_over()
    assert not world.coordinator.groups
    assert world.taken(world.heartbeat(classic, 2), HeartbeatResponse)
    assert world.heard(world.beat("a", 2)).member_epoch == 2


def test_when_the_last_consumer_leaves_the_group_is_a_classic_one_again() -> None:
    world, classic = upgraded()
    world.heard(world.beat("a", -1))
    assert not world.consumers.groups
    assert world.refused(world.heartbeat(classic, 2)) == Code.REBALANCE_IN_PROGRESS, "it keeps what it reads"
    joined = world.taken(world.join(classic), JoinGroupResponse)
    assert (joined.generation_id, joined.leader) == (3, classic)
    assert world.fetched() == {("t", 0): 7}
    world.fail_over()
    assert not world.consumers.groups
    assert set(world.coordinator.groups) == {"g"}


def test_a_group_that_is_a_classic_one_again_takes_no_memory_as_a_consumer_group() -> None:
    world, _ = upgraded()
    world.heard(world.beat("a", -1))
    assert world.memory.used_bytes == world.coordinator.groups["g"].size_bytes


def test_a_group_that_goes_to_and_fro_is_of_one_kind_for_the_next_leader() -> None:
    """Back before its members have joined again: what it was in between is in the log already."""
    world, classic = upgraded()
    world.heard(world.beat("a", -1))
    assert not world.consumers.groups
    world.enter("b")
    world.fail_over()
    assert not world.coordinator.groups
    assert set(world.group.subscriptions) == {"b", classic}


def test_a_group_that_is_a_classic_one_again_waits_for_nobody_whose_session_is_over() -> None:
    world, classic = upgraded()
    silent = world.taken(world.join(api_version=3), JoinGroupResponse).member_id
    world.heard(world.beat("a", -1))
    assert set(world.coordinator.groups["g"].members) == {classic, silent}
    joined = world.join(classic)
    world.pass_ms(SESSION_MS - 1)
    assert joined not in world.answers
    world.pass_ms(1)
    assert len(world.taken(joined, JoinGroupResponse).members) == 1


def test_a_group_that_no_batch_holds_as_a_classic_one_stays_and_serves_its_classic_members() -> None:
    world, classic = upgraded()
    world.coordinator.batch_size_bytes_max = 400  # holds a change, and not all of the group
    world.heard(world.beat("a", -1))
    assert set(world.group.subscriptions) == {classic}
    assert not world.coordinator.groups
    assert world.memory.used_bytes == world.group.size_bytes
    assert world.refused(world.heartbeat(classic, 2)) == Code.REBALANCE_IN_PROGRESS
    assert rejoin(world, classic) == (3, {0, 1, 2, 3})
    assert world.taken(world.heartbeat(classic, 3), HeartbeatResponse)
    world.fail_over()
    assert world.taken(world.heartbeat(classic, 3), HeartbeatResponse)


def test_when_the_last_classic_member_leaves_it_stays_a_consumer_group() -> None:
    world, classic = upgraded()
    assert world.leave_codes(world.leave((classic, None), ("nobody", None))) == [0, Code.UNKNOWN_MEMBER_ID]
    assert world.told(world.heard(world.beat("a", 2))) == {"t": {0, 1, 2, 3}}


def test_a_classic_member_that_is_not_heard_of_is_out() -> None:
    world, _ = upgraded()
    world.pass_ms(10_000)
    assert set(world.group.subscriptions) == {"a"}


def test_a_classic_member_that_does_not_join_again_is_out() -> None:
    world, classic = world_with()
    world.enter("a")
    for _ in range(12):
        if classic in world.group.subscriptions:
            assert world.refused(world.heartbeat(classic, 1)) == Code.REBALANCE_IN_PROGRESS
        world.heard(world.beat("a", 2)) if "a" in world.group.subscriptions else None
        world.pass_ms(5_000)
    assert classic not in world.group.subscriptions


def test_a_classic_member_that_joins_a_consumer_group_is_given_an_id_first() -> None:
    world, _ = upgraded()
    member_id = world.member_id_required()
    joined = world.taken(world.join(member_id), JoinGroupResponse)
    assert joined.generation_id == 3


@pytest.mark.parametrize("protocols", [(("other", subscription("t")),), (("range", b"\xff"),), ()])
def test_a_classic_member_that_does_not_fit_in_is_refused(protocols: tuple[tuple[str, bytes], ...]) -> None:
    world, _ = upgraded()
    assert world.refused(world.join(protocols=protocols)) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.join(protocol_type="connect")) == Code.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("policy", list(MigrationPolicy))
def test_the_policy_says_which_way_a_group_may_go(policy: MigrationPolicy) -> None:
    world, _ = world_with(policy)
    request = world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1)
    if policy.upgrades:
        world.heard(request)
        world.heard(world.beat("a", -1))
        assert bool(world.coordinator.groups) == policy.downgrades
    else:
        assert world.refused(request) == Code.GROUP_ID_NOT_FOUND


def test_the_record_of_a_downgraded_group_says_what_each_member_is_to_have() -> None:
    """In the version of what the member prefers, as the answer to its SyncGroup would."""
    world, classic = upgraded()
    protocols = (("range", b"\0\1" + subscription("t")[2:] + bytes(4)), ("other", subscription("t")))
    joined = world.taken(world.join(classic, protocols=protocols), JoinGroupResponse)
    part = {one for partitions in world.group.target(classic).values() for one in partitions}
    world.heard(world.beat("a", -1))
    (value,) = [value for key, value in world.batches[-1] if key == group_key("g")]
    assert value is not None
    read = decode_group(value)
    assert (read.generation, read.protocol_type, read.protocol) == (joined.generation_id, "consumer", "range")
    (member,) = read.members
    assert member.assignment[:2] == b"\0\1"
    assert {int(one.partition) for one in assigned_partitions(member.assignment)} == part


def test_a_leader_that_finds_a_downgraded_group_has_its_members_join_again() -> None:
    """The record holds what each should have got. Nobody would read the part of the member that left."""
    world, classic = upgraded()
    world.heard(world.beat("a", -1))
    assert not world.consumers.groups
    world.fail_over()
    assert world.refused(world.heartbeat(classic, 2)) == Code.REBALANCE_IN_PROGRESS
    joined = world.join(classic)
    world.pass_ms(3_000)
    generation = world.taken(joined, JoinGroupResponse).generation_id
    sync = world.sync(classic, generation, {classic: EVERYTHING})
    assert parts(world.taken(sync, SyncGroupResponse)) == {0, 1, 2, 3}


def test_a_group_of_others_than_consumers_stays_a_classic_one() -> None:
    world = Consumers(GroupSettings())
    world.join(api_version=3, protocol_type="connect")
    request = world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.GROUP_ID_NOT_FOUND


def test_who_waits_for_a_classic_group_is_told_to_join_again() -> None:
    world = Consumers(GroupSettings())
    join = world.join(api_version=3)
    world.enter("a")
    assert world.refused(join) == Code.REBALANCE_IN_PROGRESS


def test_a_static_member_changes_its_protocol() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0)))
    join = world.join(instance_id="i")
    world.pass_ms(3_000)
    member_id = world.taken(join, JoinGroupResponse).member_id
    world.taken(world.sync(member_id, 1, {member_id: EVERYTHING}, instance_id="i"), SyncGroupResponse)
    answer = world.enter("a", instance_id="i")
    assert world.told(answer) == {"t": {0, 1, 2, 3}}
    assert set(world.group.subscriptions) == {"a"}
    assert world.refused(world.heartbeat(member_id, 1, instance_id="i")) == Code.FENCED_INSTANCE_ID


def test_parts_are_told_by_names() -> None:
    assert assigned_partitions(EVERYTHING)[0] == TopicPartition("t", PartitionIndex(0))


def cooperative(generation: int, owned: set[int], *topics: str) -> tuple[tuple[str, bytes], ...]:
    """The protocols of a cooperative member, version 2."""
    value = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[ConsumerProtocolPartitions("t", sorted(owned))] if owned else [],
        generation_id=generation,
    )
    return (("cooperative-sticky", b"\0\2" + encode(value, 2)),)


def test_a_classic_member_is_told_to_join_again_until_it_has_what_it_is_to_have() -> None:
    world, classic = upgraded()
    joined = world.member_id_required()
    generation = world.taken(world.join(joined), JoinGroupResponse).generation_id
    assert generation == 3
    assert world.refused(world.sync(classic, 2)) == Code.REBALANCE_IN_PROGRESS, "it is to give something up first"
    assert world.taken(world.heartbeat(joined, generation), HeartbeatResponse), "it waits for others"
    world.heard(world.beat("a", 2, owned={"t": set(world.group.current("a").assigned.get(T, ()))}))
    assert rejoin(world, classic)[0] == 3
    for _ in range(2):
        current = world.group.current("a")
        world.heard(world.beat("a", current.member_epoch, owned={"t": set(current.assigned.get(T, ()))}))
    assert world.refused(world.heartbeat(joined, generation)) == Code.REBALANCE_IN_PROGRESS, "what it waits for is free"
    assert rejoin(world, joined) == (3, {one for held in world.group.target(joined).values() for one in held})
    assert world.taken(world.heartbeat(joined, 3), HeartbeatResponse)


@pytest.mark.parametrize("in_pieces", [False, True])
def test_a_topic_that_grows_has_classic_members_join_again(in_pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world, classic = upgraded()
    if in_pieces:
        monkeypatch.setattr(consumer_members, "AT_ONCE_MAX", 0)
    world.make(t=6)
    world.heartbeat(classic, 2)
    world.finish_pieces()
    assert world.group.target_epoch == world.group.epoch == 3
    assert world.refused(world.heartbeat(classic, 2)) == Code.REBALANCE_IN_PROGRESS


def test_a_classic_member_may_change_what_it_offers() -> None:
    world, classic = upgraded()
    world.taken(world.join(classic, protocols=(("other", subscription("t")),)), JoinGroupResponse)
    assert world.refused(world.join(protocols=(("range", subscription("t")),))) == Code.INCONSISTENT_GROUP_PROTOCOL


def test_an_administrator_removes_static_members_of_both_protocols_by_name() -> None:
    world, classic = upgraded()
    world.taken(world.join(instance_id="i"), JoinGroupResponse)
    world.enter("b", instance_id="j")
    leave = world.leave(("", "i"), ("", "j"), ("", "k"), ("", None))
    assert world.leave_codes(leave) == [0, 0, Code.UNKNOWN_MEMBER_ID, Code.UNKNOWN_MEMBER_ID]
    assert set(world.group.subscriptions) == {"a", classic}


def test_who_says_which_member_a_static_one_is_does_not_remove_another() -> None:
    """Its former self, say: the request was on its way while the member came back."""
    world, classic = upgraded()
    static = world.taken(world.join(instance_id="i"), JoinGroupResponse).member_id
    assert world.leave_codes(world.leave((classic, "i"), (static, "k"))) == [
        Code.FENCED_INSTANCE_ID,
        Code.UNKNOWN_MEMBER_ID,
    ]
    assert static in world.group.subscriptions
    assert world.leave_codes(world.leave((static, "i"))) == [0]
    assert static not in world.group.subscriptions


@pytest.mark.parametrize(
    ("generation", "counts"), [(-1, True), (0, False), (3, False), (4, True), (5, True), (6, False)]
)
def test_what_a_classic_member_reads_counts_if_it_is_of_its_last_generations(generation: int, counts: bool) -> None:
    known = Consumers(AT_ONCE).consumers.members.known
    wanted = ConsumerProtocolSubscription(
        topics=["t"],
        owned_partitions=[
            ConsumerProtocolPartitions("t", [0]),
            ConsumerProtocolPartitions("t", [2]),
            ConsumerProtocolPartitions("nowhere", [1]),
        ],
        generation_id=generation,
    )
    owned = _owned(wanted, CurrentAssignment(5, 4), known)
    assert owned == ({T: {0, 2}} if counts else {})


@pytest.mark.parametrize("size_max", [1, 2, 3])
def test_a_group_that_is_too_large_for_a_classic_one_stays(size_max: int) -> None:
    world, _ = upgraded()
    world.taken(world.join(api_version=3), JoinGroupResponse)
    settings = world.coordinator._journal.settings
    world.coordinator._journal.settings = replace(settings, group_size_max=size_max)
    world.heard(world.beat("a", -1))
    assert bool(world.coordinator.groups) == (size_max >= 2)
    assert bool(world.consumers.groups) == (size_max < 2)


@pytest.mark.parametrize("size_max", [1, 2])
def test_a_classic_group_stays_one_where_nobody_more_may_join(size_max: int) -> None:
    consumer = ConsumerGroupSettings(assignment_interval_ms=0, group_size_max=size_max)
    world = Consumers(GroupSettings(consumer=consumer))
    world.join(api_version=3)
    asked = world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1)
    if size_max == 1:
        assert world.refused(asked) == Code.GROUP_ID_NOT_FOUND
    else:
        world.heard(asked)


def test_a_classic_group_that_no_batch_holds_as_another_one_stays() -> None:
    world, classic = world_with()
    world.coordinator.batch_size_bytes_max = 300
    assert world.refused(world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1)) == Code.GROUP_ID_NOT_FOUND
    assert world.taken(world.heartbeat(classic, 1), HeartbeatResponse)
    assert not world.consumers.groups


def test_a_classic_group_stays_one_if_who_joins_wants_more_than_a_batch_holds() -> None:
    world, classic = world_with()
    world.coordinator.batch_size_bytes_max = 1_000
    end = len(world.log)
    names = [f"topic-{number}" for number in range(200)]
    assert world.refused(world.beat("a", 0, topics=names, owned={}, rebalance_ms=1)) == Code.INVALID_REQUEST
    assert len(world.log) == end
    assert not world.consumers.groups
    assert world.taken(world.heartbeat(classic, 1), HeartbeatResponse)


def test_a_classic_group_that_was_not_recorded_leaves_no_tombstone() -> None:
    world = Consumers(AT_ONCE)
    world.member_id_required()
    assert not world.coordinator.groups["g"].is_recorded
    world.enter("a")
    assert group_key("g") not in dict(world.committed)


def test_a_cooperative_member_that_missed_an_answer_keeps_what_it_reads_until_it_gave_it_up() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0)))
    world.enter("a")
    member_id = world.member_id_required(protocols=cooperative(-1, set(), "t"))

    def join(generation: int, owned: set[int]) -> int:
        request = world.join(member_id, protocols=cooperative(generation, owned, "t"))
        return world.taken(request, JoinGroupResponse).generation_id

    def has() -> set[int]:
        return set(world.group.current(member_id).assigned.get(T, ()))

    generation = join(-1, set())
    for _ in range(2):
        current = world.group.current("a")
        world.heard(world.beat("a", current.member_epoch, owned={"t": set(current.assigned[T])}))
        generation = join(generation, has())
    reads = has()
    assert len(reads) == 2
    world.enter("a", topics=("t", "u"), owned={})
    assert join(generation, reads) > generation, "and this answer is lost"
    for one in "bcd":
        world.enter(one)
    assert len(world.group.target(member_id)[T]) == 1
    join(generation, reads)
    current = world.group.current(member_id)
    assert {*current.assigned.get(T, ()), *current.revoking.get(T, ())} == reads
    assert current.state is ConsumerMemberState.UNREVOKED_PARTITIONS
    sync = world.sync(member_id, current.member_epoch)
    assert parts(world.taken(sync, SyncGroupResponse)) == set(current.assigned[T]), "it is told what it is left with"


def test_members_of_both_protocols_leave_at_once() -> None:
    """The group would be a classic one after the first of them."""
    world, classic = upgraded()
    second = world.member_id_required()
    world.taken(world.join(second), JoinGroupResponse)
    before = world.group.epoch
    assert world.leave_codes(world.leave(("a", None), (classic, None), ("nobody", None))) == [
        Code.NONE,
        Code.NONE,
        Code.UNKNOWN_MEMBER_ID,
    ]
    assert not world.consumers.groups
    assert set(world.coordinator.groups["g"].members) == {second}
    assert world.coordinator.groups["g"].generation_id == before


def test_all_members_leave_at_once_and_the_group_is_empty() -> None:
    world, classic = upgraded()
    before = world.group.epoch
    assert world.leave_codes(world.leave(("a", None), (classic, None), ("a", None))) == [0, 0, 0]
    assert not world.group.subscriptions
    assert world.group.epoch == before + 1


def test_whether_a_group_fits_in_a_batch_as_a_classic_one_is_not_found_out_at_each_removal() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0)))
    world.enter("a")
    members = [world.member_id_required() for _ in range(40)]
    for member_id in members:
        world.taken(world.join(member_id), JoinGroupResponse)
    world.coordinator.batch_size_bytes_max = 4_000
    world.heard(world.beat("a", -1))
    assert len(world.group.subscriptions) == 40

    def leave(member_id: str) -> None:
        assert world.leave_codes(world.leave((member_id, None))) == [0]

    assert executed_lines(lambda: leave(members.pop())) < 2_500
    while world.consumers.groups:
        leave(members.pop())
    assert len(members) == 10, "it is found out again whenever half of them have left"
    assert set(world.coordinator.groups["g"].members) == set(members)


@pytest.mark.parametrize("count", [1, 3])
def test_static_members_that_change_back_one_by_one_are_a_classic_group_again(count: int) -> None:
    """Nobody leaves for good, so the last one to come back is who makes it one."""
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0)))
    for number in range(count):
        world.enter(f"m{number}", instance_id=f"i{number}")
    world.commit({("t", 0): 7}, "m0", world.group.current("m0").member_epoch, instance_id="i0", api_version=9)
    joined: dict[str, int] = {}
    for number in range(count):
        epoch = world.group.epoch
        world.heard(world.beat(f"m{number}", -2, instance_id=f"i{number}"))
        joined[f"i{number}"] = world.join(instance_id=f"i{number}")
    assert not world.consumers.groups
    group = world.coordinator.groups["g"]
    ids = {instance_id: group.static_members[instance_id] for instance_id in joined}
    for instance_id, member_id in list(ids.items())[:-1]:
        heartbeat = world.heartbeat(member_id, epoch, instance_id=instance_id)
        assert world.refused(heartbeat) == Code.REBALANCE_IN_PROGRESS
        joined[instance_id] = world.join(member_id, instance_id=instance_id)
    world.pass_ms(3_000)
    answers = {one: world.taken(RequestId(request), JoinGroupResponse) for one, request in joined.items()}
    assert {one.generation_id for one in answers.values()} == {epoch + 1}
    assert {one: answer.member_id for one, answer in answers.items()} == ids
    assert world.fetched() == {("t", 0): 7}
    world.fail_over()
    assert not world.consumers.groups


def test_a_classic_member_joins_with_an_id_of_its_own_but_not_under_an_instance_id_that_is_not_known() -> None:
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0)))
    world.enter("a")
    assert world.refused(world.join("x", instance_id="i")) == Code.UNKNOWN_MEMBER_ID
    assert world.taken(world.join("x"), JoinGroupResponse).member_id == "x"
    static = world.taken(world.join(instance_id="i"), JoinGroupResponse).member_id
    assert world.refused(world.join("y", instance_id="i")) == Code.FENCED_INSTANCE_ID
    assert world.taken(world.join(static, instance_id="i"), JoinGroupResponse).member_id == static


def test_a_classic_member_that_was_put_out_does_not_join_with_what_it_reads() -> None:
    """Another may read it by then. It gives all of it up, and joins anew."""
    world = Consumers(GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0)))
    world.enter("a")
    member_id = world.member_id_required(protocols=cooperative(-1, set(), "t"))
    world.taken(world.join(member_id, protocols=cooperative(-1, set(), "t")), JoinGroupResponse)
    world.pass_ms(SESSION_MS)
    assert member_id not in world.group.subscriptions
    late = world.join(member_id, protocols=cooperative(2, {0}, "t"))
    assert world.refused(late) == Code.UNKNOWN_MEMBER_ID
    world.taken(world.join(member_id, protocols=cooperative(-1, set(), "t")), JoinGroupResponse)
