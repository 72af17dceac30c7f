"""The Python of the README and of some pages of docs is run as it stands, against a real node."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fixtures.schema_registry import RegistryServer, schema_registry
from support.nodes.node import NodeProcess

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60.0


def snippets(path: Path) -> list[str]:
    """The Python blocks of a page, but for those that need Spark."""
    return [text for text in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL) if "spark." not in text]


PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in ("clients", "transactions", "schemas"))]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with schema_registry() as server:
        yield server


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    shared_node: NodeProcess, registry: RegistryServer, path: Path
) -> None:
    assert snippets(path)
    for snippet in snippets(path):
        places = ("127.0.0.1:9092", "http://127.0.0.1:8081")
        assert any(place in snippet for place in places) or "tidelog.testing" in snippet  # which starts its own nodes
        program = snippet.replace(places[0], shared_node.bootstrap).replace(places[1], registry.url)
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), program
        assert ran.stdout, program
