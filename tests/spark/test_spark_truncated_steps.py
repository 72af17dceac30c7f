"""A healed table whose log is truncated at each step of a micro-batch in turn, while the query goes on.

The query halts at the step; the log loses what the batch was to read, and has more than before when the query goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from support.clients.kafka_peer import missing_peers
from support.clients.kafka_unclean_election import KafkaUncleanElection
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from support.nodes.spark_query import Topic, lose_records
from tidelog import Consumer, Producer, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from tidelog.spark import audit, healing_writer, read_table
from tidelog.spark.healing import HealingWriter

STOPS, GOES_ON = True, False

STEPS: Mapping[str, bool] = {
    "the end is planned": GOES_ON,
    "the end is in the write-ahead log": GOES_ON,
    "the ranges are planned": STOPS,
    "a task begins to read": STOPS,
    "a task has read, and others have not": STOPS,
    "the files are written": GOES_ON,
    "the withdrawal is told": GOES_ON,
    "the table is committed": GOES_ON,
    "Spark has noted the batch": GOES_ON,
}
"""Of each step, whether the run stops with `[LOG_TRUNCATION]`. In any case all is exact after the next run."""

HARDEST = ("a task has read, and others have not", "the withdrawal is told")
"""Those that no other test has, where there is no time for all."""

AFTER_A_LOSS = "the withdrawal is told"
"""A step that there is only in a batch that withdraws rows: the log is truncated before it, too."""

SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS name FROM records"
TOPIC = "steps"
PARTITION = TopicPartition(TOPIC, 0)
SECONDS_MAX = 120.0


class LosingLog(Protocol):
    """A topic's log that can lose what was written since `begin_loss`."""

    @property
    def bootstrap_servers(self) -> str: ...

    def create_topic(self, topic: str) -> None: ...

    def begin_loss(self, topic: str) -> None: ...

    def lose(self, topic: str) -> None: ...


