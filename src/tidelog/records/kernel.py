"""The hot loops: everything that touches each record of a batch.

This one file is run in two ways: interpreted as it stands, and compiled by Cython as `tidelog.records._kernel_c`, a
second module made of the same text (see setup.py); `_choose.py` says which is used. It imports no cython: the C types
of its variables are in kernel.pxd. Whatever the C code reads or writes lies inside its buffers by checks that stand
here, on every length and every varint, and not by Cython's: those are switched on for the fuzzer alone.

One record (format 2); varints are zigzag, those of 32 bits up to 5 bytes long and those of 64 bits up to 10:

    length varint | attributes int8 | timestamp delta varlong | offset delta varint
    key length varint | key | value length varint | value            (a length of -1: null)
    header count varint | { key length varint | key | value length varint | value } ...

Columns have Arrow's layout: offsets int32, one more than there are rows; validity bits from the least significant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.base.errors import MalformedBatchError
from tidelog.base.ports import Buffer
from tidelog.records._runs import find_run

KERNEL_IS_COMPILED = not __file__.endswith(".py")
KERNEL_SOURCE_HASH: str | None = None  # of this file and its pxd, in hex: setup.py appends it to the copy it compiles

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
RECORD_SIZE_BYTES_MIN = 7
FOLLOWED_BYTES = 27
"""Of a header: up to its last offset delta. See `follow_offsets`."""

# What is wrong with a record: `_record` returns the negative number in place of where the next record starts.
_FAULTS = {
    -1: "its length is cut short, negative, or reaches beyond the batch",
    -2: "its timestamp delta is cut short or too long",
    -3: "its offset delta is cut short or too long",
    -4: "its key's length is not one, or reaches beyond the record",
    -5: "its value's length is not one, or reaches beyond the record",
    -6: "its header count is not one, or more than the record holds",
    -7: "bytes are left over behind its value",
    -8: "a header key's length is not one, or reaches beyond the record",
    -9: "a header value's length is not one, or reaches beyond the record",
    -10: "bytes are left over behind its headers",
    -11: "its timestamp lies outside 64 bits",
    -12: "its offset delta does not lie after the one before it",
    -13: "its offset delta lies beyond the header's last",
}


def _malformed(index: int, position: int, fault: int) -> MalformedBatchError:
    return MalformedBatchError(f"record {index} of the batch, at byte {position}: {_FAULTS[fault]}", position=position)


def _varint(data: Buffer, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag varint of 5 bytes (then also of 32 bits) or 10 at the most.

    Returns:
        The value, and the position behind it: -1 if it is cut short, too long or too large.
    """
    if position >= end:
        return 0, -1
    value = data[position]
    if value < 0x80:  # most are of one byte, or of two
        return (value >> 1) ^ -(value & 1), position + 1
    value &= 0x7F
    if end - position > bytes_max:
        end = position + bytes_max
    position += 1
    if position < end:
        byte = data[position]
        if byte < 0x80:
            value |= byte << 7
            return (value >> 1) ^ -(value & 1), position + 1
    shift = 7
    while position < end:
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bytes_max == 5 and value >> 32:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, -1


def _record(data: Buffer, position: int, end: int) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Find the parts of the record at `position`, up to its headers.

    Returns:
        (timestamp delta, offset delta, key's position, its length or -1, value's position, its length or -1,
        number of headers, position of the first, end of the record, or a fault)
    """
    length, position = _varint(data, position, end, 5)
    if position < 0 or length < 1 or length > end - position:
        return 0, 0, 0, 0, 0, 0, 0, 0, -1
    stop = position + length
    timestamp_delta, position = _varint(data, position + 1, stop, 10)
    if position < 0:
        return 0, 0, 0, 0, 0, 0, 0, 0, -2
    offset_delta, position = _varint(data, position, stop, 5)
    if position < 0:
        return 0, 0, 0, 0, 0, 0, 0, 0, -3
    key_length, position = _varint(data, position, stop, 5)
    if position < 0 or key_length < -1 or key_length > stop - position:
        return 0, 0, 0, 0, 0, 0, 0, 0, -4
    key_at = position
    if key_length > 0:
        position += key_length
    value_length, position = _varint(data, position, stop, 5)
    if position < 0 or value_length < -1 or value_length > stop - position:
        return 0, 0, 0, 0, 0, 0, 0, 0, -5
    value_at = position
    if value_length > 0:
        position += value_length
    header_count, position = _varint(data, position, stop, 5)
    if position < 0 or header_count < 0 or header_count > stop - position:
        return 0, 0, 0, 0, 0, 0, 0, 0, -6
    if header_count == 0 and position != stop:
        return 0, 0, 0, 0, 0, 0, 0, 0, -7
    return timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, header_count, position, stop


def _header(data: Buffer, position: int, stop: int) -> tuple[int, int, int, int, int]:
    """Find the parts of the header at `position`.

    Returns:
        (key's position, its length, value's position, its length or -1, position behind it, or a fault)
    """
    key_length, key_at = _varint(data, position, stop, 5)
    if key_at < 0 or key_length < 0 or key_length > stop - key_at:
        return 0, 0, 0, 0, -8
    value_length, value_at = _varint(data, key_at + key_length, stop, 5)
    if value_at < 0 or value_length < -1 or value_length > stop - value_at:
        return 0, 0, 0, 0, -9
    position = value_at
    if value_length > 0:
        position += value_length
    return key_at, key_length, value_at, value_length, position


def _skip_headers(data: Buffer, position: int, stop: int, header_count: int) -> int:
    """Check a record's headers. Returns `stop`, or a fault."""
    for _ in range(header_count):
        _key_at, _key_length, _value_at, _value_length, position = _header(data, position, stop)
        if position < 0:
            return position
    return stop if position == stop else -10


