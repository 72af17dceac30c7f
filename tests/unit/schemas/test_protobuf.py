"""Protobuf, against a registry: bytes, which message of a file, imports, and everything that can be wrong."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP

from support.fixtures.schema_registry import RegistryServer, schema_registry
from tidelog import ConfigError
from tidelog.schemas import (
    AvroDeserializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Reference,
    RegisteredSchema,
    SchemaError,
    SchemaRegistry,
    SchemaRegistryError,
)

# What protoc makes of this:
#
#     syntax = "proto3";                            syntax = "proto3";
#     package shop;                                 package shop;
#     message Price { int64 cents = 1; }            import "shop/price.proto";
#                                                   import "google/protobuf/timestamp.proto";
#                                                   message Order { int64 id = 1; Price price = 2;
#                                                                   google.protobuf.Timestamp at = 3; }
#                                                   message Refund { message Line {}
#                                                                    message Reason { string text = 1; } }
INT64, STRING = FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_STRING
MESSAGE, OPTIONAL = FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.LABEL_OPTIONAL


def field(name: str, number: int, kind: Any, type_name: str | None = None) -> FieldDescriptorProto:
    return FieldDescriptorProto(name=name, number=number, type=kind, label=OPTIONAL, type_name=type_name)


PRICE_FILE = FileDescriptorProto(
    name="shop/price.proto",
    package="shop",
    syntax="proto3",
    message_type=[DescriptorProto(name="Price", field=[field("cents", 1, INT64)])],
)
ORDER_FILE = FileDescriptorProto(
    name="shop/order.proto",
    package="shop",
    syntax="proto3",
    dependency=["shop/price.proto", "google/protobuf/timestamp.proto"],
    message_type=[
        DescriptorProto(
            name="Order",
            field=[
                field("id", 1, INT64),
                field("price", 2, MESSAGE, ".shop.Price"),
                field("at", 3, MESSAGE, ".google.protobuf.Timestamp"),
            ],
        ),
        DescriptorProto(
            name="Refund",
            nested_type=[
                DescriptorProto(name="Line"),
                DescriptorProto(name="Reason", field=[field("text", 1, STRING)]),
            ],
        ),
    ],
)
POOL: Any = DescriptorPool()
for _file in (FileDescriptorProto.FromString(TIMESTAMP.serialized_pb), PRICE_FILE, ORDER_FILE):
    POOL.Add(_file)
Price: Any = GetMessageClass(POOL.FindMessageTypeByName("shop.Price"))
Order: Any = GetMessageClass(POOL.FindMessageTypeByName("shop.Order"))
Refund: Any = GetMessageClass(POOL.FindMessageTypeByName("shop.Refund"))
Reason: Any = GetMessageClass(POOL.FindMessageTypeByName("shop.Refund.Reason"))

PRICE_TEXT = 'syntax = "proto3"; package shop; message Price { int64 cents = 1; }'


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with schema_registry() as server:
        yield server


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)


def serialized(file: FileDescriptorProto) -> str:
    return b64encode(file.SerializeToString()).decode()


def registered(server: RegistryServer, subject: str) -> Any:
    return server.answer("GET", f"/subjects/{subject}/versions/latest", None)[1]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Price(cents=150), "00 00 00 00 01  00           08 96 01"),
        (Order(id=1), "00 00 00 00 02  00           08 01"),
        (Refund(), "00 00 00 00 02  02 02"),
        (Reason(text="x"), "00 00 00 00 02  04 02 02     0a 01 78"),
    ],
    ids=["alone", "first", "second", "nested"],
)
def test_bytes_are_those_of_confluent(registry: SchemaRegistry, value: Any, written: str) -> None:
    """confluent_kafka 2.16 wrote these, and read them."""
    serializer = ProtobufSerializer(registry, "o", type(value))
    assert serializer(value) == bytes.fromhex(written)
    assert ProtobufDeserializer(registry, type(value))(serializer(value)) == value


def test_a_class_brings_its_schema_and_those_that_it_imports(server: RegistryServer, registry: SchemaRegistry) -> None:
    """As Confluent's serializer registers them: in the serialized form, each import under its file's name."""
    serializer = ProtobufSerializer(registry, "orders-value", Order)
    assert server.asked == []  # it asks when there is something to write
    serializer(Order(id=1))
    serializer(Order(id=2))
    price = "/subjects/shop%2Fprice.proto"
    assert server.asked == [
        f"POST {price}/versions",
        f"POST {price}",
        "POST /subjects/orders-value/versions",
    ]
    found = registered(server, "orders-value")
    assert found["schemaType"] == "PROTOBUF"
    assert FileDescriptorProto.FromString(b64decode(found["schema"])) == ORDER_FILE
    assert found["references"] == [{"name": "shop/price.proto", "subject": "shop/price.proto", "version": 1}]


def test_the_text_of_a_file_may_be_given(server: RegistryServer, registry: SchemaRegistry) -> None:
    assert ProtobufSerializer(registry, "p", Price, PRICE_TEXT)(Price(cents=1))[:6] == b"\0\0\0\0\x01\0"
    assert registered(server, "p")["schema"] == PRICE_TEXT
    text = 'syntax = "proto3"; package shop; import "shop/price.proto"; message Order { Price price = 2; }'
    schema = RegisteredSchema(text, "PROTOBUF", (Reference("shop/price.proto", "p", 1),))
    ProtobufSerializer(registry, "o", Order, schema)(Order(id=1))
    assert registered(server, "o")["references"] == [{"name": "shop/price.proto", "subject": "p", "version": 1}]
    # As it stands in the registry already: nothing is registered.
    latest = ProtobufSerializer(registry, "o", Order, registry.version("o")[1], auto_register=False)
    assert latest(Order(id=1))[:6] == b"\0\0\0\0\x02\0"


def test_who_may_not_register_looks_up(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer(registry, "o", Order, auto_register=False)
    with pytest.raises(SchemaRegistryError, match="Schema not found"):
        serializer(Order(id=1))
    assert server.asked == ["POST /subjects/shop%2Fprice.proto"]


def test_each_schema_is_asked_for_once_and_with_a_class_its_imports_never(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    written = ProtobufSerializer(registry, "o", Order)(Order(id=1))
    server.asked.clear()
    reader = ProtobufDeserializer(SchemaRegistry(server.url), Order)
    assert [reader(written) for _ in range(3)] == [Order(id=1)] * 3
    assert server.asked == ["GET /schemas/ids/2?format=serialized"]


@pytest.mark.parametrize("value", [Order(id=1, price=Price(cents=5), at={"seconds": 7}), Reason(text="x")])
def test_without_a_class_the_registry_says_what_a_message_is(
    server: RegistryServer, registry: SchemaRegistry, value: Any
) -> None:
    written = ProtobufSerializer(registry, "o", type(value))(value)
    reader = ProtobufDeserializer(SchemaRegistry(server.url))
    server.asked.clear()
    found = reader(written)
    assert isinstance(found, Message)
    assert found.DESCRIPTOR.full_name == value.DESCRIPTOR.full_name
    assert found.SerializeToString(deterministic=True) == value.SerializeToString(deterministic=True)
    assert reader(written) == found
    assert server.asked == [
        "GET /schemas/ids/2?format=serialized",
        "GET /subjects/shop%2Fprice.proto/versions/1?format=serialized",
    ]


def test_a_null_is_none(registry: SchemaRegistry) -> None:
    assert ProtobufDeserializer(registry, Order)(None) is None
    assert ProtobufDeserializer(registry)(None) is None


def test_a_value_of_another_class_is_refused(server: RegistryServer, registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer(registry, "o", Order)
    for wrong, name in ((Price(), "shop.Price"), ({"id": 1}, "dict"), (None, "NoneType")):
        with pytest.raises(SchemaError, match=rf"a value of 'o' is a {name}, not a shop.Order"):
            serializer(wrong)
    assert server.asked == []
    dynamic: Any = ProtobufDeserializer(registry)(serializer(Order(id=1)))
    with pytest.raises(SchemaError, match=r"a value of 'o' is a shop.Order of another class, not a shop.Order"):
        serializer(dynamic)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("08 01", "these 2 bytes name no schema: they begin with 08 01"),
        ("00 00 00 00 02", "bytes that name schema 2 end within the indexes of their message"),
        ("00 00 00 00 02  04 02", "bytes that name schema 2 end within the indexes of their message"),
        ("00 00 00 00 02  02 80", "bytes that name schema 2 end within the indexes of their message"),
        ("00 00 00 00 02  02 04", r"bytes that name schema 2 are of message \[2\], and the schema has no such message"),
        ("00 00 00 00 02  04 02 04", r"are of message \[1, 2\], and the schema has no such message"),
        ("00 00 00 00 02  02 01", r"are of message \[-1\], and the schema has no such message"),
        ("00 00 00 00 02  01", "bytes that name schema 2 have -1 indexes of their message: from 0 to 100 are allowed"),
        ("00 00 00 00 02  fe ff ff 7f", "indexes of their message: from 0 to 100 are allowed"),
        ("00 00 00 00 02  02 02", "bytes that name schema 2 are of shop.Refund, not shop.Order"),
        ("00 00 00 00 01  00", "bytes that name schema 1 are of shop.Price, not shop.Order"),
        ("00 00 00 00 02  00 08", "bytes that name schema 2 cannot be read as shop.Order: DecodeError"),
        ("00 00 00 00 02  00 12 05 08 01", "bytes that name schema 2 cannot be read as shop.Order: DecodeError"),
        ("00 00 00 00 03  00", "schema 3 is of kind AVRO, not PROTOBUF: it takes another deserializer"),
    ],
)
def test_bytes_that_are_not_what_they_should_be(
    server: RegistryServer, registry: SchemaRegistry, data: str, told: str
) -> None:
    ProtobufSerializer(registry, "o", Order)(Order(id=1))
    server.register("a", {"schema": '"string"'})
    with pytest.raises(SchemaError, match=told):
        ProtobufDeserializer(registry, Order)(bytes.fromhex(data))


def test_a_schema_that_nobody_knows_is_named(registry: SchemaRegistry) -> None:
    with pytest.raises(SchemaRegistryError, match=r"/schemas/ids/77\?format=serialized: Schema not found \(HTTP 404\)"):
        ProtobufDeserializer(registry, Order)(b"\0\0\0\0\x4d\0")


def test_another_deserializer_refuses_protobuf(registry: SchemaRegistry) -> None:
    written = ProtobufSerializer(registry, "p", Price)(Price(cents=1))
    with pytest.raises(SchemaError, match="schema 1 is of kind PROTOBUF, not AVRO"):
        AvroDeserializer(registry)(written)


def test_a_registry_that_knows_text_only_serves_who_has_the_class(
    server: RegistryServer, registry: SchemaRegistry
) -> None:
    """The library of Protobuf cannot parse the text."""
    written = ProtobufSerializer(registry, "p", Price, PRICE_TEXT)(Price(cents=1))
    assert ProtobufDeserializer(registry, Price)(written) == Price(cents=1)
    with pytest.raises(SchemaError, match=r"schema 1 came as the text .*: give ProtobufDeserializer the message class"):
        ProtobufDeserializer(registry)(written)


@pytest.mark.parametrize(
    "file",
    [
        FileDescriptorProto(name="x.proto", message_type=[DescriptorProto(name="A"), DescriptorProto(name="A")]),
        FileDescriptorProto(name="x.proto", dependency=["nowhere.proto"], message_type=[DescriptorProto(name="A")]),
        FileDescriptorProto(
            name="x.proto", dependency=["google/protobuf/no.proto"], message_type=[DescriptorProto(name="A")]
        ),
    ],
    ids=["twice", "import", "well-known"],
)
def test_a_schema_that_is_none_is_told(
    server: RegistryServer, registry: SchemaRegistry, file: FileDescriptorProto
) -> None:
    server.register("x", {"schema": serialized(file), "schemaType": "PROTOBUF"})
    with pytest.raises(SchemaError, match="schema 1 is no Protobuf schema: "):
        ProtobufDeserializer(registry)(b"\0\0\0\0\x01\0")


def test_what_is_no_message_class_is_refused_at_once(registry: SchemaRegistry) -> None:
    wrong: Any
    for wrong in (dict, Order(), "Order"):
        with pytest.raises(ConfigError, match="is no message class; protoc generates them"):
            ProtobufSerializer(registry, "o", wrong)
        with pytest.raises(ConfigError, match="is no message class; protoc generates them"):
            ProtobufDeserializer(registry, wrong)
    with pytest.raises(ConfigError, match="ProtobufSerializer: the schema is of kind AVRO, not PROTOBUF"):
        ProtobufSerializer(registry, "o", Order, RegisteredSchema('"string"', "AVRO"))


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("from tidelog.schemas import AvroSerializer; print('google.protobuf' in sys.modules)", "False"),
        ("from tidelog.schemas import SchemaRegistry; print({'fastavro', 'jsonschema'} & {*sys.modules})", "set()"),
        (
            "sys.modules['google.protobuf'] = None\ntry: from tidelog.schemas import ProtobufSerializer\n"
            "except ImportError as error: print(error)",
            "ProtobufSerializer needs an optional part: pip install 'tidelog[schemas]'",
        ),
    ],
    ids=["of another kind", "of none", "missing"],
)
def test_only_the_library_that_is_used_is_loaded(program: str, told: str) -> None:
    ran = subprocess.run([sys.executable, "-c", f"import sys\n{program}"], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == told
