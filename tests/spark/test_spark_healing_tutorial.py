"""The tutorial of docs/spark-healing.md, the program in examples/ and the command: as a reader of them starts them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from support.nodes.node import NodeProcess
from tidelog import Producer

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spark-healing.md"
SECONDS_MAX = 400


def ran(folder: Path, *arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(SECONDS_MAX)
def test_the_tutorial_prints_what_the_page_says(tmp_path: Path) -> None:
    tutorial = PAGE.read_text().partition("## What the writer does")[0]
    program = "\n".join(re.findall(r"```python\n(.*?)```", tutorial, re.DOTALL))
    said = "".join(re.findall(r"```text\n(.*?)```", tutorial, re.DOTALL))
    assert ran(tmp_path, "-c", program) == said


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.slow
def test_the_example_writes_a_table_which_the_command_audits(shared_node: NodeProcess, tmp_path: Path) -> None:
    topic = f"healed-{uuid4().hex[:8]}"
    with Producer(shared_node.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, json.dumps({"customer": f"c{number % 2}", "cents": number}))
        producer.send(topic, "not JSON")
    examples = ROOT / "examples"
    said = ran(tmp_path, str(examples / "healed_orders.py"), shared_node.bootstrap, topic, "out", "--audit")
    assert said.splitlines() == [
        "c0: 5 orders, 20 cents",
        "c1: 5 orders, 25 cents",
        "10 rows match, 0 differ, 0 unverifiable",
    ]
    from deltalake import DeltaTable

    DeltaTable(tmp_path / "out" / "orders").delete("offset < 3")
    command = ("spark", "audit", "out/orders", "--checkpoint", "out/checkpoint", "--bootstrap", shared_node.bootstrap)
    derive = ("--derive", "healed_orders:orders_of", "--output", "json")
    (tmp_path / "healed_orders.py").write_text((examples / "healed_orders.py").read_text())
    found = json.loads(ran(tmp_path, "-m", "tidelog", *command, *derive, status=3))
    assert (found["expected"], found["found"], found["missing"], found["first_offset"]) == (10, 7, 3, 0)
