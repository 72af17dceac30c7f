"""The hot loop of writing: columns in, records out. Run interpreted or compiled, as kernel.py says.

Its C types are in kernel_encode.pxd; the layouts of a record and of the columns are in kernel.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KERNEL_IS_COMPILED = not __file__.endswith(".py")
KERNEL_SOURCE_HASH: str | None = None  # of this file and its pxd, in hex: setup.py appends it to the copy it compiles


def _varint_size(value: int) -> int:
    """Bytes of a zigzag varint."""
    bits = (value << 1) ^ (value >> 63)
    size = 1
    while bits > 0x7F:
        bits >>= 7
        size += 1
    return size


def _put_varint(out: Any, position: int, value: int) -> int:
    """Write a zigzag varint, for which there is room. Returns the position behind it."""
    bits = (value << 1) ^ (value >> 63)
    while bits > 0x7F:
        out[position] = (bits & 0x7F) | 0x80
        bits >>= 7
        position += 1
    out[position] = bits
    return position + 1


def _length_at(offsets: Sequence[int], validity: Any, row: int, data_size: int) -> int:
    """Length of a value in a column; -1 for null, -2 if the offsets are not those of `data_size` bytes."""
    start = offsets[row]
    length = offsets[row + 1] - start
    if start < 0 or length < 0 or length > data_size - start:
        return -2
    if validity is not None and not validity[row >> 3] >> (row & 7) & 1:
        return -1
    return length


def encode(
    out: Any,
    size_bytes_max: int,
    start: int,
    stop: int,
    base_timestamp: int,
    timestamps: Any,
    key_offsets: Any,
    key_validity: Any,
    key_data: Any,
    value_offsets: Any,
    value_validity: Any,
    value_data: Any,
    header_offsets: Any,
    header_key_offsets: Any,
    header_key_data: Any,
    header_value_offsets: Any,
    header_value_validity: Any,
    header_value_data: Any,
    rows: Any,
) -> tuple[int, int, int]:
    """Write rows of columns as the records of one batch, with offset deltas 0, 1, 2 ...

    Args:
        out: where the records go, from its start on, until a row does not fit.
        size_bytes_max: what the records may take of it, but for the first, which may take all of it.
        start: the first row (or the first of `rows`).
        stop: behind the last row, exclusive.
        base_timestamp: subtracted from each timestamp.
        timestamps: int64, ms since 1970.
        key_offsets, ...: as for `decode`. Keys, values or headers are None (their offsets, that is) if no row has any;
            a validity is None if nothing is null.
        rows: int32, the rows to write, in this order; None for all. `start` and `stop` count them.

    Returns:
        (`stop`, or the first that was not written, bytes written, largest timestamp of the rows written).

    Raises:
        ValueError: a column is shorter than `stop` rows, its offsets do not fit its data, or a timestamp is negative.
    """
    has_keys = key_offsets is not None
    has_values = value_offsets is not None
    has_headers = header_offsets is not None
    has_rows = rows is not None
    fits = True
    row_end = len(timestamps)
    if has_values:
        fits = fits and value_data is not None
        row_end = min(row_end, len(value_offsets) - 1)
        if value_validity is not None:
            row_end = min(row_end, len(value_validity) * 8)
    if has_keys:
        fits = fits and key_data is not None
        row_end = min(row_end, len(key_offsets) - 1)
        if key_validity is not None:
            row_end = min(row_end, len(key_validity) * 8)
    header_row_end = 0
    if has_headers:
        row_end = min(row_end, len(header_offsets) - 1)
        fits = fits and header_key_offsets is not None and header_key_data is not None
        fits = fits and header_value_offsets is not None and header_value_data is not None
    if has_headers and fits:
        header_row_end = min(len(header_key_offsets) - 1, len(header_value_offsets) - 1)
        if header_value_validity is not None:
            header_row_end = min(header_row_end, len(header_value_validity) * 8)
    if has_rows:
        fits = fits and 0 <= start <= stop <= len(rows)
    else:
        fits = fits and 0 <= start <= stop <= row_end
    if not fits:
        raise ValueError(f"a column is missing, or shorter than {stop} rows")
    position = 0
    room = len(out)
    largest = base_timestamp
    index = start
    while index < stop:
        row = index
        if has_rows:
            row = rows[index]
            if not 0 <= row < row_end:
                raise ValueError(f"there is no row {row}: a column is missing, or has {row_end} rows")
        timestamp = timestamps[row]
        if timestamp < -1:
            raise ValueError(f"the timestamp of row {row} is {timestamp}: ms since 1970 are expected, or -1 for none")
        key_length = -1
        if has_keys:
            key_length = _length_at(key_offsets, key_validity, row, len(key_data))
        value_length = -1
        if has_values:
            value_length = _length_at(value_offsets, value_validity, row, len(value_data))
        header_row = header_row_stop = 0
        if has_headers:
            header_row = header_offsets[row]
            header_row_stop = header_offsets[row + 1]
        if key_length == -2 or value_length == -2 or not 0 <= header_row <= header_row_stop <= header_row_end:
            raise ValueError(f"the offsets of row {row} do not fit its column")
        body = 1 + _varint_size(timestamp - base_timestamp) + _varint_size(index - start)
        body += _varint_size(key_length) + max(key_length, 0) + _varint_size(value_length) + max(value_length, 0)
        body += _varint_size(header_row_stop - header_row)
        for header in range(header_row, header_row_stop):
            length = _length_at(header_key_offsets, None, header, len(header_key_data))
            header_value_length = _length_at(
                header_value_offsets, header_value_validity, header, len(header_value_data)
            )
            if length < 0 or header_value_length < -1:
                raise ValueError(f"the offsets of header {header} do not fit its column")
            body += _varint_size(length) + length
            body += _varint_size(header_value_length) + max(header_value_length, 0)
        if body >> 31 or _varint_size(body) + body > room - position:
            break
        if index > start and position + _varint_size(body) + body > size_bytes_max:
            break
        position = _put_varint(out, position, body)
        out[position] = 0
        position = _put_varint(out, position + 1, timestamp - base_timestamp)
        position = _put_varint(out, position, index - start)
        position = _put_varint(out, position, key_length)
        if key_length > 0:
            at = key_offsets[row]
            out[position : position + key_length] = key_data[at : at + key_length]
            position += key_length
        position = _put_varint(out, position, value_length)
        if value_length > 0:
            at = value_offsets[row]
            out[position : position + value_length] = value_data[at : at + value_length]
            position += value_length
        position = _put_varint(out, position, header_row_stop - header_row)
        for header in range(header_row, header_row_stop):
            at = header_key_offsets[header]
            length = header_key_offsets[header + 1] - at
            position = _put_varint(out, position, length)
            out[position : position + length] = header_key_data[at : at + length]
            position += length
            header_value_length = _length_at(
                header_value_offsets, header_value_validity, header, len(header_value_data)
            )
            position = _put_varint(out, position, header_value_length)
            if header_value_length > 0:
                at = header_value_offsets[header]
                out[position : position + header_value_length] = header_value_data[at : at + header_value_length]
                position += header_value_length
        largest = max(timestamp, largest)
        index += 1
    return index, position, largest
