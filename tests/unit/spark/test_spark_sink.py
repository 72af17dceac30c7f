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
TIMED = SinkOptions({}, "t", include_headers=True, use_timestamp=True)
STRICT = SinkOptions({}, "t", include_headers=True, strict=True)


def schema(**kinds: Any) -> Any:
    return types.StructType([types.StructField(name, kind) for name, kind in kinds.items()])


class Taker:
    """Takes what a producer would. Each topic has two partitions."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, list[Any]]]] = []
        self.sent: list[tuple[str, bytes | None, bytes | None, list[tuple[str, Any]]]] = []
        self.flushed = False

    def partitions_for(self, topic: str, *, at_least: int = 0) -> int:
        return 2

    def send(self, topic: str, value: Any, key: Any, *, headers: Any, timestamp_ms: int | None) -> None:
        self.sent.append((topic, value, key, headers))

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
    # As it was read, and with columns of the query's own.
    sink.check_schema(schema(value=text, offset=types.LongType(), timestamp=text, carrier=text), TO_T)


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        ({"valeu": types.BinaryType()}, TO_T, "column value is missing: it is what is written; is valeu meant"),
        ({"key": types.BinaryType()}, TO_T, "column value is missing: it is what is written$"),
        ({"value": types.BinaryType(), "offset": types.LongType()}, STRICT, "are refused: offset. Those that are"),
        ({"value": types.BinaryType(), "timestamp": types.TimestampType()}, STRICT, "timestamp; useTimestamp=true"),
        ({"value": types.BinaryType(), "timestamp": types.StringType()}, TIMED, "column timestamp is string"),
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
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "timestamp": times})
    sink.write_rows(iter([batch]), TO_T)
    assert list(taker.taken.pop()[1]) == ["value"]
    sink.write_rows(iter([batch]), TIMED)
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


BAD = pa.RecordBatch.from_pydict(
    {
        "topic": pa.array(["a", None, "", "a b", "a", "a", "b", "a"]),
        "value": pa.array([b"good", b"1", b"2", b"3", b"4", b"5", None, b"x" * 200]),
        "key": pa.array(["k"] * 8),
        "partition": pa.array([1, None, 0, None, -1, 2, None, None], pa.int32()),
        "headers": pa.array([[{"key": "h", "value": b"x"}]] * 8),
    }
)
REASONS = {
    "it has no topic": 2,
    "its topic's name is illegal": 1,
    "its partition is below 0": 1,
    "its topic has no such partition": 1,
    "it is larger than kafka.max.request.size": 1,
}


def bad_row_options(policy: str) -> SinkOptions:
    return SinkOptions({"max_request_size": 250}, None, include_headers=True, on_bad_row=policy)


def test_bad_rows_are_dropped_and_counted(taker: Taker) -> None:
    written = sink.write_rows(iter([BAD]), bad_row_options("drop"))
    assert written == sink.Written(2, REASONS)
    assert [(topic, rows["value"]) for topic, rows in taker.taken] == [("a", [b"good"]), ("b", [None])]
    assert not taker.sent


def test_bad_rows_go_to_a_topic_with_the_reason(taker: Taker, caplog: pytest.LogCaptureFixture) -> None:
    options = SinkOptions({"max_request_size": 2_000}, None, include_headers=True, on_bad_row="topic:dead")
    large = pa.RecordBatch.from_pydict(
        {"topic": ["b"], "value": [b"x" * 5_000], "partition": pa.array([1], pa.int32())}
    )
    written = sink.write_rows(iter([BAD.slice(3, 2), large]), options)
    assert taker.sent[:2] == [
        ("dead", b"3", b"k", [("h", b"x"), ("tidelog.bad-row.reason", "its topic's name is illegal"),
                              ("tidelog.bad-row.topic", "a b")]),
        ("dead", b"4", b"k", [("h", b"x"), ("tidelog.bad-row.reason", "its partition is below 0"),
                              ("tidelog.bad-row.topic", "a"), ("tidelog.bad-row.partition", "-1")]),
    ]  # fmt: skip
    topic, value, key, headers = taker.sent[2]
    assert (topic, key, headers[-1]) == ("dead", None, ("tidelog.bad-row.size-bytes", "5000"))
    assert value is not None
    assert 100 < len(value) < 1_000
    sink.BatchWriter(options, schema(value=types.BinaryType(), topic=types.StringType()), overwrite=False).commit(
        [written, None]
    )
    assert [one.getMessage() for one in caplog.records] == [
        "onBadRow: bad rows written to topic dead: 3 (it is larger than kafka.max.request.size: 1; "
        "its partition is below 0: 1; its topic's name is illegal: 1)"
    ]


def test_rows_for_one_topic_are_bad_for_their_partition_or_size_alone(taker: Taker) -> None:
    options = SinkOptions({"max_request_size": 250}, "t", include_headers=False, on_bad_row="drop")
    written = sink.write_rows(iter([BAD, BAD.slice(0, 0)]), options)
    assert written.records == 5
    assert sum(written.bad_rows.values()) == 3
