"""Keys and values of the records of internal topics: two bytes in front of a message say how to read it.

```
 key    type    │ message, always in version 0
 value  version │ message in that version              none at all: a tombstone
         int16
```

Kafka: `CoordinatorRecordSerde`.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from tidelog.base.errors import CorruptLogError, KafkaError, MalformedMessageError
from tidelog.wire.compile import decode, encode
from tidelog.wire.schema import layout_of

M = TypeVar("M")

KEY_VERSION = 0
_NUMBER = Struct(">h")


def record_type(key: bytes) -> int:
    """What a key is of.

    Raises:
        CorruptLogError: it is too short to say so.
    """
    return _number(key, "a key")


def encode_key(record_type: int, key: object) -> bytes:
    """A message as the key of a record of a type."""
    return _NUMBER.pack(record_type) + encode(key, KEY_VERSION)


def decode_key(cls: type[M], key: bytes) -> M:
    """The message in a key, whatever its type.

    Raises:
        CorruptLogError: the bytes are no such key.
    """
    _number(key, cls.__name__)
    return _decode(cls, key, KEY_VERSION)


def encode_value(value: object, version: int) -> bytes:
    """A message as the value of a record.

    Raises:
        KafkaError: UNSUPPORTED_VERSION if there is no such version, or it cannot carry a field that is set.
    """
    return _NUMBER.pack(version) + encode(value, version)


def decode_value(cls: type[M], value: bytes) -> M:
    """The message in a value.

    Raises:
        CorruptLogError: the bytes are no such value, or one of a version that this release does not know.
    """
    name = cls.__name__
    version = _number(value, name)
    if version not in layout_of(cls).versions:
        raise CorruptLogError(f"{name} has no version {version} in this release; was a newer one here?")
    return _decode(cls, value, version)


def _number(raw: bytes, what: str) -> int:
    if len(raw) < _NUMBER.size:
        raise CorruptLogError(f"{what}: {len(raw)} bytes hold no version")
    (number,) = _NUMBER.unpack_from(raw)
    return int(number)


def _decode(cls: type[M], raw: bytes, version: int) -> M:
    try:
        return decode(cls, raw, version, _NUMBER.size)
    except (MalformedMessageError, KafkaError) as error:
        raise CorruptLogError(f"{cls.__name__}: {error}") from error
