"""`[TAG]{json}` in the text of an error or in a line of a log: for programs to read, wherever Spark has put it.

Spark hands the errors of a Python source on as text. A tag begins what ours say, and stands on one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

LOG_TRUNCATION = "LOG_TRUNCATION"
OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"

_TAG = re.compile(r"\[([A-Z][A-Z0-9_]*)\](?=\{)")


class Tagged(NamedTuple):
    """What a tag says.

    Attributes:
        tag: such as `LOG_TRUNCATION`.
        details: the JSON object behind it.
    """

    tag: str
    details: dict[str, object]


def tagged_text(tag: str, details: Mapping[str, object]) -> str:
    """The tag and its JSON, without a line break."""
    return f"[{tag}]{json.dumps(details, sort_keys=True)}"


def find_tag(said: object, tag: str | None = None) -> Tagged | None:
    """The first `[TAG]{json}` in what Spark said; None if there is none.

    Args:
        said: an exception such as `StreamingQueryException`, the text of one, or a line of the driver's log.
        tag: only this one, such as `LOG_TRUNCATION`.
    """
    text = str(said)
    for match in _TAG.finditer(text):
        if tag is not None and match[1] != tag:
            continue
        try:
            details, _ = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            continue  # cut off by a log, or of somebody else
        return Tagged(match[1], details)
    return None
