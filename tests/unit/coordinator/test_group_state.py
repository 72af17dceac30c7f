"""A classic group, without those who ask it: who leads it, what its members have in common, and what it takes."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated import WALL_START_MS, Coordinated, subscription
from tidelog.base.errors import Code, InvariantBrokenError, KafkaError
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidelog.coordinator.groups.group import GROUP_BYTES, TRANSITIONS, Change, Group, GroupState, restored
from tidelog.coordinator.groups.member import MEMBER_BYTES, Member, protocols_bytes
from tidelog.coordinator.groups.records import GroupMetadataValue, MemberMetadata, OffsetCommitValue
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share_group_records import ShareGroupTargetAssignmentMetadataValue
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.journal import RequestId
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.primitives import ZERO_UUID

RETENTION_MS = 500


def member(member_id: str, *protocols: str, instance_id: str | None = None, metadata: bytes = b"m") -> Member:
    return Member(
        group_id="g",
        member_id=member_id,
        instance_id=instance_id,
        client_id="client",
        client_host="host",
        rebalance_timeout_ms=len(member_id),
        session_timeout_ms=7,
        protocols=tuple((name, metadata) for name in protocols or ("range",)),
    )


def group_of(*members: Member) -> Group:
    group = Group("g", CoordinatorMemory(1 << 60))
    for one in members:
        group.add(one, "consumer")
    return group


def test_the_common_protocol_that_most_prefer_is_chosen() -> None:
    group = group_of(member("a", "x", "y", "z"), member("b", "z", "y"), member("c", "w", "y", "z"))
    assert group.common_protocols() == {"y", "z"}
    assert group.chosen_protocol() == "y"
    group.update(group.members["a"], (("z", b""), ("y", b"")), 1, 2)
    assert group.chosen_protocol() == "z"
    assert (group.members["a"].rebalance_timeout_ms, group.members["a"].session_timeout_ms) == (1, 2)
    group.remove(group.members["b"])
    assert group.common_protocols() == {"y", "z"}
    group.remove(group.members["c"])
    group.update(group.members["a"], (("x", b""),), 1, 2)
    assert group.common_protocols() == {"x"}
    group.remove(group.members["a"])
    assert group.common_protocols() == set()
    with pytest.raises(InvariantBrokenError):
        group.chosen_protocol()


def test_who_fits_in_shares_a_protocol_with_all() -> None:
    empty = group_of()
    assert empty.supports("any", (("x", b""),))
    assert not empty.supports("", (("x", b""),))
    assert not empty.supports("any", ())
    group = group_of(member("a", "x", "y"), member("b", "y", "z"))
    group.go(Change.MEMBERS_CHANGED, 1)
    assert group.supports("consumer", (("w", b""), ("y", b"")))
    assert not group.supports("consumer", (("x", b""), ("z", b"")))
    assert not group.supports("connect", (("y", b""),))
    for one in list(group.members.values()):
        group.remove(one)
    assert group.supports("connect", (("y", b""),)), "nobody is left, though somebody is waited for"
    assert not group.supports("connect", ())


def test_a_leader_is_one_that_has_joined_and_the_same_if_it_can_be() -> None:
    group = group_of(member("a"), member("b"), member("c"))
    assert group.leader_id == "a"
    assert not group.elect_leader()
    group.park_join(group.members["c"], RequestId(1))
    assert group.elect_leader()
    assert group.leader_id == "c"
    group.park_join(group.members["b"], RequestId(2))
    assert group.elect_leader()
    assert group.leader_id == "c"
    assert (group.joined_count, group.all_joined) == (2, False)
    assert group.take_join(group.members["c"]) == 1
    assert group.take_join(group.members["c"]) is None
    assert group.joined_count == 1
    group.remove(group.members["c"])
    assert group.leader_id == "a", "the first of those that are left"
    group.remove(group.members["a"])
    assert group.all_joined
    group.add_pending("p")
    assert not group.all_joined
    group.forget_pending("p")
    assert group.all_joined
    group.take_join(group.members["b"])
    group.remove(group.members["b"])
    assert group.leader_id is None


def test_a_static_member_that_comes_back_keeps_its_place() -> None:
    group = group_of(member("a"), member("b", instance_id="i"), member("c"))
    group.leader_id = "b"
    group.unsynced.update("ab")
    before = group.size_bytes
    group.replace(group.members["b"], "bbb")
    assert list(group.members) == ["a", "bbb", "c"]
    assert (group.leader_id, group.unsynced, group.static_members) == ("bbb", {"a", "bbb"}, {"i": "bbb"})
    assert group.member("bbb", "i").member_id == "bbb"
    assert group.size_bytes > before
    for member_id, instance_id, code in (
        ("b", "i", Code.FENCED_INSTANCE_ID),
        ("b", None, Code.UNKNOWN_MEMBER_ID),
        ("a", "j", Code.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(KafkaError) as refused:
            group.member(member_id, instance_id)
        assert refused.value.code is code
    group.generation_id = 3
    assert group.member_of_generation("a", None, 3).member_id == "a"
    with pytest.raises(KafkaError) as refused:
        group.member_of_generation("a", None, 2)
    assert refused.value.code is Code.ILLEGAL_GENERATION


def test_of_two_members_of_one_static_name_the_last_has_it_until_it_goes() -> None:
    """No leader records such a group; a tool may."""
    for first in "ab":
        group = group_of(member("a", instance_id="i"), member("b", instance_id="i"), member("c"))
        assert group.static_members == {"i": "b"}
        group.remove(group.members[first])
        assert group.static_members == ({"i": "b"} if first == "a" else {})
        for one in list(group.members.values()):
            group.remove(one)
        assert group.static_members == {}


def test_what_a_group_takes_is_given_back_to_the_last_byte() -> None:
    memory = CoordinatorMemory(1 << 60)
    group = Group("name", memory)
    assert memory.used_bytes == group.size_bytes == GROUP_BYTES + 8
    one = member("a", "x", "y", metadata=b"1234")
    group.add(one, "consumer")
    assert group.size_bytes == GROUP_BYTES + 8 + one.size_bytes
    group.update(one, (("x", b"123456"), ("zz", b"")), 1, 2)
    assert group.size_bytes == GROUP_BYTES + 8 + one.size_bytes
    group.give(one, b"assigned")
    assert group.size_bytes == GROUP_BYTES + 8 + one.size_bytes
    group.give(one, b"")
    group.add_pending("pending")
    group.forget_pending("another")
    assert group.size_bytes == GROUP_BYTES + 8 + one.size_bytes + MEMBER_BYTES + 7
    other = CoordinatorMemory(1 << 60)
    group.charge(other)
    assert (memory.used_bytes, other.used_bytes) == (0, group.size_bytes)
    group.forget_pending("pending")
    group.remove(one)
    assert other.used_bytes == group.size_bytes == GROUP_BYTES + 8
    group.go(Change.DELETED, 1)
    assert other.used_bytes == group.size_bytes == 0


def test_a_member_takes_the_bytes_of_its_names_its_protocols_and_its_part() -> None:
    one = member("abc", "range", "x", metadata=b"12345")
    one.assignment = b"1234567"
    names = 2 * len("abc") + len("client") + len("host")
    assert protocols_bytes(one.protocols) == 2 * 100 + len("range") + len("x") + 2 * 2 * 5
    assert one.size_bytes == MEMBER_BYTES + names + protocols_bytes(one.protocols) + 2 * 7
    one.rename("abcdef")
    assert one.size_bytes == MEMBER_BYTES + names + 6 + protocols_bytes(one.protocols) + 2 * 7


def test_a_member_wants_something_in_the_protocols_that_it_supports() -> None:
    one = Member("g", "a", None, "c", "h", 1, 2, protocols=(("x", b"X"), ("y", b"Y")))
    assert [one.metadata(name) for name in ("x", "y", "z", None)] == [b"X", b"Y", b"", b""]
    assert [one.vote(names) for names in ({"x", "y"}, {"y"}, {"z"}, set())] == ["x", "y", None, None]
    assert not one.is_waiting
    for waiting in ("join_request", "sync_request"):
        setattr(one, waiting, RequestId(1))
        assert one.is_waiting
        setattr(one, waiting, None)


def test_generations_count_on_and_begin_anew_at_the_end() -> None:
    group = group_of(member("a"))
    group.go(Change.MEMBERS_CHANGED, 5)
    group.is_initial = True
    group.begin_generation(6)
    assert (group.generation_id, group.state, group.state_timestamp_ms) == (1, GroupState.COMPLETING_REBALANCE, 6)
    assert (group.protocol_name, group.is_initial) == ("range", False)
    for before, after in ((2**31 - 2, 2**31 - 1), (2**31 - 1, 1)):
        group.go(Change.MEMBERS_CHANGED, 7)
        group.generation_id = before
        group.begin_generation(8)
        assert group.generation_id == after
    group.go(Change.MEMBERS_CHANGED, 9)
    group.remove(group.members["a"])
    group.begin_generation(10)
    assert (group.state, group.protocol_name, group.leader_id) == (GroupState.EMPTY, None, None)


def test_a_group_goes_where_its_changes_lead_and_nowhere_else() -> None:
    for state in GroupState:
        for change in Change:
            group = group_of()
            group.state = state
            if (state, change) in TRANSITIONS:
                group.go(change, 1)
            else:
                with pytest.raises(InvariantBrokenError):
                    group.go(change, 1)


def test_the_topics_of_members_are_those_that_they_name_if_that_can_be_told() -> None:
    assert group_of().wanted_topics() == frozenset()
    named = group_of(member("a", metadata=subscription("t", "u")), member("b", metadata=subscription("v")))
    assert named.wanted_topics() == frozenset("tuv")
    assert group_of(member("a", metadata=b"?")).wanted_topics() is None
    other = group_of()
    other.add(member("a", metadata=subscription("t")), "connect")
    assert other.wanted_topics() is None


def test_members_have_as_long_to_join_as_the_slowest_asked_for() -> None:
    assert group_of().rebalance_timeout_ms == 0
    assert group_of(member("aaa"), member("bbbbb"), member("c")).rebalance_timeout_ms == 5


def test_a_group_is_restored_as_it_was_recorded() -> None:
    group = group_of(member("a", "x"), member("b", "x", instance_id="i"))
    group.go(Change.MEMBERS_CHANGED, 5)
    group.begin_generation(6)
    group.leader_id = "b"
    group.give(group.members["a"], b"part")
    again = restored("g", group.value(), CoordinatorMemory(1 << 60))
    assert again.value() == group.value()
    assert (again.state, again.is_recorded, again.state_timestamp_ms) == (GroupState.STABLE, True, 6)
    assert (again.leader_id, again.generation_id, again.static_members) == ("b", 1, {"i": "b"})
    assert not again.is_forgettable
    value = group.value()
    for said, kept in ((0, 0), (1, 1), (-1, 9)):
        value.members[0].rebalance_timeout = said
        value.members[0].session_timeout = 9
        read = restored("g", value, CoordinatorMemory(1 << 60))
        assert (read.members["a"].rebalance_timeout_ms, read.members["a"].session_timeout_ms) == (kept, 9)
    value.current_state_timestamp = -1
    old = restored("g", value, CoordinatorMemory(1 << 60))
    assert (old.members["a"].rebalance_timeout_ms, old.state_timestamp_ms) == (9, None)
    assert old.value().current_state_timestamp == -1
    value.protocol = None
    assert restored("g", value, CoordinatorMemory(1 << 60)).members["a"].protocols == (("", b"m"),)
    empty = restored("g", group_of().value(), CoordinatorMemory(1 << 60))
    assert (empty.state, empty.protocol_type, empty.members) == (GroupState.EMPTY, None, {})
    fresh = group_of()
    assert fresh.is_forgettable
    fresh.add_pending("p")
    assert not fresh.is_forgettable


def test_what_a_record_does_not_say_is_not_known() -> None:
    """Kafka's records of before have fewer fields."""
    offset = OffsetCommitValue(offset=1, commit_timestamp=2)
    assert (offset.leader_epoch, offset.metadata, offset.expire_timestamp) == (-1, "", -1)
    assert offset.topic_id == ZERO_UUID
    group = GroupMetadataValue(protocol_type="consumer", generation=1, members=[])
    one = MemberMetadata(
        member_id="m", client_id="c", client_host="h", session_timeout=1, subscription=b"", assignment=b""
    )
    assert (one.rebalance_timeout, one.group_instance_id) == (-1, None)
    assert (group.protocol, group.leader, group.current_state_timestamp) == (None, None, -1)
    assert ClassicMemberMetadata().session_timeout_ms == 0
    assert ConsumerGroupMetadataValue(epoch=1).metadata_hash == 0
    assert ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=1).assignment_timestamp == 0
    assert ShareGroupTargetAssignmentMetadataValue(assignment_epoch=1).assignment_timestamp == 0
    member_value = ConsumerGroupMemberMetadataValue(client_id="c", client_host="h")
    assert (member_value.rebalance_timeout_ms, member_value.server_assignor) == (-1, None)


