"""Our messages as kafka-python's, and back: an implementation of the protocol that shares no code with ours."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

from support.clients.wire_samples import is_ours
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import Layout, WireType, layout_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a way that Python 3.11 deprecates
    _modules: tuple[Any, ...] = tuple(
        import_module(f"kafka.protocol.{name}") for name in ("producer", "consumer", "metadata", "admin", "sasl")
    )


def their_class(name: str) -> Any:
    """kafka-python's class of that name, which is Kafka's."""
    for module in _modules:
        if hasattr(module, name):
            return getattr(module, name)
    raise LookupError(f"kafka-python has no {name}")


def highest_version(name: str) -> int:
    return int(their_class(name).max_version)


def encode_with_kafka_python(message: Any, version: int) -> bytes:
    theirs = _to_theirs(message, layout_of(type(message)), version, their_class(type(message).__name__))
    return bytes(theirs.encode(version=version))


def encode_request_with_kafka_python(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole frame: size, header, body."""
    theirs = _to_theirs(message, layout_of(type(message)), version, their_class(type(message).__name__))
    theirs.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(theirs.encode(version=version, header=True, framed=True))


def decode_response_with_kafka_python(cls: type[Any], frame: bytes, version: int) -> tuple[int, Any]:
    """The correlation id and the message of a whole frame: size, header, body."""
    theirs = their_class(cls.__name__).decode(frame, version=version, header=True, framed=True)
    return theirs.header.correlation_id, _to_ours(theirs, layout_of(cls), version)


def decode_with_kafka_python(cls: type[Any], raw: bytes, version: int) -> Any:
    theirs = their_class(cls.__name__).decode(raw, version=version)
    return _to_ours(theirs, layout_of(cls), version)


def _their_name(name: str, cls: Any) -> str:
    """kafka-python patches the fields of some bit fields by hand, and gives those a name of its own."""
    return (
        "authorized_operations" if name.endswith("_authorized_operations") and name not in cls._struct.fields else name
    )


def _to_theirs(message: Any, layout: Layout, version: int, cls: Any) -> Any:
    fields = cls._struct.fields
    values = {
        spec.name: _value_to_theirs(
            getattr(message, spec.name), spec.type, version, fields[_their_name(spec.name, cls)]
        )
        for spec in layout.fields
        if version in spec.versions and not is_ours(spec)
    }
    return cls(version=version, **{_their_name(name, cls): value for name, value in values.items()})


def _value_to_theirs(value: Any, wire_type: WireType[Any], version: int, field: Any) -> Any:
    if value is None:
        return None
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return _to_theirs(value, wire_type.layout, version, field.data_class)
    if wire_type.kind == "array" and wire_type.element is not None and wire_type.element.layout is not None:
        return [_to_theirs(item, wire_type.element.layout, version, field.data_class) for item in value]
    if wire_type.kind == "uuid" and value == ZERO_UUID and field.tag is not None:
        return None  # their default of a tagged id
    if field._type_str == "bitfield":
        return field._type.from_32_bit_field(value)
    return value


def _to_ours(theirs: Any, layout: Layout, version: int) -> Any:
    values = {}
    for spec in layout.fields:
        if version not in spec.versions or is_ours(spec):
            values[spec.name] = spec.make_default()
            continue
        name = _their_name(spec.name, type(theirs))
        value = getattr(theirs, name)
        field = theirs._struct.fields[name]
        if field._type_str == "bitfield":
            bits = field._type.to_32_bit_field({31} if value is None else value)
            value = bits - (bits >> 31 << 32)
        values[spec.name] = _value_to_ours(value, spec.type, version)
    return layout.cls(**values)


def _value_to_ours(value: Any, wire_type: WireType[Any], version: int) -> Any:
    if wire_type.kind == "uuid":
        return ZERO_UUID if value is None else value
    if value is None:
        return None
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return _to_ours(value, wire_type.layout, version)
    if wire_type.kind == "array" and wire_type.element is not None and wire_type.element.layout is not None:
        return [_to_ours(item, wire_type.element.layout, version) for item in value]
    return value
