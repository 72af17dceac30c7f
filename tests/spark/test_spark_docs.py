"""The Python of docs/spark.md runs from top to bottom, as a newcomer would run it, and its page tells the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.node import NodeProcess
from tidelog.cli.app import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_page_runs(
    spark: SparkSession,
    shared_node: NodeProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    for snippet in snippets:
        program = snippet.replace("127.0.0.1:9092", shared_node.bootstrap)
        exec(compile(program, "docs/spark.md", "exec"), names)
    counted, kept, *_, lost = capsys.readouterr().out.splitlines()
    assert (counted, kept, lost) == ("1000", "1000", "[]")
    assert names["spark"] is spark

    # Its outputs and its errors are those that it shows.
    assert run(["spark", "offsets", "checkpoints/delays", "--output", "value"]) == 0
    said = json.loads(capsys.readouterr().out)
    shown = json.loads(re.findall(r"^startingOffsets=(.*)$", page, re.MULTILINE)[0])
    assert said.keys() == shown.keys() == {"departures"}
    assert sum(said["departures"].values()) == sum(shown["departures"].values()) == 1000
    with pytest.raises(Exception, match=r"\[DATA_SOURCE_NOT_FOUND\] Failed to find the data source: nothing\."):
        spark.read.format("nothing").load()