# What it is told to do.

DEFAULTS = {
    "session_timeout_ms_min": 6_000,
    "session_timeout_ms_max": 1_800_000,
    "initial_rebalance_delay_ms": 3_000,
    "group_size_max": 2_147_483_647,
    "offset_metadata_length_max": 4_096,
    "offsets_retention_ms": 604_800_000,
    "retention_check_interval_ms": 600_000,
}
"""Kafka's documentation says so."""


def test_settings_are_those_of_kafka_unless_somebody_says_else() -> None:
    settings = GroupSettings()
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS
    assert (settings.consumer, settings.share) == (ConsumerGroupSettings(), ShareGroupSettings())


# What is told of it.


def test_what_members_want_and_got_is_told_of_a_stable_group_only() -> None:
    world = Coordinated()
    (first,) = world.stable_group()
    (told,) = world.described().members
    assert (told.member_id, told.member_metadata != b"", told.member_assignment != b"") == (first, True, True)
    world.join(api_version=3)
    assert world.described().group_state == "PreparingRebalance"
    assert [(one.member_metadata, one.member_assignment) for one in world.described().members] == [(b"", b"")] * 2


def test_who_joins_is_told_to_assign_if_it_leads() -> None:
    world = Coordinated()
    join = world.join(api_version=3)
    world.pass_ms(3_000)
    answer = world.taken(join, JoinGroupResponse)
    assert (answer.leader, answer.skip_assignment) == (answer.member_id, False)
    assert [one.member_id for one in answer.members] == [answer.member_id]


