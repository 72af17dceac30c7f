"""Answers that deny: their rows are made by the layout of the answer, from what the request lists.

Kafka: `AbstractRequest.getErrorResponse` of each request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tidelog.base.errors import KafkaError
from tidelog.server.api.division import Division
from tidelog.wire.schema import FieldSpec, layout_of

NAMES = ("name", "topic", "topic_name")
"""How rows call a topic: a request and its answer may differ in that."""
IDENTITY = frozenset(
    (
        "topic_id",
        "group_id",
        "transactional_id",
        "producer_id",
        "resource_name",
        "resource_type",
        "partition_index",
        "partition",
        "index",
        "entity",
    )
)
"""What else a row of an answer has in common with what was listed."""
PLAIN = ("name", "key", "group_id", "transactional_id", "partition_index", "partition_id")
"""What a row of an answer is called by where a name, or a number, was listed alone."""
CODES = frozenset(("error_code", "partition_error_code"))


def blank(cls: type[Any], **values: object) -> Any:
    """A message or a part of one that says nothing but these values."""
    for spec in layout_of(cls).fields:
        if spec.is_required and spec.name not in values:
            values[spec.name] = _nothing(spec)
    return cls(**values)


def _nothing(spec: FieldSpec) -> object:
    """What Kafka sends for a number that is not known is -1."""
    wire_type = spec.type
    if spec.name in CODES:
        return 0
    if wire_type.kind == "fixed" and wire_type.code != "?":
        return -1
    if wire_type.kind == "struct":
        assert wire_type.layout is not None
        return blank(wire_type.layout.cls)
    return spec.make_default()


def row_class(answer_class: type[Any], field: str) -> type[Any]:
    """Of the rows in a field of an answer, or of another row."""
    for spec in layout_of(answer_class).fields:
        if spec.name == field:
            assert spec.type.element is not None
            assert spec.type.element.layout is not None
            return spec.type.element.layout.cls
    raise AttributeError(f"{answer_class.__name__} has no field {field!r}")


def denied_row(division: Division, cls: type[Any], one: Any, error: KafkaError, version: int) -> Any:
    """The row of an answer that says of one of those listed that it is denied.

    Args:
        division: how what is listed lies in the request, and its answer in the answer.
        cls: of the row.
        version: of the request.
    """
    specs = {spec.name: spec for spec in layout_of(cls).fields if version in spec.versions}
    values: dict[str, Any] = dict.fromkeys(specs.keys() & CODES, error.code)
    inner = division.inner
    if not values and inner is not None and inner.answered in specs:
        of_inner = row_class(cls, inner.answered)
        values[inner.answered] = [
            denied_row(inner, of_inner, each, error, version) for each in getattr(one, inner.listed) or ()
        ]
    if "error_message" in specs:
        values["error_message"] = str(error)
    if isinstance(one, str | int | UUID):
        values[next(name for name in PLAIN if name in specs)] = one
        return blank(cls, **values)
    for name in specs:
        if name in IDENTITY and hasattr(one, name):
            values[name] = getattr(one, name)
        elif name in NAMES:
            values[name] = next((getattr(one, each) for each in NAMES if hasattr(one, each)), "")
    return blank(cls, **values)


def denied_answer(
    answer_class: type[Any],
    division: Division | None,
    request: Any,
    error: KafkaError,
    version: int,
    *,
    in_rows: bool = False,
) -> Any:
    """The answer to a request of which nothing is allowed.

    Args:
        in_rows: its rows say so too, though the answer as a whole does. They do anyway where the whole has no place
            for it.
    """
    specs = {spec.name for spec in layout_of(answer_class).fields if version in spec.versions}
    values: dict[str, Any] = {}
    if "error_code" in specs:
        values["error_code"] = error.code
    if "error_message" in specs:
        values["error_message"] = str(error)
    if division is not None and (in_rows or "error_code" not in specs):
        cls = row_class(answer_class, division.answered)
        values[division.answered] = [
            denied_row(division, cls, one, error, version) for one in getattr(request, division.listed) or ()
        ]
    return blank(answer_class, **values)


def in_place(rows: Sequence[Any], answered: Sequence[Any]) -> list[Any]:
    """The rows of what was allowed among those of what was denied, in the order in which they were listed.

    Args:
        rows: None in the place of each that was allowed.
        answered: of those; the denied ones follow them where a row for each cannot be told.
    """
    if rows.count(None) == len(answered):
        rest = iter(answered)
        return [next(rest) if row is None else row for row in rows]
    return [*answered, *(row for row in rows if row is not None)]
