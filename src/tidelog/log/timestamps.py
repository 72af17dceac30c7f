"""Offsets by time: the first record of a time or later, and the record with the largest timestamp.

Kafka: `LogSegment.findOffsetByTimestamp`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.base.errors import CorruptLogError, MalformedBatchError
from tidelog.base.ids import Offset
from tidelog.log.lookup import read_place
from tidelog.log.segment import Segment
from tidelog.log.segment_indexes import NO_TIMESTAMP
from tidelog.log.segments import Segments
from tidelog.records.batch import BatchHeader, Record, read_records


class TimestampOffset(NamedTuple):
    """A record's place in time and in the log."""

    timestamp: int
    """ms since 1970."""
    offset: Offset
    leader_epoch: int
    """Of the batch that holds the record; -1 if it carries none."""


def first_at_or_after(
    segments: Segments, timestamp: int, *, start_offset: Offset, end_offset: Offset
) -> TimestampOffset | None:
    """The first record in [start_offset, end_offset) whose timestamp is at least `timestamp`; None if there is none.

    Raises:
        CorruptLogError: a segment is damaged between its index entry and the answer. That a batch does not continue the
            one before counts as such: a base offset that rotted would have the reader pass over records.
    """
    cleaned_end_offset = segments.mark.end_offset
    for segment in segments.overlapping(start_offset, end_offset):
        newest = segment.indexes.max_timestamp
        if newest is None or newest.timestamp < timestamp:
            continue
        start = segment.position_of_time(timestamp, start_offset, cleaned_end_offset)
        next_offset: int | None = None
        for position, header in segment.headers(start):
            base_offset = header.base_offset
            if next_offset is not None and base_offset > max(next_offset, cleaned_end_offset):
                why = f"has offset {base_offset} where {next_offset} comes next"
                raise CorruptLogError(f"{segment.path}: the batch at {position} {why}")
            next_offset = header.next_offset
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= start_offset:
                    return _answer(record) if record.offset < end_offset else None
    return None


def newest(segments: Iterable[Segment], *, start_offset: Offset, end_offset: Offset) -> TimestampOffset | None:
    """The first of the records in [start_offset, end_offset) with the largest timestamp; None if none has one.

    Raises:
        CorruptLogError: a segment is damaged where one has to look.
    """
    best_time = NO_TIMESTAMP
    best: TimestampOffset | tuple[Segment, int, BatchHeader] | None = None
    for segment in segments:
        known = segment.indexes.max_timestamp
        if known is None or known.timestamp <= best_time:
            continue
        if start_offset <= segment.base_offset and known.last_offset < end_offset:
            start = segment.position_of(known.last_offset)
        else:  # the largest may lie outside: look at every batch that does not
            start = segment.position_of(max(start_offset, segment.base_offset))
        for position, header in segment.headers(start):
            if header.base_offset >= end_offset or best_time == known.timestamp:
                break
            if header.max_timestamp <= best_time:
                continue
            if start_offset <= header.base_offset and header.last_offset < end_offset:
                best_time, best = header.max_timestamp, (segment, position, header)
            else:
                found = _newest_within(_records(segment, position, header), start_offset, end_offset)
                if found is not None and found.timestamp > best_time:
                    best_time, best = found.timestamp, found
    if best is None or isinstance(best, TimestampOffset):
        return best
    return _newest_within(_records(*best), start_offset, end_offset)


def _newest_within(records: list[Record], start_offset: int, end_offset: int) -> TimestampOffset | None:
    within = (record for record in records if start_offset <= record.offset < end_offset)
    found = max(within, key=lambda record: (record.timestamp, -record.offset), default=None)
    return None if found is None else _answer(found)


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    try:
        return read_records(read_place(segment.file, position, header.size_bytes))
    except MalformedBatchError as error:  # nobody's request is to blame
        raise CorruptLogError(f"{segment.path}: the batch at position {position}: {error}") from None


def _answer(record: Record) -> TimestampOffset:
    return TimestampOffset(record.timestamp, Offset(record.offset), record.leader_epoch)
