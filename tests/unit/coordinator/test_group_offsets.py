"""Committed offsets: remembered, told, deleted, and forgotten in time."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated import WALL_START_MS, Coordinated, subscription
from tidelog.base.errors import Code
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.records import decode_offset, group_key, offset_key
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponseGroup,
)
from tidelog.wire.messages.api_42_delete_groups import DeletableGroupResult
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def delete_offsets(world: Coordinated, *topics: str, group_id: str = "g") -> int:
    request_id = world.request_id()
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)]) for topic in topics],
    )
    world.coordinator.on_offset_delete(request_id, request, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    return request_id


def delete_codes(world: Coordinated, *topics: str, group_id: str = "g") -> list[int]:
    answer = world.taken(delete_offsets(world, *topics, group_id=group_id), OffsetDeleteResponse)  # type: ignore[arg-type]
    return [one.error_code for topic in answer.topics for one in topic.partitions]


def refused_delete(world: Coordinated, *topics: str) -> Code:
    return world.refused(delete_offsets(world, *topics))  # type: ignore[arg-type]


def test_offsets_are_told_with_all_that_came_with_them() -> None:
    world = Coordinated()
    world.commit({("t", 0): 7, ("t", 3): 9}, metadata="möre", leader_epoch=5)
    world.commit({("u", 1): 11})
    request_id = world.request_id()
    wanted = [
        OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1]),
        OffsetFetchRequestTopic(name="v", partition_indexes=[0]),
    ]
    world.coordinator.on_offset_fetch(
        request_id, OffsetFetchRequestGroup(group_id="g", topics=wanted), now_ms=0, wall_ms=0
    )
    world.drive()
    answer = world.taken(request_id, OffsetFetchResponseGroup)
    told = {
        (topic.name, one.partition_index): (one.committed_offset, one.committed_leader_epoch, one.metadata)
        for topic in answer.topics
        for one in topic.partitions
    }
    assert told == {("t", 0): (7, 5, "möre"), ("t", 1): (-1, -1, ""), ("v", 0): (-1, -1, "")}
    assert world.fetched() == {("t", 0): 7, ("t", 3): 9, ("u", 1): 11}
    assert world.fetched("other") == {}
    assert world.coordinator.offsets_count == 3


def test_a_leader_epoch_that_is_not_known_is_told_as_such() -> None:
    world = Coordinated()
    for leader_epoch in (-1, 0, 3):
        world.commit({("t", 0): 7}, leader_epoch=leader_epoch)
        request_id = world.request_id()
        world.coordinator.on_offset_fetch(request_id, OffsetFetchRequestGroup(group_id="g"), now_ms=0, wall_ms=0)
        world.drive()
        (topic,) = world.taken(request_id, OffsetFetchResponseGroup).topics
        assert [one.committed_leader_epoch for one in topic.partitions] == [leader_epoch]


def test_who_does_not_say_that_offsets_are_to_be_stable_is_told_what_is_committed() -> None:
    world = Coordinated()
    world.commit({("t", 0): 3})
    world.txn_commit({("t", 0): 5})
    request_id = world.request_id()
    world.coordinator.on_offset_fetch(request_id, OffsetFetchRequestGroup(group_id="g"), now_ms=0, wall_ms=0)
    world.drive()
    (topic,) = world.taken(request_id, OffsetFetchResponseGroup).topics
    assert [(one.committed_offset, one.error_code) for one in topic.partitions] == [(3, Code.NONE)]


def test_offsets_survive_a_failover() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    for offset in range(5):
        world.commit({("t", 0): offset, ("t", 1): 10 * offset}, member, 1, leader_epoch=offset)
    world.fail_over()
    assert world.fetched() == {("t", 0): 4, ("t", 1): 40}
    value = world.coordinator._journal.state.offset_of("g", "t", 0)
    assert value is not None
    assert decode_offset(value).leader_epoch == 4


def test_metadata_has_a_limit_for_each_partition() -> None:
    world = Coordinated()
    codes = world.commit_codes(world.commit({("t", 0): 1}, metadata="x" * 4_096))
    assert codes == [Code.NONE]
    codes = world.commit_codes(world.commit({("t", 0): 2}, metadata="x" * 4_097))
    assert codes == [Code.OFFSET_METADATA_TOO_LARGE]
    assert world.fetched() == {("t", 0): 1}
    world = Coordinated(GroupSettings(offset_metadata_length_max=100_000))
    codes = world.commit_codes(world.commit({("t", 0): 3}, metadata="é" * 20_000))
    assert codes == [Code.OFFSET_METADATA_TOO_LARGE], "no record holds 32,768 bytes of it"
    for metadata, code in (("x" * 32_767, Code.NONE), ("é" * 16_384, Code.OFFSET_METADATA_TOO_LARGE)):
        assert world.commit_codes(world.commit({("t", 0): 3}, metadata=metadata)) == [code]


@pytest.mark.parametrize(("retention_ms", "expires_ms"), [(-1, None), (0, 0), (1, 1)])
def test_an_old_client_may_say_that_an_offset_is_for_no_time_at_all(retention_ms: int, expires_ms: int | None) -> None:
    world = Coordinated()
    world.commit({("t", 0): 1}, retention_ms=retention_ms, api_version=2)
    value = world.coordinator._journal.state.offset_of("g", "t", 0)
    assert value is not None
    assert decode_offset(value).expire_timestamp_ms == (None if expires_ms is None else WALL_START_MS + expires_ms)


def test_a_commit_that_no_batch_holds_is_refused() -> None:
    world = Coordinated()
    world.coordinator.batch_size_bytes_max = 10_000
    assert world.coordinator.batch_size_bytes_max == 10_000
    offsets = {("t", partition): 1 for partition in range(200)}
    assert world.refused(world.commit(offsets)) == Code.INVALID_COMMIT_OFFSET_SIZE
    assert world.fetched() == {}


def test_a_commit_while_members_join_counts() -> None:
    world = Coordinated()
    first, second = world.stable_group("a", "b")
    world.join(first)
    assert world.commit_codes(world.commit({("t", 0): 5}, second, 1)) == [0]


def test_offsets_of_topics_that_are_read_stay() -> None:
    world = Coordinated()
    (member,) = world.stable_group(protocols=(("range", subscription("t", "u")),))
    world.commit({("t", 0): 1, ("v", 0): 2}, member, 1)
    codes = delete_codes(world, "t", "u", "v", "w")
    assert codes == [Code.GROUP_SUBSCRIBED_TO_TOPIC, Code.GROUP_SUBSCRIBED_TO_TOPIC, Code.NONE, Code.NONE]
    assert world.fetched() == {("t", 0): 1}
    world.leave((member, None))
    assert delete_codes(world, "t") == [Code.NONE]
    assert world.fetched() == {}


def test_what_members_of_other_types_read_is_theirs_to_know() -> None:
    world = Coordinated()
    (member,) = world.stable_group(protocol_type="connect", protocols=(("default", b""),))
    world.commit({("t", 0): 1}, member, 1)
    assert refused_delete(world, "t") == Code.NON_EMPTY_GROUP


def test_a_group_that_is_not_there_has_no_offsets_to_delete() -> None:
    world = Coordinated()
    assert refused_delete(world, "t") == Code.GROUP_ID_NOT_FOUND
    world.commit({("t", 0): 1})
    assert delete_codes(world, "t") == [Code.NONE]
    assert world.described().group_state == "Dead"


def test_a_deleted_group_leaves_tombstones_of_all_it_was() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.commit({("t", 0): 1, ("t", 1): 2}, member, 1)
    world.leave((member, None))
    assert world.taken(world.delete_group(), DeletableGroupResult).error_code == 0
    latest = dict(world.committed)
    assert latest == {group_key("g"): None, offset_key("g", "t", 0): None, offset_key("g", "t", 1): None}
    assert not world.coordinator.groups
    world.fail_over()
    assert world.described().group_state == "Dead"


def test_a_deletion_takes_as_many_batches_as_it_needs() -> None:
    world = Coordinated()
    world.coordinator.batch_size_bytes_max = 1_000
    for partition in range(100):
        world.commit({("t", partition): 1})
    before = len(world.batches)
    world.delete_group()
    sizes = [len(batch) for batch in world.batches[before:]]
    assert sum(sizes) == 100
    assert len(sizes) > 3
    assert world.coordinator.offsets_count == 0


def test_a_deleted_topic_takes_its_offsets_with_it() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.commit({("t", 0): 1, ("u", 0): 2}, member, 1)
    world.commit({("t", 5): 1}, group_id="h")
    assert world.coordinator.topics == {"t", "u"}
    world.coordinator.on_topics_deleted(["t"], now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert world.fetched() == {("u", 0): 2}
    assert world.fetched("h") == {}
    world.fail_over()
    assert world.coordinator.topics == {"u"}


def test_what_was_forgotten_can_be_committed_again() -> None:
    world = Coordinated()
    for offset in range(3):
        world.commit({("t", 0): offset, ("t", 1): offset})
        assert world.fetched() == {("t", 0): offset, ("t", 1): offset}
        world.coordinator.on_topics_deleted(["t"], now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        assert (world.fetched(), world.coordinator.offsets_count) == ({}, 0)


def test_what_is_not_there_leaves_no_tombstone() -> None:
    world = Coordinated()
    world.commit({("t", 0): 1})
    before = len(world.batches)
    assert delete_codes(world, "u", "v") == [Code.NONE, Code.NONE]
    assert world.batches[before:] == []


def test_what_many_groups_forget_is_written_in_few_batches() -> None:
    world = Coordinated(GroupSettings(offsets_retention_ms=DAY_MS))
    for number in range(300):
        world.commit({("t", 0): 1, ("u", 0): 2}, group_id=f"g{number}")
    before = len(world.batches)
    world.coordinator.on_topics_deleted(["t"], now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert [len(batch) for batch in world.batches[before:]] == [300]
    world.pass_ms(DAY_MS + world.settings.retention_check_interval_ms)
    assert [len(batch) for batch in world.batches[before:]] == [300, 300]
    assert world.coordinator.offsets_count == 0


# Retention.


def test_offsets_of_members_stay_for_ever() -> None:
    world = Coordinated()
    (member,) = world.stable_group(session_ms=1_800_000)
    world.commit({("t", 0): 1}, member, 1)
    for _ in range(10 * 48):
        world.pass_ms(1_800_000 - 1)
        world.heartbeat(member, 1)
    assert world.fetched() == {("t", 0): 1}


def test_those_of_topics_that_nobody_reads_any_more_go() -> None:
    world = Coordinated(GroupSettings(offsets_retention_ms=DAY_MS))
    (member,) = world.stable_group(session_ms=1_800_000)
    world.commit({("t", 0): 1, ("old", 0): 1}, member, 1)
    for _ in range(50):
        world.pass_ms(1_800_000 - 1)
        world.heartbeat(member, 1)
    assert world.fetched() == {("t", 0): 1}


@pytest.mark.parametrize("fails_over", [False, True])
def test_offsets_go_a_week_after_the_last_member(fails_over: bool) -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.commit({("t", 0): 1}, member, 1)
    world.pass_ms(5_000)
    world.leave((member, None))
    world.pass_ms(WEEK_MS - 60_000)
    if fails_over:
        world.fail_over()
    assert world.fetched() == {("t", 0): 1}
    world.pass_ms(60_000 + world.settings.retention_check_interval_ms)
    assert world.fetched() == {}
    assert set(dict(world.committed).values()) == {None}
    assert not world.coordinator.groups


def test_those_of_groups_without_members_go_a_week_after_the_commit() -> None:
    world = Coordinated()
    world.commit({("t", 0): 1, ("t", 1): 1})
    world.pass_ms(WEEK_MS // 2)
    world.commit({("t", 1): 2})
    world.pass_ms(WEEK_MS // 2 + world.settings.retention_check_interval_ms)
    assert world.fetched() == {("t", 1): 2}


def test_old_clients_say_for_how_long() -> None:
    world = Coordinated()
    world.commit({("t", 0): 1}, retention_ms=3_600_000, api_version=2)
    world.commit({("t", 1): 1}, retention_ms=2**63 - 1, api_version=2)
    ((_, value), (_, last)) = world.committed
    assert value is not None
    assert last is not None
    assert value[:2] == b"\0\1"
    assert decode_offset(value).expire_timestamp_ms == WALL_START_MS + 3_600_000
    assert decode_offset(last).expire_timestamp_ms == 2**63 - 1
    world.pass_ms(3_600_000 - 1)
    assert ("t", 0) in world.fetched()
    world.pass_ms(world.settings.retention_check_interval_ms)
    assert world.fetched() == {("t", 1): 1}
    world.pass_ms(2 * WEEK_MS)
    assert world.fetched() == {("t", 1): 1}


def test_many_groups_are_looked_at_some_at_a_time() -> None:
    world = Coordinated()
    for group in range(30):
        world.commit({("t", partition): 1 for partition in range(400)}, group_id=f"g{group}")
    world.now_ms = 2 * WEEK_MS
    steps = 0
    while world.coordinator.next_deadline_ms() is not None and steps < 100 and world.coordinator.offsets_count:
        world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
        world.drive()
        steps += 1
    assert world.coordinator.offsets_count == 0
    assert 2 <= steps <= 5


def test_a_recorded_group_without_offsets_goes_at_the_next_look() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.leave((member, None))
    world.pass_ms(world.settings.retention_check_interval_ms)
    assert world.described().group_state == "Dead"
    assert dict(world.committed) == {group_key("g"): None}
