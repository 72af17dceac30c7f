"""The hot loops of compaction: which record of a key is the last, which records of a batch stay, and copying those.

Run interpreted or compiled, as kernel.py says, where the layout of a record is. Its C types are in kernel_clean.pxd.
"""

from __future__ import annotations

from array import array
from typing import Any

from tidelog.base.errors import MalformedBatchError
from tidelog.base.ports import Buffer

KERNEL_IS_COMPILED = not __file__.endswith(".py")
KERNEL_SOURCE_HASH: str | None = None  # of this file and its pxd, in hex: setup.py appends it to the copy it compiles

KEY_OVERHEAD_BYTES = 96
"""What a key takes in `KeyOffsets` beside its own bytes: a slot of a table that is a third full."""

SLOT_COUNT_MIN = 8

RECORD_GROWTH_MAX = 14
"""By so many bytes a record may grow when its timestamp is told from another base: 9 of it, 4 of its length, 1 more."""


def _varint(data: Buffer, position: int, end: int) -> tuple[int, int]:
    """Read a zigzag varint of up to 10 bytes. Returns the value, and the position behind it: -1 if there is none."""
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, -1


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


def _record(data: Buffer, position: int, end: int) -> tuple[int, int, int, int, int, int, int, int]:
    """Find the parts of the record at `position`, up to the length of its value.

    Returns:
        (where its attributes are, timestamp delta, position behind that, offset delta, key's position, its length or
        -1, value's length or -1, end of the record: -1 if there is none)
    """
    length, body = _varint(data, position, end)
    if body < 0 or length < 1 or length > end - body:
        return 0, 0, 0, 0, 0, 0, 0, -1
    stop = body + length
    timestamp_delta, behind_time = _varint(data, body + 1, stop)
    if behind_time < 0:
        return 0, 0, 0, 0, 0, 0, 0, -1
    offset_delta, position = _varint(data, behind_time, stop)
    if position < 0 or offset_delta < 0 or offset_delta > 0x7FFFFFFF:
        return 0, 0, 0, 0, 0, 0, 0, -1
    key_length, position = _varint(data, position, stop)
    if position < 0 or key_length < -1 or key_length > stop - position:
        return 0, 0, 0, 0, 0, 0, 0, -1
    key_at = position
    if key_length > 0:
        position += key_length
    value_length, position = _varint(data, position, stop)
    if position < 0 or value_length < -1 or value_length > stop - position:
        return 0, 0, 0, 0, 0, 0, 0, -1
    return body, timestamp_delta, behind_time, offset_delta, key_at, key_length, value_length, stop


def _check_region(data: Buffer, position: int, end: int, record_count: int) -> None:
    if not 0 <= position <= end <= len(data):
        raise ValueError(f"bytes {position} to {end} of a buffer of {len(data)}")
    if record_count < 0 or record_count > end - position:
        raise MalformedBatchError(f"{record_count} records cannot fit into {end - position} bytes", position=position)


def _malformed(index: int, position: int) -> MalformedBatchError:
    return MalformedBatchError(f"record {index} of the batch, at byte {position}, is none", position=position)


class _KeyTable:
    """A hash table of numbers, which finds a key without an object of it.

        slots   | hash | where the key starts | its length | offset | ...        offset -1: the slot is free
        keys    | key | key | ...

    Half of the slots are free at least. Whoever finds a slot taken by another key goes to the next.
    """

    def __init__(self) -> None:
        self._slots: Any = array("q", [-1]) * (4 * SLOT_COUNT_MIN)
        self._mask = SLOT_COUNT_MIN - 1
        self._count = 0
        self._keys: Any = bytearray(16 * SLOT_COUNT_MIN)
        self._keys_size = 0

    def _find(self, digest: int, data: Buffer, position: int, length: int) -> int:
        """Where the slot of a key starts, or the free one that it would take."""
        index = (digest >> 8) & self._mask
        while self._slots[4 * index + 3] >= 0:
            if self._slots[4 * index] == digest and self._slots[4 * index + 2] == length:
                start = self._slots[4 * index + 1]
                same = 0
                while same < length and self._keys[start + same] == data[position + same]:
                    same += 1
                if same == length:
                    break
            index = (index + 1) & self._mask
        return 4 * index

    def _set(self, digest: int, data: Buffer, position: int, length: int, offset: int) -> int:
        """Note a key's last record. Returns whether the key is new."""
        slot = self._find(digest, data, position, length)
        is_known = self._slots[slot + 3] >= 0
        self._slots[slot + 3] = offset
        if is_known:
            return 0
        self._slots[slot] = digest
        self._slots[slot + 1] = self._keys_size
        self._slots[slot + 2] = length
        if length > len(self._keys) - self._keys_size:
            grown = bytearray(2 * len(self._keys) + length)
            grown[: len(self._keys)] = self._keys
            self._keys = grown
        for index in range(length):
            self._keys[self._keys_size + index] = data[position + index]
        self._keys_size += length
        self._count += 1
        if 2 * self._count > self._mask:
            self._grow()
        return 1

    def _grow(self) -> None:
        """Double the slots."""
        before = self._slots
        self._slots = array("q", [-1]) * (2 * len(before))  # first: memory may be refused
        self._mask = 2 * self._mask + 1
        for start in range(0, len(before), 4):
            if before[start + 3] < 0:
                continue
            index = (before[start] >> 8) & self._mask
            while self._slots[4 * index + 3] >= 0:
                index = (index + 1) & self._mask
            for part in range(4):
                self._slots[4 * index + part] = before[start + part]


