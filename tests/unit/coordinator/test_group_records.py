"""The records of `__consumer_offsets`, byte for byte, in every version that Kafka ever wrote."""

from __future__ import annotations

from functools import partial
from struct import pack
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.executed_lines import executed_lines
from support.fixtures.coordinated import CountingRng
from support.fixtures.coordinated_sharers import Sharers
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.coordinator.groups import GroupCoordinator, GroupSettings
from tidelog.coordinator.groups.records import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetCommitValue,
    check_offset,
    decode_group,
    decode_offset,
    encode_expiring_offset,
    encode_group,
    encode_offset,
    group_key,
    names_in,
    offset_key,
    split_offset_key,
)
from tidelog.coordinator.groups.state import RecordedGroups
from tidelog.journal import TransactionRecord
from tidelog.journal.versioned_records import decode_value
from tidelog.wire import encode
from tidelog.wire.messages.api_11_join_group import JoinGroupResponse
from tidelog.wire.primitives import ZERO_UUID


def text(value: str) -> bytes:
    return pack(">h", len(value.encode())) + value.encode()


def test_keys_are_kafkas() -> None:
    assert offset_key("grüp", "t-1", 7) == b"\0\1" + text("grüp") + text("t-1") + b"\0\0\0\7"
    assert group_key("g") == b"\0\2\0\1g"


OFFSETS = {
    0: (pack(">hq", 0, 5) + text("m") + pack(">q", 99), OffsetAndMetadata(5, None, "m", 99, None)),
    1: (pack(">hq", 1, 5) + text("m") + pack(">qq", 99, 200), OffsetAndMetadata(5, None, "m", 99, 200)),
    2: (pack(">hq", 2, 5) + text("m") + pack(">q", 99), OffsetAndMetadata(5, None, "m", 99, None)),
    3: (pack(">hqi", 3, 5, 8) + text("m") + pack(">q", 99), OffsetAndMetadata(5, 8, "m", 99, None)),
    4: (pack(">hqi", 4, 5, 8) + b"\2m" + pack(">q", 99) + b"\0", OffsetAndMetadata(5, 8, "m", 99, None)),
}


@pytest.mark.parametrize("version", OFFSETS)
def test_offsets_of_every_version_are_read(version: int) -> None:
    value, expected = OFFSETS[version]
    assert decode_offset(value) == expected
    check_offset(value)


def test_a_topic_id_beside_an_offset_is_read() -> None:
    value = OFFSETS[4][0][:-1] + b"\1\0\x10" + bytes(range(16))
    assert decode_offset(value) == OFFSETS[4][1]._replace(topic_id=UUID(bytes=bytes(range(16))))


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.one_of(st.just(ZERO_UUID), st.uuids()),
)
def test_offsets_are_packed_as_they_are_declared(
    offset: int, leader_epoch: int, metadata: str, time_ms: int, topic_id: UUID
) -> None:
    packed = encode_offset(offset, leader_epoch, metadata, time_ms, topic_id)
    declared = OffsetCommitValue(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, commit_timestamp=time_ms, topic_id=topic_id
    )
    version = 3 if topic_id == ZERO_UUID else 4
    assert packed == version.to_bytes(2) + encode(declared, version)
    check_offset(packed)
    read = decode_offset(packed)
    assert read == (offset, None if leader_epoch < 0 else leader_epoch, metadata, time_ms, None, topic_id)


TOPIC_ID = UUID(bytes=bytes(range(16)))
USUAL = [
    encode_offset(offset, leader_epoch, "", 99, topic_id)
    for offset, leader_epoch in ((5, -1), (6, 0), (2**63 - 1, 8))
    for topic_id in (ZERO_UUID, TOPIC_ID)
]


def declared(value: bytes) -> OffsetAndMetadata | None:
    """What the value of an offset says by its declaration; None if it is none."""
    try:
        read = decode_value(OffsetCommitValue, value)
    except CorruptLogError:
        return None
    leader_epoch, expire_ms = (None if one < 0 else one for one in (read.leader_epoch, read.expire_timestamp))
    return OffsetAndMetadata(read.offset, leader_epoch, read.metadata, read.commit_timestamp, expire_ms, read.topic_id)


