"""Keys and values as text and as JSON, for whoever needs no schema. Confluent: `StringSerializer`, `JSONSerializer`.

    Producer("127.0.0.1:9092", value_serializer=to_json)
    Consumer("127.0.0.1:9092", key_deserializer=from_text, value_deserializer=from_json)

`tidelog.schemas` has those with a schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def to_json(value: object) -> bytes:
    """Compact JSON. Raises TypeError or ValueError: JSON has no way to write it, as for NaN."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def from_json(data: bytes | None) -> Any:
    """What JSON says; None for a null too. Raises ValueError: it is no JSON."""
    return None if data is None else json.loads(data)


def from_text(data: bytes | None) -> str | None:
    """UTF-8 as text; None for a null. Raises ValueError: it is no UTF-8."""
    return None if data is None else data.decode()


def or_none(deserializer: Callable[[bytes], T]) -> Callable[[bytes | None], T | None]:
    """A deserializer that is not asked for a null, which is None: `or_none(Order.from_bytes)`."""
    return lambda data: None if data is None else deserializer(data)
