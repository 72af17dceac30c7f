"""Keys and values with a schema, as Confluent's serializers write them: Avro and JSON Schema, with a registry.

    registry = SchemaRegistry("http://127.0.0.1:8081")
    orders = AvroSerializer(registry, "orders-value", ORDER)
    with Producer("127.0.0.1:9092", value_serializer=orders) as producer: ...
    with Consumer("127.0.0.1:9092", value_deserializer=AvroDeserializer(registry)) as consumer: ...

Needs `pip install 'tidelog[schemas]'`.
"""

from tidelog.schemas.avro import AvroDeserializer, AvroSerializer
from tidelog.schemas.errors import SchemaError, SchemaRegistryError
from tidelog.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from tidelog.schemas.registry import RegisteredSchema, SchemaRegistry

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "RegisteredSchema",
    "SchemaError",
    "SchemaRegistry",
    "SchemaRegistryError",
]