def is_whole(value: bytes) -> bool:
    try:
        check_offset(value)
    except CorruptLogError:
        return False
    return True


def read_or_none(value: bytes) -> OffsetAndMetadata | None:
    try:
        return decode_offset(value)
    except CorruptLogError:
        return None


def test_the_usual_offsets_are_read_as_they_are_declared() -> None:
    for value in USUAL:
        assert read_or_none(value) == declared(value) is not None
        assert is_whole(value)


def test_what_almost_is_a_usual_offset_is_read_as_it_is_declared() -> None:
    """Each byte of each is another one, or is missing, or there twice."""
    almost = [
        value[:at] + middle + value[at + 1 :]
        for value in USUAL
        for at in range(len(value))
        for middle in (*(bytes((one,)) for one in (0, 1, 2, 3, 4, 16, 127, 128, 255)), b"", value[at : at + 1] * 2)
    ]
    without_id = [  # as long as one with an id
        OFFSETS[4][0][: -1 - 8 - 2] + bytes((size + 1,)) + b"m" * size + pack(">q", 99) + tags
        for size, tags in ((18, b"\0"), (17, b"\0"), (0, b"\1\1\x10" + bytes(16)), (1, b"\1\0\x0f" + bytes(15)))
    ]
    for value in (*almost, *without_id):
        expected = declared(value)
        assert read_or_none(value) == expected, value
        assert is_whole(value) == (expected is not None), value
    assert [declared(value) is not None for value in without_id] == [True, True, True, False]


CHECK_LINES_MAX, READ_LINES_MAX = 12, 35
"""What is read by its declaration takes more. There may be millions of them at a start."""


@pytest.mark.parametrize("value", USUAL)
def test_the_usual_offsets_are_checked_and_read_in_a_few_lines(value: bytes) -> None:
    assert executed_lines(partial(check_offset, value)) < CHECK_LINES_MAX
    assert executed_lines(partial(decode_offset, value)) < READ_LINES_MAX


@pytest.mark.parametrize("expire_ms", [-1, 0, 1])
def test_an_offset_may_expire_at_any_time(expire_ms: int) -> None:
    value = encode_expiring_offset(5, "m", 99, expire_ms)
    assert decode_offset(value).expire_timestamp_ms == (None if expire_ms < 0 else expire_ms)


def test_expiring_offsets_are_version_1() -> None:
    assert encode_expiring_offset(5, "m", 99, 200) == OFFSETS[1][0]


def replace_members(members: list[MemberMetadata]) -> GroupMetadataValue:
    return GroupMetadataValue(protocol_type="consumer", generation=3, members=members)


GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m",
    current_state_timestamp=77,
    members=[
        MemberMetadata(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout=60,
            session_timeout=10,
            subscription=b"S",
            assignment=b"A",
        )
    ],
)


def group_bytes(version: int) -> bytes:
    member = text("m")
    if version >= 3:
        member += text("i")
    member += text("c") + text("/h")
    if version >= 1:
        member += pack(">i", 60)
    member += pack(">i", 10) + pack(">i", 1) + b"S" + pack(">i", 1) + b"A"
    head = pack(">h", version) + text("consumer") + pack(">i", 3) + text("range") + text("m")
    if version >= 2:
        head += pack(">q", 77)
    return head + pack(">i", 1) + member


@pytest.mark.parametrize("version", range(4))
def test_groups_of_every_version_are_read(version: int) -> None:
    read = decode_group(group_bytes(version))
    assert (read.protocol_type, read.generation, read.protocol, read.leader) == ("consumer", 3, "range", "m")
    assert read.current_state_timestamp == (77 if version >= 2 else -1)
    (member,) = read.members
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert member.rebalance_timeout == (60 if version >= 1 else -1)
    assert (member.session_timeout, member.subscription, member.assignment) == (10, b"S", b"A")


