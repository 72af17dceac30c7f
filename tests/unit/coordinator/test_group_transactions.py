"""Offsets that are committed in transactions: pending until the marker, then there or forgotten."""

from __future__ import annotations

from uuid import UUID

import pytest

from support.fixtures.coordinated import Coordinated
from tidelog.base.errors import Code
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups import GroupSettings
from tidelog.coordinator.groups.pending_offsets import PENDING_BYTES, size_bytes
from tidelog.coordinator.groups.records import decode_offset, encode_group, group_key
from tidelog.journal import TransactionEnd, TransactionPart
from tidelog.metadata import MetadataImage, TopicImage
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopic
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.messages.api_16_list_groups import ListedGroup
from tidelog.wire.messages.api_42_delete_groups import DeletableGroupResult
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
T0 = ("t", 0)
NONE, UNSTABLE = Code.NONE, Code.UNSTABLE_OFFSET_COMMIT


def stable(
    world: Coordinated, *partitions: tuple[str, int], group_id: str = "g"
) -> dict[tuple[str, int], tuple[int, Code]]:
    """What a consumer that waits for transactions is told; of all partitions if none is named."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=[partition]) for topic, partition in partitions]
    request = OffsetFetchRequestGroup(group_id=group_id, topics=topics or None)
    return world.fetch(request, require_stable=True)


def listed(world: Coordinated) -> list[str]:
    request_id = world.request_id()
    world.coordinator.on_list_groups(request_id, (), (), now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    groups: tuple[ListedGroup, ...] = world.taken(request_id, tuple)
    return [one.group_id for one in groups]


# The marker.


def test_an_offset_counts_once_its_transaction_is_committed() -> None:
    world = Coordinated()
    world.commit({T0: 3})
    assert world.txn_commit_codes(world.txn_commit({T0: 5, ("u", 1): 9}, leader_epoch=4, metadata="m")) == [0, 0]
    assert world.fetched() == {T0: 3}, "who does not ask for stable offsets is told the last committed one"
    assert stable(world, T0, ("u", 1), ("v", 0)) == {T0: (-1, UNSTABLE), ("u", 1): (-1, UNSTABLE), ("v", 0): (-1, NONE)}
    assert world.taken(world.end_transaction(), Code) is NONE
    assert world.fetched() == {T0: 5, ("u", 1): 9}
    assert stable(world) == {T0: (5, NONE), ("u", 1): (9, NONE)}
    assert world.coordinator.offsets_count == 2
    value = world.coordinator._journal.state.offset_of("g", "t", 0)
    assert value is not None
    assert decode_offset(value)[:3] == (5, 4, "m"), "the leader epoch is what finds lost records (KIP-320)"


def test_an_offset_is_forgotten_when_its_transaction_is_aborted() -> None:
    world = Coordinated()
    world.commit({T0: 3})
    world.txn_commit({T0: 5, ("u", 1): 9})
    assert world.taken(world.end_transaction(is_commit=False), Code) is NONE
    assert stable(world) == {T0: (3, NONE)}
    assert not world.coordinator._journal.state.pending
    assert world.memory.used_bytes == 0


def test_the_batches_carry_the_producer() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5}, 7, 2)
    world.end_transaction(7, 3, coordinator_epoch=11)
    records, marker = world.transactions.values()
    assert records == TransactionPart(7, 2)
    assert marker == TransactionPart(7, 3, TransactionEnd(7, True))


def test_answers_wait_for_the_log() -> None:
    world = Coordinated(commits_at_once=False)
    committed = world.txn_commit({T0: 5})
    ended = world.end_transaction()
    assert world.answers == {}
    world.coordinator.on_committed(world.log[0][0])
    world.drive()
    assert world.answers == {}
    world.commit_log()
    world.drive()
    assert world.txn_commit_codes(committed) == [0]
    assert world.taken(ended, Code) is NONE


def test_a_marker_that_comes_twice_or_for_nobody_changes_nothing() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5})
    world.end_transaction()
    assert world.taken(world.end_transaction(), Code) is NONE
    assert world.taken(world.end_transaction(99, is_commit=False), Code) is NONE
    assert world.fetched() == {T0: 5}


def test_a_transaction_ends_for_its_own_producer_alone() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5}, 7)
    world.txn_commit({("t", 1): 6}, 8)
    world.end_transaction(8)
    assert stable(world) == {T0: (-1, UNSTABLE), ("t", 1): (6, NONE)}
    assert world.coordinator.pending_producer_ids == {7}


def test_a_transaction_may_commit_for_several_groups() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5}, group_id="g")
    world.txn_commit({T0: 6}, group_id="h")
    world.end_transaction()
    assert (world.fetched("g"), world.fetched("h")) == ({T0: 5}, {T0: 6})


def test_the_last_commit_of_a_transaction_counts() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5})
    world.txn_commit({T0: 4})
    world.end_transaction()
    assert world.fetched() == {T0: 4}


# What else is said of the same position.


def test_a_plain_commit_that_is_newer_counts_whatever_the_transaction_comes_to() -> None:
    for is_commit in (True, False):
        world = Coordinated()
        world.txn_commit({T0: 5, ("t", 1): 6})
        world.commit({T0: 9})
        # Kafka says UNSTABLE_OFFSET_COMMIT of it until the marker comes, which decides nothing about it.
        assert stable(world, T0, ("t", 1)) == {T0: (9, NONE), ("t", 1): (-1, UNSTABLE)}
        world.end_transaction(is_commit=is_commit)
        assert world.fetched() == ({T0: 9, ("t", 1): 6} if is_commit else {T0: 9})


def test_a_plain_commit_that_is_older_gives_way() -> None:
    world = Coordinated()
    world.commit({T0: 9})
    world.txn_commit({T0: 5})
    world.end_transaction()
    assert world.fetched() == {T0: 5}


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_of_two_transactions_the_one_that_committed_last_counts(first_ends_first: bool) -> None:
    """By the order of the offsets in the log, not of the markers: a compacted log keeps the last record."""
    world = Coordinated()
    world.txn_commit({T0: 5}, 7)
    world.txn_commit({T0: 6}, 8)
    for producer_id in (7, 8) if first_ends_first else (8, 7):
        world.end_transaction(producer_id)
    assert world.fetched() == {T0: 6}
    world.fail_over()
    assert world.fetched() == {T0: 6}


def test_an_aborted_transaction_takes_no_other_one_along() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5}, 7)
    world.txn_commit({T0: 6}, 8)
    world.end_transaction(8, is_commit=False)
    assert stable(world, T0) == {T0: (-1, UNSTABLE)}
    world.end_transaction(7)
    assert world.fetched() == {T0: 5}


# The next leader.


def test_open_transactions_wait_for_their_markers_at_the_next_leader() -> None:
    world = Coordinated()
    world.commit({T0: 3})
    world.txn_commit({T0: 5}, 7)
    world.txn_commit({("t", 1): 6}, 8)
    world.fail_over()
    assert stable(world) == {T0: (-1, UNSTABLE), ("t", 1): (-1, UNSTABLE)}
    assert world.fetched() == {T0: 3}
    world.end_transaction(7)
    world.end_transaction(8, is_commit=False)
    world.fail_over()
    assert stable(world) == {T0: (5, NONE)}


def test_what_is_no_offset_counts_at_once_as_at_kafka() -> None:
    world = Coordinated()
    world.stable_group()
    value = world.coordinator._journal.state.groups["g"]
    other = Coordinated()
    other.log = [(other.log[-1][0] if other.log else world.log[0][0], (group_key("g"), value))]
    other.transactions = {other.log[0][0]: TransactionPart(7, 0)}
    other.fail_over()
    assert list(other.coordinator.groups) == ["g"]
    assert encode_group(other.coordinator.groups["g"].value()) == value


def test_whoever_resigns_tells_those_who_commit() -> None:
    world = Coordinated(commits_at_once=False)
    committed = world.txn_commit({T0: 5})
    ended = world.end_transaction()
    world.coordinator.resign()
    world.drive()
    assert (world.refused(committed), world.refused(ended)) == (Code.NOT_COORDINATOR, Code.NOT_COORDINATOR)
    assert world.refused(world.txn_commit({T0: 6})) == Code.NOT_COORDINATOR
    assert world.refused(world.end_transaction()) == Code.NOT_COORDINATOR
    assert world.memory.used_bytes == 0


# Who may commit.


def test_members_are_fenced_as_in_offset_commit() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    assert world.txn_commit_codes(world.txn_commit({T0: 5}, member_id=member, generation_id=1)) == [0]
    assert world.refused(world.txn_commit({T0: 5}, member_id=member, generation_id=0)) == Code.ILLEGAL_GENERATION
    assert world.refused(world.txn_commit({T0: 5}, member_id=member, generation_id=2)) == Code.ILLEGAL_GENERATION
    assert world.refused(world.txn_commit({T0: 5}, member_id="x", generation_id=1)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.txn_commit({T0: 5}, member_id="x")) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.txn_commit({T0: 5}, generation_id=1)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.txn_commit({T0: 5}, instance_id="i")) == Code.UNKNOWN_MEMBER_ID


def test_who_names_no_member_is_not_fenced() -> None:
    """Clients before version 3 cannot; and a group in use takes their offsets, other than those of OffsetCommit."""
    world = Coordinated()
    world.stable_group()
    assert world.txn_commit_codes(world.txn_commit({T0: 5}, api_version=2)) == [0]
    world.end_transaction()
    assert world.fetched() == {T0: 5}
    assert world.refused(world.commit({T0: 6})) == Code.UNKNOWN_MEMBER_ID


def test_a_static_member_that_was_replaced_is_fenced() -> None:
    world = Coordinated(GroupSettings(initial_rebalance_delay_ms=0))
    joined = world.taken(world.join(instance_id="i"), JoinGroupResponse)
    member, generation_id = joined.member_id, joined.generation_id
    world.synced([member], generation_id, leader=member)
    request_id = world.txn_commit({T0: 5}, member_id=member, generation_id=generation_id, instance_id="i")
    assert world.txn_commit_codes(request_id) == [0]
    world.join(instance_id="i")  # the next process of the same name
    request_id = world.txn_commit({T0: 5}, member_id=member, generation_id=generation_id, instance_id="i")
    assert world.refused(request_id) == Code.FENCED_INSTANCE_ID
    request_id = world.txn_commit({T0: 5}, member_id=member, generation_id=generation_id, instance_id="j")
    assert world.refused(request_id) == Code.UNKNOWN_MEMBER_ID


def test_a_group_that_is_not_there_has_no_generation() -> None:
    world = Coordinated()
    for api_version in (3, 5):
        request_id = world.txn_commit({T0: 5}, member_id="m", generation_id=1, api_version=api_version)
        assert world.refused(request_id) == Code.ILLEGAL_GENERATION
    world.txn_commit({T0: 5})
    assert world.refused(world.txn_commit({T0: 5}, member_id="m", generation_id=1)) == Code.UNKNOWN_MEMBER_ID
    assert world.refused(world.txn_commit({T0: 5}, group_id="")) == Code.INVALID_GROUP_ID


def test_a_rebalance_that_goes_on_does_not_stop_a_producer() -> None:
    """KIP-447 fences by generation; OffsetCommit says REBALANCE_IN_PROGRESS here."""
    world = Coordinated()
    members = [world.member_id_required(client_id=name) for name in ("a", "b")]
    joins = [world.join(one) for one in members]
    while joins[0] not in world.answers:
        world.pass_ms(1_000)
    assert world.refused(world.commit({T0: 5}, members[0], 1)) == Code.REBALANCE_IN_PROGRESS
    assert world.txn_commit_codes(world.txn_commit({T0: 5}, member_id=members[0], generation_id=1)) == [0]


def test_a_producer_does_not_prolong_the_session_of_the_member() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.pass_ms(9_000)
    world.txn_commit({T0: 5}, member_id=member, generation_id=1)
    world.pass_ms(1_001)
    assert not world.coordinator.groups["g"].members


def test_nobody_has_no_transactions() -> None:
    world = Coordinated()
    assert world.refused(world.txn_commit({T0: 5}, -1, 0)) == Code.INVALID_PRODUCER_ID_MAPPING
    assert world.refused(world.txn_commit({T0: 5}, 7, -1)) == Code.INVALID_PRODUCER_ID_MAPPING
    assert world.log == []


# What may be committed.


def test_each_partition_is_answered_for_itself() -> None:
    world = Coordinated(GroupSettings(offset_metadata_length_max=3))
    assert world.txn_commit_codes(world.txn_commit({T0: 5}, metadata="four")) == [Code.OFFSET_METADATA_TOO_LARGE]
    assert world.txn_commit_codes(world.txn_commit({("t" * 250, 0): 5})) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.log == []
    assert world.txn_commit_codes(world.txn_commit({("t" * 249, 0): 5})) == [0]
    assert world.txn_commit_codes(world.txn_commit({T0: 5}, metadata="abc")) == [0]


def test_a_commit_that_no_batch_holds_is_refused() -> None:
    world = Coordinated()
    world.coordinator.batch_size_bytes_max = 10_000
    request_id = world.txn_commit({("t", partition): 1 for partition in range(200)})
    assert world.refused(request_id) == Code.INVALID_COMMIT_OFFSET_SIZE
    assert world.log == []


def test_a_pending_offset_takes_the_bytes_of_its_names_and_its_value() -> None:
    assert size_bytes("gg", "ttt", b"") == PENDING_BYTES + 2 * 5
    assert size_bytes("gg", "ttt", b"12345678") == PENDING_BYTES + 2 * 5 + 8
    world = Coordinated()
    for metadata in ("", "m", "mmm", ""):
        world.txn_commit({("ttt", 0): 5}, group_id="gg", metadata=metadata)
        ((_, value),) = world.committed[-1:]
        assert value is not None
        assert world.memory.used_bytes == size_bytes("gg", "ttt", value), "the last one is kept"


def test_pending_offsets_take_memory_that_is_bounded() -> None:
    world = Coordinated(memory_bytes=13_000)
    producers = range(12)
    for producer_id in producers:
        assert world.txn_commit_codes(world.txn_commit({T0: 5}, producer_id)) == [0]
    assert world.refused(world.txn_commit({T0: 5}, 100)) == Code.TRANSACTION_ABORTABLE
    assert world.refused(world.txn_commit({T0: 5}, 100, api_version=4)) == Code.TRANSACTION_ABORTABLE
    assert world.refused(world.txn_commit({T0: 5}, 100, api_version=3)) == Code.COORDINATOR_LOAD_IN_PROGRESS
    used_bytes = world.memory.used_bytes
    world.fail_over()
    assert world.memory.used_bytes == used_bytes, "what was there already stays, and counts"
    world.end_transaction(0, is_commit=False)
    assert world.txn_commit_codes(world.txn_commit({T0: 5}, 100)) == [0]
    for one in (*producers[1:], 100):
        world.end_transaction(one)
    assert world.memory.used_bytes == 0


# What a group with pending offsets is to others.


def test_a_group_is_there_by_its_pending_offsets() -> None:
    world = Coordinated()
    world.commit({T0: 5}, group_id="h")
    world.txn_commit({T0: 5})
    assert sorted(listed(world)) == ["g", "h"]
    assert world.described().group_state == "Empty"
    world.end_transaction(is_commit=False)
    assert listed(world) == ["h"]
    assert world.described().group_state == "Dead"


def test_a_deleted_group_forgets_its_pending_offsets() -> None:
    """Kafka writes tombstones for them as well, so that the transaction commits nothing to it."""
    world = Coordinated()
    world.commit({T0: 3})
    world.txn_commit({T0: 5, ("u", 1): 6})
    world.txn_commit({T0: 5}, group_id="h")
    assert world.taken(world.delete_group(), DeletableGroupResult).error_code == 0
    assert world.taken(world.delete_group("h"), DeletableGroupResult).error_code == 0
    assert world.taken(world.end_transaction(), Code) is NONE
    assert (world.fetched(), world.fetched("h")) == ({}, {})
    assert listed(world) == []
    world.fail_over()
    assert (world.fetched(), world.fetched("h")) == ({}, {})
    assert world.refused(world.delete_group()) == Code.GROUP_ID_NOT_FOUND


def test_a_deleted_offset_is_forgotten_though_it_is_pending() -> None:
    world = Coordinated()
    world.txn_commit({T0: 5, ("u", 0): 6})
    request_id = world.request_id()
    request = OffsetDeleteRequest(
        group_id="g", topics=[OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
    )
    world.coordinator.on_offset_delete(request_id, request, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    world.end_transaction()
    assert world.fetched() == {("u", 0): 6}


def test_an_offset_does_not_expire_while_a_transaction_may_move_it() -> None:
    world = Coordinated()
    world.commit({T0: 3, ("t", 1): 4})
    world.txn_commit({T0: 5})
    world.pass_ms(WEEK_MS + DAY_MS)
    assert world.fetched() == {T0: 3}
    world.end_transaction(is_commit=False)
    world.pass_ms(DAY_MS)
    assert world.fetched() == {}


def test_a_group_does_not_expire_while_a_transaction_is_open_on_it() -> None:
    world = Coordinated()
    (member,) = world.stable_group()
    world.txn_commit({T0: 5}, member_id=member, generation_id=1)
    world.leave((member, None))
    world.pass_ms(WEEK_MS + DAY_MS)
    assert list(world.coordinator.groups) == ["g"]
    world.end_transaction(is_commit=False)
    world.pass_ms(DAY_MS)
    assert world.coordinator.groups == {}


def test_pending_offsets_in_deleted_topics_go() -> None:
    world = Coordinated()
    world.commit({T0: 1})
    world.txn_commit({T0: 5, ("u", 0): 6})
    world.txn_commit({T0: 5, ("u", 0): 6}, group_id="h")
    assert world.coordinator.topics == {"t", "u"}
    end = len(world.log)
    world.coordinator.on_topics_deleted(["t"], now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    written = world.committed[end:]
    assert len(written) == len(dict(written)) == 2, "each is forgotten once"
    assert world.coordinator.topics == {"u"}
    world.end_transaction()
    assert (world.fetched(), world.fetched("h")) == ({("u", 0): 6}, {("u", 0): 6})


@pytest.mark.parametrize("is_commit", [False, True])
def test_pending_offsets_in_the_next_topic_of_a_deleted_one_stay(is_commit: bool) -> None:
    world = Coordinated()
    successor = TopicImage("t", TopicId(UUID(int=7)), ())
    image = MetadataImage(topics_by_name={"t": successor}, topics_by_id={successor.topic_id: successor})
    world.coordinator.consumer_groups.on_metadata(image, 1, ())
    world.txn_commit({T0: 5})
    world.coordinator.on_topics_deleted(["t"], {"t": successor.topic_id}, now_ms=world.now_ms, wall_ms=world.wall_ms)
    world.drive()
    assert world.coordinator.topics == {"t"}
    world.end_transaction(is_commit=is_commit)
    assert world.fetched() == ({T0: 5} if is_commit else {})
