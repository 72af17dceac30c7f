"""What `tidelog spark audit` says while it runs: an audit whose tasks wait until the test has heard of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from support.fixtures.waiting import wait_until
from support.nodes.spark_query import NewTestTopic
from tidelog.cli.progress import Reporter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")
pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")

from tidelog.cli.spark_audit import _progress_of
from tidelog.spark import audit, healing_writer

COLUMNS = ("topic", "partition", "offset", "leaderEpoch")
SECONDS_MAX = 120.0


class Heard(Reporter):
    """Keeps what it is told, and says it as ever."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, int]] = []
        self.done: list[int] = []

    def begin(self, step: str, total: int) -> None:
        self.steps.append((step, total))
        self.done = []
        super().begin(step, total)

    def advance(self, done: int) -> None:
        self.done.append(done)
        super().advance(done)


def waiting_rows(folder: Path) -> Callable[[DataFrame], DataFrame]:
    """What the query derives; a task says that it is there, and waits until it may go on."""

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = context.partitionId()
        (folder / f"waits-{number}").touch()
        while not (folder / f"go-{number}").exists():
            time.sleep(0.02)
        yield from batches

    def derive(records: DataFrame) -> DataFrame:
        rows = records.select(*COLUMNS)
        return rows.mapInArrow(wait, rows.schema)

    return derive


@pytest.mark.timeout(300)
def test_an_audit_says_how_far_it_is_while_it_runs(
    spark: SparkSession, new_topic: NewTestTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(partitions=2)
    topic.send("a", "b")
    topic.send("c", partition=1)
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    records = spark.readStream.format("tidelog").options(**topic.options, startingOffsets="earliest")
    rows = records.options(includeLeaderEpoch="true").load().select(*COLUMNS)
    writing = rows.writeStream.foreachBatch(healing_writer(table, checkpoint))
    writing.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    heard = Heard()
    with heard, ThreadPoolExecutor(1) as pool, _progress_of(spark, heard):
        running = pool.submit(audit, spark, table, checkpoint, waiting_rows(tmp_path), topic.options)
        try:
            # This Spark runs one task at a time.
            wait_until((tmp_path / "waits-0").exists, "a task of the audit runs", seconds=SECONDS_MAX)
            wait_until(lambda: heard.done[-1:] == [0], lambda: f"none is done: {heard.steps}", seconds=SECONDS_MAX)
            step, total = heard.steps[-1]
            (tmp_path / "go-0").touch()
            wait_until(
                lambda: heard.done[-1:] == [1] and (tmp_path / "waits-1").exists(),
                lambda: f"one of {total} tasks is done: {heard.done}",
                seconds=SECONDS_MAX,
            )
            assert not running.done()
            assert heard.steps[-1] == (step, total)
        finally:
            (tmp_path / "go-0").touch()
            (tmp_path / "go-1").touch()
        report = running.result(SECONDS_MAX)
    assert (report.matching, report.differences) == (3, 0)
    assert f"{step} ..." in capsys.readouterr().err
    assert step.startswith("stage ")
