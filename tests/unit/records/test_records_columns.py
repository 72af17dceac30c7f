"""Columns hold what the records hold, in buffers that Arrow takes as they are; and back."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.record_batches import Row, any_rows, build, kernels
from tidelog.base.errors import Code, KafkaError, MalformedBatchError
from tidelog.records import (
    COMPRESSION_IDS,
    Record,
    end_transaction_batch,
    read_header,
    read_records,
    seal_batch,
    stamp,
)
from tidelog.records import batch as batch_module
from tidelog.records import columns as columns_module
from tidelog.records.columns import COLUMNS, ColumnBuffers, Columns, encode_columns
from tidelog.records.header import write_batch


@pytest.fixture(
    autouse=True,
    scope="module",
    params=kernels(),
    ids=lambda pair: "compiled" if pair[0].KERNEL_IS_COMPILED else "interpreted",
)
def _each_kernel(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test runs with each of the kernels."""
    reading, writing = request.param
    with pytest.MonkeyPatch.context() as patch:
        for module in (batch_module, columns_module):
            patch.setattr(module, "kernel", reading)
            patch.setattr(module, "kernel_encode", writing)
        patch.setattr(batch_module, "KERNEL_IS_COMPILED", reading.KERNEL_IS_COMPILED)
        yield


def arrow(kind: Any, count: int, nulls: int, *buffers: Any) -> list[Any]:
    """The values of a column, by way of an Arrow array that has been checked in full."""
    wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    column = pa.Array.from_buffers(kind, count, wrapped, nulls)
    column.validate(full=True)
    assert column.null_count == nulls
    return list(column.to_pylist())


def to_rows(found: ColumnBuffers) -> list[Record]:
    rows = found.row_count
    names = arrow(pa.utf8(), found.header_count, 0, None, found.header_key_offsets, found.header_key_data)
    contents = arrow(
        pa.binary(),
        found.header_count,
        found.header_value_null_count,
        found.header_value_validity,
        found.header_value_offsets,
        found.header_value_data,
    )
    ends = arrow(pa.int32(), rows + 1, 0, None, found.header_offsets)
    headers = list(zip(names, contents, strict=True))
    return [
        Record(offset, timestamp, key, value, tuple(headers[start:stop]), epoch)
        for offset, timestamp, key, value, start, stop, epoch in zip(
            arrow(pa.int64(), rows, 0, None, found.offset),
            arrow(pa.int64(), rows, 0, None, found.timestamp),
            arrow(pa.binary(), rows, found.key_null_count, found.key_validity, found.key_offsets, found.key_data),
            arrow(
                pa.binary(), rows, found.value_null_count, found.value_validity, found.value_offsets, found.value_data
            ),
            ends[:-1],
            ends[1:],
            arrow(pa.int32(), rows, 0, None, found.leader_epoch),
            strict=True,
        )
    ]


def collect(batches: Sequence[bytes | bytearray], *bounds: int) -> ColumnBuffers:
    columns = Columns(COLUMNS)
    for batch in batches:
        columns.append_batch(batch, 0, read_header(batch), *bounds)
    return columns.finish()


@given(several=st.lists(any_rows, min_size=1, max_size=3), compression=st.sampled_from([*COMPRESSION_IDS]))
def test_columns_hold_the_records(several: list[list[Row]], compression: str) -> None:
    batches, offset = [], 1_000
    for epoch, rows in enumerate(several):
        batches.append(build(rows, compression, base_offset=offset, leader_epoch=epoch))
        offset += len(rows) + 5
    assert to_rows(collect(batches)) == [record for batch in batches for record in read_records(batch)]


@given(rows=any_rows, first=st.integers(-3, 60), length=st.integers(-1, 60))
def test_offsets_outside_the_bounds_are_left_out(rows: list[Row], first: int, length: int) -> None:
    batch = build(rows, base_offset=10)
    expected = [record for record in read_records(batch) if first <= record.offset < first + length]
    columns = Columns(COLUMNS)
    assert columns.append_batch(batch, 0, read_header(batch), first, first + length) == len(expected)
    assert columns.row_count == len(expected)
    assert to_rows(columns.finish()) == expected