def _check_region(data: Buffer, position: int, end: int, record_count: int) -> None:
    if not 0 <= position <= end <= len(data):
        raise ValueError(f"bytes {position} to {end} of a buffer of {len(data)}")
    if record_count < 0 or record_count * RECORD_SIZE_BYTES_MIN > end - position:
        raise MalformedBatchError(f"{record_count} records cannot fit into {end - position} bytes", position=position)


def _check_end(position: int, end: int, record_count: int) -> None:
    if position != end:
        raise MalformedBatchError(
            f"{end - position} bytes are left over behind the last of {record_count} records", position=position
        )


def follow_offsets(
    data: Buffer, position: int, next_offset: int, gap_end_offset: int
) -> tuple[int, int, int, int, bool]:
    """Pass from header to header of the batches in `data`, and look whether each begins where the last one ended.

    Args:
        data: whole batches one after the other, the last of which may be cut short.
        position: where a batch starts; it may lie beyond `data`, and nothing is looked at then.
        next_offset: what that batch has to start with; -1 for whatever it says.
        gap_end_offset: up to here, inclusive, a batch may start higher, since compaction removed what lay before it.

    Returns:
        (where the first batch starts of whose header less than `FOLLOWED_BYTES` are in `data`, the offset that it has
        to start with, where the batch before it starts, the base offset of that one, True); or the same of the first
        place that holds no such batch, and False. -1 and -1 where no batch was looked at before.
    """
    size = len(data)
    before = -1
    before_offset = -1
    while position + 27 <= size:
        base_offset = 0
        index = position
        while index < position + 8:
            base_offset = (base_offset << 8) | data[index]
            index += 1
        length = (
            (data[position + 8] << 24) | (data[position + 9] << 16) | (data[position + 10] << 8) | data[position + 11]
        )
        delta = (
            (data[position + 23] << 24) | (data[position + 24] << 16) | (data[position + 25] << 8) | data[position + 26]
        )
        if data[position + 16] != 2 or length < 49 or length > 0x7FFFFFFF or delta > 0x7FFFFFFF:
            return position, next_offset, before, before_offset, False
        if data[position] > 127:
            return position, next_offset, before, before_offset, False
        if next_offset >= 0 and base_offset != next_offset:
            if base_offset < next_offset or base_offset > gap_end_offset:
                return position, next_offset, before, before_offset, False
        before = position
        before_offset = base_offset
        next_offset = base_offset + delta + 1
        position += length + 12
    return position, next_offset, before, before_offset, True


def _integer(data: Buffer, position: int, size: int) -> int:
    """The signed number of so many bytes."""
    value = data[position]
    if value > 127:
        value -= 256
    for index in range(position + 1, position + size):
        value = (value * 256) | data[index]
    return value


