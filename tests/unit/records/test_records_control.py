"""Control records to the byte, and what is not one."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.errors import Code, KafkaError
from tidelog.records import (
    ControlType,
    Record,
    end_transaction_batch,
    leader_change_batch,
    read_control_record,
    read_header,
    read_records,
    validate_batch,
)
from tidelog.records.control import (
    ControlRecord,
    EndTransactionMarker,
    KRaftVersion,
    KRaftVersionFeature,
    LeaderChangeMessage,
    LeaderChangeVoter,
    SnapshotFooter,
    SnapshotHeader,
    VoterDetails,
    VoterEndpoint,
    Voters,
    control_batch,
    control_key,
    control_value,
    read_control_type,
    read_end_transaction_marker,
)

DIRECTORY = UUID(int=0x0102030405060708090A0B0C0D0E0F10)


def record(key: bytes | None, value: bytes | None) -> Record:
    return Record(5, 0, key, value, (), 0)


@pytest.mark.parametrize(
    ("control_type", "control_record", "expected"),
    [
        (ControlType.COMMIT, EndTransactionMarker(coordinator_epoch=3), "0000 00000003"),
        (ControlType.ABORT, EndTransactionMarker(coordinator_epoch=-1), "0000 ffffffff"),
        (
            ControlType.LEADER_CHANGE,
            LeaderChangeMessage(
                leader_id=1, voters=[LeaderChangeVoter(1), LeaderChangeVoter(2)], granting_voters=[LeaderChangeVoter(1)]
            ),
            "0000 00000001 03 00000001 00 00000002 00 02 00000001 00 00",
        ),
        (
            ControlType.LEADER_CHANGE,
            LeaderChangeMessage(version=1, leader_id=1, voters=[LeaderChangeVoter(1, DIRECTORY)]),
            f"0001 00000001 02 00000001 {DIRECTORY.hex} 00 01 00",
        ),
        (ControlType.SNAPSHOT_HEADER, SnapshotHeader(last_contained_log_timestamp=256), "0000 0000000000000100 00"),
        (ControlType.SNAPSHOT_FOOTER, SnapshotFooter(), "0000 00"),
        (ControlType.KRAFT_VERSION, KRaftVersion(kraft_version=1), "0000 0001 00"),
        (
            ControlType.KRAFT_VOTERS,
            Voters(
                voters=[VoterDetails(3, DIRECTORY, [VoterEndpoint("C", "h", 9093)], KRaftVersionFeature(0, 1))],
            ),
            f"0000 02 00000003 {DIRECTORY.hex} 02 0243 0268 2385 00 0000 0001 00 00 00",
        ),
    ],
)
def test_values_to_the_byte(control_type: ControlType, control_record: ControlRecord, expected: str) -> None:
    value = control_value(control_record)
    assert value == bytes.fromhex(expected)
    key = control_key(control_type)
    assert key == bytes((0, 0, 0, control_type))
    assert read_control_record(record(key, value)) == (control_type, control_record)


def test_the_end_of_a_transaction() -> None:
    batch = end_transaction_batch(
        committed=False, producer_id=9, producer_epoch=1, coordinator_epoch=4, timestamp_ms=1_000
    )
    header = read_header(batch)
    validate_batch(batch, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, -1)
    (marker,) = read_records(batch)
    assert read_control_record(marker) == (ControlType.ABORT, EndTransactionMarker(coordinator_epoch=4))
    assert read_end_transaction_marker(marker) == EndTransactionMarker(coordinator_epoch=4)


def test_a_change_of_the_leader() -> None:
    batch = leader_change_batch(leader_id=2, voters=(1, 2, 3), timestamp_ms=1_000, granting_voters=(2, 3))
    header = read_header(batch)
    validate_batch(batch, 0, header)
    assert header.is_control
    assert not header.is_transactional
    (change,) = read_records(batch)
    assert read_control_record(change) == (
        ControlType.LEADER_CHANGE,
        LeaderChangeMessage(
            leader_id=2,
            voters=[LeaderChangeVoter(1), LeaderChangeVoter(2), LeaderChangeVoter(3)],
            granting_voters=[LeaderChangeVoter(2), LeaderChangeVoter(3)],
        ),
    )
    assert read_end_transaction_marker(change) is None


def test_the_first_batch_of_a_snapshot() -> None:
    first = SnapshotHeader(last_contained_log_timestamp=7)
    voters = Voters(
        voters=[
            VoterDetails(voter_id, DIRECTORY, [VoterEndpoint("C", "h", 60_000)], KRaftVersionFeature(0, 1))
            for voter_id in (1, 2)
        ]
    )
    batch = control_batch(first, KRaftVersion(kraft_version=1), voters, timestamp_ms=1_000)
    header = read_header(batch)
    validate_batch(batch, 0, header)
    assert header.is_control
    assert header.max_timestamp == 1_000
    assert [read_control_record(one) for one in read_records(batch)] == [
        (ControlType.SNAPSHOT_HEADER, first),
        (ControlType.KRAFT_VERSION, KRaftVersion(kraft_version=1)),
        (ControlType.KRAFT_VOTERS, voters),
    ]


def test_the_last_batch_of_a_snapshot() -> None:
    batch = control_batch(SnapshotFooter(), timestamp_ms=1_000)
    validate_batch(batch, 0, read_header(batch))
    (last,) = read_records(batch)
    assert read_control_record(last) == (ControlType.SNAPSHOT_FOOTER, SnapshotFooter())


def test_types_of_a_later_release_are_left_alone() -> None:
    assert read_control_type(b"\0\0\0\x63") is None
    assert read_control_record(record(b"\0\0\0\x63", None)) is None
    assert read_end_transaction_marker(record(b"\0\0\0\x63", None)) is None


def test_a_longer_key_of_a_later_version_is_read() -> None:
    assert read_control_type(b"\0\1\0\1more") is ControlType.COMMIT


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\0\0\0\0\0\0"),
        (b"\0\0\0", b"\0\0\0\0\0\0"),
        (b"\xff\xff\0\1", b"\0\0\0\0\0\0"),
        (b"\0\0\0\1", None),
        (b"\0\0\0\1", b"\0"),
        (b"\0\0\0\1", b"\0\0\0"),
        (b"\0\0\0\2", b"\0\0\0\0\0\1\xff\xff\xff\xff\x0f"),
        (b"\0\0\0\4", b"\xff\xff\0"),
    ],
)
def test_what_is_no_control_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(KafkaError) as raised:
        read_control_record(record(key, value))
    assert raised.value.code is Code.INVALID_RECORD