@given(rows=any_rows)
def test_columns_become_the_same_batch_again(rows: list[Row]) -> None:
    batch = build(rows)
    found = collect([batch])
    encoded = encode_columns(found)
    assert encoded.record_count == len(rows)
    assert seal_batch(*encoded) == batch


@given(rows=any_rows, step=st.integers(1, 7), start=st.integers(0, 3), size_bytes_max=st.none() | st.integers(0, 700))
def test_chosen_rows_become_what_they_are_without_the_others(
    rows: list[Row], step: int, start: int, size_bytes_max: int | None
) -> None:
    chosen = range(len(rows) - 1, -1, -step)
    start = min(start, len(chosen))
    alone = collect([build([rows[row] for row in chosen])]) if chosen else ColumnBuffers(0)
    expected = encode_columns(alone, start, size_bytes_max=size_bytes_max)
    found = encode_columns(
        collect([build(rows)]), start, size_bytes_max=size_bytes_max, rows=memoryview(array("i", chosen))
    )
    assert found == expected


@given(rows=any_rows, start=st.integers(0, 30), size_bytes_max=st.integers(0, 700))
def test_rows_are_cut_into_batches_by_size(rows: list[Row], start: int, size_bytes_max: int) -> None:
    found = collect([build(rows)])
    row, records = min(start, len(rows)), []
    while row < len(rows):
        encoded = encode_columns(found, row, size_bytes_max=size_bytes_max)
        assert encoded.record_count == 1 or len(encoded.records) <= size_bytes_max
        if row + encoded.record_count < len(rows):
            more = encode_columns(found, row, row + encoded.record_count + 1)
            assert len(more.records) > size_bytes_max, "one more would have fitted"
        batch = seal_batch(*encoded, base_offset=row)
        records += read_records(batch)
        row += encoded.record_count
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records] == [
        (index, *row) for index, row in enumerate(rows) if index >= start
    ]


def test_only_what_is_wanted_is_there() -> None:
    batch = build([(5, b"k", b"v", (("h", None),))])
    wanted_by = {
        "key": {"key_offsets", "key_data"},
        "value": {"value_offsets", "value_data"},
        "offset": {"offset"},
        "timestamp": {"timestamp"},
        "leader_epoch": {"leader_epoch"},
        "timestamp_type": {"timestamp_type"},
        "headers": {
            "header_offsets",
            "header_key_offsets",
            "header_key_data",
            "header_value_offsets",
            "header_value_validity",
            "header_value_data",
        },
    }
    assert wanted_by.keys() == set(COLUMNS)
    for name, fields in wanted_by.items():
        columns = Columns([name])
        assert columns.append_batch(batch, 0, read_header(batch)) == 1
        found = columns.finish()._asdict()
        assert {field for field, value in found.items() if value is not None and not isinstance(value, int)} == fields
    columns = Columns([])
    assert columns.append_batch(batch, 0, read_header(batch)) == 1
    assert columns.finish() == ColumnBuffers(1)
    with pytest.raises(ValueError, match="nothing"):
        Columns(["key", "nothing"])


def test_timestamps_are_of_the_leader_where_it_gave_them() -> None:
    batch = build([(5, None, b"a", ()), (6, None, b"b", ())])
    plain = collect([batch])
    stamp(batch, 0, 0, 0, log_append_time=99)
    stamped = collect([batch])
    assert memoryview(plain.timestamp or b"").cast("q").tolist() == [5, 6]
    assert memoryview(plain.timestamp_type or b"").cast("i").tolist() == [0, 0]
    assert memoryview(stamped.timestamp or b"").cast("q").tolist() == [99, 99]
    assert memoryview(stamped.timestamp_type or b"").cast("i").tolist() == [1, 1]


def test_control_batches_have_no_rows() -> None:
    marker = end_transaction_batch(committed=True, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=5)
    assert collect([marker, build([(5, None, b"v", ())]), marker]).row_count == 1


def test_nothing_is_an_empty_table() -> None:
    empty = Columns(COLUMNS).finish()
    assert to_rows(empty) == []
    assert encode_columns(empty).record_count == 0