def read_plain(data: Buffer) -> tuple[tuple[int, ...], int, int] | None:
    """What is to be known of the one batch that fills `data`, at once: most that producers send are so plain.

    Returns:
        (the values of its header, the largest timestamp of its records, how many have no key); None if it is not one
        whole batch, or malformed, or compressed, or the leader's clock gave its timestamps. Its CRC is not looked at.
    """
    size = len(data)
    if size < 61 or data[16] != 2 or _integer(data, 8, 4) != size - 12:
        return None
    attributes = _integer(data, 21, 2)
    delta = _integer(data, 23, 4)
    base_timestamp = _integer(data, 27, 8)
    record_count = _integer(data, 57, 4)
    if attributes & 0x0F or delta < 0 or record_count < 1:  # a codec, LOG_APPEND_TIME_FLAG
        return None
    if base_timestamp > 0:
        delta_min, delta_max = INT64_MIN, INT64_MAX - base_timestamp
    else:
        delta_min, delta_max = INT64_MIN - base_timestamp, INT64_MAX
    try:
        largest, _, last, keyless, _, is_dense = walk(data, 61, size, record_count, delta, delta_min, delta_max)
    except MalformedBatchError:
        return None
    if not is_dense or last != delta:
        return None
    base_offset, leader_epoch, crc = _integer(data, 0, 8), _integer(data, 12, 4), _integer(data, 17, 4) & 0xFFFFFFFF
    newest, producer_id = _integer(data, 35, 8), _integer(data, 43, 8)
    epoch, sequence, magic = _integer(data, 51, 2), _integer(data, 53, 4), 2
    header = (
        base_offset, size, leader_epoch, magic, crc, attributes, delta, base_timestamp, newest, producer_id, epoch,
        sequence, record_count,
    )  # fmt: skip
    return header, base_timestamp + largest, keyless


def walk(
    data: Buffer,
    position: int,
    end: int,
    record_count: int,
    last_offset_delta: int,
    timestamp_delta_min: int,
    timestamp_delta_max: int,
) -> tuple[int, int, int, int, int, bool]:
    """Check every record of a batch.

    Args:
        data: holds the records, not compressed. `bytes` if this module is interpreted: it is much faster on them.
        position: where the first record starts.
        end: where the last one ends, exclusive.
        record_count: how many there are to be.
        last_offset_delta: what no offset delta may exceed.
        timestamp_delta_min: the smallest timestamp delta that gives a timestamp within 64 bits.
        timestamp_delta_max: the largest, inclusive.

    Returns:
        (largest timestamp delta, offset delta of the first record that has it, offset delta of the last record,
        number of records without a key, number of headers, whether the offset deltas are 0, 1, 2 ...). Without
        records the offset deltas are -1.

    Raises:
        MalformedBatchError: INVALID_RECORD; names the record and what is wrong.
    """
    _check_region(data, position, end, record_count)
    largest = 0
    largest_at = -1
    last = -1
    keyless = 0
    headers = 0
    is_dense = True
    seeks_runs = not KERNEL_IS_COMPILED and isinstance(data, bytes)
    run_end = min(record_count, last_offset_delta + 1)
    seek_from = 0
    patience = 8
    index = 0
    while index < record_count:
        timestamp_delta, offset_delta, key_at, key_length, value_at, _value_length, header_count, headers_at, stop = (
            _record(data, position, end)
        )
        if stop < 0:
            raise _malformed(index, position, stop)
        if header_count > 0:
            stop = _skip_headers(data, headers_at, stop, header_count)
            if stop < 0:
                raise _malformed(index, position, stop)
            headers += header_count
        if timestamp_delta > largest or largest_at < 0:
            if timestamp_delta > timestamp_delta_max:
                raise _malformed(index, position, -11)
            largest = timestamp_delta
            largest_at = offset_delta
        if timestamp_delta < timestamp_delta_min:
            raise _malformed(index, position, -11)
        if offset_delta <= last:
            raise _malformed(index, position, -12)
        if offset_delta != index:
            is_dense = False
        if offset_delta > last_offset_delta:
            raise _malformed(index, position, -13)
        last = offset_delta
        if key_length < 0:
            keyless += 1
        if seeks_runs and index >= seek_from and header_count == 0 and is_dense:
            run = find_run(data, position, stop, end, index=index, run_end=run_end, key_at=key_at, value_at=value_at)
            if run is None or run[1] > timestamp_delta_max or run[3] < timestamp_delta_min:
                seek_from = index + patience  # ever more rarely, where records are not alike
                patience *= 2
            else:
                patience = 8
                count, run_largest, run_largest_at, _ = run
                if run_largest > largest:
                    largest = run_largest
                    largest_at = run_largest_at
                if key_length < 0:
                    keyless += count
                last += count
                index += count
                stop += count * (stop - position)
        index += 1
        position = stop
    _check_end(position, end, record_count)
    return largest, largest_at, last, keyless, headers, is_dense


