"""Batches that disagree with themselves are refused, by a code that says how; what a leader stamps stays readable."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.record_batches import Row, any_rows, build, load_vectors
from tidelog.base.errors import Code, KafkaError, MalformedBatchError
from tidelog.records import (
    COMPRESSION_IDS,
    BatchBuilder,
    BatchHeader,
    check_crc,
    read_header,
    read_records,
    split_batches,
    split_whole_batches,
    stamp,
    validate_batch,
)
from tidelog.records.header import write_batch

ROWS: list[Row] = [(1000, b"key", b"value", (("h", b"x"),)), (1010, None, None, ()), (1005, b"", b"v" * 100, ())]

HARMLESS = {*range(8), *range(12, 16)}
"""Bytes of a batch that no checksum covers: base offset and leader epoch, which leaders write."""


def validate(batch: bytes | bytearray) -> None:
    for position, header in split_batches(batch):
        validate_batch(batch, position, header)


def tampered(batch: bytes | bytearray, **changes: int) -> bytes:
    """The batch with fields of its header changed, and a CRC that is right."""
    return write_batch(read_header(batch)._replace(**changes), memoryview(batch)[61:])


def refused(batch: bytes | bytearray) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        validate(batch)
    return raised.value


@pytest.mark.parametrize("compression", COMPRESSION_IDS)
@given(rows=any_rows)
def test_what_is_built_is_read(compression: str, rows: list[Row]) -> None:
    batch = build(rows, compression, base_offset=70, leader_epoch=3)
    header = read_header(batch)
    facts = validate_batch(batch, 0, header)
    records = read_records(batch)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in records] == rows
    assert [r.offset for r in records] == list(range(70, 70 + len(rows)))
    assert {r.leader_epoch for r in records} == {3}
    times = [row[0] for row in rows]
    assert facts.max_timestamp == max(times) == header.max_timestamp
    assert facts.max_timestamp_offset_delta == times.index(max(times))
    assert facts.keyless_record_count == sum(row[1] is None for row in rows)
    assert header.compression == COMPRESSION_IDS[compression]


@given(rows=any_rows)
def test_the_size_estimate_is_an_upper_bound(rows: list[Row]) -> None:
    builder = BatchBuilder()
    for row in rows:
        builder.append(*row)
    assert len(builder.build()) <= builder.size_bytes


@pytest.mark.parametrize("compression", COMPRESSION_IDS)
def test_every_flipped_bit_is_found_or_harmless(compression: str) -> None:
    batch = build(ROWS, compression)
    found = 0
    for bit in range(len(batch) * 8):
        if bit // 8 in HARMLESS:
            continue
        damaged = bytearray(batch)
        damaged[bit // 8] ^= 1 << bit % 8
        assert refused(damaged).code in (Code.CORRUPT_MESSAGE, Code.UNSUPPORTED_FOR_MESSAGE_FORMAT), bit
        found += 1
    assert found == (len(batch) - len(HARMLESS)) * 8


@pytest.mark.parametrize("name", load_vectors())
def test_every_cut_is_found(name: str) -> None:
    batch = load_vectors()[name]
    for size in range(1, len(batch)):
        with pytest.raises(MalformedBatchError) as raised:
            split_batches(batch[:size])
        assert raised.value.code is Code.CORRUPT_MESSAGE
        assert split_whole_batches(batch[:size]) == []
        assert split_whole_batches(batch + batch[:size]) == [(0, read_header(batch))]
        if size >= 61:
            header = read_header(batch[:size])
            for look in (check_crc, validate_batch, read_records):
                with pytest.raises(MalformedBatchError):
                    look(batch[:size], 0, header)


@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_are_refused_by_name(magic: int) -> None:
    for size in (17, 40, 61, 100):
        message = bytearray(size)
        message[16] = magic
        with pytest.raises(MalformedBatchError, match=f"message format {magic} is not stored") as raised:
            read_header(message)
        assert raised.value.code is Code.UNSUPPORTED_FOR_MESSAGE_FORMAT


def test_an_unknown_magic_is_corrupt() -> None:
    batch = build(ROWS)
    batch[16] = 3
    assert refused(batch).code is Code.CORRUPT_MESSAGE
    batch[16] = 0xFE
    assert refused(batch).code is Code.CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [-1, -(1 << 31), 0, 48])
def test_a_length_that_no_batch_has_is_refused(length: int) -> None:
    batch = build(ROWS)
    struct.pack_into(">i", batch, 8, length)
    assert refused(batch).code is Code.CORRUPT_MESSAGE
    with pytest.raises(MalformedBatchError):
        split_whole_batches(batch)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"record_count": 2}, "bytes are left over behind the last of 2"),
        ({"record_count": 4}, "record 3 of the batch"),
        ({"record_count": 0}, "left over"),
        ({"record_count": (1 << 31) - 1}, "cannot fit"),
        ({"last_offset_delta": 1}, "beyond the header's last"),
        ({"last_offset_delta": 3}, "its header says 3"),
        ({"base_timestamp": (1 << 63) - 10}, "outside 64 bits"),
        ({"attributes": 1}, "not valid gzip"),
        ({"attributes": 5}, "there is no compression type 5"),
    ],
)
def test_records_that_disagree_with_their_header_are_refused(changes: dict[str, int], says: str) -> None:
    error = refused(tampered(build(ROWS), **changes))
    assert error.code in (Code.INVALID_RECORD, Code.UNSUPPORTED_COMPRESSION_TYPE)
    assert says in str(error)


def test_a_negative_count_is_corrupt() -> None:
    for field in ("record_count", "last_offset_delta"):
        assert refused(tampered(build(ROWS), **{field: -1})).code is Code.CORRUPT_MESSAGE


def test_bytes_behind_the_last_record_are_refused() -> None:
    batch = build(ROWS)
    longer = write_batch(read_header(batch), bytes(batch[61:]) + b"\0")
    assert "1 bytes are left over" in str(refused(longer))


def test_an_empty_batch_is_no_producers() -> None:
    empty = tampered(BatchBuilder().build(), record_count=0)
    assert "it holds no record" in str(refused(empty))
    facts = validate_batch(empty, 0, read_header(empty), dense=False)
    assert (facts.record_count, facts.max_timestamp) == (0, -1)
    assert read_records(empty) == []


@pytest.mark.parametrize("deltas", [(0, 2), (1, 2), (0, 0), (1, 0)])
def test_offset_deltas_are_counted(deltas: tuple[int, int]) -> None:
    records = b"".join(bytes((12, 0, 0, delta * 2, 1, 1, 0)) for delta in deltas)
    header = BatchHeader(0, 0, -1, 2, 0, 0, 2, 5, 5, -1, -1, -1, 2)
    batch = write_batch(header, records)
    assert refused(batch).code is Code.INVALID_RECORD
    if deltas[0] < deltas[1]:  # what compaction leaves
        assert not validate_batch(batch, 0, read_header(batch), dense=False).is_dense
        assert [record.offset for record in read_records(batch)] == list(deltas)
    else:
        with pytest.raises(MalformedBatchError, match="does not lie after"):
            validate_batch(batch, 0, read_header(batch), dense=False)
        with pytest.raises(MalformedBatchError, match="does not lie after"):
            read_records(batch)


def test_a_max_timestamp_that_the_client_left_out_is_put_right() -> None:
    batch = bytearray(tampered(build(ROWS), max_timestamp=-1))
    facts = validate_batch(batch, 0, read_header(batch))
    assert facts.max_timestamp == 1010
    stamp(batch, 0, 0, 0, max_timestamp=facts.max_timestamp)
    assert read_header(batch).max_timestamp == 1010
    validate(batch)


@pytest.mark.parametrize("position", [0, 9])
@pytest.mark.parametrize("writable", [bytearray, lambda data: memoryview(bytearray(data))])
def test_stamping_leaves_the_checksum_alone(position: int, writable: type[bytearray]) -> None:
    batch = bytes(build(ROWS))
    buffer = writable(b"x" * position + batch + b"yy")
    crc = read_header(batch).crc
    stamp(buffer, position, 1 << 40, 9)
    header = read_header(buffer, position)
    assert (header.base_offset, header.leader_epoch, header.crc) == (1 << 40, 9, crc)
    validate_batch(buffer, position, header)
    assert [record.offset for record in read_records(buffer, position)] == [(1 << 40) + delta for delta in range(3)]


def test_log_append_time_is_under_the_checksum() -> None:
    batch = build(ROWS, "zstd")
    before = read_header(batch)
    stamp(batch, 0, 5, 1, log_append_time=7_777)
    header = read_header(batch)
    assert header.crc != before.crc
    facts = validate_batch(batch, 0, header)
    assert (facts.max_timestamp, facts.max_timestamp_offset_delta) == (7_777, 0)
    assert {record.timestamp for record in read_records(batch)} == {7_777}
    assert (header.timestamp_type, header.compression) == ("LogAppendTime", 4)


def test_a_batch_in_the_middle_of_a_buffer() -> None:
    one, other = build(ROWS, base_offset=1), build(ROWS[:1], "gzip", base_offset=4)
    buffer = memoryview(one + other)
    (_, first), (position, second) = split_batches(buffer)
    assert validate_batch(buffer, 0, first).record_count == 3
    assert validate_batch(buffer, position, second).record_count == 1
    assert [record.offset for record in read_records(buffer, position, second)] == [4]


def test_header_keys_that_are_not_text_are_read_with_replacements() -> None:
    batch = build([(0, None, None, (("ab", b"1"),))])
    at = bytes(batch).index(b"ab")
    batch[at] = 0xFF
    assert read_records(batch)[0].headers == (("�b", b"1"),)


def test_a_timestamp_below_none_is_refused() -> None:
    builder = BatchBuilder()
    builder.append(-2, None, b"")
    with pytest.raises(ValueError, match="-2"):
        builder.build()


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(ValueError, match="brotli"):
        BatchBuilder(compression="brotli")


@given(data=st.binary(max_size=200))
def test_arbitrary_bytes_are_never_a_batch_and_never_more_than_refused(data: bytes) -> None:
    for look in (split_batches, split_whole_batches):
        try:
            batches = look(data)
        except KafkaError:
            continue
        for position, header in batches:
            with pytest.raises(KafkaError):
                validate_batch(data, position, header)