class KeyOffsets:
    """The offset of the last record of each key.

    256 tables, by the last byte of the hash: a step in which one grows is short. The hash is Python's own: whoever
    chooses the keys cannot choose it.
    """

    def __init__(self) -> None:
        self._tables = [_KeyTable() for _ in range(256)]

    def get(self, key: bytes) -> int:
        """The offset of a key's last record; -1 if there is none."""
        digest = hash(key)
        table = self._tables[digest & 0xFF]
        offset: int = table._slots[table._find(digest, key, 0, len(key)) + 3]
        return offset


def note_keys(data: bytes, position: int, end: int, record_count: int, base_offset: int, latest: KeyOffsets) -> int:
    """Take in which keys a batch holds, later than all that were taken in before.

    Args:
        data: holds the records, not compressed.
        position: where the first record starts.
        end: where the last one ends, exclusive.
        record_count: how many there are.
        base_offset: of the batch.
        latest: the offset of each key's last record.

    Returns:
        By how many bytes `latest` grew, about.

    Raises:
        MalformedBatchError: a record is none.
    """
    view = text = data
    _check_region(view, position, end, record_count)
    grown = 0
    for index in range(record_count):
        _body, _time, _behind_time, offset_delta, key_at, key_length, _value_length, stop = _record(view, position, end)
        if stop < 0:
            raise _malformed(index, position)
        if key_length >= 0:
            digest = hash(text[key_at : key_at + key_length])
            table = latest._tables[digest & 0xFF]
            if table._set(digest, view, key_at, key_length, base_offset + offset_delta):
                grown += key_length + KEY_OVERHEAD_BYTES
        position = stop
    return grown


def judge(
    data: bytes,
    position: int,
    end: int,
    record_count: int,
    base_offset: int,
    latest: KeyOffsets,
    drops_tombstones: bool,
    kept: Any,
) -> tuple[int, int, int, int]:
    """Say which records of a batch stay: those without a key, and those that are the last of theirs.

    Args:
        data, ...: as for `note_keys`.
        latest: a record whose key has a higher offset here goes.
        drops_tombstones: records without a value go.
        kept: a byte for each record, set to 1 for those that stay and to 0 for the others.

    Returns:
        (how many stay, how many of them mark a key as deleted, their smallest and largest timestamp delta; 0 if none
        stays)

    Raises:
        MalformedBatchError: a record is none.
        ValueError: `kept` is too short.
    """
    view = text = data
    _check_region(view, position, end, record_count)
    if len(kept) < record_count:
        raise ValueError(f"{len(kept)} bytes for {record_count} records")
    kept_count = tombstones = smallest = largest = 0
    for index in range(record_count):
        _body, timestamp_delta, _behind_time, offset_delta, key_at, key_length, value_length, stop = _record(
            view, position, end
        )
        if stop < 0:
            raise _malformed(index, position)
        position = stop
        kept[index] = 0
        if key_length >= 0:
            if value_length < 0 and drops_tombstones:
                continue
            digest = hash(text[key_at : key_at + key_length])
            table = latest._tables[digest & 0xFF]
            if table._slots[table._find(digest, view, key_at, key_length) + 3] > base_offset + offset_delta:
                continue
            if value_length < 0:
                tombstones += 1
        if kept_count == 0 or timestamp_delta < smallest:
            smallest = timestamp_delta
        if kept_count == 0 or timestamp_delta > largest:
            largest = timestamp_delta
        kept[index] = 1
        kept_count += 1
    return kept_count, tombstones, smallest, largest


def copy_kept(
    out: Any, data: Buffer, position: int, end: int, record_count: int, kept: Any, timestamp_shift: int
) -> int:
    """Copy the records that stay, one behind the other.

    Args:
        out: where they go, from its start on, with room for all records; `RECORD_GROWTH_MAX` more for each if there
            is a shift.
        data, ...: as for `note_keys`.
        kept: as `judge` left it.
        timestamp_shift: added to each timestamp delta.

    Returns:
        How many bytes were written.

    Raises:
        MalformedBatchError: a record is none.
        ValueError: `kept` or `out` is too short.
    """
    _check_region(data, position, end, record_count)
    room = end - position
    if timestamp_shift != 0:
        room += RECORD_GROWTH_MAX * record_count
    if len(kept) < record_count or len(out) < room:
        raise ValueError(f"{len(kept)} bytes for {record_count} records, {len(out)} bytes where up to {room} are to go")
    size = 0
    for index in range(record_count):
        body, timestamp_delta, behind_time, _offset_delta, _key_at, _key_length, _value_length, stop = _record(
            data, position, end
        )
        if stop < 0:
            raise _malformed(index, position)
        if kept[index]:
            start = position
            if timestamp_shift != 0:
                shifted = timestamp_delta + timestamp_shift
                size = _put_varint(out, size, 1 + _varint_size(shifted) + stop - behind_time)
                out[size] = data[body]
                size = _put_varint(out, size + 1, shifted)
                start = behind_time
            out[size : size + stop - start] = data[start:stop]
            size += stop - start
        position = stop
    return size
