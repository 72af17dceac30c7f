"""Arrow in and out: nothing changes on the way, whatever the layout of the arrays."""

from __future__ import annotations

import datetime as dt
import importlib
import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import MissingExtraError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.arrow import COLUMNS, HEADERS, ArrowReader, columns_from_arrow
from tidelog.client.core.encoding import split_rows
from tidelog.client.core.values import FetchedBatches
from tidelog.records.batch import seal_batch
from tidelog.records.columns import ColumnBuffers, EncodedRecords
from tidelog.records.keys import partition_for_key, rows_by_partition

UTC = dt.UTC
PAIR = st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3))
ROW = st.tuples(
    st.none() | st.binary(max_size=5),
    st.none() | st.binary(max_size=9),
    st.integers(0, 2_000_000_000_000),
    st.lists(PAIR, max_size=3),
)


def table(rows: list[tuple[Any, Any, int, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row[0] for row in rows], pa.binary()),
            pa.array([row[1] for row in rows], pa.binary()),
            pa.array([row[2] for row in rows], pa.timestamp("ms", tz="UTC")),
            pa.array([[{"key": k, "value": v} for k, v in row[3]] for row in rows], HEADERS),
        ],
        ["key", "value", "timestamp", "headers"],
    )


def sealed(columns: ColumnBuffers, base_offset: int = 0, leader_epoch: int = 4) -> bytes:
    """The columns as one batch, as a leader stores it."""
    [rows] = split_rows(columns, 1 << 30)
    return seal(rows, base_offset, leader_epoch)


def seal(rows: EncodedRecords, base_offset: int = 0, leader_epoch: int = 4) -> bytes:
    return seal_batch(
        rows.records,
        rows.record_count,
        rows.base_timestamp,
        rows.max_timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def read(data: bytes, fetch_offset: int = 0, columns: list[str] | None = None) -> pa.RecordBatch:
    reader = ArrowReader(columns)
    partition = TopicPartition("t", PartitionIndex(2))
    reader.add(FetchedBatches(partition, memoryview(data), fetch_offset, 0, 0, 0, 0, 0, None))
    return reader.finish()


def as_rows(batch: pa.RecordBatch) -> list[tuple[Any, Any, int, Any]]:
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [[(pair["key"], pair["value"]) for pair in row] for row in batch.column("headers").to_pylist()]
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    return list(zip(keys, values, stamps, headers, strict=True))


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 12), st.integers(0, 3))
def test_rows_come_back_as_they_went_whatever_slice_they_are(
    rows: list[tuple[Any, Any, int, Any]], start: int, short: int
) -> None:
    part = rows[start : len(rows) - short]
    if not part:
        return
    [(target, columns)] = columns_from_arrow(table(rows).slice(start, len(part)))
    assert target is None
    found = read(sealed(columns, base_offset=100))
    found.validate(full=True)
    assert as_rows(found) == part
    assert found.column("offset").to_pylist() == list(range(100, 100 + len(part)))
    assert set(found.column("topic").to_pylist()) == {"t"}
    assert set(found.column("partition").to_pylist()) == {2}
    assert set(found.column("leader_epoch").to_pylist()) == {4}
    assert found.schema == pa.schema(list(COLUMNS.items()))


def test_offsets_below_the_position_are_left_out_and_columns_can_be_chosen() -> None:
    [(_, columns)] = columns_from_arrow(table([(None, b"%d" % i, i, []) for i in range(5)]))
    found = read(sealed(columns), fetch_offset=3, columns=["value", "partition"])
    assert found.to_pydict() == {"value": [b"3", b"4"], "partition": [2, 2]}


def test_nothing_read_is_an_empty_batch_of_the_same_schema() -> None:
    empty = ArrowReader().finish()
    assert empty.num_rows == 0
    assert empty.schema == pa.schema(list(COLUMNS.items()))


