"""Offsets of consumer groups (KIP-848): fenced by the epoch in which a partition was assigned (KIP-1251), and kept."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated import SESSION_MS
from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from tidelog.journal import RequestId
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
)
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_16_list_groups import ListedGroup
from tidelog.wire.messages.api_42_delete_groups import DeletableGroupResult
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
WEEK_MS = 7 * 24 * 3_600_000


def commit(world: Consumers, member_id: str, epoch: int, partition: int, *, api_version: int = 9) -> RequestId:
    return world.commit({("t", partition): 7}, member_id, epoch, api_version=api_version)


def world_of_two() -> Consumers:
    """`a` has 0 and 1 since epoch 1, `b` has 2 and 3 since epoch 2."""
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.enter("b")
    world.heard(world.beat("a", 1))
    world.heard(world.beat("a", 1, owned={"t": {0, 1}}))
    assert world.told(world.heard(world.beat("b", 2))) == {"t": {2, 3}}
    return world


# Commit.


def test_a_member_commits_at_its_epoch() -> None:
    world = world_of_two()
    assert world.commit_codes(commit(world, "a", 2, 0)) == [0]
    assert world.commit_codes(commit(world, "a", 2, 3)) == [0], "as Kafka, the partition is not asked about then"
    assert world.fetched() == {("t", 0): 7, ("t", 3): 7}


def test_a_commit_that_was_overtaken_by_an_epoch_counts() -> None:
    world = world_of_two()
    assert world.commit_codes(commit(world, "a", 1, 0)) == [0]


def test_a_commit_of_what_was_given_away_is_stale() -> None:
    world = world_of_two()
    assert world.refused(commit(world, "a", 1, 3)) == Code.STALE_MEMBER_EPOCH
    assert world.refused(commit(world, "b", 1, 3)) == Code.STALE_MEMBER_EPOCH, "it had not got it yet"
    assert world.refused(commit(world, "a", 3, 0)) == Code.STALE_MEMBER_EPOCH
    assert not world.fetched()


def test_what_is_to_be_given_up_may_be_committed() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.enter("u", topics=["u"])
    world.heard(world.beat("a", 1))
    world.enter("b")
    world.heard(world.beat("a", 2))
    assert world.group.current("a").revoking
    assert world.commit_codes(commit(world, "a", 1, 3)) == [0]


def test_a_topic_may_be_named_by_its_id() -> None:
    world = world_of_two()
    for partition, code in ((0, Code.NONE), (3, Code.STALE_MEMBER_EPOCH)):
        request_id = world.request_id()
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=7)
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=1,
            member_id="a",
            topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id("t"), partitions=[one])],
        )
        world.coordinator.on_offset_commit(request_id, request, api_version=10, now_ms=0, wall_ms=world.wall_ms)
        world.drive()
        assert (world.commit_codes(request_id) == [0]) if code is Code.NONE else world.refused(request_id) == code


def test_who_is_no_member_commits_only_where_there_are_none() -> None:
    world = world_of_two()
    assert world.refused(commit(world, "c", 2, 0)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(commit(world, "", -1, 0)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(commit(world, "a", -1, 0)) == Code.STALE_MEMBER_EPOCH
    for member_id in "ab":
        world.heard(world.beat(member_id, -1))
    assert world.commit_codes(commit(world, "", -1, 0, api_version=7)) == [0]


def test_an_old_client_is_told_to_be_newer() -> None:
    world = world_of_two()
    assert world.refused(commit(world, "a", 2, 0, api_version=8)) == Code.UNSUPPORTED_VERSION


def test_a_commit_of_a_former_self_is_fenced() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.enter("b", topics=["u"])
    world.heard(world.beat("a", 1, instance_id="i"))
    world.heard(world.beat("a", -2, instance_id="i"))
    assert world.enter("a", instance_id="i").member_epoch == 2
    assert world.refused(commit(world, "a", 1, 0)) == Code.STALE_MEMBER_EPOCH
    assert world.commit_codes(commit(world, "a", 2, 0)) == [0]


def test_a_static_member_that_is_away_commits_nothing() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i")
    world.heard(world.beat("a", -2, instance_id="i"))
    assert world.refused(commit(world, "a", 1, 0)) == Code.STALE_MEMBER_EPOCH


def test_a_transaction_commits_for_a_member() -> None:
    world = world_of_two()
    assert world.txn_commit_codes(world.txn_commit({("t", 0): 7}, member_id="a", generation_id=2)) == [0]
    assert world.txn_commit_codes(world.txn_commit({("t", 0): 7}, member_id="a", generation_id=1)) == [0]
    assert world.txn_commit_codes(world.txn_commit({("t", 0): 7})) == [0], "an old producer names nobody"
    for member_id, epoch, partition, code in (
        ("a", 1, 3, Code.ILLEGAL_GENERATION),
        ("a", 3, 0, Code.ILLEGAL_GENERATION),
        ("c", 2, 0, Code.UNKNOWN_MEMBER_ID),
    ):
        request = world.txn_commit({("t", partition): 7}, member_id=member_id, generation_id=epoch)
        assert world.refused(request) == code


# Fetch.


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, None),
        ("a", 2, None),
        ("a", 1, Code.STALE_MEMBER_EPOCH),
        ("a", 3, Code.STALE_MEMBER_EPOCH),
        ("c", 2, Code.UNKNOWN_MEMBER_ID),
        ("", 2, Code.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_says_it_is_a_member_fetches_at_its_epoch(member_id: str | None, epoch: int, code: Code | None) -> None:
    world = world_of_two()
    commit(world, "a", 2, 0)
    request_id = world.request_id()
    request = OffsetFetchRequestGroup(group_id="g", member_id=member_id, member_epoch=epoch)
    world.coordinator.on_offset_fetch(request_id, request, now_ms=0, wall_ms=world.wall_ms)
    world.drive()
    if code is None:
        assert world.taken(request_id, OffsetFetchResponseGroup).topics
    else:
        assert world.refused(request_id) == code


# Keep, delete.


def test_offsets_of_subscribed_topics_do_not_expire() -> None:
    settings = ConsumerGroupSettings(assignment_interval_ms=0, session_timeout_ms=2 * WEEK_MS)
    world = Consumers(GroupSettings(consumer=settings))
    world.enter("a")
    world.commit({("t", 0): 7, ("u", 0): 7}, "a", 1, api_version=9)
    world.pass_ms(WEEK_MS + 3_600_000)
    assert set(world.fetched()) == {("t", 0)}


def test_an_empty_group_goes_with_its_last_offset() -> None:
    world = world_of_two()
    commit(world, "a", 2, 0)
    for member_id in "ab":
        world.heard(world.beat(member_id, -1))
    world.pass_ms(WEEK_MS // 2)
    assert set(world.consumers.groups) == {"g"}
    world.pass_ms(WEEK_MS)
    assert not world.consumers.groups
    assert not world.fetched()
    assert world.memory.used_bytes == 0
    assert world.refused(world.beat("a", 2)) == Code.GROUP_ID_NOT_FOUND


def test_a_group_without_members_can_be_deleted() -> None:
    world = world_of_two()
    commit(world, "a", 2, 0)
    assert world.refused(delete_group(world)) == Code.NON_EMPTY_GROUP
    for member_id in "ab":
        world.heard(world.beat(member_id, -1))
    assert world.taken(delete_group(world), DeletableGroupResult)
    assert not world.consumers.groups
    assert not world.fetched()
    assert world.memory.used_bytes == 0
    assert world.refused(delete_group(world)) == Code.GROUP_ID_NOT_FOUND


def delete_group(world: Consumers) -> RequestId:
    request_id = world.request_id()
    world.coordinator.on_delete_group(request_id, "g", now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    return request_id


def test_offsets_of_topics_that_nobody_reads_can_be_deleted() -> None:
    world = world_of_two()
    world.commit({("t", 0): 7, ("u", 0): 7}, "a", 2, api_version=9)
    topics = [OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(0)]) for name in "tu"]
    request_id = world.request_id()
    request = OffsetDeleteRequest(group_id="g", topics=topics)
    world.coordinator.on_offset_delete(request_id, request, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    answer = world.taken(request_id, OffsetDeleteResponse)
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    assert codes == [Code.GROUP_SUBSCRIBED_TO_TOPIC, Code.NONE]
    assert set(world.fetched()) == {("t", 0)}


# What is told, and classic groups beside.


def test_a_group_is_described_with_its_members() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", instance_id="i", rack_id="r")
    world.enter("b", topics=None, pattern="x.*", client_id="other")
    world.heard(world.beat("a", 1))
    described = world.consumer_group()
    assert (described.error_code, described.group_state, described.assignor_name) == (0, "Stable", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    first, second = described.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 2)
    assert (first.client_id, first.client_host, first.member_type) == ("client", "/127.0.0.1", 1)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], None)
    for assignment in (first.assignment, first.target_assignment):
        (part,) = assignment.topic_partitions
        assert (part.topic_id, part.topic_name, part.partitions) == (topic_id("t"), "t", [0, 1, 2, 3])
    assert (second.subscribed_topic_regex, second.client_id) == ("x.*", "other")
    assert world.refused(world.describe("h")) is Code.GROUP_ID_NOT_FOUND


def test_a_group_is_described_by_a_leader_that_does_not_know_the_topics_yet() -> None:
    """Members and epochs are told of; topics without names are not."""
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.consumers.members.topics = None
    described = world.consumer_group()
    assert (described.error_code, described.group_epoch) == (0, 1)
    assert [(one.member_id, one.assignment.topic_partitions) for one in described.members] == [("a", [])]


def test_groups_are_listed_by_their_types() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.join("", group_id="classic", api_version=3)
    world.commit({("t", 0): 1}, group_id="simple")
    world.commit({("t", 0): 1}, "a", 1, api_version=9)

    def listed(states: list[str], types: list[str]) -> set[tuple[str, str]]:
        request_id = world.request_id()
        world.coordinator.on_list_groups(request_id, states, types, now_ms=0, wall_ms=world.wall_ms)
        world.drive()
        groups = world.taken(request_id, tuple)
        assert all(isinstance(one, ListedGroup) for one in groups)
        return {(one.group_id, one.group_type) for one in groups}

    assert listed([], []) == {("g", "consumer"), ("classic", "classic"), ("simple", "classic")}
    assert listed([], ["Consumer"]) == {("g", "consumer")}
    assert listed(["stable"], []) == {("g", "consumer")}
    assert listed(["empty"], ["classic"]) == {("simple", "classic")}


def test_a_consumer_group_is_no_classic_group() -> None:
    world = world_of_two()
    commit(world, "a", 2, 0)
    assert world.described().error_code == Code.GROUP_ID_NOT_FOUND
    world.consumers.members.overrides = {"g": ConsumerGroupSettings(migration_policy=MigrationPolicy.DISABLED)}
    assert world.refused(world.join()) == Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.refused(world.heartbeat("a", 2)) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_a_classic_group_is_no_consumer_group(policy: MigrationPolicy) -> None:
    world = Consumers(AT_ONCE)
    world.consumers.members.overrides = {"g": ConsumerGroupSettings(migration_policy=policy)}
    world.join(api_version=3)
    request = world.beat("a", 0, topics=["t"], owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.GROUP_ID_NOT_FOUND
    assert world.refused(world.beat("a", 1)) == Code.GROUP_ID_NOT_FOUND
    assert world.refused(world.describe()) is Code.GROUP_ID_NOT_FOUND


def test_a_classic_group_without_members_gives_its_id_and_its_offsets() -> None:
    world = Consumers(AT_ONCE)
    join = world.join(api_version=3)
    world.pass_ms(3_000)
    member_id = world.taken(join, JoinGroupResponse).member_id
    world.synced([member_id], 1, leader=member_id)
    assert world.commit_codes(world.commit({("t", 0): 7}, member_id, 1)) == [0]
    world.leave((member_id, None))
    world.member_id_required()
    world.enter("a")
    assert not world.coordinator.groups
    assert world.fetched() == {("t", 0): 7}
    world.fail_over()
    assert not world.coordinator.groups
    assert world.heard(world.beat("a", 1)).member_epoch == 1
    world.pass_ms(SESSION_MS)


def test_a_consumer_group_without_members_gives_its_id_and_its_offsets() -> None:
    world = world_of_two()
    commit(world, "a", 2, 0)
    for member_id in "ab":
        world.heard(world.beat(member_id, -1))
    join = world.join(api_version=3)
    assert not world.consumers.groups
    world.pass_ms(3_000)
    assert world.taken(join, JoinGroupResponse).generation_id == 1
    assert world.fetched() == {("t", 0): 7}
    world.fail_over()
    assert not world.consumers.groups


def test_what_was_committed_for_a_topic_is_not_found_for_another_of_its_name() -> None:
    """Whether or not it was told that the topic was deleted: it may have been down."""
    world = Consumers(GroupSettings(), topics={"t": 2, "u": 1})
    assert world.commit_codes(world.commit({("t", 0): 7, ("t", 1): 8, ("u", 0): 9})) == [0, 0, 0]
    assert world.commit_codes(world.commit({("t", 1): 8}, metadata="m")) == [0]
    assert world.fetched() == {("t", 0): 7, ("t", 1): 8, ("u", 0): 9}
    world.delete("t")
    world.make(t=2)
    for _ in range(2):
        assert world.fetched() == {("t", 0): -1, ("t", 1): -1, ("u", 0): 9}
        by_name = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        assert world.fetch(OffsetFetchRequestGroup(group_id="g", topics=[by_name])) == {("t", 0): (-1, Code.NONE)}
        world.fail_over()
    assert world.commit_codes(world.commit({("t", 0): 1})) == [0]
    assert world.fetched() == {("t", 0): 1, ("t", 1): -1, ("u", 0): 9}


def test_what_a_transaction_committed_for_a_topic_is_not_found_for_another_of_its_name() -> None:
    world = Consumers(GroupSettings(), topics={"t": 1})
    assert world.txn_commit_codes(world.txn_commit({("t", 0): 7})) == [0]
    world.delete("t")
    world.make(t=1)
    world.end_transaction()
    assert world.fetched() == {("t", 0): -1}


def test_offsets_are_committed_and_fetched_for_the_id_that_a_request_says() -> None:
    """The coordinator may know of the next topic of that name already."""
    world = Consumers(GroupSettings(), topics={"t": 1})
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                topic_id=topic_id("t", 1),
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
        ],
    )
    request_id = world.request_id()
    world.coordinator.on_offset_commit(request_id, request, api_version=10, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert world.commit_codes(request_id) == [0]
    assert world.fetched() == {("t", 0): -1}
    for incarnation, expected in ((0, -1), (1, 7)):
        asked = OffsetFetchRequestTopic(name="t", topic_id=topic_id("t", incarnation), partition_indexes=[0])
        assert world.fetch(OffsetFetchRequestGroup(group_id="g", topics=[asked])) == {("t", 0): (expected, Code.NONE)}
