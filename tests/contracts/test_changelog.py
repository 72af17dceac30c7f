"""The changelog says what the fragments say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gather() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gather", ROOT / "changes" / "gather.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_changelog_is_that_of_the_fragments(gather: ModuleType) -> None:
    """Run `python changes/gather.py`."""
    page = (ROOT / "CHANGELOG.md").read_text()
    assert page == gather.changelog(page, gather.UNRELEASED)


def test_a_release_stays_below_what_is_not_released(gather: ModuleType) -> None:
    released = gather.changelog("", "0.2.0 (2027-01-01)")
    page = gather.changelog(gather.changelog(released, gather.UNRELEASED), gather.UNRELEASED)
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    assert titles == ["## Not released yet", "## 0.2.0 (2027-01-01)"]
