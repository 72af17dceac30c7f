from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tidelog.base.ids import Offset, PartitionIndex, TopicPartition

sources = pytest.importorskip(
    "pyspark.sql.datasource", reason="pyspark is not installed: pip install 'tidelog[spark-local]'"
)

from tidelog.spark.pushdown import wanted_by  # noqa: E402

EqualTo, In, Not, IsNotNull = sources.EqualTo, sources.In, sources.Not, sources.IsNotNull
Above, From, Below, UpTo = (
    sources.GreaterThan,
    sources.GreaterThanOrEqual,
    sources.LessThan,
    sources.LessThanOrEqual,
)
PARTITION, OFFSET, TIME, TOPIC = ("partition",), ("offset",), ("timestamp",), ("topic",)
NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
NOON_MS = 1_709_208_000_000
KEYS = [TopicPartition(topic, PartitionIndex(number)) for topic in "ab" for number in range(3)]
BEGIN = dict.fromkeys(KEYS, Offset(10))
END = dict.fromkeys(KEYS, Offset(20))


def left(*filters: Any, in_time: int | None = None) -> dict[str, tuple[int, int]]:
    """What is read of [10, 20) in each of six partitions."""
    wanted, _ = wanted_by(filters)
    found = {} if wanted.from_ms is None else dict.fromkeys(KEYS, None if in_time is None else Offset(in_time))
    return {str(key): pair for key, pair in wanted.narrowed(BEGIN, END, found).items()}


ALL = {str(key): (10, 20) for key in KEYS}


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], ALL),
        ([EqualTo(PARTITION, 1)], {"a-1": (10, 20), "b-1": (10, 20)}),
        ([In(PARTITION, (0, 2)), EqualTo(TOPIC, "a")], {"a-0": (10, 20), "a-2": (10, 20)}),
        ([In(PARTITION, (0, 2)), In(PARTITION, (1, 2)), In(TOPIC, ("b", "c"))], {"b-2": (10, 20)}),
        ([Above(PARTITION, 1), EqualTo(TOPIC, "a")], {"a-2": (10, 20)}),
        ([EqualTo(PARTITION, 7)], {}),
        ([EqualTo(PARTITION, 0), EqualTo(PARTITION, 1)], {}),
        ([EqualTo(TOPIC, "c")], {}),
        ([From(OFFSET, 12), Below(OFFSET, 15)], dict.fromkeys(ALL, (12, 15))),
        ([Above(OFFSET, 12), UpTo(OFFSET, 15)], dict.fromkeys(ALL, (13, 16))),
        ([EqualTo(OFFSET, 12)], dict.fromkeys(ALL, (12, 13))),
        ([In(OFFSET, (18, 12))], dict.fromkeys(ALL, (12, 19))),
        ([Below(OFFSET, 5)], {}),
        ([Above(OFFSET, 25)], {}),
        ([EqualTo(OFFSET, 12), EqualTo(OFFSET, 13)], {}),
        ([Not(EqualTo(PARTITION, 1)), EqualTo(("key",), b"x"), EqualTo(PARTITION, None)], ALL),
        ([EqualTo(("headers", "partition"), 1), EqualTo(OFFSET, True), In(OFFSET, (None, 3))], ALL),
    ],
)
def test_what_is_read(filters: list[Any], ranges: dict[str, tuple[int, int]]) -> None:
    assert left(*filters) == ranges


@pytest.mark.parametrize(
    ("one", "from_ms"),
    [
        (From(TIME, NOON), NOON_MS),
        (From(TIME, NOON + timedelta(microseconds=1)), NOON_MS + 1),
        (Above(TIME, NOON), NOON_MS + 1),
        (Above(TIME, NOON + timedelta(microseconds=999)), NOON_MS + 1),
        (EqualTo(TIME, NOON), NOON_MS),
        (UpTo(TIME, NOON), None),  # a later record may have an earlier time
        (From(TIME, NOON.replace(tzinfo=None)), None),
        (From(TIME, datetime(1960, 1, 1, tzinfo=UTC)), None),
    ],
)
def test_times_move_the_start_alone(one: Any, from_ms: int | None) -> None:
    wanted, for_spark = wanted_by([one])
    assert wanted.from_ms == from_ms
    assert for_spark == [one]


def test_a_time_that_no_record_reaches_leaves_nothing() -> None:
    assert left(From(TIME, NOON), in_time=None) == {}
    assert left(From(TIME, NOON), in_time=14) == dict.fromkeys(ALL, (14, 20))
    assert left(From(TIME, NOON), From(OFFSET, 16), in_time=3) == dict.fromkeys(ALL, (16, 20))


def test_spark_applies_what_is_not_exact() -> None:
    exact = [EqualTo(PARTITION, 1), Below(OFFSET, 5), In(TOPIC, ("a",)), IsNotNull(OFFSET), In(OFFSET, (3,))]
    others = [In(OFFSET, (1, 3)), IsNotNull(("key",)), Not(IsNotNull(OFFSET)), EqualTo(("value",), b"x")]
    assert wanted_by([*exact, *others])[1] == others
