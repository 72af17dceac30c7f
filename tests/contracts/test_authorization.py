"""Every API says what it needs of an authorizer, to the code and to operators."""

from __future__ import annotations

import re
from pathlib import Path

from tidelog.server.api.apis import APIS, OPEN_TO_ALL
from tidelog.server.api.needs import NEEDS
from tidelog.wire.api import APIS as DECLARED

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"


def test_every_api_says_what_it_needs() -> None:
    assert NEEDS.keys() == APIS.keys() - OPEN_TO_ALL


def test_operators_are_told_what_each_api_needs() -> None:
    text = SECURITY.read_text()
    table = text[text.index("## What each API needs") :]
    rows = [line.split("|")[1] for line in table[: table.index("```")].splitlines() if line.startswith("| ")]
    named = [name for row in rows for name in re.findall(r"[A-Z][A-Za-z]+", row)]
    assert not {DECLARED[key].name for key in APIS} - set(named)
