"""Each rule that was replaced is refuted by a story of its own, and the README says which story needs which."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stories.datadriven import blocks
from support.stories.stories import KINDS
from support.stories.story_table import Row, readme, rows

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def table() -> list[Row]:
    return list(rows(HERE))


@pytest.mark.parametrize("beginning", KINDS)
def test_every_replaced_rule_has_a_story_of_its_own(beginning: str) -> None:
    told = [list(blocks(path)) for path in HERE.glob("*.txt")]
    rules = {story[-1][0][0].options["rule"] for story in told if story[0][0][0].name == beginning}
    assert rules == KINDS[beginning].old_rules.keys()


def test_every_story_is_broken_by_its_own_rule(table: list[Row]) -> None:
    assert [row.story for row in table if row.own not in row.breaking] == []


def test_the_readme_is_current(table: list[Row], request: pytest.FixtureRequest) -> None:
    path = HERE / "README.md"
    if request.config.getoption("--rewrite"):
        path.write_text(readme(table))
    assert path.read_text() == readme(table), "pytest tests/scenarios --rewrite writes it anew"
