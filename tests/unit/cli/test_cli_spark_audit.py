"""What `tidelog spark audit` is told, before Spark is started."""

from __future__ import annotations

import pytest

from tidelog.cli.app import run
from tidelog.cli.command import FAILED, USAGE

TABLE = ("spark", "audit", "nowhere", "--checkpoint", "none")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "exactly one of --sql, --sql-file and --derive"),
        (("--sql", "SELECT 1", "--derive", "a:b"), "exactly one of --sql, --sql-file and --derive"),
        (("--derive", "no_such_module:rows"), "--derive no_such_module:rows: MODULE:FUNCTION is expected"),
        (("--derive", "json:nothing"), "--derive json:nothing: MODULE:FUNCTION is expected"),
        (("--derive", "json:__name__"), "__name__ is no function"),
    ],
)
def test_what_the_query_does_is_said_once(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*TABLE, *arguments]) == USAGE
    assert says in capsys.readouterr().err


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*TABLE, "--sql-file", "/nowhere/orders.sql"]) == FAILED
    assert "/nowhere/orders.sql" in capsys.readouterr().err
