"""Rows as people and programs see them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

from tidelog.cli.output import LiveRows, Row, Rows, Section, Sections, print_live, print_rows, print_sections


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ROWS: list[Row] = [
    {"topic": "a", "partition": 0, "isr": [1, 2], "leader": None},
    {"topic": "longer", "partition": 10, "isr": [], "leader": 2},
]


def printed(rows: Rows, output: str) -> str:
    stream = io.StringIO()
    print_rows(rows, output, stream)
    return stream.getvalue()


def test_a_table_aligns_numbers_to_the_right_and_shows_none_as_a_dash() -> None:
    assert printed(Rows(ROWS), "table") == (
        "TOPIC   PARTITION  ISR  LEADER\n"
        "a               0  1,2       -\n"
        "longer         10            2\n"
    )  # fmt: skip


def test_json_is_one_object_a_line() -> None:
    lines = printed(Rows(ROWS), "json").splitlines()
    assert [json.loads(line) for line in lines] == ROWS


def test_bytes_in_json_are_text_or_base64_never_mangled() -> None:
    line = printed(Rows([{"key": "é".encode(), "value": b"\xff"}]), "json")
    assert json.loads(line) == {"key": "é", "value": {"base64": "/w=="}}


def test_no_rows_are_said_in_a_table_and_nothing_in_json() -> None:
    assert printed(Rows([], nothing="no topics"), "table") == "no topics\n"
    assert printed(Rows([], nothing="no topics"), "json") == ""


def test_what_is_said_of_no_rows_is_harmless_to_a_terminal() -> None:
    assert printed(Rows([], nothing="\x1b[31m has none"), "table") == "\\x1b[31m has none\n"
    stream = io.StringIO()
    print_sections(Sections([Section("of \x1b[31m\nand more", {}, Rows([]))]), "table", stream)
    assert stream.getvalue() == "of \\x1b[31m\nand more\n(none)\n"


def test_columns_choose_and_order_what_a_table_shows() -> None:
    assert printed(Rows(ROWS, columns=("partition", "topic")), "table").splitlines()[0] == "PARTITION  TOPIC"


def test_a_long_table_is_printed_without_holding_it_all() -> None:
    taken = 0
    stream = io.StringIO()

    def rows() -> Iterator[Row]:
        nonlocal taken
        for number in range(5_000):
            if number == 4_000:
                assert stream.getvalue().count("\n") > 2_000
            taken += 1
            yield {"number": number}

    print_rows(Rows(rows()), "table", stream)
    assert taken == 5_000
    assert stream.getvalue().splitlines()[-1].strip() == "4999"


def test_a_terminal_gets_a_table_with_every_cell_as_it_is() -> None:
    terminal = Terminal()
    print_rows(Rows([{"name": "[bold]x[/bold]", "value": "a\nb"}]), "table", terminal)
    assert "[bold]x[/bold]" in terminal.getvalue()
    assert "a\\nb" in terminal.getvalue()


def test_a_cell_is_one_line_and_harmless_to_a_terminal() -> None:
    assert printed(Rows([{"value": b"a\x1b[31m\n\xff"}]), "table").splitlines()[1] == "a\\x1b[31m\\n\\xff"


def test_sections_have_titles_in_tables_and_facts_in_json() -> None:
    sections = [Section("first file", {"file": 1}, Rows([{"a": 1}])), Section("second", {"file": 2}, Rows([{"b": 2}]))]
    stream = io.StringIO()
    print_sections(Sections(sections), "table", stream)
    assert stream.getvalue() == "first file\nA\n1\n\nsecond\nB\n2\n"
    stream = io.StringIO()
    print_sections(Sections(sections), "json", stream)
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [{"file": 1, "a": 1}, {"file": 2, "b": 2}]


def test_live_rows_are_out_before_the_next_batch_is_asked_for() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer)

    def batches() -> Iterator[list[Row]]:
        yield [{"offset": 0, "value": b"\xffone"}]
        assert buffer.getvalue() == b"\xffone\n"
        yield [{"offset": 1, "value": None}, {"offset": 2, "value": b"two"}]
        assert buffer.getvalue() == b"\xffone\n\ntwo\n"

    print_live(LiveRows(("offset", "value"), batches()), "value", stream)


def test_a_live_table_has_its_heading_once() -> None:
    stream = io.StringIO()
    batches: list[list[Row]] = [[], [{"offset": 0, "value": b"a"}], [{"offset": 100_000_000, "value": b"b"}]]
    print_live(LiveRows(("offset", "value"), batches), "table", stream)
    assert stream.getvalue().splitlines() == ["OFFSET  VALUE", "0       a", "100000000  b"]
