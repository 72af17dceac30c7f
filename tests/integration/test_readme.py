"""The Python of the README and of two pages of docs is run as it stands, against a real node."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.nodes.node import NodeProcess

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 60.0


def snippets(path: Path) -> list[str]:
    """The Python blocks of a page, but for those that need Spark."""
    return [text for text in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL) if "spark." not in text]


PAGES = [ROOT / "README.md", ROOT / "docs" / "clients.md", ROOT / "docs" / "transactions.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(shared_node: NodeProcess, path: Path) -> None:
    assert snippets(path)
    for snippet in snippets(path):
        assert "127.0.0.1:9092" in snippet or "tidelog.testing" in snippet  # which starts nodes of its own
        program = snippet.replace("127.0.0.1:9092", shared_node.bootstrap)
        ran = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert (ran.returncode, ran.stderr) == (0, ""), program
        assert ran.stdout, program
