"""Which offsets the rows of a table stand for, from the history of the query's reading. Pure.

started      at 0       [0 ...
truncated    at 5, read from 5            [0, 5) [5 ...        what was in between was withdrawn
retention    at 20, read from 30          [0, 5) [5, 20) [30 ...
now          at 50                        [0, 5) [5, 20) [30, 50)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidelog.spark.offsets import StreamOffset
from tidelog.spark.withdrawal import MISSING, RECREATED, RETENTION, STARTED, TRUNCATED, Event


class PartitionKey(NamedTuple):
    """A partition of a topic of one id. The id is None of brokers that have none."""

    topic: str
    topic_id: str | None
    partition: int


class Span(NamedTuple):
    """The offsets from `start`, up to but not with `end`."""

    start: int
    end: int


Coverage = Mapping[PartitionKey, tuple[Span, ...]]


def coverage_of(
    events: Iterable[tuple[int, Event]], ends: Iterable[StreamOffset]
) -> dict[PartitionKey, tuple[Span, ...]]:
    """What was read of each partition, and was not withdrawn since.

    Args:
        events: of the query, with the ids of their batches.
        ends: where its sources stand.
    """
    spans: dict[PartitionKey, list[Span]] = {}
    opened: dict[PartitionKey, int] = {}

    def close(key: PartitionKey, at: int | None) -> None:
        start = opened.pop(key, None)
        if start is not None and at is not None and at > start:
            spans.setdefault(key, []).append(Span(start, at))

    for _, event in sorted(events, key=lambda pair: pair[0]):
        if event.topic is None or event.partition is None:
            continue
        key = PartitionKey(event.topic, event.topic_id, event.partition)
        if event.cause == STARTED:
            close(key, event.read_from)
            opened[key] = event.read_from or 0
            continue
        if event.cause in (RECREATED, MISSING):
            close(key, event.to_offset)
            continue
        if event.cause == TRUNCATED:
            close(key, event.to_offset)
            limit = event.from_offset or 0
            kept = [Span(start, min(end, limit)) for start, end in spans.get(key, []) if start < limit]
            spans[key] = kept
        elif event.cause == RETENTION:
            close(key, event.from_offset)
        if event.read_from is not None:
            opened[key] = event.read_from
    for end in ends:
        for (topic, partition), position in end.positions.items():
            close(PartitionKey(topic, end.topic_ids.get(topic), int(partition)), position.offset)
    return {key: _joined(found) for key, found in spans.items() if found}


def _joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(end, joined[-1].end))
        else:
            joined.append(Span(start, end))
    return tuple(joined)