def test_an_unknown_epoch_is_null() -> None:
    [(_, columns)] = columns_from_arrow(table([(None, b"v", 0, [])]))
    assert read(sealed(columns, leader_epoch=-1)).column("leader_epoch").to_pylist() == [None]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "c"]),
        pa.array(["a", None, "c"], pa.large_string()),
        pa.array([b"a", None, b"c"], pa.large_binary()),
        pa.array(["a", None, "c"]).dictionary_encode(),
        pa.array([b"a", None, b"c"], pa.binary(1)),
    ],
)
def test_values_of_kindred_types_are_taken(values: Any) -> None:
    batch = pa.RecordBatch.from_arrays([values, pa.nulls(3)], ["value", "key"])
    [(_, columns)] = columns_from_arrow(batch)
    stamped = columns._replace(timestamp=memoryview(bytes(24)).cast("q"))
    found = read(sealed(stamped), columns=["key", "value"])
    assert found.to_pydict() == {"key": [None] * 3, "value": [b"a", None, b"c"]}


def test_timestamps_of_any_unit_and_headers_as_a_map_are_taken() -> None:
    when = dt.datetime(2024, 5, 6, 7, 8, 9, 123_000, UTC)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([b"v", b"w"]),
            pa.array([when, when], pa.timestamp("us", tz="UTC")),
            pa.array([[("h", b"1")], None], pa.map_(pa.string(), pa.binary())),
        ],
        ["value", "timestamp", "headers"],
    )
    [(_, columns)] = columns_from_arrow(batch)
    found = read(sealed(columns))
    assert [(row[2], row[3]) for row in as_rows(found)] == [
        (round(when.timestamp() * 1000), [("h", b"1")]),
        (round(when.timestamp() * 1000), []),
    ]


def test_a_column_says_the_partition_of_each_row_unless_the_call_does() -> None:
    batch = pa.RecordBatch.from_pydict({"value": [b"a", b"b", b"c", b"d"], "partition": [1, 0, None, 1]})
    found = {target: columns.row_count for target, columns in columns_from_arrow(batch)}
    assert found == {1: 2, 0: 1, None: 1}
    assert [target for target, _ in columns_from_arrow(batch, 3)] == [3]


def test_a_table_is_taken_chunk_by_chunk() -> None:
    part = pa.table({"value": [b"a", b"b"]})
    rows = [columns.row_count for _, columns in columns_from_arrow(pa.concat_tables([part, part.slice(0, 0), part]))]
    assert rows == [2, 2]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"value": [1, 2]}, "column 'value' is int64: binary or string is expected"),
        ({"valeu": [b"a"]}, "no use for column 'valeu'"),
        ({"value": [b"a"], "timestamp": ["x"]}, "column 'timestamp' is string"),
        ({"value": [b"a"], "headers": [b"x"]}, "column 'headers' is binary"),
        ({"value": [b"a"], "timestamp": pa.array([None], pa.timestamp("ms"))}, "has nulls"),
    ],
)
def test_what_cannot_be_a_record_is_refused_by_name(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        list(columns_from_arrow(pa.RecordBatch.from_pydict(columns)))


def test_an_unknown_column_to_read_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match="there is no column 'valeu': there are topic, partition"):
        ArrowReader(["valeu"])


@given(st.lists(ROW, min_size=1, max_size=30), st.integers(0, 9), st.integers(1, 5), st.integers(0, 4))
def test_rows_are_parted_by_their_keys_in_order(
    rows: list[tuple[Any, Any, int, Any]], start: int, partition_count: int, keyless: int
) -> None:
    keyless %= partition_count
    rows_of: dict[int, list[Any]] = {}
    for row in rows[start:]:
        target = keyless if row[0] is None else partition_for_key(row[0], partition_count)
        rows_of.setdefault(target, []).append(row)
    if all(row[0] is None for row in rows[start:]):
        return
    [(_, columns)] = columns_from_arrow(table(rows).slice(start))
    parts = rows_by_partition(columns, partition_count, lambda count: keyless)
    assert {
        target: as_rows(read(b"".join(map(seal, split_rows(columns, 60, chosen))))) for target, chosen in parts
    } == rows_of


def test_rows_are_split_into_batches_of_the_size_asked_for() -> None:
    [(_, columns)] = columns_from_arrow(table([(None, b"v" * 100, i, []) for i in range(100)]))
    pieces = split_rows(columns, 1_000)
    assert sum(piece.record_count for piece in pieces) == 100
    assert all(len(piece.records) <= 1_000 for piece in pieces)
    assert len(pieces) < 20
    assert [piece.record_count for piece in split_rows(columns, 1)] == [1] * 100


def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "tidelog.client.arrow")
    with pytest.raises(MissingExtraError, match=r"pip install 'tidelog\[arrow\]'"):
        importlib.import_module("tidelog.client.arrow")
