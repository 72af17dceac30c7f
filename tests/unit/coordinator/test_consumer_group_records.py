"""What the log holds of consumer groups (KIP-848), and what another leader makes of it, wherever the log ends."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated import CountingRng
from support.fixtures.coordinated_consumers import Consumers, topic_id
from tidelog.base.errors import Code, CorruptLogError
from tidelog.base.ids import Offset
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment, current_of
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerMemberState,
    CurrentAssignmentPartitions,
)
from tidelog.coordinator.groups.group_record_types import GroupRecordType, MemberRecordKey
from tidelog.journal.versioned_records import encode_key, encode_value, record_type

AT_ONCE = GroupSettings(consumer=ConsumerGroupSettings(assignment_interval_ms=0))
T = topic_id("t")


def replayed(log: list[tuple[bytes, bytes | None]]) -> dict[str, ConsumerGroup]:
    coordinator = GroupCoordinator(0, AT_ONCE, rng=CountingRng())
    for offset, (key, value) in enumerate(log):
        coordinator.replay(key, value, Offset(offset))
    groups = coordinator.consumer_groups.groups
    assert coordinator._journal.state.consumer_groups_bytes == sum(one.size_bytes for one in groups.values())
    return groups


def test_a_first_heartbeat_is_one_batch_of_all_its_records() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    (batch,) = world.batches
    assert [record_type(key) for key, _ in batch] == [
        GroupRecordType.CONSUMER_GROUP_METADATA,
        GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA,
        GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        GroupRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    ]


def test_a_member_that_leaves_leaves_tombstones_behind_the_epoch() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.heard(world.beat("a", -1))
    assert [(record_type(key), value is None) for key, value in world.batches[-1]] == [
        (GroupRecordType.CONSUMER_GROUP_METADATA, False),
        (GroupRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, True),
        (GroupRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, True),
        (GroupRecordType.CONSUMER_GROUP_MEMBER_METADATA, True),
    ]


def test_another_leader_goes_on_where_the_last_one_was() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=10_000)
    world.enter("b", instance_id="i")
    world.heard(world.beat("a", 1))
    before = world.group.clone().canonical()
    world.fail_over()
    assert world.group.canonical() == before
    world.heard(world.beat("a", 1, owned={"t": {0, 1}}))
    assert world.told(world.heard(world.beat("b", 2, instance_id="i"))) == {"t": {2, 3}}


def test_the_clocks_of_members_start_again_with_another_leader() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a", rebalance_ms=10_000)
    world.enter("b", rebalance_ms=50_000)
    world.heard(world.beat("a", 1))
    world.fail_over()
    world.pass_ms(9_999)
    assert set(world.group.subscriptions) == {"a", "b"}
    world.pass_ms(1)
    assert set(world.group.subscriptions) == {"b"}, "it did not give up"
    world.pass_ms(35_000)
    assert not world.group.subscriptions, "it was not heard of"


def test_metadata_that_nobody_saw_change_is_looked_at_by_the_next_leader() -> None:
    world = Consumers(AT_ONCE)
    world.enter("a")
    world.topics["t"] = 5
    world.fail_over()
    assert world.told(world.heard(world.beat("a", 1))) == {"t": {0, 1, 2, 3, 4}}


def test_another_leader_raises_no_epoch_where_nothing_has_changed() -> None:
    world = Consumers(AT_ONCE, topics={"t": 4, "u": 1})
    world.enter("a")
    world.heard(world.beat("a", 1, topics=["t", "u"]))
    for _ in range(2):
        world.fail_over()
        assert world.heard(world.beat("a", 2)).member_epoch == 2
        assert world.group.epoch == 2


@pytest.mark.parametrize(
    ("epoch", "pattern", "topics"), [(-1, None, {"t"}), (None, "", {"t"}), (None, "u.*", {"t", "u"})]
)
def test_another_leader_raises_no_epoch_for_a_pattern_that_went_or_stayed(
    epoch: int | None, pattern: str | None, topics: set[str]
) -> None:
    world = Consumers(AT_ONCE, topics={"t": 4, "u": 1})
    world.enter("a")
    world.enter("b", topics=None, pattern="u.*")
    world.pass_ms(0)
    assert set(world.group.topics) == {"t", "u"}
    if epoch is None:
        world.heard(world.beat("b", world.group.current("b").member_epoch, topics=["t"], pattern=pattern, owned={}))
    else:
        world.heard(world.beat("b", epoch))
    assert set(world.group.topics) == topics
    before = world.group.epoch
    world.fail_over()
    world.heard(world.beat("a", world.group.current("a").member_epoch))
    assert world.group.epoch == before


@pytest.mark.parametrize("event", ["join", "leave", "return"])
def test_a_change_that_was_cut_off_anywhere_is_made_up_for(event: str) -> None:
    """A batch is there as a whole or not at all; a change that none holds is several."""
    for kept in range(6):
        world = Consumers(AT_ONCE)
        world.enter("a", instance_id="i")
        world.enter("b")
        world.heard(world.beat("a", 1))
        world.heard(world.beat("a", 1, owned={"t": {0, 1}}))
        world.heard(world.beat("b", 2))
        if event == "return":
            world.heard(world.beat("a", -2, instance_id="i"))
        end, batches = len(world.log), len(world.batches)
        world.coordinator.batch_size_bytes_max = 200
        if event == "join":
            world.enter("c")
        elif event == "leave":
            world.beat("a", -1, instance_id="i")
        else:
            world.enter("c", instance_id="i")
        assert len(world.batches) > batches + 1
        del world.log[end + sum(map(len, world.batches[batches : batches + kept])) :]
        world.fail_over()
        members = list(world.group.subscriptions)
        for _ in range(3):
            for member_id in members:
                world.enter(member_id, instance_id=world.group.subscriptions[member_id].instance_id)
        read = [one for member_id in members for one in world.group.current(member_id).assigned.get(T, ())]
        assert sorted(read) == [0, 1, 2, 3], (kept, members)
        for member_id in members:
            world.heard(world.beat(member_id, world.group.current(member_id).member_epoch))


def test_a_change_that_no_batch_holds_is_written_in_parts() -> None:
    world = Consumers(AT_ONCE, batch_bytes=300)
    world.enter("a")
    assert len(world.batches) > 1
    assert all(sum(len(key) + len(value or b"") for key, value in batch) < 300 for batch in world.batches)


def test_a_member_that_wants_more_than_a_batch_holds_is_refused() -> None:
    world = Consumers(AT_ONCE, batch_bytes=1_000)
    request = world.beat("a", 0, topics=[f"topic-{one}" for one in range(200)], owned={}, rebalance_ms=1)
    assert world.refused(request) == Code.INVALID_REQUEST
    assert not world.log


def test_a_log_of_an_older_kafka_has_no_assignment_epochs() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=5,
        previous_member_epoch=4,
        state=ConsumerMemberState.UNREVOKED_PARTITIONS,
        assigned_partitions=[CurrentAssignmentPartitions(T, [1, 2])],
        partitions_pending_revocation=[CurrentAssignmentPartitions(T, [3], [2])],
    )
    expected = CurrentAssignment(5, 4, ConsumerMemberState.UNREVOKED_PARTITIONS, {T: {1: 5, 2: 5}}, {T: {3: 2}})
    assert current_of(value) == expected
    key = encode_key(
        GroupRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, MemberRecordKey(group_id="g", member_id="m")
    )
    assert replayed([(key, encode_value(value, 0))])["g"].current("m") == expected


def test_a_state_that_is_not_known_is_found_out() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=1, previous_member_epoch=0, state=99)
    assert current_of(value).state is ConsumerMemberState.UNRELEASED_PARTITIONS


def test_tombstones_of_what_is_not_there_make_nothing() -> None:
    group = ConsumerGroup("g")
    assert not replayed([*recorded.group_tombstones(group), *recorded.member_tombstones("g", "a")])


SUBSCRIPTION = ConsumerSubscription("client", "host", "i", None, ("t",), "ab.*", 5)
CURRENT = CurrentAssignment(2, 1, ConsumerMemberState.UNREVOKED_PARTITIONS, {T: {0: 1}}, {T: {1: 2}})
RECORDS = {
    "group": recorded.group_record("g", 3, 7),
    "member": recorded.member_record("g", "a", SUBSCRIPTION),
    "target epoch": recorded.target_epoch_record("g", 2, 9),
    "target": recorded.target_record("g", "a", {T: frozenset((0,))}),
    "current": recorded.current_record("g", "a", CURRENT),
    "pattern": recorded.pattern_record("g", "ab.*", MatchedTopics(frozenset(("abc",)), 1, 2)),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_and_its_tombstone_leave_what_a_log_without_them_does(name: str) -> None:
    """Compaction takes both away, whenever it likes."""
    others = [record for one, record in RECORDS.items() if one != name]
    without = replayed(list(others))["g"].canonical()
    assert replayed([*others, RECORDS[name]])["g"].canonical() != without
    assert replayed([*others, RECORDS[name], (RECORDS[name][0], None)])["g"].canonical() == without
    assert not replayed([RECORDS[name], (RECORDS[name][0], None)])


@pytest.mark.parametrize("assigned_at_ms", [None, 9])
def test_all_records_of_a_group_make_that_group(assigned_at_ms: int | None) -> None:
    """One that was a classic group until now has a target assignment, which nobody here made."""
    group = ConsumerGroup("g")
    group.set_epoch(3, 7)
    group.set_target_epoch(3, assigned_at_ms)
    group.set_subscription("a", SUBSCRIPTION)
    group.set_target("a", {T: frozenset((0, 1))})
    group.set_current("a", CURRENT)
    assert replayed(list(recorded.whole_group(group)))["g"].canonical() == group.canonical()


def test_a_copy_is_the_same() -> None:
    world = Consumers(AT_ONCE, topics={"t": 2, "abc": 1})
    world.enter("a", pattern="ab.*")
    world.pass_ms(0)
    state = world.coordinator._journal.state
    copy = state.clone()
    assert copy.consumer_groups["g"].canonical() == world.group.canonical()
    assert copy.consumer_groups_bytes == world.group.size_bytes
    world.heard(world.beat("a", -1))
    assert copy.consumer_groups["g"].subscriptions


def test_what_is_no_record_is_told_with_its_offset() -> None:
    epochs = CurrentAssignmentPartitions(T, [1, 2], [1])
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1, previous_member_epoch=0, state=0, assigned_partitions=[epochs]
    )
    key = encode_key(
        GroupRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, MemberRecordKey(group_id="g", member_id="m")
    )
    for record in ((key, encode_value(value, 0)), (key, b"\0\0"), (key, b"\0\x09"), (key[:5], b"\0\0")):
        with pytest.raises(CorruptLogError, match="offset 0"):
            replayed([record])
