"""Text and JSON without a schema, and nulls."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog.serialization import from_json, from_text, or_none, to_json


@pytest.mark.parametrize("value", [{"größe": [1, 2.5, None, True]}, "x", 0, None])
def test_what_is_written_as_json_is_read(value: Any) -> None:
    assert from_json(to_json(value)) == value


def test_json_is_compact_and_in_utf_8() -> None:
    assert to_json({"ä": [1, 2]}) == '{"ä":[1,2]}'.encode()
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(float("nan"))
    with pytest.raises(TypeError, match="not JSON serializable"):
        to_json(object())


def test_a_null_is_none() -> None:
    assert (from_json(None), from_text(None), or_none(int)(None)) == (None, None, None)
    assert (from_text("ä".encode()), or_none(int)(b"5")) == ("ä", 5)
