"""Requests from what they say, for tests that write many of them."""

from __future__ import annotations

from typing import Any

from support.clients.wire_samples import minimal
from tidelog.wire.api import ApiKey, api
from tidelog.wire.schema import layout_of


def request_from(key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    """A request that says this by field, and nothing else; its parts are dictionaries too."""
    return _built(api(key).request, values, version)


def _built(cls: type[Any], values: dict[str, Any], version: int) -> Any:
    message = minimal(cls, version)
    types = {spec.name: spec.type for spec in layout_of(cls).fields}
    for name, said in values.items():
        layout, element, value = types[name].layout, types[name].element, said
        if isinstance(said, dict) and layout is not None:
            value = _built(layout.cls, said, version)
        elif isinstance(said, list) and element is not None and element.layout is not None:
            value = [_built(element.layout.cls, one, version) for one in said]
        setattr(message, name, value)
    return message