@pytest.mark.parametrize(("api_version", "is_required"), [(3, False), (4, True), (5, True)])
def test_who_joins_without_an_id_is_to_come_back_with_one_since_version_4(api_version: int, is_required: bool) -> None:
    world = Coordinated()
    join = world.join(api_version=api_version)
    assert (join in world.answers) == is_required
    if is_required:
        assert world.taken(join, JoinGroupResponse).error_code == Code.MEMBER_ID_REQUIRED


def test_who_waits_for_its_part_and_is_put_out_is_told_so() -> None:
    world = Coordinated()
    joins = [world.join(api_version=3, client_id=name) for name in ("a", "b")]
    world.pass_ms(6_000)
    answers = [world.taken(join, JoinGroupResponse) for join in joins]
    (follower,) = [one.member_id for one in answers if one.leader != one.member_id]
    sync = world.sync(follower, 1)
    assert sync not in world.answers
    world.leave((follower, None))
    assert world.refused(sync) == Code.UNKNOWN_MEMBER_ID


def test_a_member_that_knows_its_id_stays_though_its_connection_ends() -> None:
    world = Coordinated()
    join = world.join(api_version=3)
    world.pass_ms(3_000)
    member_id = world.taken(join, JoinGroupResponse).member_id
    world.coordinator.on_disconnected(join, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert list(world.coordinator.groups["g"].members) == [member_id]


def test_a_group_is_there_by_its_members_or_by_its_offsets() -> None:
    world = Coordinated()
    for group_id, code in (("g", Code.GROUP_ID_NOT_FOUND), ("h", Code.GROUP_ID_NOT_FOUND)):
        assert world.refused(delete_offsets(world, group_id)) == code
    world.stable_group()
    world.commit({("t", 0): 1}, group_id="h")
    for group_id, code in (("g", Code.GROUP_SUBSCRIBED_TO_TOPIC), ("h", Code.NONE)):
        answer = world.taken(delete_offsets(world, group_id), OffsetDeleteResponse)
        assert answer.topics[0].partitions[0].error_code == code


def delete_offsets(world: Coordinated, group_id: str) -> RequestId:
    request_id = world.request_id()
    topic = OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])
    request = OffsetDeleteRequest(group_id=group_id, topics=[topic])
    world.coordinator.on_offset_delete(request_id, request, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    return request_id


# Retention, at the very edge.


def expiring(retention_ms: int = RETENTION_MS) -> Coordinated:
    return Coordinated(GroupSettings(offsets_retention_ms=retention_ms, retention_check_interval_ms=1))


def test_an_offset_goes_when_its_time_is_over_and_not_before() -> None:
    world = expiring()
    world.commit({("t", 0): 1})
    world.pass_ms(RETENTION_MS - 1)
    assert world.fetched() == {("t", 0): 1}
    world.pass_ms(1)
    assert world.fetched() == {}


def test_an_offset_that_says_how_long_goes_then() -> None:
    world = expiring(10 * RETENTION_MS)
    world.commit({("t", 0): 1}, retention_ms=300, api_version=2)
    world.pass_ms(299)
    assert world.fetched() == {("t", 0): 1}
    world.pass_ms(1)
    assert world.fetched() == {}
    assert world.wall_ms == WALL_START_MS + 300


def test_offsets_of_a_group_are_kept_while_it_rebalances() -> None:
    world = expiring()
    world.commit({("old", 0): 1})
    world.join(rebalance_ms=300_000, api_version=3)
    world.pass_ms(2 * RETENTION_MS)
    assert world.fetched() == {("old", 0): 1}


def test_a_look_is_due_an_interval_after_the_last() -> None:
    world = Coordinated(GroupSettings(retention_check_interval_ms=600))
    assert world.coordinator.next_deadline_ms() == 600
    world.pass_ms(599)
    assert world.coordinator.next_deadline_ms() == 600
    world.pass_ms(1)
    assert world.coordinator.next_deadline_ms() == 1_200
