"""Runs add up in one file, and in the table of a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.report import MARKS, Row, Struck, add_row, main, put_into, read_rows, table_of

ROWS = (
    Row(kind="kill -9", seed=1, nodes=3, is_sealed=True, seconds=1_800, acknowledged=1_000, copied=500,
        pauses={"ours": 1.5, "theirs": 0.5}, packets={"passed": 1},
        faults=[Struck(kind="kill -9", what="node 1", at=0.5)]),
    Row(kind="kill -9", seed=2, nodes=5, is_sealed=True, seconds=1_800, acknowledged=234, lost=3, unreported=1,
        findings={"LOST": 3, "VANISHED": 1}, error="Traceback\nAssertionError: 4 findings"),
    Row(kind="unclean election", seed=3, nodes=3, is_sealed=False, seconds=360, lost=20, told_readers=2),
)  # fmt: skip


def test_rounds_add_up_over_runs(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.json"
    assert read_rows(path) == []
    for row in ROWS:
        add_row(path, row)
    assert read_rows(path) == list(ROWS)
    assert [one.name for one in path.parent.iterdir()] == ["report.json"]
    assert table_of(read_rows(path)).splitlines()[2:] == [
        "| kill -9 | 1.00 | 2 | 1 | 1,234 | 500 | 3 | 1 | 0 | 1.5 s | 1 |",
        "| unclean election | 0.10 | 1 | 0 | 0 | 0 | 20 | 0 | 2 |  | 0 |",
        "| all | 1.10 | 3 | 1 | 1,234 | 500 | 23 | 1 | 2 | 1.5 s | 1 |",
    ]


def test_a_round_says_what_is_wrong_in_one_line() -> None:
    assert ROWS[1].summary().endswith("WRONG: AssertionError: 4 findings")
    assert ROWS[0].summary().endswith("nothing wrong")
    assert "stalled" not in ROWS[0].summary()
    assert "librdkafka's members stalled 2 times" in replace(ROWS[0], stalls=2).summary()


def test_several_reports_add_up_on_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("".join(MARKS))
    reports = [tmp_path / f"{row.seed}.json" for row in ROWS]
    for path, row in zip(reports, ROWS, strict=True):
        add_row(path, row)
    assert main([*map(str, reports), "--into", str(page)]) == 0
    assert page.read_text() == f"{MARKS[0]}\n{table_of(ROWS)}\n{MARKS[1]}"


def test_the_table_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{MARKS[0]}\nold\n{MARKS[1]}\nafter\n")
    put_into(page, "new")
    put_into(page, "newer")
    assert page.read_text() == f"before\n{MARKS[0]}\nnewer\n{MARKS[1]}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(ValueError, match="has no <!-- chaos -->"):
        put_into(page, "new")