def test_finishing_starts_anew_and_what_was_finished_stays() -> None:
    columns = Columns(["value"])
    for value in (b"one", b"other"):
        batch = build([(0, None, value, ())] * 100)
        columns.append_batch(batch, 0, read_header(batch))
        assert columns.size_bytes > 0
        found = columns.finish()
        assert (columns.row_count, columns.size_bytes) == (0, 0)
        assert bytes(found.value_data or b"") == value * 100


def test_short_keys_do_not_hold_the_room_of_the_whole_batch() -> None:
    columns = Columns(["key", "value"])
    finished = []
    for key in (b"a", b"b"):
        batch = build([(0, key, b"v" * 1_000, ())] * 100)
        columns.append_batch(batch, 0, read_header(batch))
        finished.append(columns.finish())
    for found, key in zip(finished, (b"a", b"b"), strict=True):
        assert isinstance(found.key_data, memoryview)
        assert memoryview(found.key_data.obj).nbytes == 100
        assert bytes(found.key_data) == key * 100
        assert bytes(found.value_data or b"") == b"v" * 100_000


def test_a_refused_batch_leaves_no_trace() -> None:
    good = build([(0, b"k", b"v", (("a", b"1"),))] * 3)
    many_nulls = build([(0, None, None, (("a", None),))] * 30)
    bad = bytearray(write_batch(read_header(many_nulls), bytes(many_nulls[61:-1]) + b"\x7f"))
    columns = Columns(COLUMNS)
    for batch in (good, bad, good):
        if batch is bad:
            with pytest.raises(MalformedBatchError):
                columns.append_batch(batch, 0, read_header(batch))
        else:
            columns.append_batch(batch, 0, read_header(batch))
    found = columns.finish()
    assert (found.key_null_count, found.value_null_count, found.header_value_null_count) == (0, 0, 0)
    columns.append_batch(many_nulls, 0, read_header(many_nulls))
    columns.append_batch(good, 0, read_header(good))
    assert [record.key for record in to_rows(columns.finish())] == [None] * 30 + [b"k"] * 3
    for size in range(1, 40):
        columns = Columns(["key", "value", "headers"] if size % 2 else ["key", "value"])
        columns.append_batch(good, 0, read_header(good))
        with pytest.raises(MalformedBatchError):
            columns.append_batch(bad, 0, read_header(bad))
        more = build([(0, None if row % 3 else b"x", b"v", (("a", None),)) for row in range(size)])
        columns.append_batch(more, 0, read_header(more))
        found = columns.finish()
        keys = arrow(pa.binary(), 3 + size, found.key_null_count, found.key_validity, found.key_offsets, found.key_data)
        assert keys == [b"k"] * 3 + [None if row % 3 else b"x" for row in range(size)]
        if size % 2:
            contents = found.header_value_validity, found.header_value_offsets, found.header_value_data
            assert arrow(pa.binary(), 3 + size, size, *contents) == [b"1"] * 3 + [None] * size


def test_offsets_beyond_64_bits_are_refused() -> None:
    for base_offset in ((1 << 63) - 1, -1):
        batch = build([(0, None, b"v", ())] * 2, base_offset=base_offset)
        with pytest.raises(MalformedBatchError, match="base offset"):
            collect([batch])


def test_more_headers_than_their_room() -> None:
    """Many empty headers in few bytes: more of them than there are rows by far."""
    rows: list[Row] = [(0, None, None, (("", None),) * 5_000), (1, None, None, (("", b""),) * 3)]
    assert [record.headers for record in to_rows(collect([build(rows)] * 2))] == [row[3] for row in rows] * 2


def test_header_keys_that_are_not_text_become_text() -> None:
    batch = build([(0, None, None, (("ab", b"1"), ("é", b"2"), ("cd", b"3")))])
    batch[bytes(batch).index(b"cd")] = 0xFF
    assert [key for key, _ in to_rows(collect([batch]))[0].headers] == ["ab", "é", "�d"]


def column(values: list[bytes]) -> tuple[array[int], bytes]:
    ends = array("i", [0])
    for value in values:
        ends.append(ends[-1] + len(value))
    return ends, b"".join(values)


