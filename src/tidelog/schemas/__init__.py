"""Keys and values with a schema, as Confluent's serializers write them: Avro, JSON Schema, Protobuf, with a registry.

    registry = SchemaRegistry("http://127.0.0.1:8081")
    orders = AvroSerializer(registry, "orders-value", ORDER)
    with Producer("127.0.0.1:9092", value_serializer=orders) as producer: ...
    with Consumer("127.0.0.1:9092", value_deserializer=AvroDeserializer(registry)) as consumer: ...

Needs `pip install 'tidelog[schemas]'`.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tidelog.schemas.avro import AvroDeserializer, AvroSerializer
    from tidelog.schemas.errors import SchemaError, SchemaRegistryError
    from tidelog.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from tidelog.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from tidelog.schemas.registry import Reference, RegisteredSchema, SchemaRegistry

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "Reference",
    "RegisteredSchema",
    "SchemaError",
    "SchemaRegistry",
    "SchemaRegistryError",
]

_HOMES = {
    "AvroDeserializer": "avro",
    "AvroSerializer": "avro",
    "JsonSchemaDeserializer": "json_schema",
    "JsonSchemaSerializer": "json_schema",
    "ProtobufDeserializer": "protobuf",
    "ProtobufSerializer": "protobuf",
    "Reference": "registry",
    "RegisteredSchema": "registry",
    "SchemaError": "errors",
    "SchemaRegistry": "registry",
    "SchemaRegistryError": "errors",
}
_LIBRARIES = ("fastavro", "jsonschema", "referencing", "google")


def __getattr__(name: str) -> object:
    """Load the library of the kind that is asked for, and no other (PEP 562).

    Raises:
        MissingExtraError: it is not installed.
    """
    if name not in __all__:
        raise AttributeError(f"module 'tidelog.schemas' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"tidelog.schemas.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _LIBRARIES:
            raise
        from tidelog.base.errors import MissingExtraError

        raise MissingExtraError(name, "schemas") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
