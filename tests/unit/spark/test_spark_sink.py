from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tidelog.base.errors import ConfigError
from tidelog.spark.options import SinkOptions

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tidelog[spark]'")
types = pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

from tidelog.spark import sink  # noqa: E402

HEADERS = types.ArrayType(
    types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
)
TO_T = SinkOptions({}, "t", include_headers=True)
TO_EACH = SinkOptions({}, None, include_headers=True)


def schema(**kinds: Any) -> Any:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


class Taker:
    """Takes what a producer would."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, list[Any]]]] = []
        self.flushed = False

    def send_arrow(self, topic: str, rows: Any) -> None:
        self.taken.append((topic, rows.to_pydict()))

    def flush(self) -> None:
        self.flushed = True


@pytest.fixture
def taker(monkeypatch: pytest.MonkeyPatch) -> Taker:
    taker = Taker()

    @contextmanager
    def borrowed(settings: Mapping[str, object]) -> Iterator[Taker]:
        yield taker

    monkeypatch.setattr(sink, "borrowed_producer", borrowed)
    return taker


def test_what_can_be_written() -> None:
    text, binary = types.StringType(), types.BinaryType()
    sink.check_schema(schema(value=binary), TO_T)
    sink.check_schema(schema(key=text, value=text, topic=text, partition=types.IntegerType(), headers=HEADERS), TO_EACH)
    # As it was read.
    sink.check_schema(schema(value=text, offset=types.LongType(), timestampType=types.IntegerType()), TO_T)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"valeu": types.BinaryType()}, TO_T, "no use for column valeu"),
        ({"key": types.BinaryType()}, TO_T, "column value is missing"),
        ({"value": types.LongType()}, TO_T, "column value is bigint: cast it to string or binary"),
        ({"value": types.BinaryType(), "partition": types.LongType()}, TO_T, "partition is bigint: cast it to int"),
        ({"value": types.BinaryType(), "headers": types.StringType()}, TO_T, "column headers is string"),
        ({"value": types.BinaryType()}, TO_EACH, "say where to write"),
    ],
)
def test_what_cannot_be_written(columns: dict[str, Any], options: SinkOptions, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        sink.check_schema(schema(**columns), options)


def test_a_topic_is_not_overwritten() -> None:
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        sink.BatchWriter(TO_T, schema(value=types.BinaryType()), overwrite=True)


def test_rows_go_to_their_topics_in_order(taker: Taker) -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "value": [b"1", b"2", b"3"], "offset": [7, 8, 9]})
    assert sink.write_rows(iter([batch]), TO_EACH) == sink.Written(3)
    assert taker.taken == [("a", {"value": [b"1", b"3"]}), ("b", {"value": [b"2"]})]
    assert taker.flushed


def test_the_option_wins_over_the_column(taker: Taker) -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["a", None], "value": [b"1", b"2"], "partition": [None, 1]})
    sink.write_rows(iter([batch]), TO_T)
    assert taker.taken == [("t", {"value": [b"1", b"2"], "partition": [None, 1]})]


def test_a_missing_time_is_now(taker: Taker) -> None:
    times = pa.array([5_000_000, None], pa.timestamp("us", tz="UTC"))
    sink.write_rows(iter([pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "timestamp": times})]), TO_T)
    first, second = taker.taken[0][1]["timestamp"]
    assert first.timestamp() == 5
    assert second.timestamp() > 1_700_000_000


def test_headers_may_be_left_out(taker: Taker) -> None:
    headers = pa.array([[{"key": "h", "value": b"x"}]])
    batch = pa.RecordBatch.from_pydict({"value": [b"1"], "headers": headers})
    sink.write_rows(iter([batch]), SinkOptions({}, "t", include_headers=False))
    sink.write_rows(iter([batch]), TO_T)
    assert [sorted(rows) for _, rows in taker.taken] == [["value"], ["headers", "value"]]


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"value": [b"1"], "topic": [""]}, TO_EACH, "a row has no topic"),
        ({"value": [b"1", b"2"], "topic": ["a", None]}, TO_EACH, "a row has no topic"),
        ({"value": [b"1", b"2"], "partition": [3, -1]}, TO_T, "a partition below 0"),
    ],
)
def test_rows_that_cannot_be_written(columns: dict[str, Any], options: SinkOptions, says: str, taker: Taker) -> None:
    with pytest.raises(sink.SinkError, match=says):
        sink.write_rows(iter([pa.RecordBatch.from_pydict(columns)]), options)
    assert not taker.flushed
