"""The few byte layouts that generated code does not inline: varints, tagged fields to skip, ids."""

from __future__ import annotations

from struct import Struct
from typing import Any
from uuid import UUID, SafeUUID

from tidelog.base.errors import MalformedMessageError
from tidelog.base.ports import Buffer

ZERO_UUID = UUID(int=0)
"""What the wire sends for "no id"."""

UVARINT_SIZE_MAX = 5
"""Bytes of the longest unsigned varint: 32 bits in groups of seven."""

ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def uvarint(value: int) -> bytes:
    """An unsigned varint of up to 32 bits: groups of seven bits, least significant first, high bit = more follow.

    Raises:
        ValueError: `value` is outside [0, 2**32).
    """
    if 0 <= value < 0x80:
        return ONE_BYTE[value]
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit in an unsigned varint of 32 bits")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


STRING_SIZE_BYTES_MAX = 0x7FFF

TEXT_ELEMENT_BYTES = 512
"""So many bytes of a string in a request count as an element of an array; a shorter string counts nothing.

To read a megabyte that is not UTF-8 takes 5 ms."""


def read_text(raw: Buffer, encoding: str = "utf-8") -> str:
    """A string of the protocol. Bytes that are not UTF-8 become U+FFFD, as in Kafka.

    Raises:
        MalformedMessageError: it could not be sent again: U+FFFD takes three bytes, where one was.
    """
    text = str(raw, encoding, "replace")
    if len(text) > STRING_SIZE_BYTES_MAX // 3 and len(text.encode()) > STRING_SIZE_BYTES_MAX:
        raise MalformedMessageError(f"its text takes more than {STRING_SIZE_BYTES_MAX} bytes of UTF-8")
    return text


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned varint at `position`, and the position after it.

    Raises:
        MalformedMessageError: it is longer than 5 bytes or 32 bits, or cut short.
    """
    try:
        value = buffer[position]
        if value < 0x80:
            return value, position + 1
        return uvarint_rest(buffer, position + 1, value)
    except IndexError:
        raise MalformedMessageError(f"at byte {position}: a varint is cut short") from None


def uvarint_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Go on with a varint whose `first` byte, just before `position`, said that more follow."""
    group = buffer[position]
    position += 1
    value = first & 0x7F | (group & 0x7F) << 7
    if group < 0x80:  # nearly always
        return value, position
    for shift in (14, 21):
        group = buffer[position]
        position += 1
        value |= (group & 0x7F) << shift
        if group < 0x80:
            return value, position
    group = buffer[position]
    if group > 0x0F:
        raise MalformedMessageError(f"a varint is longer than {UVARINT_SIZE_MAX} bytes or 32 bits")
    return value | group << 28, position + 1


def varint(value: int) -> bytes:
    """A signed varint of up to 32 bits: zigzag, then as `uvarint`."""
    return uvarint((value << 1 ^ value >> 31) & 0xFFFFFFFF)


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The signed (zigzag) varint at `position`, and the position after it. Raises as `read_uvarint` does."""
    value, position = read_uvarint(buffer, position)
    return value >> 1 ^ -(value & 1), position


TAGGED_FIELDS_MAX = 32
"""In one place. Kafka defines four at most; nobody is to be kept busy with more."""


def check_tagged_fields(count: int, left: int) -> None:
    """Raises MalformedMessageError: there are more than are read, or than fit in the bytes that are left."""
    if count > left:
        raise MalformedMessageError(f"there are {count} tagged fields, but only {left} bytes are left")
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessageError(f"there are {count} tagged fields; {TAGGED_FIELDS_MAX} are the most that is read")


def skip_tagged_fields(buffer: Buffer, position: int, end: int, count: int) -> int:
    """Check and pass over `count` tagged fields, all unknown here; return the position after them.

    Raises:
        MalformedMessageError: too many, a size beyond `end`, or tags that are not strictly ascending.
    """
    check_tagged_fields(count, end - position)
    last_tag = -1
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        if tag <= last_tag:
            raise MalformedMessageError(f"tag {tag} comes after tag {last_tag}: tags must ascend, each at most once")
        if size > end - position:
            raise MalformedMessageError(f"tag {tag} has {size} bytes, but only {end - position} are left")
        last_tag = tag
        position += size
    return position


_set_uuid_int: Any = getattr(UUID.__dict__.get("int"), "__set__", None)
_set_uuid_is_safe: Any = getattr(UUID.__dict__.get("is_safe"), "__set__", None)
_new_object = object.__new__
_uuid_is_safe = SafeUUID.unknown


def _uuid_of_slots(raw: bytes) -> UUID:
    value = _new_object(UUID)
    _set_uuid_int(value, int.from_bytes(raw))
    _set_uuid_is_safe(value, _uuid_is_safe)
    return value


def _uuid_of_bytes(raw: bytes) -> UUID:
    return UUID(bytes=raw)


# The constructor checks what is known here, for five times the price: fill the slots where UUID has them.
uuid_of = _uuid_of_slots if _set_uuid_int and _set_uuid_is_safe else _uuid_of_bytes
"""The id of exactly 16 bytes."""

_structs: dict[str, Struct] = {}


def struct_of(layout: str) -> Struct:
    """The big-endian `Struct` of a format without byte order, made once."""
    found = _structs.get(layout)
    if found is None:
        found = _structs[layout] = Struct(f">{layout}")
    return found
