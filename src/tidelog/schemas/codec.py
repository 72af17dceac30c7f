"""What all kinds of schemas have in common: who keeps them, and the five bytes before what they describe.

Confluent's wire format: a 0, the id of the schema (4 bytes, big-endian), then the value.
"""

from __future__ import annotations

import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar, cast

from tidelog.base.errors import ConfigError
from tidelog.schemas.errors import SchemaError
from tidelog.schemas.registry import PROTOBUF, Reference, RegisteredSchema, SchemaRegistry

T = TypeVar("T")
P = TypeVar("P")

ENVELOPE = struct.Struct(">BI")
MAGIC = 0
REFERENCES_MAX = 200
"""So many other schemas a schema may use, with all that those use."""


class SchemaSerializer(ABC, Generic[T, P]):
    """Makes bytes of values that a schema describes. For `key_serializer` and `value_serializer`.

    Args:
        registry: keeps the schema.
        subject: whose schema it is there: `TOPIC-value` or `TOPIC-key`, unless the registry's users agreed otherwise.
        schema: its text, or what `json.loads` makes of it. None for the latest of the subject, as it is now.
        to_dict: makes what the schema describes of a value; not needed for a dict, or for what is no record.
        auto_register: whether the schema is registered if it is not yet; else that is an error.

    Raises:
        ConfigError: the schema is none.
        SchemaRegistryError: the registry has no schema of the subject, and none was given.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        registry: SchemaRegistry,
        subject: str,
        schema: str | dict[str, Any] | None = None,
        *,
        to_dict: Callable[[T], Any] | None = None,
        auto_register: bool = True,
    ) -> None:
        self._registry = registry
        self._subject = subject
        self._to_dict = to_dict
        self._auto_register = auto_register
        self._id: int | None = None
        if schema is None:
            self._id, self._schema = registry.version(subject)
            if self._schema.kind != self.kind:
                raise ConfigError(f"the latest schema of {subject!r} is of kind {self._schema.kind}, not {self.kind}")
        else:
            self._schema = _given(schema, self.kind)
        self._prepared = self._prepare(registry, self._schema)

    def __call__(self, value: T) -> bytes:
        """The bytes, with the id of the schema before them.

        Raises:
            SchemaError: the value does not fit the schema; says where.
            SchemaRegistryError: the schema cannot be registered, or is not.
        """
        given = value if self._to_dict is None else self._to_dict(value)
        payload = self._encode(self._prepared, given, f"a value of {self._subject!r}")
        if self._id is None:
            find = self._registry.register if self._auto_register else self._registry.look_up
            self._id = find(self._subject, self._schema)
        return ENVELOPE.pack(MAGIC, self._id) + payload

    @staticmethod
    @abstractmethod
    def _prepare(registry: SchemaRegistry, schema: RegisteredSchema) -> P:
        """What values are checked and written by. Raises ConfigError: the schema is none."""

    @staticmethod
    @abstractmethod
    def _encode(prepared: P, value: Any, what: str) -> bytes:
        """Raises SchemaError: the value does not fit."""


class SchemaDeserializer(ABC, Generic[T, P]):
    """Makes values of bytes that name their schema. For `key_deserializer` and `value_deserializer`.

    It asks the registry for each schema once, on the client's own thread: see `SchemaRegistry(timeout_ms=...)`.

    Args:
        registry: keeps the schemas.
        schema: as which values are read; None for that with which each was written.
        from_dict: makes a value of what the schema describes; by default that is the value. It is not called for a
            null, which is None; so type checkers take a value for what `from_dict` makes, or None.

    Raises:
        ConfigError: the schema is none.
    """

    kind: ClassVar[str]

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | dict[str, Any] | None = None,
        *,
        from_dict: Callable[[Any], T] | None = None,
    ) -> None:
        self._registry = registry
        self._from_dict = from_dict
        self._reader = None if schema is None else self._prepare(registry, _given(schema, self.kind))
        self._writers: dict[int, P] = {}

    def __call__(self, data: bytes | None) -> T:
        """The value; None for a null.

        Raises:
            SchemaError: the bytes are not of the schema that they name, or name none.
            SchemaRegistryError: the registry does not have the schema, or cannot be asked.
        """
        if data is None:
            return cast(T, None)
        schema_id = schema_id_of(data)
        found = self._decode(self._writer(schema_id), self._reader, data, f"bytes that name schema {schema_id}")
        return cast(T, found) if self._from_dict is None else self._from_dict(found)

    def _writer(self, schema_id: int) -> P:
        writer = self._writers.get(schema_id)
        if writer is None:
            schema = self._registry.schema(schema_id)
            check_kind(schema, self.kind, schema_id)
            writer = self._writers[schema_id] = self._prepare(self._registry, schema)
        return writer

    @staticmethod
    @abstractmethod
    def _prepare(registry: SchemaRegistry, schema: RegisteredSchema) -> P:
        """What values are checked and read by. Raises ConfigError: the schema is none."""

    @staticmethod
    @abstractmethod
    def _decode(writer: P, reader: P | None, data: bytes, what: str) -> Any:
        """What stands behind the envelope. Raises SchemaError: it does not fit."""


def schema_id_of(data: bytes) -> int:
    """The id of the schema that bytes name. Raises SchemaError: they name none."""
    if len(data) < ENVELOPE.size or data[0] != MAGIC:
        start = data[: ENVELOPE.size].hex(" ") or "nothing"
        raise SchemaError(
            f"these {len(data)} bytes name no schema: they begin with {start}, and were written by a serializer without"
            " a registry"
        )
    return int(ENVELOPE.unpack_from(data)[1])


def check_kind(schema: RegisteredSchema, kind: str, schema_id: int) -> None:
    """Raises SchemaError: a schema is of another kind than the deserializer."""
    if schema.kind != kind:
        raise SchemaError(f"schema {schema_id} is of kind {schema.kind}, not {kind}: it takes another deserializer")


def schemas_used(
    registry: SchemaRegistry, schema: RegisteredSchema, known: set[Reference] | None = None
) -> Iterator[tuple[Reference, RegisteredSchema]]:
    """All that a schema refers to, and that those refer to: each once, and behind what it needs itself.

    Raises:
        ConfigError: there are more than REFERENCES_MAX of them.
        SchemaRegistryError: the registry does not have one, or cannot be asked.
    """
    known = set() if known is None else known
    for reference in schema.references:
        if reference in known:
            continue
        known.add(reference)
        if len(known) > REFERENCES_MAX:
            raise ConfigError(
                f"{schema.text[:80]!r} and what it is used by need more than {REFERENCES_MAX} other schemas"
            )
        _, used = registry.version(reference.subject, reference.version, serialized=schema.kind == PROTOBUF)
        yield from schemas_used(registry, used, known)
        yield reference, used


def said(error: Exception) -> str:
    """What a library says, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _given(schema: str | dict[str, Any], kind: str) -> RegisteredSchema:
    return RegisteredSchema(schema if isinstance(schema, str) else json.dumps(schema), kind)
