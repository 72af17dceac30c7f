"""What type checkers take a key or a value for is what it is, nulls included."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = '''
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from typing_extensions import assert_type

from tidelog import Consumer, LogTruncatedError
from tidelog.schemas import AvroDeserializer, JsonSchemaDeserializer, ProtobufDeserializer, SchemaRegistry
from tidelog.serialization import from_json, from_text, or_none


@dataclass
class Order:
    price: float

    @classmethod
    def from_json(cls, data: bytes) -> "Order":
        return cls(float(data))


def from_dict(found: dict[str, Any]) -> Order:
    return Order(**found)


def charge(order: Order) -> None: ...


def undo(partition: object, offset: int) -> None: ...


def billing() -> None:
    """The first example of the consumer."""
    with Consumer("127.0.0.1:9092", group_id="billing", auto_offset_reset="none",
                  value_deserializer=Order.from_json, enable_auto_commit=False) as consumer:
        consumer.subscribe(["orders"], start="earliest")
        while True:
            try:
                for record in consumer:
                    charge(record.value)
                    consumer.commit(record)
            except LogTruncatedError as lost:
                undo(lost.partition, lost.seek_to.offset)
                consumer.seek(lost.partition, lost.seek_to)


registry = SchemaRegistry("http://127.0.0.1:8081")
raw = Consumer().poll()[0]
assert_type(raw.key, bytes | None)
assert_type(raw.value, bytes | None)
strict = Consumer(value_deserializer=Order.from_json).poll()[0]
assert_type(strict.key, bytes | None)
assert_type(strict.value, Order)  # a null raises
assert_type(Consumer(value_deserializer=or_none(Order.from_json)).poll()[0].value, Order | None)
assert_type(Consumer(key_deserializer=from_text, value_deserializer=from_json).poll()[0].key, str | None)
assert_type(Consumer(value_deserializer=AvroDeserializer(registry)).poll()[0].value, Any)
avro = AvroDeserializer(registry, from_dict=from_dict)
assert_type(Consumer(value_deserializer=avro).poll()[0].value, Order | None)
checked = JsonSchemaDeserializer(registry, "{}", from_dict=from_dict)
assert_type(Consumer(value_deserializer=checked).poll()[0].value, Order | None)
assert_type(Consumer(value_deserializer=ProtobufDeserializer(registry, Timestamp)).poll()[0].value, Timestamp | None)
assert_type(Consumer(value_deserializer=ProtobufDeserializer(registry)).poll()[0].value, Message | None)
'''


def test_the_type_of_a_value_says_whether_it_may_be_none(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM, encoding="utf-8")
    said, errors, _ = api.run(
        [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}", str(path)]
    )
    assert (said, errors) == ("Success: no issues found in 1 source file\n", "")