def test_groups_are_written_in_version_3_and_read_in_4() -> None:
    assert encode_group(GROUP) == group_bytes(3)
    assert decode_group(b"\0\4" + encode(GROUP, 4)) == GROUP


@pytest.mark.parametrize(
    "value",
    [b"", b"\0", b"\0\5" + bytes(22), b"\xff\xff", OFFSETS[3][0][:-1], OFFSETS[3][0] + b"x", OFFSETS[0][0][:9]],
)
def test_damaged_offsets_are_told(value: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode_offset(value)
    with pytest.raises(CorruptLogError):
        check_offset(value)


@pytest.mark.parametrize("value", [b"", b"\0\5", group_bytes(3)[:-1], group_bytes(3) + b"x"])
def test_damaged_groups_are_told(value: bytes) -> None:
    with pytest.raises(CorruptLogError):
        decode_group(value)


@pytest.mark.parametrize("names", [b"\0", b"\0\5abc", b"\xff\xff", b"\0\1\xff"])
def test_damaged_names_are_told(names: bytes) -> None:
    with pytest.raises(CorruptLogError):
        names_in(names)


DAMAGED: list[tuple[bytes, bytes | None]] = [
    (b"", None),
    (b"\0", b""),
    (b"\0\1", None),
    (b"\0\1\0\1g\0\0\0\0", OFFSETS[3][0]),
    (b"\0\1\0\1g\0\1t\0\0\0\0\0", OFFSETS[3][0]),
    (offset_key("g", "t", 0), b"\0\x09"),
    (b"\0\1\xff\xff" + bytes(65_535) + b"\0\1t\0\0\0\0", OFFSETS[3][0]),
    (b"\0\1\0\1g\xff\xff" + bytes(65_535) + b"\0\0\0\0", OFFSETS[3][0]),
    (b"\0\2\0\5g", None),
    (b"\0\2\0\1g\0\1h", None),
    (group_key("g"), b"\0\x09"),
    (group_key("g"), encode_group(replace_members(GROUP.members * 2))),
]


@pytest.mark.parametrize(("key", "value"), DAMAGED)
def test_a_damaged_record_is_refused_with_its_offset(key: bytes, value: bytes | None) -> None:
    coordinator = GroupCoordinator(3, GroupSettings(), rng=CountingRng())
    with pytest.raises(CorruptLogError, match="__consumer_offsets-3, offset 17"):
        coordinator.replay(key, value, Offset(17))


KEYS = [kind.to_bytes(2) for kind in (*range(9), 16)]
PIECES = st.sampled_from([*KEYS, b"\0\1g", b"\0\1t", b"\xff\xff", group_bytes(3), OFFSETS[3][0]])
ANY_BYTES = st.lists(PIECES | st.binary(max_size=6), max_size=6).map(b"".join)


@given(st.none() | ANY_BYTES, st.none() | ANY_BYTES)
def test_whatever_is_in_the_log_is_taken_or_told(key: bytes | None, value: bytes | None) -> None:
    coordinator = GroupCoordinator(0, GroupSettings(), rng=CountingRng())
    try:
        coordinator.replay(key, value, Offset(0))
    except CorruptLogError:
        return
    coordinator.become_active(LeaderEpoch(1), Offset(1), now_ms=0, wall_ms=0)
    coordinator.on_time(now_ms=10**9, wall_ms=10**9)


def test_records_of_other_protocols_are_skipped() -> None:
    coordinator = GroupCoordinator(0, GroupSettings(), rng=CountingRng())
    for offset, key in enumerate((b"\0\x11\0\1g", b"\0\x17", b"\x7f\xff what", None)):
        coordinator.replay(key, b"\0\0", Offset(offset))
    coordinator.become_active(LeaderEpoch(1), Offset(4), now_ms=0, wall_ms=0)
    assert coordinator.offsets_count == 0
    assert not coordinator.groups


def test_old_keys_name_the_same_offsets() -> None:
    state = RecordedGroups()
    key = offset_key("g", "t", 1)
    state.apply((b"\0\0" + key[2:], OFFSETS[0][0]))
    assert state.offset_of("g", "t", 1) == OFFSETS[0][0]
    state.apply((key, None))
    assert state.offset_of("g", "t", 1) is None
    assert not state.offsets
    assert split_offset_key(key) == (key[2:-4], 1)


def test_names_may_be_empty() -> None:
    """An offset may be of the group without a name: that of consumers of before."""
    assert names_in(split_offset_key(offset_key("", "t", 3))[0]) == ("", "t")
    assert names_in(b"") == ()


@pytest.mark.parametrize("partition", [0, 1, 0x01020304, 2**31 - 1, -1])
def test_the_key_of_an_offset_is_split_into_its_names_and_the_partition(partition: int) -> None:
    names, found = split_offset_key(offset_key("grüp", "t", partition))
    assert (names_in(names), found) == (("grüp", "t"), partition)


def test_an_offset_is_for_the_topic_that_it_was_committed_for_or_for_any_if_that_is_not_known() -> None:
    other = UUID(int=7)
    for of, asked, is_for in (
        (TOPIC_ID, TOPIC_ID, True),
        (TOPIC_ID, other, False),
        (TOPIC_ID, ZERO_UUID, True),
        (ZERO_UUID, other, True),
        (ZERO_UUID, ZERO_UUID, True),
    ):
        assert OFFSETS[3][1]._replace(topic_id=of).is_for(asked) == is_for


def test_tombstones_of_what_is_not_there_change_nothing() -> None:
    state = RecordedGroups()
    state.apply((offset_key("g", "t", 1), None))
    state.apply((group_key("g"), None))
    assert (state.offsets, state.groups, state.offsets_count) == ({}, {}, 0)


def test_a_copy_of_the_state_is_its_own() -> None:
    state = RecordedGroups()
    state.apply((offset_key("g", "t", 1), OFFSETS[3][0]))
    copy = state.clone()
    copy.apply((offset_key("g", "t", 1), None))
    copy.apply((group_key("g"), encode_group(GROUP)))
    assert (state.offsets_count, copy.offsets_count) == (1, 0)
    assert not state.groups


def test_a_tombstone_in_a_transaction_counts_at_once() -> None:
    """As at Kafka: nobody writes one, but a log may hold one."""
    state = RecordedGroups()
    key = offset_key("g", "t", 1)
    state.apply((key, OFFSETS[3][0]))
    state.apply(TransactionRecord(7, (key, None)))
    assert (state.offsets, state.offsets_count, bool(state.pending)) == ({}, 0, False)


def test_a_copy_of_the_state_has_groups_of_all_kinds() -> None:
    world = Sharers(topics={"t": 2})
    world.share("s", group_id="share")
    world.enter("c", group_id="consumer")
    joined = world.join(group_id="classic", api_version=3)
    world.pass_ms(6_000)
    world.sync(world.taken(joined, JoinGroupResponse).member_id, 1, {}, group_id="classic")
    world.commit({("t", 0): 1}, group_id="simple")
    world.txn_commit({("t", 0): 1}, group_id="pending")
    state = world.coordinator._journal.state
    copy = state.clone()

    def told(one: RecordedGroups) -> list[object]:
        return [
            {group_id: group.canonical() for group_id, group in one.consumer_groups.items()},
            {group_id: group.canonical() for group_id, group in one.share_groups.items()},
            (one.consumer_groups_bytes, one.share_groups_bytes, one.offsets_count, one.pending.size_bytes),
            (one.groups, one.offsets, one.pending.groups, one.pending.producer_ids),
        ]

    before = told(copy)
    assert before == told(state)
    assert [set(one) for one in (copy.consumer_groups, copy.share_groups, copy.groups, copy.offsets)] == [
        {"consumer"},
        {"share"},
        {"classic"},
        {"simple"},
    ]
    assert min(copy.consumer_groups_bytes, copy.share_groups_bytes, copy.pending.size_bytes) > 0
    world.heard(world.beat("c", -1, group_id="consumer"))
    world.share_beat("s", -1, group_id="share")
    world.end_transaction()
    world.commit({("u", 0): 1}, group_id="simple")
    assert told(copy) == before != told(state)