class CutLog:
    """Of one node of Tidelog: it dies, the end of the log is cut off, and it leads again in a new leader epoch."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._end_offset = 0

    @property
    def bootstrap_servers(self) -> str:
        return self._node.bootstrap

    def create_topic(self, topic: str) -> None:
        Topic(self._node, topic, 1).create()

    def begin_loss(self, topic: str) -> None:
        with Consumer(self.bootstrap_servers) as consumer:
            self._end_offset = consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset

    def lose(self, topic: str) -> None:
        lose_records(Topic(self._node, topic, 1), self._end_offset)


@pytest.fixture
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LosingLog]:
    if request.param == "tidelog":
        yield CutLog(request.getfixturevalue("node"))
        return
    if (reason := missing_peers()) is not None:
        pytest.skip(reason)
    with KafkaUncleanElection(tmp_path / "kafka") as election:
        yield election


def halting_source(folder: Path) -> type[Any]:
    """The format `halting`: as `tidelog`, but it halts at the step that a file names, until the file is taken away.

    The classes are made in a function, so that Spark sends them to its processes as they are.
    """
    from tidelog.spark.readers import StreamReader
    from tidelog.spark.source import TidelogSource

    def halt_at(step: str) -> None:
        import time

        named, reached = folder / "step", folder / "reached"
        if named.exists() and named.read_text() == step:
            named.rename(reached)
            while reached.exists():
                time.sleep(0.02)

    class HaltingReader(StreamReader):
        has_planned = False

        def latestOffset(self, start: Any, limit: Any) -> Any:  # noqa: N802
            if self.has_planned:
                halt_at("Spark has noted the batch")
            end = super().latestOffset(start, limit)
            if end != start:
                self.has_planned = True
                halt_at("the end is planned")
            return end

        def partitions(self, start: Any, end: Any) -> Any:
            halt_at("the end is in the write-ahead log")
            found = super().partitions(start, end)
            halt_at("the ranges are planned")
            return found

        def read(self, partition: Any) -> Any:
            halt_at("a task begins to read")
            yield from super().read(partition)
            halt_at("a task has read, and others have not")

    class Halting(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "halting"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802
            return HaltingReader(self.options, schema)

    Halting.halt_at = staticmethod(halt_at)  # type: ignore[attr-defined]
    return Halting


@dataclass
class Pipeline:
    spark: SparkSession
    log: LosingLog
    folder: Path
    source: type[Any]
    sent: int = field(default=0)

    @property
    def table(self) -> str:
        return str(self.folder / "table")

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.log.bootstrap_servers}

    def send(self, count: int) -> None:
        with Producer(self.log.bootstrap_servers, linger_ms=0) as producer:
            for _ in range(count):
                producer.send(TOPIC, str(self.sent), partition=0)
                self.sent += 1

    def _writer(self) -> HealingWriter:
        halt_at = self.source.halt_at

        class HaltingWriter(HealingWriter):
            def _commit(self, *arguments: Any) -> Any:
                halt_at("the files are written")
                return super()._commit(*arguments)

            def _tell(self, *arguments: Any) -> None:
                super()._tell(*arguments)
                halt_at("the withdrawal is told")

            def __call__(self, *arguments: Any) -> None:
                super().__call__(*arguments)
                halt_at("the table is committed")

        usual = healing_writer(self.table, self.checkpoint)
        return HaltingWriter(usual.table, usual.truncations, usual.checkpoint)

    @contextmanager
    def running(self) -> Iterator[Any]:
        reader = self.spark.readStream.format("halting").options(**self.options, subscribe=TOPIC)
        reader = reader.options(startingOffsets="earliest", onTruncation="rewind", maxRecordsPerPartition="4")
        records = reader.options(includeLeaderEpoch="true").load()
        records.createOrReplaceTempView("records")
        stream = self.spark.sql(SQL).writeStream.foreachBatch(self._writer())
        query = stream.option("checkpointLocation", self.checkpoint).trigger(availableNow=True).start()
        try:
            yield query
        finally:
            (self.folder / "reached").unlink(missing_ok=True)
            query.stop()

    def run(self) -> None:
        """Read what there is. Raises what the query failed with."""
        with self.running() as query:
            query.awaitTermination()

    def rows(self) -> list[tuple[int, int, str]]:
        return sorted((row.offset, row.leaderEpoch, row.name) for row in read_table(self.spark, self.table).collect())

    def expected(self) -> list[tuple[int, int | None, str]]:
        """From the log itself, without Spark."""
        with Consumer(self.log.bootstrap_servers, auto_offset_reset="none") as consumer:
            consumer.assign([PARTITION], start="earliest")
            return sorted((one.offset, one.leader_epoch, (one.value or b"").decode()) for one in consumer.until_end())


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("log", "steps"),
    [
        ("tidelog", HARDEST),
        pytest.param("tidelog", tuple(STEPS), marks=pytest.mark.slow),
        pytest.param("kafka", tuple(STEPS), marks=pytest.mark.slow),
    ],
    indirect=["log"],
    ids=["tidelog", "tidelog-all", "kafka-all"],
)
def test_a_table_is_exact_wherever_the_log_is_truncated_in_a_batch(
    spark: SparkSession, log: LosingLog, steps: Sequence[str], tmp_path: Path
) -> None:
    source = halting_source(tmp_path)
    spark.dataSource.register(source)
    log.create_topic(TOPIC)
    pipeline = Pipeline(spark, log, tmp_path, source)
    pipeline.send(3)
    pipeline.run()
    reached, found = tmp_path / "reached", {}
    for step in steps:
        if step == AFTER_A_LOSS:
            log.begin_loss(TOPIC)
            pipeline.send(3)
            pipeline.run()
            log.lose(TOPIC)
        pipeline.send(5)
        log.begin_loss(TOPIC)
        pipeline.send(5)
        (tmp_path / "step").write_text(step)
        with pipeline.running() as query:
            wait_until(
                lambda: reached.exists() or not query.isActive,
                f"the query is where {step}",
                seconds=SECONDS_MAX,
            )
            assert reached.exists(), query.exception()
            log.lose(TOPIC)
            pipeline.send(9)  # past where it was: an offset alone would look well
            reached.unlink()
            wait_until(lambda: not query.isActive, "the query ends", seconds=SECONDS_MAX)
            error = query.exception()
            assert error is None or "[LOG_TRUNCATION]" in str(error), step
            found[step] = GOES_ON if error is None else STOPS
        pipeline.run()
        assert pipeline.rows() == pipeline.expected(), step
    assert found == {step: STEPS[step] for step in steps}
    report = audit(spark, pipeline.table, pipeline.checkpoint, SQL, pipeline.options)
    assert (report.differences, report.unverifiable, report.matching) == (0, 0, len(pipeline.expected()))
