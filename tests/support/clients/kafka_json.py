"""Our messages in the JSON that Apache Kafka's own classes make of them."""

from __future__ import annotations

import base64
from typing import Any

from support.clients.wire_samples import is_ours
from tidelog.wire.schema import FieldSpec, Layout, WireType, layout_of

_NAMES = {"kraft_version_feature": "kRaftVersionFeature"}
_BYTES = {"requestData", "responseData"}
"""What are records here, so that nobody copies them, and bytes there."""


def kafka_json(message: Any, version: int) -> dict[str, Any]:
    """What Kafka's converter says of the message."""
    return _struct(message, layout_of(type(message)), version)


def _struct(value: Any, layout: Layout, version: int) -> dict[str, Any]:
    return dict(
        _field(getattr(value, spec.name), spec, version)
        for spec in layout.fields
        if version in spec.versions and not is_ours(spec)
    )


def _field(value: Any, spec: FieldSpec, version: int) -> tuple[str, Any]:
    first, *rest = spec.name.split("_")
    name = _NAMES.get(spec.name) or first + "".join(word.capitalize() for word in rest)
    if spec.type.kind == "records" and name not in _BYTES:  # which it leaves out
        return name, ""
    return name, _value(value, spec.type, version)


def _value(value: Any, wire_type: WireType[Any], version: int) -> Any:
    if value is None:
        return None
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return _struct(value, wire_type.layout, version)
    if wire_type.kind == "array":
        assert wire_type.element is not None
        return [_value(item, wire_type.element, version) for item in value]
    if wire_type.kind == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if wire_type.kind in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value
