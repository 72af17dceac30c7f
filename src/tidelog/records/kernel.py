"""The hot loops: everything that touches each record of a batch.

One record (format 2). Varints are zigzag; those of 32 bits take up to 5 bytes, the timestamp's 64 bits up to 10:

    length | attributes int8 | timestamp delta | offset delta | key length | key | value length | value |
    header count | { key length | key | value length | value } ...          (a length of -1 is null)
"""

from __future__ import annotations

from tidelog.base.errors import MalformedBatchError


def _malformed(index, position, what):
    return MalformedBatchError(f"record {index} of the batch, at byte {position}: {what}", position=position)


def _varint(data, position, end, bytes_max):
    """Read a zigzag varint. Returns (value, next position); the position is -1 if it is cut short or too long."""
    value = 0
    shift = 0
    while position < end and bytes_max > 0:
        byte = data[position]
        position += 1
        bytes_max -= 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, -1


def walk(data, position, end, record_count):
    """Check every record of a batch.

    Args:
        data: a contiguous buffer that holds the records, not compressed.
        position: where the first record starts.
        end: where the last one ends, exclusive, at most `len(data)`.
        record_count: how many there are to be.

    Returns:
        (largest timestamp delta, offset delta of the first record that has it, last offset delta, number of
        records without a key, whether the offset deltas are exactly 0, 1, 2 ...).

    Raises:
        MalformedBatchError: INVALID_RECORD; names the record and what disagrees.
    """
    max_timestamp_delta = 0
    max_offset_delta = -1
    last = -1
    keyless = 0
    is_dense = True
    for index, record in enumerate(_records(data, position, end, record_count)):
        timestamp_delta, offset_delta, key, _, _ = record
        if max_offset_delta < 0 or timestamp_delta > max_timestamp_delta:
            max_timestamp_delta = timestamp_delta
            max_offset_delta = offset_delta
        if offset_delta <= last:
            raise _malformed(index, position, f"offset delta {offset_delta} does not lie after {last}")
        if offset_delta != index:
            is_dense = False
        last = offset_delta
        if key is None:
            keyless += 1
    return max_timestamp_delta, max_offset_delta, last, keyless, is_dense


def _records(data, position, end, record_count):
    for index in range(record_count):
        start = position
        length, position = _varint(data, position, end, 5)
        if position < 0 or length < 0 or length > end - position:
            raise _malformed(index, start, "its length is not one, or reaches beyond the batch")
        stop = position + length
        position += 1
        timestamp_delta, position = _varint(data, position, stop, 10)
        if position < 0:
            raise _malformed(index, start, "its timestamp delta is cut short")
        offset_delta, position = _varint(data, position, stop, 5)
        if position < 0:
            raise _malformed(index, start, "its offset delta is cut short")
        key, position = _bytes(data, position, stop, index, "key")
        value, position = _bytes(data, position, stop, index, "value")
        header_count, position = _varint(data, position, stop, 5)
        if position < 0 or header_count < 0 or header_count > stop - position:
            raise _malformed(index, start, "its header count is not one, or more than fit")
        headers = []
        for _ in range(header_count):
            header_key, position = _bytes(data, position, stop, index, "header key")
            if header_key is None:
                raise _malformed(index, start, "a header key is null")
            header_value, position = _bytes(data, position, stop, index, "header value")
            headers.append((header_key, header_value))
        if position != stop:
            raise _malformed(index, position, f"{stop - position} bytes are left over after its headers")
        yield timestamp_delta, offset_delta, key, value, headers
    if position != end:
        raise _malformed(record_count, position, f"{end - position} bytes are left over after the last record")


def _bytes(data, position, stop, index, what):
    start = position
    length, position = _varint(data, position, stop, 5)
    if position < 0 or length < -1 or length > stop - position:
        raise _malformed(index, start, f"its {what} reaches beyond it")
    if length < 0:
        return None, position
    return bytes(data[position : position + length]), position + length


def unpack(data, position, end, record_count):
    """Read every record of a batch into (timestamp delta, offset delta, key, value, ((header key, value) ...))."""
    return [
        (timestamp_delta, offset_delta, key, value, tuple((k.decode(), v) for k, v in headers))
        for timestamp_delta, offset_delta, key, value, headers in _records(data, position, end, record_count)
    ]


def _put_varint(out, value):
    value = (value << 1) ^ (value >> 63)
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out, value):
    if value is None:
        out.append(1)
    else:
        _put_varint(out, len(value))
        out += value


def pack(timestamp_deltas, keys, values, headers):
    """Write records with offset deltas 0, 1, 2 ...; the arguments are lists of the same length."""
    out = bytearray()
    for index in range(len(keys)):
        body = bytearray(1)
        _put_varint(body, timestamp_deltas[index])
        _put_varint(body, index)
        _put_bytes(body, keys[index])
        _put_bytes(body, values[index])
        pairs = headers[index]
        _put_varint(body, len(pairs))
        for key, value in pairs:
            _put_bytes(body, key.encode() if isinstance(key, str) else key)
            _put_bytes(body, value)
        _put_varint(out, len(body))
        out += body
    return out
