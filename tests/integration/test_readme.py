"""The README's Python is run as it stands, against a real node."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.node import NodeProcess

README = Path(__file__).parents[2] / "README.md"
SNIPPETS = [text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "spark" not in text]


@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_the_readmes_python_runs(shared_node: NodeProcess, snippet: str) -> None:
    assert "127.0.0.1:9092" in snippet
    program = snippet.replace("127.0.0.1:9092", shared_node.bootstrap)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "b'hello'" in ran.stdout
