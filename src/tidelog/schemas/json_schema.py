"""JSON that a JSON Schema describes, by jsonschema. Confluent: `JSONSerializer`, `JSONDeserializer`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, overload

from jsonschema.exceptions import SchemaError as InvalidSchemaError
from jsonschema.exceptions import best_match
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from tidelog.base.errors import ConfigError
from tidelog.schemas.codec import ENVELOPE, SchemaDeserializer, SchemaSerializer, schemas_used
from tidelog.schemas.errors import SchemaError
from tidelog.schemas.registry import JSON_SCHEMA, RegisteredSchema, SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar  # of type checkers, which know the defaults (PEP 696)

    R = TypeVar("R")
    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")


def _validator(registry: SchemaRegistry, schema: RegisteredSchema) -> Validator:
    """What checks values. Raises ConfigError."""
    parsed = _parsed(schema)
    kind = validator_for(parsed)
    try:
        kind.check_schema(parsed)
    except InvalidSchemaError as error:
        raise ConfigError(f"{schema.text[:80]!r} is no JSON Schema: {error.message}") from error
    known: Registry[Any] = Registry()  # by the names that schemas have for it; nothing is fetched from elsewhere
    for reference, used in schemas_used(registry, schema):
        resource = Resource.from_contents(_parsed(used), default_specification=DRAFT7)
        known = known.with_resource(reference.name, resource)
    return kind(parsed, registry=known)


def _parsed(schema: RegisteredSchema) -> Any:
    try:
        parsed = json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{schema.text[:80]!r} is no JSON Schema: it is not JSON: {error}") from error
    if not isinstance(parsed, dict | bool):
        raise ConfigError(f"{schema.text[:80]!r} is no JSON Schema: that is an object, or true or false")
    return parsed


def _check(validator: Validator, value: Any, what: str) -> None:
    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable as missing:
        raise SchemaError(
            f"{what} cannot be checked: its schema refers to {missing.ref!r}, which is not there"
        ) from missing
    except RecursionError as error:
        raise SchemaError(f"{what} cannot be checked: it is too deep, or its schema refers to itself") from error
    if error is not None:
        raise SchemaError(f"{what} does not fit its schema at {error.json_path}: {error.message}")


class JsonSchemaSerializer(SchemaSerializer[T, Validator]):
    __doc__ = SchemaSerializer.__doc__

    kind = JSON_SCHEMA
    _prepare = staticmethod(_validator)

    @staticmethod
    def _encode(prepared: Validator, value: Any, what: str) -> bytes:
        _check(prepared, value, what)
        try:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise SchemaError(f"{what} cannot be written as JSON: {error}") from error


class JsonSchemaDeserializer(SchemaDeserializer[T, Validator]):
    __doc__ = SchemaDeserializer.__doc__

    kind = JSON_SCHEMA
    _prepare = staticmethod(_validator)

    if TYPE_CHECKING:  # what `from_dict` makes, or None for a null

        @overload
        def __init__(
            self: JsonSchemaDeserializer[Any], registry: SchemaRegistry, schema: str | dict[str, Any] | None = None
        ) -> None: ...

        @overload
        def __init__(
            self: JsonSchemaDeserializer[R | None],
            registry: SchemaRegistry,
            schema: str | dict[str, Any] | None = None,
            *,
            from_dict: Callable[[Any], R],
        ) -> None: ...

        def __init__(
            self, registry: SchemaRegistry, schema: Any = None, *, from_dict: Callable[[Any], Any] | None = None
        ) -> None: ...

    @staticmethod
    def _decode(writer: Validator, reader: Validator | None, data: bytes, what: str) -> Any:
        try:
            found = json.loads(data[ENVELOPE.size :])
        except (ValueError, RecursionError) as error:
            raise SchemaError(f"{what} are not JSON: {error}") from error
        _check(reader or writer, found, what)
        return found
