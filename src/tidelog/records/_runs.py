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

_LENGTH_RUN_MIN = 8
_LENGTH_RUN_FIRST = 128
_HAS_NEXT = bytes(byte >> 7 for byte in range(256))


def find_run(
    data: bytes, position: int, stop: int, end: int, index: int, record_count: int, key_at: int, value_at: int
) -> tuple[int, int, int, int] | None:
    """Find how many records behind this one have its shape, and offset deltas that count on from its own.

    Args:
        data: holds the records.
        position: where a valid record starts that has no headers, and `index` as its offset delta.
        stop: where it ends.
        end: where the last record of the batch ends.
        index: of the record within the batch.
        record_count: of the batch.
        key_at: where its key starts, or would.
        value_at: where its value starts, or would.

    Returns:
        (number of records, the largest of their timestamp deltas, index of the first that has it, the smallest), or
        None if there are too few to be worth it.
    """
    stride = stop - position
    count = min(record_count - index - 1, (end - stop) // stride)
    if count < _LENGTH_RUN_MIN or data[stop] != data[position]:
        return None
    length_end = _varint_end(data, position)
    time_at = length_end + 1
    offset_at = _varint_end(data, time_at)
    key_length_at = _varint_end(data, offset_at)
    offset_size = key_length_at - offset_at
    if offset_size != _varint_size(index):
        return None
    count = min(count, (1 << 7 * offset_size - 1) - index - 1)  # as long as the offset delta takes as many bytes
    value_length_at = _key_end(data, key_length_at, key_at, value_at)
    constants = [
        *range(position, length_end),
        *range(key_length_at, key_at),
        *range(value_length_at, value_at),
        stop - 1,
    ]
    taken = min(count, _LENGTH_RUN_FIRST)
    found = 0
    # A short stretch first: where records are not alike it is cheap to learn so.
    while taken:
        good = _alike(data, position + (found + 1) * stride, stride, taken, position, constants)
        good = _counting(data, offset_at + (found + 1) * stride, stride, good, offset_size, index + found + 1)
        good = _same_size(data, time_at + (found + 1) * stride, stride, good, offset_at - time_at)
        found += good
        if good < taken:
            break
        taken = count - found
    if found < _LENGTH_RUN_MIN:
        return None
    return found, *_timestamps(data, time_at + stride, stride, found, offset_at - time_at, index + 1)


def _alike(data: bytes, start: int, stride: int, count: int, position: int, constants: list[int]) -> int:
    """How many records have the bytes at `constants`, positions within the record at `position`, that it has."""
    for at in constants:
        first = start + at - position
        column = data[first : first + count * stride : stride]
        count = _common_length(column, data[at : at + 1] * len(column))
        if not count:
            break
    return count


def _counting(data: bytes, start: int, stride: int, count: int, size: int, index: int) -> int:
    """How many records have the offset deltas `index`, `index` + 1 ... in `size` bytes each."""
    for place in range(size):
        if not count:
            break
        column = data[start + place : start + place + count * stride : stride]
        count = _common_length(column, _offset_bytes(place, size, index, count))
    return count


def _same_size(data: bytes, start: int, stride: int, count: int, size: int) -> int:
    """How many records have a varint of `size` bytes at `start`."""
    for place in range(size):
        if not count:
            break
        column = data[start + place : start + place + count * stride : stride].translate(_HAS_NEXT)
        count = _common_length(column, (b"\x00" if place == size - 1 else b"\x01") * len(column))
    return count


def _timestamps(data: bytes, start: int, stride: int, count: int, size: int, index: int) -> tuple[int, int, int]:
    """The largest of the varints of `size` bytes, the index of the first record that has it, and the smallest."""
    columns = [data[start + place : start + place + count * stride : stride] for place in range(size)]
    values = {encoded: _zigzag(encoded) for encoded in set(zip(*columns, strict=True))}
    largest = max(values, key=values.__getitem__)
    largest_at = next(row for row, encoded in enumerate(zip(*columns, strict=True)) if encoded == largest)
    return values[largest], index + largest_at, min(values.values())


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


def _key_end(data: bytes, key_length_at: int, key_at: int, value_at: int) -> int:
    """Where the value's length starts: behind the key."""
    encoded = data[key_length_at:key_at]
    return key_at + max(_zigzag(tuple(encoded)), 0)


def _varint_size(offset_delta: int) -> int:
    return max((offset_delta.bit_length() + 7) // 7, 1)
