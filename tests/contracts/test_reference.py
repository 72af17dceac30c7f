"""The pages of docs/reference are what the tables in the code say."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from tidelog.base.errors import Code
from tidelog.metadata.configs import TABLE

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE_NAMES = sorted(path.name for path in REFERENCE.glob("*.md"))


def pages() -> dict[str, Callable[[], str]]:
    spec = spec_from_file_location("reference_generate", REFERENCE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    written: dict[str, Callable[[], str]] = module.PAGES
    return written


def test_every_page_has_what_writes_it() -> None:
    assert sorted(pages()) == PAGE_NAMES


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    committed = (REFERENCE / name).read_text(encoding="utf-8")
    assert committed == pages()[name](), "the tables changed: run `python docs/reference/generate.py`"


def test_no_key_and_no_code_is_missing() -> None:
    configuration = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    for scope in TABLE.values():
        for name in scope:
            assert f"\n| `{name}` |" in configuration
    codes = (REFERENCE / "error-codes.md").read_text(encoding="utf-8")
    for code in Code:
        assert f"\n| {int(code)} | `{code.name}` |" in codes
