"""What the docs name is there: a row of docs/kips.md that points nowhere, or claims without a test, is a lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
KIPS = ROOT / "docs" / "kips.md"
DOCS = [
    *sorted(ROOT.glob("*.md")),
    *(path for folder in ("docs", "changes", "tests") for path in sorted((ROOT / folder).rglob("*.md"))),
]


class Rule(NamedTuple):
    number: str
    rule: str
    status: str
    code: list[str]
    shown_by: list[str]


def rules() -> list[Rule]:
    found = []
    for line in KIPS.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and re.fullmatch(r"[A-Z]?\d+[a-z]?", cells[0]):
            number, rule, status, code, shown_by = cells
            found.append(Rule(number, rule, status, re.findall(r"`([^`]+)`", code), re.findall(r"`([^`]+)`", shown_by)))
    return found


def test_the_rules_are_all_there_once() -> None:
    numbers = [rule.number for rule in rules()]
    assert len(numbers) == len(set(numbers))
    of_replication = {int(number.rstrip("abcdefghijkl")) for number in numbers if number[0].isdigit()}
    assert of_replication == set(range(1, 15))
    assert {number[0] for number in numbers if number[0].isalpha()} == {"C", "S", "H", "Q", "T", "D", "G", "P", "M"}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.number)
def test_a_rule_says_where_it_stands_and_proves_it(rule: Rule) -> None:
    assert rule.status in ("served", "partly", "planned")
    assert bool(rule.code) == bool(rule.shown_by) == (rule.status != "planned")
    missing = [path for path in rule.code if not (ROOT / "src" / "tidelog" / path).exists()]
    missing += [path for path in rule.shown_by if not (ROOT / "tests" / path.partition("::")[0]).exists()]
    assert missing == []
    for place in rule.shown_by:
        path, _, test = place.partition("::")
        assert not test or f"def {test}(" in (ROOT / "tests" / path).read_text()


def leads_somewhere(path: Path, link: str) -> bool:
    """Whether the file is there that a link in `path` names, and the heading in it."""
    target, _, anchor = link.partition("#")
    page = path.parent / target if target else path
    if not anchor:
        return page.exists()
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", DOCS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_docs_lead_somewhere(path: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^):]+)\)", prose)
    assert [link for link in links if not leads_somewhere(path, link)] == []


def test_the_readme_shows_no_command_that_is_not_there() -> None:
    from tidelog.cli.app import COMMANDS

    named = re.findall(
        r"^\$ (?:.*\| )?tidelog ([a-z-]+)(?: ([a-z-]+))?", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert named
    for name, inner in named:
        assert name in COMMANDS
        entry = COMMANDS[name]
        assert isinstance(entry, str) or inner in entry
