"""The rules of the house that import-linter cannot see by itself."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tidelog"

# Below io: nothing here may reach for a clock, a random number, a disk, a network or a thread.
BELOW_IO = {
    "base", "wire", "records", "log", "journal", "metadata",
    "replica", "quorum", "share", "security", "controller", "coordinator",
}  # fmt: skip
REACHES = {"uuid4", "uuid1", "getrandbits", "token_bytes", "urandom"}
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}


def pure_roots() -> list[str]:
    """The packages that there are and must be pure, as dotted names."""
    found = [name for name in sorted(BELOW_IO) if (PACKAGE / name).is_dir() and any((PACKAGE / name).rglob("*.py"))]
    if (PACKAGE / "client" / "core").is_dir():
        found.append("client.core")
    return [f"tidelog.{name}" for name in found]


def pure_files() -> Iterator[Path]:
    for root in pure_roots():
        yield from sorted((ROOT / "src" / root.replace(".", "/")).rglob("*.py"))


def reaches_for_the_world(source: str) -> list[str]:
    """Calls of `uuid4`, `datetime.now` and their like, as `line: what`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found += [f"{node.lineno}: {name.name}" for name in node.names if name.name in REACHES]
        elif isinstance(node, ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else getattr(node.value, "attr", "")
            if node.attr in REACHES or (owner, node.attr) in CLOCKS:
                found.append(f"{node.lineno}: {owner}.{node.attr}")
    return found


@pytest.mark.parametrize("path", list(pure_files()), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_pure_code_is_given_its_clock_and_its_randomness(path: Path) -> None:
    assert reaches_for_the_world(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    ["import uuid\nuuid.uuid4()", "from uuid import uuid4", "import datetime\ndatetime.datetime.now()", "date.today()"],
)
def test_the_check_above_sees_what_it_forbids(source: str) -> None:
    assert reaches_for_the_world(source)


def test_every_pure_package_is_under_the_contract() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = {contract["id"]: contract for contract in settings["tool"]["importlinter"]["contracts"]}
    assert sorted(contracts["pure"]["source_modules"]) == sorted(pure_roots())
