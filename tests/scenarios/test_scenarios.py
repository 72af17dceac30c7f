"""Every scenario file plays as it is written, and ends differently under the rule that was replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.stories.datadriven import check_file
from support.stories.stories import player_of

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    check_file(path, player_of(path), is_rewriting=request.config.getoption("--rewrite"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_told_on_one_screen_and_proves_something(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 140
    assert any(line.startswith("replay rule=") for line in lines)
    assert "INVARIANT BROKEN" in lines[-1]
