"""Protobuf, by Google's library. Confluent: `ProtobufSerializer`, `ProtobufDeserializer`.

Between the id of the schema and the message, Confluent's wire format says which message of the file it is: how many
indexes there are, then each of them, from the outermost message to the nested one, as signed varints. A single 0 stands
for the first message of the file.

    syntax = "proto3";
    message Order {}            00
    message Refund {            02 02           1 index: 1
      message Line {}           04 02 00        2 indexes: 1, 0
    }

The library cannot parse the text of a .proto file; that takes protoc. So schemas travel in the serialized form, a
FileDescriptorProto in base64, as Confluent's own serializer for Python sends and asks for them. The registry turns one
form into the other.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast, overload

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tidelog.base.errors import ConfigError, MalformedMessageError
from tidelog.schemas.codec import ENVELOPE, MAGIC, check_kind, said, schema_id_of, schemas_used
from tidelog.schemas.errors import SchemaError
from tidelog.schemas.registry import PROTOBUF, Reference, RegisteredSchema, SchemaRegistry
from tidelog.wire.primitives import read_varint, varint

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # of type checkers, which know the defaults (PEP 696)

    M = TypeVar("M", bound=Message)
    T = TypeVar("T", default=Message | None)
else:
    from typing import TypeVar

    M = TypeVar("M", bound=Message)
    T = TypeVar("T")

BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that registries have of themselves, and that need no reference."""
INDEXES_MAX = 100
"""So deep Protobuf lets messages be nested."""

Descriptor: TypeAlias = Any  # the library has its own in Python and in C, and no type for both
FileDescriptor: TypeAlias = Any