def unpack(
    data: Buffer,
    position: int,
    end: int,
    record_count: int,
    last_offset_delta: int,
    timestamp_delta_min: int,
    timestamp_delta_max: int,
    base_offset: int,
    base_timestamp: int,
    timestamp_scale: int,
    leader_epoch: int | None,
    make: Callable[[Any], Any],
    topic: str | None,
    partition: int,
    timestamp_type: str,
) -> list[Any]:
    """Read every record of a batch.

    Header keys that are not UTF-8, which no client should write, have their bad bytes replaced.

    Args:
        data, ...: as for `walk`.
        base_offset: added to each offset delta. Its sum with `last_offset_delta` lies within 64 bits.
        base_timestamp: added to each timestamp delta.
        timestamp_scale: 1, or 0 where all records have the base timestamp.
        leader_epoch: of the batch.
        make: what makes a record of the tuple (offset, timestamp, key, value, headers, leader_epoch), with headers as
            ((key, value) ...).
        topic: None, or the first of a longer tuple: (topic, partition, offset, leader_epoch, timestamp, timestamp_type,
            key, value, headers).
        partition, timestamp_type: for that tuple alone.

    Raises:
        MalformedBatchError: as `walk`.
    """
    _check_region(data, position, end, record_count)
    source = bytes(data[position:end])
    at = position
    rows: list[Any] = []
    last = -1
    for index in range(record_count):
        timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, header_count, headers_at, stop = (
            _record(data, position, end)
        )
        if stop < 0:
            raise _malformed(index, position, stop)
        if timestamp_delta < timestamp_delta_min or timestamp_delta > timestamp_delta_max:
            raise _malformed(index, position, -11)
        if offset_delta <= last:
            raise _malformed(index, position, -12)
        if offset_delta > last_offset_delta:
            raise _malformed(index, position, -13)
        last = offset_delta
        key = None
        if key_length >= 0:
            key = source[key_at - at : key_at - at + key_length]
        value = None
        if value_length >= 0:
            value = source[value_at - at : value_at - at + value_length]
        headers: tuple[Any, ...] = ()
        if header_count > 0:
            pairs = []
            for _ in range(header_count):
                header_key_at, header_key_length, header_value_at, header_value_length, headers_at = _header(
                    data, headers_at, stop
                )
                if headers_at < 0:
                    raise _malformed(index, position, headers_at)
                header_key = source[header_key_at - at : header_key_at - at + header_key_length]
                header_value = None
                if header_value_length >= 0:
                    header_value = source[header_value_at - at : header_value_at - at + header_value_length]
                pairs.append((header_key.decode("utf-8", "replace"), header_value))
            if headers_at != stop:
                raise _malformed(index, position, -10)
            headers = tuple(pairs)
        offset = base_offset + offset_delta
        timestamp = base_timestamp + timestamp_delta * timestamp_scale
        if topic is None:
            rows.append(make((offset, timestamp, key, value, headers, leader_epoch)))
        else:
            rows.append(make((topic, partition, offset, leader_epoch, timestamp, timestamp_type, key, value, headers)))
        position = stop
    _check_end(position, end, record_count)
    return rows


