"""The Python of the README and of the docs type-checks as strictly as a user may ask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IN_PIECES = ("spark-healing", "spark-unclean-election")
"""Pages whose blocks are one program, which a test runs."""
PAGES = [
    ROOT / "README.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.stem not in IN_PIECES),
]
LEFT_OUT = ("pyspark", "spark.", "confluent_kafka", "aiokafka", "kafka.")
"""What is written with libraries of others, whose types are theirs."""


def snippets(path: Path) -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)
    return [text for text in blocks if not any(name in text for name in LEFT_OUT)]


def test_the_python_of_the_docs_passes_mypy_strictly(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    paths = []
    for page in PAGES:
        for index, snippet in enumerate(snippets(page)):
            paths.append(tmp_path / f"{page.stem.replace('-', '_').lower()}_{index}.py")
            paths[-1].write_text(snippet, encoding="utf-8")
    assert len(paths) > 5
    # With the configuration of the house, what was checked of the package before is not checked again.
    said, errors, _ = api.run(
        [f"--config-file={ROOT / 'pyproject.toml'}", f"--cache-dir={ROOT / '.mypy_cache'}", *map(str, paths)]
    )
    assert (said.splitlines()[-1], errors) == (f"Success: no issues found in {len(paths)} source files", ""), said
