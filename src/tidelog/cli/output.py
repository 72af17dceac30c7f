"""Rows on their way out: a table for people, one JSON object a line for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, TextIO

from tidelog.base.invariant import invariant

Row = Mapping[str, object]

ROWS_HELD_MAX = 1_000
"""Rows looked at before the first is printed: they set the widths of a table's columns."""


class Rows(NamedTuple):
    """What a command found.

    Attributes:
        columns: what a table shows, in this order, as far as the first rows have it; None shows all that they have.
        rows: consumed once, while printing; may be endless.
        nothing: what a table says when there are no rows. JSON prints nothing then.
    """

    rows: Iterable[Row]
    columns: tuple[str, ...] | None = None
    nothing: str = "(none)"


class Section(NamedTuple):
    """Rows of one kind among others."""

    title: str
    """What a table is headed by."""
    facts: Row
    """What JSON repeats in each row of it."""
    rows: Rows


class Sections(NamedTuple):
    """Rows of several kinds, one table each."""

    sections: Iterable[Section]


class LiveRows(NamedTuple):
    """Rows that keep coming: each batch is printed and flushed before the next one is asked for.

    Attributes:
        columns: the order of a table's columns; the last one may be of any width.
        batches: consumed once, while printing; may be endless.
    """

    columns: tuple[str, ...]
    batches: Iterable[Sequence[Row]]


def print_live(found: LiveRows, output: str, stream: TextIO) -> None:
    """Write rows as they come: `output` is `table`, `json`, or `value` (each row's `value` as it is, and a newline)."""
    widths: list[int] | None = None
    for batch in found.batches:
        if output == "json":
            stream.write("".join(as_json(row) + "\n" for row in batch))
        elif output == "value":
            stream.flush()
            stream.buffer.write(b"".join(_raw(row["value"]) + b"\n" for row in batch))
            stream.buffer.flush()
        elif batch:
            texts = [[cell(row.get(column)) for column in found.columns] for row in batch]
            if widths is None:
                headings = [heading(column) for column in found.columns]
                widths = [max(len(line[place]) for line in [headings, *texts]) for place in range(len(headings))]
                stream.write(_line(headings, widths))
            stream.write("".join(_line(cells, widths) for cells in texts))
        stream.flush()


def print_sections(found: Sections, output: str, stream: TextIO) -> None:
    """Write one table after the other; in JSON, each row with the facts of its section."""
    for number, section in enumerate(found.sections):
        rows = section.rows
        if output == "json":
            facts = section.facts
            rows = rows._replace(rows=({**facts, **row} for row in rows.rows))
        else:
            title = "\n".join(map(printable, section.title.split("\n")))
            stream.write(f"{chr(10) if number else ''}{title}\n")
        print_rows(rows, output, stream)


def print_rows(found: Rows, output: str, stream: TextIO) -> None:
    """Write rows to `stream` as they come: `output` is `table`, `json`, or `value` (the first value of each row)."""
    if output == "value":
        for row in found.rows:
            stream.write(cell(next(iter(row.values()))) + "\n")
        return
    if output == "json":
        for row in found.rows:
            stream.write(as_json(row) + "\n")
        return
    rows = iter(found.rows)
    held = list(islice(rows, ROWS_HELD_MAX))
    if not held:
        stream.write(printable(found.nothing) + "\n")
        return
    present = dict.fromkeys(key for row in held for key in row)
    columns = tuple(column for column in found.columns or present if column in present)
    if stream.isatty() and len(held) < ROWS_HELD_MAX:
        _print_rich(columns, held, stream)
    else:
        _print_plain(columns, held, rows, stream)


def as_json(row: Row) -> str:
    """One object on one line. Bytes are text where they are UTF-8, and `{"base64": "…"}` where they are not."""
    import json  # a node that starts prints no JSON

    return json.dumps(row, ensure_ascii=False, default=_json_value)


def cell(value: object) -> str:
    """One value as a table shows it, on one line."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray | memoryview):
        return printable(bytes(value).decode("utf-8", "backslashreplace"))
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(cell(item) for item in value)
    if isinstance(value, Mapping):
        return " ".join(f"{key}={cell(item)}" for key, item in value.items())
    return printable(str(value))


def printable(text: str) -> str:
    """On one line, and harmless to a terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def heading(column: str) -> str:
    return column.replace("_", " ").upper()


def _json_value(value: object) -> object:
    """What JSON cannot say by itself."""
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            import base64

            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _raw(value: object) -> bytes:
    invariant(value is None or isinstance(value, bytes), "a record's value is {!r}", type(value))
    return value if isinstance(value, bytes) else b""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _print_plain(columns: tuple[str, ...], held: list[Row], rest: Iterable[Row], stream: TextIO) -> None:
    texts = [[cell(row.get(column)) for column in columns] for row in held]
    headings = [heading(column) for column in columns]
    widths = [max(len(line[place]) for line in [headings, *texts]) for place in range(len(columns))]
    to_the_right = [any(_is_number(row.get(column)) for row in held) for column in columns]

    later = ([cell(row.get(column)) for column in columns] for row in rest)
    for cells in chain([headings], texts, later):
        stream.write(_line(cells, widths, to_the_right))


def _line(cells: list[str], widths: list[int], to_the_right: list[bool] | None = None) -> str:
    right = to_the_right or [False] * len(cells)
    aligned = (
        text.rjust(width) if rightward else text.ljust(width)
        for text, width, rightward in zip(cells, widths, right, strict=True)
    )
    return "  ".join(aligned).rstrip() + "\n"


def _print_rich(columns: tuple[str, ...], held: list[Row], stream: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in columns:
        right = any(_is_number(row.get(column)) for row in held)
        table.add_column(heading(column), justify="right" if right else "left", overflow="fold")
    for row in held:
        table.add_row(*(Text(cell(row.get(column))) for column in columns))
    Console(file=stream, highlight=False).print(table)
