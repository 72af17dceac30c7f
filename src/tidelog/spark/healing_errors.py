"""Why a table is not written, compared or summed up: errors of one line, with a tag in front for programs to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tidelog.base.errors import TidelogError


class HealingError(TidelogError):
    """A table, its rows or its checkpoint are not what they should be. Nothing was changed.

    Attributes:
        tag: one of TAGS, which is in the text as well: `[TABLE_CHANGED] …`.
    """

    def __init__(self, tag: str, text: str) -> None:
        super().__init__(f"[{tag}] {' '.join(text.split())}")
        self.tag = tag


TAGS = {
    "CHECKPOINT_UNREADABLE": "the checkpoint is not there, or not that of the query that runs",
    "PROVENANCE_MISSING": "the rows lack a column that says which record they came from, or it is null",
    "PROVENANCE_WRONG": "a column says that a row came from a record that the batch does not read",
    "STATE_CANNOT_HEAL": "the query holds state, which keeps what came from lost records",
    "TABLE_BEHIND": "batches are missing from the table",
    "TABLE_CHANGED": "somebody else changed the table while it was written",
    "TABLE_NOT_OURS": "the table was made by something else, or holds what cannot be healed",
    "TABLE_NOT_SHARED": "the files of the executors are not where the driver looks for them",
    "TABLE_OF_ANOTHER_QUERY": "the rows of the table are those of another query",
    "TABLE_SCHEMA": "the rows do not fit the table",
    "TABLE_UNREACHABLE": "the place of the table cannot be read or written, or what lies there is damaged",
}
"""What each tag means."""


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """Raise what an executor raised as itself, and not under Spark's tracebacks of it."""
    try:
        yield
    except Exception as error:
        found = re.search(r"HealingError: \[([A-Z_]+)\] (.*)", str(error))
        if found is None:
            raise
        raise HealingError(found[1], found[2]) from None
