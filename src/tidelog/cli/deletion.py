"""Deleting several things by name: one that cannot be deleted keeps none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.base.errors import Code, KafkaError
from tidelog.cli.output import Row, Rows


def delete_each(
    names: Sequence[str], delete: Callable[[str], None], *, absent: Code, may_be_absent: bool = False
) -> Rows:
    """Delete each of these, and show which were.

    Args:
        delete: deletes one. What it raises keeps none of the others.
        absent: its code for what is not there.
        may_be_absent: whether that is no failure.

    Raises:
        KafkaError: the first refusal. It names what was deleted all the same, and how many more were refused.
    """
    deleted: list[str] = []
    refusals: list[KafkaError] = []
    for name in names:
        try:
            delete(name)
        except KafkaError as error:
            if error.code is not absent or not may_be_absent:
                refusals.append(error)
        else:
            deleted.append(name)
    if refusals:
        more = f" (and {len(refusals) - 1} more)" if len(refusals) > 1 else ""
        done = f"; deleted: {', '.join(deleted)}" if deleted else ""
        raise KafkaError(f"{refusals[0]}{more}{done}", code=refusals[0].code)
    rows: list[Row] = [{"deleted": name} for name in deleted]
    return Rows(rows, nothing="none was there")