def buffers(**changes: Any) -> ColumnBuffers:
    """Three rows as a producer would have them from Arrow."""
    ends, data = column([b"a", b"bb", b""])
    fields = {
        "timestamp": memoryview(array("q", [5, 4, 6])),
        "key_offsets": memoryview(ends),
        "key_validity": b"\x03",
        "key_data": data,
        "value_offsets": memoryview(ends),
        "value_data": data,
        "header_offsets": memoryview(array("i", [0, 2, 2, 3])),
        "header_key_offsets": memoryview(ends),
        "header_key_data": data,
        "header_value_offsets": memoryview(ends),
        "header_value_validity": b"\x05",
        "header_value_data": data,
    }
    return ColumnBuffers(3, **(fields | changes))


def test_columns_from_elsewhere_become_records() -> None:
    encoded = encode_columns(buffers())
    assert (encoded.record_count, encoded.base_timestamp, encoded.max_timestamp) == (3, 5, 6)
    assert [tuple(record) for record in read_records(seal_batch(*encoded))] == [
        (0, 5, b"a", b"a", (("a", b"a"), ("bb", None)), -1),
        (1, 4, b"bb", b"bb", (), -1),
        (2, 6, None, b"", (("", b""),), -1),
    ]
    some = encode_columns(buffers(key_offsets=None, value_offsets=None, header_offsets=None), 1, 3)
    assert [tuple(record) for record in read_records(seal_batch(*some))] == [
        (0, 4, None, None, (), -1),
        (1, 6, None, None, (), -1),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"timestamp": None},
        {"timestamp": memoryview(array("q", [5, 4]))},
        {"timestamp": memoryview(array("q", [5, 4, -2]))},
        {"timestamp": memoryview(array("q", [5, 4, -(1 << 63)]))},
        {"key_offsets": memoryview(array("i", [0, 1, 3]))},
        {"key_offsets": memoryview(array("i", [0, 1, 3, 4]))},
        {"key_offsets": memoryview(array("i", [0, 2, 1, 3]))},
        {"key_offsets": memoryview(array("i", [-1, 1, 1, 3]))},
        {"key_offsets": memoryview(array("i", [-(1 << 31), (1 << 31) - 1, 1, 3]))},
        {"key_validity": b""},
        {"key_data": None},
        {"key_data": b""},
        {"value_offsets": memoryview(array("i", [0, 1, 3, 400]))},
        {"value_validity": b""},
        {"value_data": None},
        {"header_offsets": memoryview(array("i", [0, 2, 2]))},
        {"header_offsets": memoryview(array("i", [0, 2, 2, 4]))},
        {"header_offsets": memoryview(array("i", [2, 0, 2, 3]))},
        {"header_offsets": memoryview(array("i", [-1, 0, 2, 3]))},
        {"header_key_offsets": memoryview(array("i", [0, 1, 3, 9]))},
        {"header_key_offsets": memoryview(array("i", [0, 1]))},
        {"header_key_offsets": None},
        {"header_key_data": None},
        {"header_value_offsets": memoryview(array("i", [0, 9, 3, 3]))},
        {"header_value_offsets": None},
        {"header_value_validity": b""},
        {"header_value_data": None},
    ],
)
def test_columns_that_contradict_each_other_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"row|column|timestamp|offsets"):
        encode_columns(buffers(**changes))


def test_rows_that_are_not_there_are_refused() -> None:
    for start, stop in ((-1, 2), (2, 1), (0, 4)):
        with pytest.raises(ValueError, match="of 3"):
            encode_columns(buffers(), start, stop)
    for rows in ([3], [-1], [0, 3], [0, -1]):
        with pytest.raises(ValueError, match=r"there is no row|timestamps for"):
            encode_columns(buffers(), rows=memoryview(array("i", rows)))
    with pytest.raises(ValueError, match="rows 0 to 3 of 2"):
        encode_columns(buffers(), 0, 3, rows=memoryview(array("i", [2, 0])))


def test_a_column_beyond_two_gigabytes_is_not_built() -> None:
    builder = batch_module.BatchBuilder()
    builder.append(0, None, b"")
    builder.size_bytes = 1 << 31
    with pytest.raises(KafkaError) as raised:
        builder.build()
    assert raised.value.code is Code.MESSAGE_TOO_LARGE
