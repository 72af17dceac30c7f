"""Names that pytest takes for one another."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_no_two_files_of_tests_have_one_name() -> None:
    """The folders are no packages: of two modules with one name, only the first can be imported."""
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
