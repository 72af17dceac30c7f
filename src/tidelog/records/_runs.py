"""Runs of records that are alike: how the interpreted kernel keeps pace.

Many topics hold records of one shape. Where they do, byte j of the first record, of the second, of the third ... are a
slice with a stride, and one comparison of that slice checks the byte in all of them, at the speed of C:

    length attrs time offset key value ...     record 40     C8 01 00 04 50 01 C8 01 ...
                                               record 41     C8 01 00 04 52 01 C8 01 ...
                                               record 42     C8 01 00 06 54 01 C8 01 ...
                                 slices of stride 3 rows ->  ^^ constant  ^^ 2 * offset delta

What is found here is exactly what walking record by record would have found; the tests hold the two against each other.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_LENGTH_RUN_MIN = 8
_LENGTH_RUN_FIRST = 128
_TIMESTAMP_BYTES_MAX = 9  # of ten bytes not all are varints
_HAS_NEXT = bytes(byte >> 7 for byte in range(256))


class _Rows(NamedTuple):
    """Records that may be alike: the one at `start`, whose shape is known, and those behind it."""

    data: bytes
    start: int
    stride: int

    def column(self, position: int, first: int, count: int) -> bytes:
        """The byte that stands where `position` is in the known record, in records `first`, `first` + 1 ..."""
        at = position + first * self.stride
        return self.data[at : at + count * self.stride : self.stride]


def find_run(
    data: Any, position: int, stop: int, end: int, *, index: int, run_end: int, key_at: int, value_at: int
) -> tuple[int, int, int, int] | None:
    """Find how many records behind this one have its shape, and offset deltas that count on from its own.

    Args:
        data: holds the records; `bytes`, for the sake of its speed and of `translate`.
        position: where a valid record starts that has no headers, and `index` as its offset delta.
        stop: where it ends.
        end: where the last record of the batch ends.
        index: of the record within the batch.
        run_end: the index before which a run ends, exclusive.
        key_at: where its key starts, or would.
        value_at: where its value starts, or would.

    Returns:
        (number of records, the largest of their timestamp deltas, index of the first that has it, the smallest), or
        None if there are too few to be worth it.
    """
    rows = _Rows(data, position, stop - position)
    count = min(run_end - index - 1, (end - stop) // rows.stride)
    if count < _LENGTH_RUN_MIN or data[stop] != data[position]:
        return None
    length_end = _varint_end(data, position)
    times = range(length_end + 1, _varint_end(data, length_end + 1))
    offsets = range(times.stop, _varint_end(data, times.stop))
    if len(offsets) != _varint_size(index) or len(times) > _TIMESTAMP_BYTES_MAX:
        return None
    key_end = key_at + max(_zigzag(tuple(data[offsets.stop : key_at])), 0)
    constants = (*range(position, length_end), *range(offsets.stop, key_at), *range(key_end, value_at), stop - 1)
    count = min(count, (1 << 7 * len(offsets) - 1) - index - 1)  # as long as the offset delta takes as many bytes
    taken = min(count, _LENGTH_RUN_FIRST)  # where records are not alike, it is cheap to learn so
    found = 0
    while taken:
        good = _alike(rows, constants, found + 1, taken)
        good = _counting(rows, offsets, index + found + 1, found + 1, good)
        good = _as_long(rows, times, found + 1, good)
        found += good
        if good < taken:
            break
        taken = count - found
    if found < _LENGTH_RUN_MIN:
        return None
    largest, largest_at, smallest = _timestamps(rows, times, found)
    return found, largest, index + largest_at, smallest


def _alike(rows: _Rows, constants: tuple[int, ...], first: int, count: int) -> int:
    """How many records have the bytes at `constants` that the known one has."""
    for position in constants:
        if count:
            count = _common_length(rows.column(position, first, count), rows.data[position : position + 1] * count)
    return count


def _counting(rows: _Rows, offsets: range, index: int, first: int, count: int) -> int:
    """How many records have the offset deltas `index`, `index` + 1 ... at `offsets`."""
    for place, position in enumerate(offsets):
        if count:
            expected = _offset_bytes(place, len(offsets), index, count)
            count = _common_length(rows.column(position, first, count), expected)
    return count


def _as_long(rows: _Rows, times: range, first: int, count: int) -> int:
    """How many records have a varint of the known one's length at `times`."""
    for position in times:
        if count:
            expected = b"\x00" if position == times[-1] else b"\x01"
            count = _common_length(rows.column(position, first, count).translate(_HAS_NEXT), expected * count)
    return count


def _timestamps(rows: _Rows, times: range, count: int) -> tuple[int, int, int]:
    """The largest of the varints at `times`, the first record that has it, and the smallest."""
    columns = [rows.column(position, 1, count) for position in times]
    values = {encoded: _zigzag(encoded) for encoded in set(zip(*columns, strict=True))}
    largest = max(values, key=values.__getitem__)
    largest_at = next(row for row, encoded in enumerate(zip(*columns, strict=True), 1) if encoded == largest)
    return values[largest], largest_at, min(values.values())


def _zigzag(encoded: tuple[int, ...]) -> int:
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded))
    return value >> 1 ^ -(value & 1)


def _offset_bytes(place: int, size: int, index: int, count: int) -> bytes:
    """Byte `place` of the varints of `index`, `index` + 1 ...: each value stands `repeat` times."""
    has_next = 0x80 if place < size - 1 else 0
    repeat = 64 << 7 * (place - 1) if place else 1
    if not place:
        cycle = bytes(index * 2 & 0x7F | has_next for index in range(64))
        return (cycle * (count // 64 + 2))[index % 64 :][:count]
    values = range(index // repeat, (index + count) // repeat + 1)
    return b"".join([bytes((value & 0x7F | has_next,)) * repeat for value in values])[index % repeat :][:count]


def _common_length(one: bytes, other: bytes) -> int:
    """Length of the common prefix of two strings of the same length."""
    if one == other:
        return len(one)
    difference = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
    return len(one) - (difference.bit_length() + 7) // 8


def _varint_end(data: bytes, position: int) -> int:
    while data[position] >= 0x80:
        position += 1
    return position + 1


def _varint_size(offset_delta: int) -> int:
    return max((offset_delta.bit_length() + 7) // 7, 1)
