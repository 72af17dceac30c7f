"""How far a command is, for people who wait."""

from __future__ import annotations

import pytest

from tidelog.cli.progress import Reporter


def test_without_a_terminal_progress_is_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter() as reporter:
        reporter.begin("counting", 1000)
        for done in (10, 260, 270, 510, 1000, 1000):
            reporter.advance(done)
    said = [line.split("] ")[1] for line in capsys.readouterr().err.splitlines()]
    assert said == ["counting ...", "counting: 260 of 1,000", "counting: 510 of 1,000", "counting: all 1,000"]
