"""Avro, by fastavro. Confluent: `AvroSerializer`, `AvroDeserializer`."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, overload

import fastavro
from fastavro.types import Schema

from tidelog.base.errors import ConfigError
from tidelog.schemas.codec import ENVELOPE, SchemaDeserializer, SchemaSerializer, said, schemas_used
from tidelog.schemas.errors import SchemaError
from tidelog.schemas.registry import AVRO, RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar  # of type checkers, which know the defaults (PEP 696)

    R = TypeVar("R")
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


_FIELD: Final = "value"


def _parsed(registry: SchemaRegistry, schema: RegisteredSchema) -> Schema:
    """A record of one field, of this schema, which is written just as the field is. Raises ConfigError.

    fastavro keeps what a schema refers to beside records alone: of a union, an array or a name it would know nothing
    when there is something to write.
    """
    named: dict[str, Any] = {}
    for _, used in schemas_used(registry, schema):
        _parse(used, named)
    return _parse(schema, named, is_field=True)


def _parse(schema: RegisteredSchema, named: dict[str, Any], *, is_field: bool = False) -> Schema:
    text = schema.text.strip()
    try:
        found = json.loads(text) if text[:1] in ("{", "[", '"') else text
        if is_field:
            found = {"type": "record", "name": "__tidelog_value", "fields": [{"name": _FIELD, "type": found}]}
        return fastavro.parse_schema(found, named_schemas=named)
    except Exception as error:  # fastavro raises whatever comes up: SchemaParseException, KeyError, TypeError, …
        raise ConfigError(f"{text[:80]!r} is no Avro schema: {said(error)}") from error


class AvroSerializer(SchemaSerializer[T, Schema]):
    __doc__ = SchemaSerializer.__doc__

    kind = AVRO
    _prepare = staticmethod(_parsed)

    @staticmethod
    def _encode(prepared: Schema, value: Any, what: str) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, prepared, {_FIELD: value}, strict_allow_default=True)
        except Exception as error:  # fastavro raises whatever comes up: ValueError, TypeError, AttributeError, …
            raise SchemaError(f"{what} does not fit its schema: {said(error)}") from error
        return out.getvalue()


class AvroDeserializer(SchemaDeserializer[T, Schema]):
    __doc__ = SchemaDeserializer.__doc__

    kind = AVRO
    _prepare = staticmethod(_parsed)

    if TYPE_CHECKING:  # what `from_dict` makes, or None for a null

        @overload
        def __init__(
            self: AvroDeserializer[Any], registry: SchemaRegistry, schema: str | dict[str, Any] | None = None
        ) -> None: ...

        @overload
        def __init__(
            self: AvroDeserializer[R | None],
            registry: SchemaRegistry,
            schema: str | dict[str, Any] | None = None,
            *,
            from_dict: Callable[[Any], R],
        ) -> None: ...

        def __init__(
            self, registry: SchemaRegistry, schema: Any = None, *, from_dict: Callable[[Any], Any] | None = None
        ) -> None: ...

    @staticmethod
    def _decode(writer: Schema, reader: Schema | None, data: bytes, what: str) -> Any:
        source = io.BytesIO(data)
        source.seek(ENVELOPE.size)
        try:
            found: Any = fastavro.schemaless_reader(source, writer, reader)
        except Exception as error:  # fastavro raises whatever comes up: EOFError, IndexError, SchemaResolutionError, …
            raise SchemaError(f"{what} cannot be read: {said(error)}") from error
        left = len(data) - source.tell()
        if left:
            raise SchemaError(f"{what} go on for {left} bytes behind the value")
        return found[_FIELD]