class ProtobufSerializer(Generic[M]):
    """Makes bytes of messages. For `key_serializer` and `value_serializer`.

    Args:
        registry: keeps the schema.
        subject: whose schema it is there: `TOPIC-value` or `TOPIC-key`, unless the registry's users agreed otherwise.
        message_type: the class that protoc generated.
        schema: the text of the .proto file, with its references if it imports others (`RegisteredSchema`). None for
            what the class knows of its file; files that this imports are registered under their names.
        auto_register: whether schemas are registered if they are not yet; else that is an error.

    Raises:
        ConfigError: the class is none of a message, or the schema is of another kind.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        subject: str,
        message_type: type[M],
        schema: RegisteredSchema | str | None = None,
        *,
        auto_register: bool = True,
    ) -> None:
        self._registry = registry
        self._subject = subject
        self._message_type = message_type
        self._name = _checked(message_type).full_name
        self._schema = RegisteredSchema(schema, PROTOBUF) if isinstance(schema, str) else schema
        if self._schema is not None and self._schema.kind != PROTOBUF:
            raise ConfigError(f"ProtobufSerializer: the schema is of kind {self._schema.kind}, not {PROTOBUF}")
        self._find = registry.register if auto_register else registry.look_up
        self._indexes = _written_indexes(message_type.DESCRIPTOR)
        self._head: bytes | None = None

    def __call__(self, value: M) -> bytes:
        """The bytes, with the id of the schema and the indexes of the message before them.

        Raises:
            SchemaError: the value is of another class, or lacks a field that its schema requires.
            SchemaRegistryError: the schema cannot be registered, or is not.
        """
        if not isinstance(value, self._message_type):
            found = value.DESCRIPTOR.full_name if isinstance(value, Message) else type(value).__name__
            if found == self._name:
                found += " of another class"  # as deserializers without a class make it
            raise SchemaError(f"a value of {self._subject!r} is a {found}, not a {self._name}")
        try:
            payload = value.SerializeToString()
        except Exception as error:  # EncodeError, and what setters let through
            raise SchemaError(f"a value of {self._subject!r} cannot be written: {said(error)}") from error
        if self._head is None:
            schema = self._schema or self._schema_of(self._message_type.DESCRIPTOR.file)
            self._head = ENVELOPE.pack(MAGIC, self._find(self._subject, schema)) + self._indexes
        return self._head + payload

    def _schema_of(self, file: FileDescriptor) -> RegisteredSchema:
        """What is registered of a file, once what it imports is."""
        references = []
        for used in file.dependencies:
            if not used.name.startswith(BUILT_IN):
                schema = self._schema_of(used)
                self._find(used.name, schema)
                version = self._registry.version_of(used.name, schema)
                references.append(Reference(used.name, used.name, version))
        return RegisteredSchema(b64encode(file.serialized_pb).decode(), PROTOBUF, tuple(references))


class ProtobufDeserializer(Generic[T]):
    """Makes messages of bytes that name their schema. For `key_deserializer` and `value_deserializer`.

    It asks the registry for each schema once, on the client's own thread: see `SchemaRegistry(timeout_ms=...)`.

    Args:
        registry: keeps the schemas.
        message_type: the class that protoc generated; bytes of another message are refused. None for whatever message
            was written, of a class that is made of its schema.

    Raises:
        ConfigError: the class is none of a message.
    """

    @overload
    def __init__(self: ProtobufDeserializer[Message | None], registry: SchemaRegistry) -> None: ...

    @overload
    def __init__(self: ProtobufDeserializer[M | None], registry: SchemaRegistry, message_type: type[M]) -> None: ...

    def __init__(self, registry: SchemaRegistry, message_type: type[Any] | None = None) -> None:
        self._registry = registry
        self._message_type = message_type
        self._name = None if message_type is None else _checked(message_type).full_name
        self._files: dict[int, FileDescriptorProto | None] = {}
        self._types: dict[tuple[int, tuple[int, ...]], type[Message]] = {}

    def __call__(self, data: bytes | None) -> T:
        """The message; None for a null.

        Raises:
            SchemaError: the bytes are not of the schema that they name, are of another message, or name no schema.
            SchemaRegistryError: the registry does not have the schema, or cannot be asked.
        """
        if data is None:
            return cast(T, None)
        schema_id = schema_id_of(data)
        indexes, start = _read_indexes(data, schema_id)
        message_type = self._types.get((schema_id, indexes)) or self._type_of(schema_id, indexes)
        try:
            return cast(T, message_type.FromString(data[start:]))
        except Exception as error:  # DecodeError, and what the pure Python of the library raises
            name = message_type.DESCRIPTOR.full_name
            raise SchemaError(f"bytes that name schema {schema_id} cannot be read as {name}: {said(error)}") from error

    def _type_of(self, schema_id: int, indexes: tuple[int, ...]) -> type[Message]:
        """The class of a message of a schema. Raises SchemaError: there is none, or it is not the one that is read."""
        schema = self._registry.schema(schema_id, serialized=True)
        if schema_id not in self._files:
            check_kind(schema, PROTOBUF, schema_id)
            self._files[schema_id] = _file_in(schema.text)
        file = self._files[schema_id]
        if file is None:
            if self._message_type is None:
                raise SchemaError(
                    f"schema {schema_id} came as the text of a .proto file, which cannot be parsed without protoc:"
                    " give ProtobufDeserializer the message class"
                )
            return self._message_type  # which message the indexes mean only the text says
        name = _name_of(file, indexes)
        if name is None:
            raise SchemaError(
                f"bytes that name schema {schema_id} are of message {list(indexes)}, and the schema has no such message"
            )
        if self._message_type is None:
            found = _made_of(self._registry, schema_id, schema, file, name)
        elif name == self._name:
            found = self._message_type
        else:
            raise SchemaError(f"bytes that name schema {schema_id} are of {name}, not {self._name}")
        self._types[schema_id, indexes] = found
        return found


def _checked(message_type: type[Message]) -> Descriptor:
    """What a class of messages is described by. Raises ConfigError: it is none."""
    if isinstance(message_type, type) and issubclass(message_type, Message):
        return message_type.DESCRIPTOR
    raise ConfigError(f"{message_type!r} is no message class; protoc generates them of .proto files")


# Which message of a file.
def _written_indexes(message: Descriptor) -> bytes:
    indexes: list[int] = []
    while message.containing_type is not None:
        outer = message.containing_type
        indexes.insert(0, [one.name for one in outer.nested_types].index(message.name))
        message = outer
    indexes.insert(0, list(message.file.message_types_by_name).index(message.name))
    if indexes == [0]:
        return varint(0)
    return b"".join(map(varint, (len(indexes), *indexes)))


def _read_indexes(data: bytes, schema_id: int) -> tuple[tuple[int, ...], int]:
    """The indexes of the message, and where it begins. Raises SchemaError."""
    what = f"bytes that name schema {schema_id}"
    indexes = []
    try:
        count, position = read_varint(data, ENVELOPE.size)
        if not 0 <= count <= INDEXES_MAX:
            raise SchemaError(f"{what} have {count} indexes of their message: from 0 to {INDEXES_MAX} are allowed")
        for _ in range(count):
            index, position = read_varint(data, position)
            indexes.append(index)
    except MalformedMessageError as error:
        raise SchemaError(f"{what} end within the indexes of their message: {error}") from None
    return tuple(indexes) or (0,), position


def _name_of(file: FileDescriptorProto, indexes: Iterable[int]) -> str | None:
    """The full name of a message; None if the file has no such message."""
    path = [file.package] if file.package else []
    messages: Sequence[DescriptorProto] = file.message_type
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        path.append(messages[index].name)
        messages = messages[index].nested_type
    return ".".join(path)


# Schemas in the serialized form.
def _file_in(text: str) -> FileDescriptorProto | None:
    """What the serialized form describes; None for the text of a file."""
    try:
        return FileDescriptorProto.FromString(b64decode(text, validate=True))
    except Exception:  # base64's ValueError, DecodeError
        return None


def _made_of(
    registry: SchemaRegistry, schema_id: int, schema: RegisteredSchema, file: FileDescriptorProto, name: str
) -> type[Message]:
    """A class of the messages of that name. Raises SchemaError: the schema, or one that it imports, is none."""
    pool: Any = DescriptorPool()  # its methods have no types
    try:
        files = [(reference.name, _file_in(used.text)) for reference, used in schemas_used(registry, schema)]
        for used_name, used in (*files, (f"//{schema_id}", file)):
            if used is None:
                raise SchemaError(f"{used_name!r}, which it imports, came as the text of a .proto file")
            for dependency in used.dependency:
                _add_built_in(pool, dependency)
            used.name = used_name
            pool.Add(used)
        return GetMessageClass(pool.FindMessageTypeByName(name))
    except (SchemaError, ConfigError, TypeError, KeyError, ImportError) as error:  # a pool raises TypeError
        raise SchemaError(f"schema {schema_id} is no Protobuf schema: {said(error)}") from error


def _add_built_in(pool: Any, name: str) -> None:
    """Let a pool have a file that comes with the library, and what it imports. Raises ImportError: there is none."""
    if name.startswith(BUILT_IN):
        file: FileDescriptor = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR
        for dependency in file.dependencies:
            _add_built_in(pool, dependency.name)
        pool.AddSerializedFile(file.serialized_pb)
