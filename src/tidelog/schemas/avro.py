"""Avro, by fastavro. Confluent: `AvroSerializer`, `AvroDeserializer`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, TypeVar, overload

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.types import Schema

from tidelog.base.errors import ConfigError
from tidelog.schemas.codec import ENVELOPE, SchemaDeserializer, SchemaSerializer, said
from tidelog.schemas.errors import SchemaError
from tidelog.schemas.registry import AVRO, RegisteredSchema, SchemaRegistry

T = TypeVar("T")


def _parsed(registry: SchemaRegistry, schema: RegisteredSchema, named: dict[str, Any] | None = None) -> Schema:
    """The schema with all that it refers to, which goes into `named`. Raises ConfigError."""
    named = {} if named is None else named
    for reference in schema.references:
        _parsed(registry, registry.version(reference.subject, reference.version)[1], named)
    text = schema.text.strip()
    try:
        return fastavro.parse_schema(json.loads(text) if text[:1] in ("{", "[", '"') else text, named_schemas=named)
    except (ValueError, SchemaParseException) as error:
        raise ConfigError(f"{text[:80]!r} is no Avro schema: {said(error)}") from error


class AvroSerializer(SchemaSerializer[T, Schema]):
    __doc__ = SchemaSerializer.__doc__

    kind = AVRO
    _prepare = staticmethod(_parsed)

    @staticmethod
    def _encode(prepared: Schema, value: Any, what: str) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, prepared, value, strict_allow_default=True)
        except Exception as error:  # fastavro raises whatever comes up: ValueError, TypeError, AttributeError, …
            raise SchemaError(f"{what} does not fit its schema: {said(error)}") from error
        return out.getvalue()


class AvroDeserializer(SchemaDeserializer[T, Schema]):
    __doc__ = SchemaDeserializer.__doc__

    kind = AVRO
    _prepare = staticmethod(_parsed)

    @overload
    def __init__(
        self: AvroDeserializer[Any], registry: SchemaRegistry, schema: str | dict[str, Any] | None = None
    ) -> None: ...
    @overload
    def __init__(
        self, registry: SchemaRegistry, schema: str | dict[str, Any] | None = None, *, from_dict: Callable[[Any], T]
    ) -> None: ...
    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | None = None,
        *,
        from_dict: Callable[[Any], T] | None = None,
    ) -> None:
        super().__init__(registry, schema, from_dict=from_dict)

    @staticmethod
    def _decode(writer: Schema, reader: Schema | None, data: bytes, what: str) -> Any:
        source = io.BytesIO(data)
        source.seek(ENVELOPE.size)
        try:
            found = fastavro.schemaless_reader(source, writer, reader)
        except Exception as error:  # fastavro raises whatever comes up: EOFError, IndexError, SchemaResolutionError, …
            raise SchemaError(f"{what} cannot be read: {said(error)}") from error
        left = len(data) - source.tell()
        if left:
            raise SchemaError(f"{what} go on for {left} bytes behind the value")
        return found
