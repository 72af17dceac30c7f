"""From batch to batch through a segment's file, header by header, a window of the file at a time.

Kafka: `FileLogInputStream`.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tidelog.base.errors import CorruptLogError, MalformedBatchError
from tidelog.base.ports import Buffer, File
from tidelog.log.lookup import read_place
from tidelog.records.batch import BATCH_OVERHEAD, BatchHeader, read_header

LOOKUP_WINDOW_BYTES = 8 * 1024
"""A little more than an index interval: the batches between two index entries come with one read."""

SCAN_WINDOW_BYTES = 256 * 1024

LARGE_BATCH_BYTES = 16 * 1024
"""From this size on, reading each header by itself costs less than reading what lies between."""

_PLACE = Struct(">qi4xb6xi")
"""Base offset, batch length, magic, last offset delta: enough to pass over a batch."""

_LENGTH_END = 12
_MAGIC = 2


def scan_headers(
    file: File, position: int, end: int, *, first_offset: int, end_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from `position`, where one must start, to `end`; the last may reach beyond `end`.

    Args:
        file: of the segment.
        position: where to begin.
        end: where to stop.
        first_offset: no batch lies below.
        end_offset: no batch reaches up to here.

    Raises:
        CorruptLogError: there is no batch where one should start, or one whose offsets cannot be.
    """
    window: Buffer = b""
    start = position
    window_bytes = BATCH_OVERHEAD  # the first may be all that is asked for
    while position < end:
        offset = position - start
        if offset + BATCH_OVERHEAD > len(window):
            start, offset = position, 0
            window = read_place(file, position, min(window_bytes, max(end - position, BATCH_OVERHEAD)))
        try:
            header = read_header(window, offset)
        except MalformedBatchError as error:
            raise CorruptLogError(f"{file.path}: no batch at position {position}: {error}") from None
        if not first_offset <= header.base_offset <= header.last_offset < end_offset:
            raise CorruptLogError(
                f"{file.path}: the batch at position {position} has offsets {header.base_offset} to "
                f"{header.last_offset}, outside [{first_offset}, {end_offset})"
            )
        first_offset = header.next_offset
        yield position, header
        position += header.size_bytes
        window_bytes = BATCH_OVERHEAD if header.size_bytes >= LARGE_BATCH_BYTES else SCAN_WINDOW_BYTES


def find_offset(
    file: File,
    position: int,
    end: int,
    offset: int,
    *,
    first_last_offset: int | None = None,
    next_offset: int | None = None,
    cleaned_end_offset: int | None = None,
) -> int:
    """Where the first batch that holds `offset` or a higher one starts.

    Args:
        file: of the segment.
        position: where to begin; a batch must start there.
        end: of the segment, exclusive.
        offset: what is looked for.
        first_last_offset: what the index says is the last offset of the batch at `position`.
        next_offset: what the batch at `position` has to start with; None if that is not known.
        cleaned_end_offset: up to here offsets may be missing, since compaction removed their records (exclusive). None
            where nobody is to look whether batches follow each other.

    Returns:
        The position; `end` if all batches lie below `offset`.

    Raises:
        CorruptLogError: there is no batch where one should start, or not the one that the index promised: without
            asking it again, no answer can be had from there. Or a batch does not continue the one before.
    """
    if first_last_offset is not None and not 0 <= position < end:
        raise CorruptLogError(f"{file.path}: position {position}, of its index, is not in its {end} bytes")
    window: Buffer = b""
    start = position
    while position < end:
        at = position - start
        if at + _PLACE.size > len(window):
            start, at = position, 0
            window = read_place(file, position, min(LOOKUP_WINDOW_BYTES, end - position))
        base_offset, last_offset, size = _place(file, window, at, position)
        if first_last_offset is not None:
            if last_offset != first_last_offset:
                raise CorruptLogError(f"{file.path}: the batch at {position} does not reach to {first_last_offset}")
            first_last_offset = None
        if cleaned_end_offset is not None:
            if next_offset is not None and not next_offset <= base_offset <= max(next_offset, cleaned_end_offset):
                raise CorruptLogError(
                    f"{file.path}: the batch at {position} has offset {base_offset} where {next_offset} comes next"
                )
            next_offset = last_offset + 1
        if last_offset >= offset:
            return position
        position += size
    return end


def find_boundary(file: File, position: int, limit: int) -> tuple[int, int]:
    """Pass over the batches that end at or before `limit`.

    Args:
        file: of the segment.
        position: where to begin; a batch must start there.
        limit: a position below the end of the segment.

    Returns:
        Where the first batch that reaches beyond `limit` starts, and its size.

    Raises:
        CorruptLogError: there is no batch where one should start.
    """
    window: Buffer = b""
    start = position
    while True:
        at = position - start
        if at + _PLACE.size > len(window):
            start, at = position, 0
            window = read_place(file, position, min(LOOKUP_WINDOW_BYTES, limit - position + _PLACE.size))
        _, _, size = _place(file, window, at, position)
        if position + size > limit:
            return position, size
        position += size


def _place(file: File, window: Buffer, at: int, position: int) -> tuple[int, int, int]:
    """First and last offset and size of the batch at `at` of the window, which is `position` of the file."""
    if at + _PLACE.size <= len(window):
        base_offset, length, magic, last_offset_delta = _PLACE.unpack_from(window, at)
        if magic == _MAGIC and length >= BATCH_OVERHEAD - _LENGTH_END and last_offset_delta >= 0:
            return base_offset, base_offset + last_offset_delta, length + _LENGTH_END
    raise CorruptLogError(f"{file.path}: no batch at position {position}")
