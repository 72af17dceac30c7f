"""What a batch read leaves out because its query filters it away: partitions, and the ends of their ranges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tidelog.base.ids import Offset, TopicPartition

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


@dataclass(frozen=True, slots=True)
class Numbers:
    """Which numbers are asked for: those from `low` up to `end`, exclusive, and among `only`. None is no limit."""

    low: int = 0
    end: int | None = None
    only: frozenset[int] | None = None

    def includes(self, number: int) -> bool:
        in_range = self.low <= number and (self.end is None or number < self.end)
        return in_range and (self.only is None or number in self.only)

    def and_by(self, kind: str, value: Any) -> Numbers | None:
        """These, if they also pass a comparison of Spark's; None if it is not one that can be said so."""
        if kind == "In":
            if not value or not all(map(_is_number, value)):
                return None
            return self._among(frozenset(value))
        if not _is_number(value):
            return None
        if kind in {"EqualTo", "EqualNullSafe"}:
            return self._among(frozenset({value}))
        if kind in {"GreaterThan", "GreaterThanOrEqual"}:
            return replace(self, low=max(self.low, value + (kind == "GreaterThan")))
        if kind in {"LessThan", "LessThanOrEqual"}:
            end = value + (kind == "LessThanOrEqual")
            return replace(self, end=end if self.end is None else min(self.end, end))
        return None

    def _among(self, values: frozenset[int]) -> Numbers:
        return replace(self, only=values if self.only is None else self.only & values)

    def span(self) -> tuple[int, int | None]:
        """The first, and the end of all: every number asked for lies between them."""
        low, end = self.low, self.end
        if self.only is not None:
            low = max(low, min(self.only, default=0))
            last = max(self.only, default=-1) + 1
            end = last if end is None else min(end, last)
        return low, end


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the filters leave of a read.

    Attributes:
        topics: None is all.
        partitions: their numbers.
        offsets: within each partition.
        from_ms: nothing older is asked for; records after the first that is not older may be, in any order.
    """

    topics: frozenset[str] | None = None
    partitions: Numbers = Numbers()
    offsets: Numbers = Numbers()
    from_ms: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        topics = self.topics is None or partition.topic in self.topics
        return topics and self.partitions.includes(partition.partition)

    def narrowed(
        self,
        begin: Mapping[TopicPartition, Offset],
        end: Mapping[TopicPartition, Offset],
        first_in_time: Mapping[TopicPartition, Offset | None],
    ) -> dict[TopicPartition, tuple[Offset, Offset]]:
        """What is left of [begin, end) in each partition.

        Args:
            begin: of each partition.
            end: of each partition.
            first_in_time: the first offset at or after `from_ms`, None where no record is so late; empty if there is
                no `from_ms`.
        """
        low, limit = self.offsets.span()
        left = {}
        for key in begin:
            if not self.includes(key):
                continue
            first, last = max(begin[key], low), end[key]
            if self.from_ms is not None:
                in_time = first_in_time.get(key)
                first = last if in_time is None else max(first, in_time)
            if limit is not None:
                last = Offset(min(last, limit))
            if first < last:
                left[key] = (Offset(first), last)
        return left


def wanted_by(filters: Iterable[Any]) -> tuple[Wanted, list[Any]]:
    """What the filters of a query leave, and those that Spark still has to apply.

    Args:
        filters: `pyspark.sql.datasource.Filter`s, all of which a row has to pass.
    """
    wanted = Wanted()
    for_spark = []
    for one in filters:
        wanted, is_done = _add(wanted, one)
        if not is_done:
            for_spark.append(one)
    return wanted, for_spark


def _add(wanted: Wanted, one: Any) -> tuple[Wanted, bool]:
    kind, value = type(one).__name__, getattr(one, "value", None)
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1:
        return wanted, False
    column = path[0]
    if kind == "IsNotNull":
        return wanted, column in _NEVER_NULL
    if column == "topic" and kind in {"EqualTo", "EqualNullSafe", "In"}:
        names = value if kind == "In" else (value,)
        if not names or not all(isinstance(name, str) for name in names):
            return wanted, False
        topics = frozenset(names)
        return replace(wanted, topics=topics if wanted.topics is None else wanted.topics & topics), True
    if column == "partition":
        partitions = wanted.partitions.and_by(kind, value)
        return (wanted, False) if partitions is None else (replace(wanted, partitions=partitions), True)
    if column == "offset":
        offsets = wanted.offsets.and_by(kind, value)
        if offsets is None:
            return wanted, False
        # Of several offsets, those between them are read as well.
        return replace(wanted, offsets=offsets), kind != "In" or len(set(one.value)) == 1
    if column == "timestamp" and (from_ms := _from_ms(kind, value)) is not None:
        return replace(wanted, from_ms=max(from_ms, wanted.from_ms or 0)), False
    return wanted, False


def _from_ms(kind: str, value: object) -> int | None:
    """The first millisecond that passes; None if the comparison does not say so. An end says nothing: a later record
    may be older."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    microseconds = (value - _EPOCH) // timedelta(microseconds=1)
    if kind == "GreaterThan":
        first = microseconds // 1000 + 1
    elif kind in {"GreaterThanOrEqual", "EqualTo", "EqualNullSafe"}:
        first = -(-microseconds // 1000)
    else:
        return None
    return first if first > 0 else None


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
