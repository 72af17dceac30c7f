"""The Python of the pages on Spark runs from top to bottom, as a newcomer would run it, and they tell the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.nodes.node import NodeProcess
from support.nodes.spark_query import NewTestTopic, Topic
from tidelog import Consumer, TopicPartition
from tidelog.cli.app import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "spark.md"


def snippets_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def run_snippet(page: Path, snippet: str, names: dict[str, Any], **replaced: str) -> None:
    """Run one with other names for what the reader has elsewhere."""
    for shown, real in replaced.items():
        assert shown in snippet, f"{page.name} does not show {shown}"
        snippet = snippet.replace(shown, real)
    exec(compile(snippet, f"docs/{page.name}", "exec"), names)


def test_the_page_runs(
    spark: SparkSession,
    shared_node: NodeProcess,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for snippet in snippets_of(PAGE):
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


def test_the_page_on_writing_exactly_once_runs(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    page, node = DOCS / "spark-exactly-once.md", topic.node
    stream, batch = snippets_of(page)
    topic.send("a", "b")
    rows = spark.readStream.format("tidelog").options(**topic.options, startingOffsets="earliest").load()
    day = spark.createDataFrame([("monday",)], "value string")
    names: dict[str, Any] = {"rows": rows, "day": day}

    def committed(name: str) -> list[str]:
        partition = TopicPartition(name, 0)
        with Consumer(node.bootstrap, isolation_level="read_committed", auto_offset_reset="none") as consumer:
            consumer.assign([partition], start="earliest")
            return sorted((record.value or b"").decode() for record in consumer.until_end())

    for expected in (["a", "b"], ["a", "b", "c"]):
        # Spark's working directory is that of the process that started it.
        places = {"127.0.0.1:9092": node.bootstrap, "checkpoints/totals": str(tmp_path / "totals")}
        run_snippet(page, stream, names, **places)
        names["query"].processAllAvailable()
        names["query"].stop()
        assert committed("totals") == expected
        topic.send("c")
        # A second write of the same name writes nothing, as the page says.
        run_snippet(page, batch, names, **{"127.0.0.1:9092": node.bootstrap})
        assert committed("daily") == ["monday"]


def test_the_page_for_those_who_come_from_spark_s_connector_runs(spark: SparkSession, new_topic: NewTestTopic) -> None:
    page, topic = DOCS / "spark-from-kafka-connector.md", new_topic()
    topic.send("a", "b")
    stream, columns, _ = snippets_of(page)  # the last one is run by test_spark_secured_nodes.py
    names: dict[str, Any] = {"spark": spark}
    real = {"broker.example:9092": topic.node.bootstrap, '"flights"': f'"{topic.name}"'}
    run_snippet(page, stream, names, **real)
    assert names["flights"].isStreaming
    counted: list[int] = []
    query = names["flights"].writeStream.foreachBatch(lambda rows, _: counted.append(rows.count()))
    query.trigger(availableNow=True).start().awaitTermination()
    assert counted == [2]
    run_snippet(page, columns, names, **real)
    assert sorted(map(tuple, names["values"].collect())) == [(b"a", 0), (b"b", 0)]
