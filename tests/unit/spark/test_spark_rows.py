from __future__ import annotations

from typing import Any

import pytest

from tidelog.base.errors import ConfigError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.records import BatchBuilder, split_batches

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tidelog[spark]'")
types = pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

from tidelog.spark.columns import COLUMNS, spark_schema  # noqa: E402
from tidelog.spark.rows import RowsBuilder, arrow_schema  # noqa: E402

T3 = TopicPartition("t", PartitionIndex(3))


def rows_of(
    names: list[str], *records: tuple[Any, ...], first: int = 0, end: int = 2**62, leader_epoch: int = 4
) -> Any:
    builder = BatchBuilder()
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    buffer = builder.build(7, leader_epoch)
    whole = spark_schema(include_headers=True, include_leader_epoch=True)
    schema = arrow_schema(types.StructType([whole[name] for name in names]))
    rows = RowsBuilder(schema, T3)
    for position, header in split_batches(buffer):
        rows.append(buffer, position, header, first, end)
    batch = rows.take()
    batch.validate(full=True)
    assert batch.schema.equals(schema)
    return batch


def test_the_columns_are_those_of_the_connector() -> None:
    schema = spark_schema(include_headers=True, include_leader_epoch=True)
    assert {field.name: field.dataType.simpleString() for field in schema.fields} == COLUMNS
    assert [field.name for field in spark_schema(include_headers=False).fields] == list(COLUMNS)[:-2]
    assert all(field.nullable for field in schema.fields)


def test_every_column() -> None:
    batch = rows_of(
        list(COLUMNS),
        (1_700_000_000_123, b"k", b"v", [("a", b"x"), ("b", None)]),
        (-1, None, b"", []),
        (0, b"", None, [("c", b"")]),
    )
    assert [str(at) for at in batch.column("timestamp").cast(pa.string())] == [
        "2023-11-14 22:13:20.123000Z",
        "1969-12-31 23:59:59.999000Z",
        "1970-01-01 00:00:00.000000Z",
    ]
    assert batch.drop_columns(["timestamp"]).to_pydict() == {
        "key": [b"k", None, b""],
        "value": [b"v", b"", None],
        "topic": ["t"] * 3,
        "partition": [3] * 3,
        "offset": [7, 8, 9],
        "timestampType": [0] * 3,
        "headers": [[{"key": "a", "value": b"x"}, {"key": "b", "value": None}], None, [{"key": "c", "value": b""}]],
        "leaderEpoch": [4] * 3,
    }


def test_columns_come_in_the_order_asked_for_and_records_within_the_range() -> None:
    records: list[tuple[Any, ...]] = [(0, b"k", f"{number}".encode(), []) for number in range(10)]
    batch = rows_of(["value", "partition", "offset"], *records, first=9, end=12)
    assert batch.to_pydict() == {"value": [b"2", b"3", b"4"], "partition": [3] * 3, "offset": [9, 10, 11]}
    assert rows_of(["topic"], *records).num_rows == 10
    assert rows_of(["value", "headers", "timestamp"], *records, first=99).num_rows == 0


def test_a_leader_epoch_that_is_not_known_is_null() -> None:
    assert rows_of(["leaderEpoch"], (0, None, b"v", []), leader_epoch=-1).to_pydict() == {"leaderEpoch": [None]}


def test_a_time_that_spark_cannot_hold_does_not_stop_the_rest() -> None:
    batch = rows_of(["timestamp"], (2**62, None, None, []), (5_000, None, None, []))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000, 5_000_000]


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("valeu", types.BinaryType(), "there is no column valeu"),
        ("value", types.StringType(), "column value is binary, not string"),
        ("timestamp", types.TimestampNTZType(), "column timestamp is timestamp, not timestamp_ntz"),
    ],
)
def test_columns_that_there_are_not(name: str, kind: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        arrow_schema(types.StructType([types.StructField(name, kind)]))
