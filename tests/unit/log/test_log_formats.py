"""The files, byte for byte as Kafka writes them. The expected bytes are written out by hand from the formats."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.logs import DIRECTORY, NOW_MS, append, make_batch, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.record_batches import slow_crc32c
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ClusterId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from tidelog.log.files.checkpoint import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from tidelog.log.files.producer_snapshot import format_snapshot, parse_snapshot
from tidelog.log.producer_state import ProducerState, RememberedBatch

SIZE = len(make_batch("0"))


def test_a_closed_log_is_made_of_these_files() -> None:
    disk = MemoryDisk()
    log = open_log(disk, segment_size_bytes=4 * SIZE, index_interval_bytes=SIZE)
    for index in range(6):
        append(log, str(index), epoch=index // 3, timestamp=NOW_MS + index)
    log.close()
    found = {path.removeprefix(f"{DIRECTORY}/"): bytes(each.data) for path, each in disk.files.items()}
    assert sorted(found) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000004.index",
        "00000000000000000004.log",
        "00000000000000000004.snapshot",
        "00000000000000000004.timeindex",
        "00000000000000000006.snapshot",
        "leader-epoch-checkpoint",
    ]
    # An entry once more than SIZE bytes lie behind the last one: for batch 2, and for no other.
    assert found["00000000000000000000.index"] == (2).to_bytes(4) + (2 * SIZE).to_bytes(4)
    assert found["00000000000000000000.timeindex"] == (
        (NOW_MS + 2).to_bytes(8) + (2).to_bytes(4) + (NOW_MS + 3).to_bytes(8) + (3).to_bytes(4)
    )
    assert found["00000000000000000004.index"] == b""
    assert found["00000000000000000004.timeindex"] == (NOW_MS + 5).to_bytes(8) + (1).to_bytes(4)
    assert found["leader-epoch-checkpoint"] == b"0\n2\n0 0\n1 3\n"
    batches = [make_batch(str(i), timestamp=NOW_MS + i, base_offset=i, leader_epoch=i // 3) for i in range(6)]
    assert found["00000000000000000000.log"] == b"".join(batches[:4])
    assert found["00000000000000000004.log"] == b"".join(batches[4:])
    assert found["00000000000000000006.snapshot"] == empty_snapshot()


def empty_snapshot() -> bytes:
    return b"\0\1" + slow_crc32c(bytes(4)).to_bytes(4) + bytes(4)


def test_a_producer_snapshot() -> None:
    known = ProducerState(
        ProducerId(4000),
        ProducerEpoch(3),
        batches=[RememberedBatch(5, 9, Offset(1009), 4, 1), RememberedBatch(10, 12, Offset(1020), 2, 77)],
        last_timestamp=77,
        coordinator_epoch=6,
        transaction_first_offset=Offset(1005),
    )
    fenced = ProducerState(ProducerId(2), ProducerEpoch(1), last_timestamp=55, coordinator_epoch=8)
    entries = (
        (2).to_bytes(8) + (1).to_bytes(2) + b"\xff" * 4 + b"\xff" * 8 + bytes(4)
        + (55).to_bytes(8) + (8).to_bytes(4) + b"\xff" * 8
        + (4000).to_bytes(8) + (3).to_bytes(2) + (12).to_bytes(4) + (1020).to_bytes(8) + (2).to_bytes(4)
        + (77).to_bytes(8) + (6).to_bytes(4) + (1005).to_bytes(8)
    )  # fmt: skip
    body = (2).to_bytes(4) + entries
    expected = b"\0\1" + slow_crc32c(body).to_bytes(4) + body
    assert format_snapshot([known, fenced]) == expected
    first, second = parse_snapshot(expected, "x.snapshot")
    assert (first.batches, first.coordinator_epoch, first.transaction_first_offset) == ([], 8, None)
    assert second.batches == [RememberedBatch(10, 12, Offset(1020), 2, 77)]
    assert (second.producer_epoch, second.transaction_first_offset, second.last_timestamp) == (3, 1005, 77)


def test_a_sequence_that_wrapped_is_found_again() -> None:
    state = ProducerState(
        ProducerId(1), ProducerEpoch(0), batches=[RememberedBatch(2**31 - 2, 1, Offset(50), 3, 1)], last_timestamp=1
    )
    [found] = parse_snapshot(format_snapshot([state]), "x")
    assert found.batches == state.batches


@pytest.mark.parametrize("cut", range(0, 66, 5))
def test_a_torn_snapshot_is_found_out(cut: int) -> None:
    state = ProducerState(ProducerId(1), ProducerEpoch(0))
    data = format_snapshot([state])
    with pytest.raises(CorruptLogError, match=r"x\.snapshot"):
        parse_snapshot(data[:cut] if cut < len(data) else data + b"\0", "x.snapshot")


# Checkpoints.

FLIGHTS_1 = TopicPartition("flights", PartitionIndex(1))
FLIGHTS_10 = TopicPartition("flights", PartitionIndex(10))
A_0 = TopicPartition("a", PartitionIndex(0))


def test_an_offset_checkpoint() -> None:
    offsets = {FLIGHTS_10: Offset(7), A_0: Offset(0), FLIGHTS_1: Offset(2**62)}
    data = format_offsets(offsets)
    assert data == b"0\n3\na 0 0\nflights 1 4611686018427387904\nflights 10 7\n"
    assert parse_offsets(data, "x") == offsets
    assert format_offsets({}) == b"0\n0\n"
    assert parse_offsets(b"0\n0\n", "x") == {}


names = st.tuples(st.text("abc._-XYZ09", min_size=1, max_size=249), st.integers(0, 2**31 - 1))


@given(st.dictionaries(names, st.integers(0, 2**63 - 1)))
def test_offset_checkpoints_come_back(offsets: dict[tuple[str, int], int]) -> None:
    named = {TopicPartition(topic, PartitionIndex(index)): Offset(offset) for (topic, index), offset in offsets.items()}
    assert parse_offsets(format_offsets(named), "x") == named


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "line 1: version 0 is expected"),
        (b"1\n0\n", "line 1: version 0 is expected"),
        (b"0\n", "line 2: the number of entries"),
        (b"0\n-1\n", "line 2: the number of entries"),
        (b"0\n2\na 0 0\n", "line 2: 2 entries are announced, 1 follow"),
        (b"0\n1\na 0 0\nb 0 0\n", "line 2: 1 entries are announced, 2 follow"),
        (b"0\n1\na 0\n", "line 3"),
        (b"0\n1\na x 0\n", "line 3"),
        (b"0\n1\na 0 -5\n", "line 3"),
        (b"0\n2\na 0 1\na 0 2\n", "line 4: a-0 comes twice"),
        (b"0\n1\n\xff 0 1\n", "byte 4 is not text"),
    ],
)
def test_a_corrupt_checkpoint_names_the_line(data: bytes, why: str) -> None:
    with pytest.raises(CorruptLogError, match=f"x-checkpoint: {why}"):
        parse_offsets(data, "x-checkpoint")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "line 1"),
        (b"version: 1\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ", "line 1: version 0 is expected, not '1'"),
        (b"version: 0\n", "line 2"),
        (b"version: 0\ntopic_id: short", "line 2: 'short' is not a Kafka id"),
    ],
)
def test_a_corrupt_partition_metadata_names_the_line(data: bytes, why: str) -> None:
    with pytest.raises(CorruptLogError, match=why):
        parse_partition_metadata(data, "partition.metadata")


def test_meta_properties() -> None:
    properties = MetaProperties(ClusterId("MkU3OEVBNTcwNTJENDM2Qg"), BrokerId(3), "AAAAAAAAQACAAAAAAAAAAQ")
    data = format_meta_properties(properties)
    assert data.splitlines()[1:] == [
        b"cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
        b"directory.id=AAAAAAAAQACAAAAAAAAAAQ",
        b"node.id=3",
        b"version=1",
    ]
    assert parse_meta_properties(data, "x") == properties


def test_meta_properties_as_kafka_writes_them() -> None:
    text = b"#\n#Tue May 06 11:13:01 UTC 2025\nnode.id=1\ndirectory.id=x\\:y\nversion=1\ncluster.id=my cluster\nz=1\n"
    assert parse_meta_properties(text, "x") == MetaProperties(ClusterId("my cluster"), BrokerId(1), "x:y")
    odd = MetaProperties(ClusterId("a=b:c#d!e f"), BrokerId(1), "")
    assert parse_meta_properties(format_meta_properties(odd), "x") == odd


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"version=0\nbroker.id=1\ncluster.id=x\n", "version 1 is expected, not 0: .* use that one"),
        (b"", "version 1 is expected, not None"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=x\n", "node.id is missing"),
        (b"version=1\ncluster.id=x\nnode.id=one\n", "a numeric node.id is missing"),
    ],
)
def test_corrupt_meta_properties_say_what_is_missing(data: bytes, why: str) -> None:
    with pytest.raises(CorruptLogError, match=f"meta.properties: .*{why}"):
        parse_meta_properties(data, "meta.properties")


def test_the_marker_of_a_clean_stop() -> None:
    assert format_clean_shutdown(BrokerEpoch(12)) == b'{"version":0,"brokerEpoch":12}'
    assert parse_clean_shutdown(b'{"version":0,"brokerEpoch":12}') == 12
    assert parse_clean_shutdown(format_clean_shutdown(None)) is None
    for unclear in (b"", b"[]", b"{}", b'{"version":1,"brokerEpoch":12}', b'{"version":0,"brokerEpoch":"x"}', b"\xff"):
        assert parse_clean_shutdown(unclear) is None


def test_a_leader_epoch_checkpoint() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, "a", "b", epoch=4)
    log.assign_leader_epoch(LeaderEpoch(9))
    assert disk.files[f"{DIRECTORY}/leader-epoch-checkpoint"].synced == b"0\n2\n4 0\n9 2\n"