def decode(
    data: Buffer,
    position: int,
    end: int,
    record_count: int,
    last_offset_delta: int,
    timestamp_delta_min: int,
    timestamp_delta_max: int,
    first_offset_delta: int,
    end_offset_delta: int,
    base_offset: int,
    base_timestamp: int,
    timestamp_scale: int,
    row: int,
    offsets: Any,
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
) -> tuple[int, int, int, int]:
    """Read the records of a batch into columns, behind the rows that are there.

    Args:
        data, ...: as for `walk`.
        first_offset_delta: rows start with this offset delta, inclusive.
        end_offset_delta: rows end before this one.
        base_offset: added to each offset delta. Its sum with `last_offset_delta` lies within 64 bits.
        base_timestamp: added to each timestamp delta.
        timestamp_scale: 1, or 0 where all records have the base timestamp.
        row: how many rows there are.
        offsets, timestamps: int64; any column may be None, if it is not wanted.
        key_offsets, value_offsets: int32, with room for `record_count` rows behind `row`.
        key_validity, value_validity: bits, set from `row` on.
        key_data, value_data: with room for all bytes of the batch.
        header_offsets: int32: where each row's headers start, counted in headers.
        header_key_offsets, ...: as for keys and values, but a row is a header; with room for all of the batch.

    Returns:
        (rows there are now, null keys added, null values added, null header values added). What was used of the
        data is the last of the offsets.

    Raises:
        MalformedBatchError: as `walk`. Rows below `row` are as they were.
        ValueError: a column is too small; the caller's bug.
    """
    _check_region(data, position, end, record_count)
    wants_offsets = offsets is not None
    wants_timestamps = timestamps is not None
    wants_keys = key_offsets is not None
    wants_values = value_offsets is not None
    wants_headers = header_offsets is not None
    row_end = row + record_count
    key_used = value_used = header_row = header_key_used = header_value_used = header_row_end = 0
    fits = row >= 0 and (not wants_offsets or row_end <= len(offsets))
    fits = fits and (not wants_timestamps or row_end <= len(timestamps))
    if wants_keys:
        fits = fits and key_validity is not None and key_data is not None
        fits = fits and row_end < len(key_offsets) and row_end <= len(key_validity) * 8
        if fits:
            key_used = key_offsets[row]
            fits = key_used >= 0 and end - position <= len(key_data) - key_used
    if wants_values:
        fits = fits and value_validity is not None and value_data is not None
        fits = fits and row_end < len(value_offsets) and row_end <= len(value_validity) * 8
        if fits:
            value_used = value_offsets[row]
            fits = value_used >= 0 and end - position <= len(value_data) - value_used
    if wants_headers:
        fits = fits and row_end < len(header_offsets) and header_key_offsets is not None
        fits = fits and header_key_data is not None and header_value_offsets is not None
        fits = fits and header_value_validity is not None and header_value_data is not None
        if fits:
            header_row = header_offsets[row]
            header_row_end = min(len(header_key_offsets) - 1, len(header_value_offsets) - 1)
            header_row_end = min(header_row_end, len(header_value_validity) * 8)
            fits = 0 <= header_row <= header_row_end
        if fits:
            header_key_used = header_key_offsets[header_row]
            header_value_used = header_value_offsets[header_row]
            fits = header_key_used >= 0 and end - position <= len(header_key_data) - header_key_used
            fits = fits and header_value_used >= 0 and end - position <= len(header_value_data) - header_value_used
    if not fits:
        raise ValueError(f"the columns have no room for {record_count} rows behind {row}")
    null_keys = null_values = null_header_values = 0
    last = -1
    for index in range(record_count):
        timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, header_count, headers_at, stop = (
            _record(data, position, end)
        )
        if stop < 0:
            raise _malformed(index, position, stop)
        if timestamp_delta < timestamp_delta_min or timestamp_delta > timestamp_delta_max:
            raise _malformed(index, position, -11)
        if offset_delta <= last:
            raise _malformed(index, position, -12)
        if offset_delta > last_offset_delta:
            raise _malformed(index, position, -13)
        last = offset_delta
        if offset_delta < first_offset_delta or offset_delta >= end_offset_delta:
            if header_count > 0 and _skip_headers(data, headers_at, stop, header_count) < 0:
                raise _malformed(index, position, -10)
            position = stop
            continue
        if wants_offsets:
            offsets[row] = base_offset + offset_delta
        if wants_timestamps:
            timestamps[row] = base_timestamp + timestamp_delta * timestamp_scale
        if wants_keys:
            if key_length > 0:
                key_data[key_used : key_used + key_length] = data[key_at : key_at + key_length]
                key_used += key_length
            elif key_length < 0:
                key_validity[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                null_keys += 1
            key_offsets[row + 1] = key_used
        if wants_values:
            if value_length > 0:
                value_data[value_used : value_used + value_length] = data[value_at : value_at + value_length]
                value_used += value_length
            elif value_length < 0:
                value_validity[row >> 3] &= ~(1 << (row & 7)) & 0xFF
                null_values += 1
            value_offsets[row + 1] = value_used
        if header_count > 0:
            if not wants_headers:
                headers_at = _skip_headers(data, headers_at, stop, header_count)
                if headers_at < 0:
                    raise _malformed(index, position, headers_at)
            else:
                for _ in range(header_count):
                    key_at, key_length, value_at, value_length, headers_at = _header(data, headers_at, stop)
                    if headers_at < 0:
                        raise _malformed(index, position, headers_at)
                    if header_row >= header_row_end:
                        raise ValueError("the columns have no room for more headers")
                    header_key_data[header_key_used : header_key_used + key_length] = data[key_at : key_at + key_length]
                    header_key_used += key_length
                    header_key_offsets[header_row + 1] = header_key_used
                    if value_length > 0:
                        header_value_data[header_value_used : header_value_used + value_length] = data[
                            value_at : value_at + value_length
                        ]
                        header_value_used += value_length
                    elif value_length < 0:
                        header_value_validity[header_row >> 3] &= ~(1 << (header_row & 7)) & 0xFF
                        null_header_values += 1
                    header_value_offsets[header_row + 1] = header_value_used
                    header_row += 1
                if headers_at != stop:
                    raise _malformed(index, position, -10)
        if wants_headers:
            header_offsets[row + 1] = header_row
        row += 1
        position = stop
    _check_end(position, end, record_count)
    return row, null_keys, null_values, null_header_values
