"""What Spark reports of a query's progress, read for our sources: their lag, where they stand, what they lost.

A progress is what `query.lastProgress`, `query.recentProgress` and a listener's event have. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.spark.offsets import CheckpointError, StreamOffset
from tidelog.spark.query_losses import QueryLoss, losses_of_offset

Progress = Mapping[str, Any]

_LAGS = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far one source of a query is behind the ends of its partitions, as of the batch's planning.

    Attributes:
        min_offsets_behind_latest: of the partition that is the least behind.
        max_offsets_behind_latest: of the partition that is the most behind.
        avg_offsets_behind_latest: over all partitions.
        batch_id: the micro-batch.
        source: the place of the source among those of the query, from 0 on.
        query_id: which the query keeps over its restarts.
        query_name: what `queryName` said.
    """

    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    batch_id: int
    source: int
    query_id: str | None = None
    query_name: str | None = None


def lag(progress: Progress | None) -> list[SourceLag]:
    """How far the sources of a query are behind: those of format tidelog, and those of Spark's Kafka connector.

    Args:
        progress: `query.lastProgress`, an item of `query.recentProgress`, or `event.progress` of a listener. None, as
            before the first batch, gives an empty list.
    """
    found = []
    for number, source in enumerate(_sources(progress)):
        numbers = _lag_of(source)
        if numbers is not None and progress is not None:
            least, most, average = (numbers[name] for name in _LAGS)
            found.append(
                SourceLag(int(least), int(most), average, int(progress["batchId"]), number, *query_of(progress))
            )
    return found


def with_lag(progress: Progress) -> Progress:
    """The same progress, with our sources' lag under `metrics`, where Spark's Kafka connector has it, as text.

    What reads `progress["sources"][0]["metrics"]["maxOffsetsBehindLatest"]` needs no other change. A Python source
    cannot put it there itself.
    """
    for source in _sources(progress):
        numbers = _lag_of(source)
        if numbers is not None:
            texts = {name: str(numbers[name] if name == _LAGS[2] else int(numbers[name])) for name in _LAGS}
            source["metrics"] = {**(source.get("metrics") or {}), **texts}
    return progress


def ends_of(progress: Progress) -> Iterator[tuple[int, StreamOffset]]:
    """Where our sources stand after a batch, by the place of the source; none where nothing was read."""
    for number, source in enumerate(_sources(progress)):
        end = _offset(source.get("endOffset"))
        if end is not None and (end.positions or end.losses):
            yield number, end


def losses_of(progress: Progress) -> Iterator[QueryLoss]:
    """The losses that the batch made up for."""
    query_id, query_name = query_of(progress)
    for number, end in ends_of(progress):
        # A trigger that found nothing new repeats the end of the batch before.
        if end.losses and _offset(_sources(progress)[number].get("startOffset")) != end:
            yield from losses_of_offset(end, int(progress["batchId"]), number, query_id=query_id, query_name=query_name)


def query_of(progress: Progress) -> tuple[str | None, str | None]:
    """The id and the name of the query."""
    query_id = progress.get("id")
    return None if query_id is None else str(query_id), progress.get("name")


def _sources(progress: Progress | None) -> list[Any]:
    return [] if progress is None else list(progress.get("sources") or ())


def _lag_of(source: Mapping[str, Any]) -> dict[str, float] | None:
    for place in (_parsed(source.get("latestOffset")), source.get("metrics")):
        if isinstance(place, Mapping) and all(name in place for name in _LAGS):
            return {name: float(place[name]) for name in _LAGS}
    return None


def _offset(text: object) -> StreamOffset | None:
    try:
        return StreamOffset.from_json(_parsed(text))
    except CheckpointError:
        return None  # of another source


def _parsed(text: object) -> object:
    """Spark gives offsets as text here, and as objects there."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return None
