"""Mutants of a source file: each is one change of what runs, and is known again when its lines move."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutants.known import StaleError, load_known
from mutants.mutations import mutants_of
from mutants.run_mutants import ROOT, TARGETS, main

KNOWN = ROOT / "tests" / "mutants"

SOURCE = '''"""A docstring."""
LIMIT: int | None = 3


@dataclass(frozen=True)
class One:
    def two(self, at: int | None = None) -> int:
        """A docstring."""
        name = f"{at + 1}"
        if at is None or not self.ready and at <= max(self.end, 7):
            self.end = at
        return self.end
'''


def changes(source: str) -> list[tuple[str, str, str]]:
    return [(mutant.place, mutant.before, mutant.after) for mutant in mutants_of("one.py", source)]


def test_what_runs_is_changed_in_each_place_and_nothing_else() -> None:
    two, whole = "one.py One.two", "at is None or (not self.ready and at <= max(self.end, 7))"
    last = "not self.ready and at <= max(self.end, 7)"
    assert sorted(changes(SOURCE)) == sorted(
        [
            ("one.py", "3", "(4)"),
            ("one.py", "3", "(2)"),
            (two, whole, "(at is None and (not self.ready and at <= max(self.end, 7)))"),
            (two, whole, f"({last})"),
            (two, whole, "(at is None)"),
            (two, "at is None", "(at is not None)"),
            (two, last, "(not self.ready or at <= max(self.end, 7))"),
            (two, last, "(at <= max(self.end, 7))"),
            (two, last, "(not self.ready)"),
            (two, "not self.ready", "(self.ready)"),
            (two, "at <= max(self.end, 7)", "(at < max(self.end, 7))"),
            (two, "at <= max(self.end, 7)", "(at > max(self.end, 7))"),
            (two, "max(self.end, 7)", "(min(self.end, 7))"),
            (two, "max(self.end, 7)", "(self.end)"),
            (two, "max(self.end, 7)", "(7)"),
            (two, "7", "(8)"),
            (two, "7", "(6)"),
            (two, "self.end = at", "pass"),
            (two, "return self.end", "return None"),
        ]
    )


def test_each_mutant_is_the_source_with_that_change_alone() -> None:
    for mutant in mutants_of("one.py", SOURCE):
        assert mutant.source != SOURCE
        ast.parse(mutant.source)
        lines = zip(SOURCE.splitlines(), mutant.source.splitlines(), strict=True)
        assert [number for number, (was, now) in enumerate(lines, 1) if was != now] == [mutant.line]


def test_work_that_is_done_in_pieces_counts_or_counts_nothing() -> None:
    source = "def f(pace):\n    if pace.counts(1 + 2 * len(names)):\n        yield\n"
    assert changes(source) == [
        ("one.py f", "pace.counts(1 + 2 * len(names))", "(not pace.counts(1 + 2 * len(names)))"),
        ("one.py f", "1 + 2 * len(names)", "(0)"),
    ]


def test_keys_stay_when_lines_move_and_tell_what_looks_alike_apart() -> None:
    moved = [mutant.key for mutant in mutants_of("one.py", f"\n\n{SOURCE}")]
    assert moved == [mutant.key for mutant in mutants_of("one.py", SOURCE)]
    twice = [mutant.number for mutant in mutants_of("one.py", "def f():\n    g()\n    g()\n")]
    assert twice == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[rules]\n99 = []", "no rule 99"),
        ('[rules]\n4a = ["one.py One.three"]', "of which there is no mutant"),
        (
            '[rules]\n[[equivalent]]\nplace = "one.py One.two"\nbefore = "7"\nafter = "(9)"\nwhy = "it is"',
            "no such mutant any more",
        ),
    ],
)
def test_what_is_known_of_what_is_gone_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    path, rows = tmp_path / "known.toml", tmp_path / "kips.md"
    path.write_text(text)
    rows.write_text("| # | rule |\n| 4a | one |\n")
    with pytest.raises(StaleError, match=message):
        load_known(path, rows, mutants_of("one.py", SOURCE))


def test_what_is_known_is_found_by_the_words_that_change(tmp_path: Path) -> None:
    path, rows = tmp_path / "known.toml", tmp_path / "kips.md"
    path.write_text(
        '[rules]\n4a = ["one.py One.two"]\n'
        '[[equivalent]]\nplace = "one.py One.two"\nbefore = "7"\nafter = "(8)"\nwhy = """it\n  is"""\n'
    )
    rows.write_text("| # | rule |\n| 4a | one |\n")
    mutants = list(mutants_of("one.py", SOURCE))
    known = load_known(path, rows, mutants)
    assert known.equivalents == {("one.py One.two", "7", "(8)", 1): "it is"}
    assert {known.rules_of(mutant) for mutant in mutants} == {(), ("4a",)}


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_known_of_mutants_is_of_those_that_there_are(name: str) -> None:
    """Otherwise none of the package can be tried."""
    target = TARGETS[name]
    paths = sorted(target.sources.glob("*.py"))
    mutants = (mutant for path in paths for mutant in mutants_of(path.name, path.read_text()))
    assert load_known(KNOWN / target.known, ROOT / "docs" / "kips.md", mutants)


def test_a_file_that_is_not_there_is_named_with_those_that_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leader.py", "reader.py"]) == 1
    assert "has no reader.py; it has " in (complaint := capsys.readouterr().err)
    assert " leader.py, " in complaint
