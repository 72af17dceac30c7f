"""Batches written by hand, read and written again byte for byte."""

from __future__ import annotations

from types import ModuleType

import pytest

from support.fixtures.record_batches import INT64_MAX, INT64_MIN, kernels, load_vectors, slow_crc32c
from tidelog.records import BatchBuilder, Record, check_crc, read_header, read_records, split_batches, validate_batch
from tidelog.records.crc32c import crc32c

BATCHES = load_vectors()

E_ACUTE = "é"

RECORDS = {
    "one record": [Record(42, 1_600_000_000_000, b"k", b"v1", (), 7)],
    "nulls and headers, idempotent": [
        Record(0, 1000, None, None, (), -1),
        Record(1, 1100, b"", b"", (), -1),
        Record(2, 900, None, b"x", (("a", None), ("", b"")), -1),
        Record(3, 1000, E_ACUTE.encode(), b"z" * 64, ((E_ACUTE, b"1"),), -1),
    ],
    "end of a transaction": [Record(99, 1_234_567_890_123, b"\0\0\0\1", b"\0\0\0\0\0\3", (), 4)],
    "thinned out by compaction, LogAppendTime": [
        Record(1003, 777, None, b"A", (), 0),
        Record(1009, 777, b"k", b"B", (), 0),
    ],
}


def test_every_vector_is_known() -> None:
    assert BATCHES.keys() == RECORDS.keys()


@pytest.mark.parametrize("name", BATCHES)
def test_the_checksum_is_crc32c(name: str) -> None:
    batch = BATCHES[name]
    assert slow_crc32c(batch[21:]) == crc32c(batch[21:]) == read_header(batch).crc
    check_crc(batch, 0, read_header(batch))


def test_checksums_of_pieces_chain() -> None:
    assert crc32c(b"6789", crc32c(b"12345")) == crc32c(memoryview(b"123456789")) == 0xE3069283


@pytest.mark.parametrize("name", BATCHES)
def test_records_are_read(name: str) -> None:
    assert read_records(BATCHES[name]) == RECORDS[name]


def test_headers_are_read() -> None:
    plain = read_header(BATCHES["one record"])
    assert (plain.base_offset, plain.size_bytes, plain.leader_epoch, plain.magic) == (42, 71, 7, 2)
    assert (plain.compression, plain.timestamp_type) == (0, "CreateTime")
    assert not plain.is_transactional
    assert not plain.is_control
    assert (plain.producer_id, plain.producer_epoch, plain.base_sequence, plain.last_sequence) == (-1, -1, -1, -1)
    idempotent = read_header(BATCHES["nulls and headers, idempotent"])
    assert (idempotent.producer_id, idempotent.producer_epoch) == (4000, 5)
    assert (idempotent.base_sequence, idempotent.last_sequence) == (10, 13)
    assert (idempotent.base_timestamp, idempotent.max_timestamp, idempotent.record_count) == (1000, 1100, 4)
    marker = read_header(BATCHES["end of a transaction"])
    assert marker.is_transactional
    assert marker.is_control
    thinned = read_header(BATCHES["thinned out by compaction, LogAppendTime"])
    assert (thinned.last_offset, thinned.next_offset, thinned.record_count) == (1012, 1013, 2)
    assert (thinned.timestamp_type, thinned.is_log_append_time) == ("LogAppendTime", True)


def test_sequences_wrap_behind_the_largest_int32() -> None:
    header = read_header(BATCHES["nulls and headers, idempotent"])
    assert header._replace(base_sequence=0x7FFFFFFE).last_sequence == 1


def test_facts_are_those_of_the_records() -> None:
    facts = {name: validate_batch(batch, 0, read_header(batch), dense=False) for name, batch in BATCHES.items()}
    assert facts["one record"] == (1, 1_600_000_000_000, 0, 0, 10, True)
    several = facts["nulls and headers, idempotent"]
    assert (several.record_count, several.max_timestamp, several.max_timestamp_offset_delta) == (4, 1100, 1)
    assert (several.keyless_record_count, several.decompressed_size_bytes, several.is_dense) == (2, 109, True)
    thinned = facts["thinned out by compaction, LogAppendTime"]
    assert (thinned.record_count, thinned.max_timestamp, thinned.is_dense) == (2, 777, False)


def test_several_batches_are_split() -> None:
    buffer = b"".join(BATCHES.values())
    positions = [position for position, _ in split_batches(buffer)]
    assert positions == [0, 71, 71 + 170, 71 + 170 + 78]
    assert [header for _, header in split_batches(buffer)] == [read_header(batch) for batch in BATCHES.values()]
    assert split_batches(b"") == []


def test_the_builder_writes_the_same_bytes() -> None:
    plain = BatchBuilder()
    plain.append(1_600_000_000_000, b"k", b"v1")
    assert plain.build(base_offset=42, leader_epoch=7) == BATCHES["one record"]
    idempotent = BatchBuilder(producer_id=4000, producer_epoch=5, base_sequence=10)
    for record in RECORDS["nulls and headers, idempotent"]:
        idempotent.append(record.timestamp, record.key, record.value, record.headers)
    assert idempotent.build() == BATCHES["nulls and headers, idempotent"]
    assert idempotent.record_count == 4
    assert len(idempotent.build()) <= idempotent.size_bytes


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize(("reading", "writing"), kernels())
def test_both_kernels_read_them(name: str, reading: ModuleType, writing: ModuleType) -> None:
    del writing
    header = read_header(BATCHES[name])
    region = BATCHES[name], 61, header.size_bytes, header.record_count, header.last_offset_delta, INT64_MIN, INT64_MAX
    timestamp, scale = (header.max_timestamp, 0) if header.is_log_append_time else (header.base_timestamp, 1)
    rows = reading.unpack(*region, header.base_offset, timestamp, scale, header.leader_epoch, tuple, None, -1, "")
    assert rows == [tuple(record) for record in RECORDS[name]]
