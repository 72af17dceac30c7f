"""The driver of a pipeline, in a process of its own: a topic is copied exactly once, and kept in a table that heals.

It is told what to do in lines on stdin, and answers each with a line of JSON on stdout:

    start    both queries, until `stop`
    once     both queries, until they have read what there is
    stop     ends them
    check    what they failed with
    audit    the table against the log: [differences, unverifiable, matching]
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SQL = "SELECT topic, partition, offset, leaderEpoch, CAST(value AS STRING) AS name FROM records"


@dataclass(frozen=True)
class Settings:
    """Of the pipeline.

    Attributes:
        master: of Spark.
        bootstrap: of the log.
        source: the topic that is read.
        target: the topic that it is copied to.
        folder: of the table and the checkpoints.
        batch_records_max: of a micro-batch.
        security: options of Kafka's clients, for a listener with TLS or SASL.
    """

    master: str
    bootstrap: str
    source: str
    target: str
    folder: str
    batch_records_max: int = 40
    security: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Pipeline:
    """Both queries."""

    def __init__(self, settings: Settings) -> None:
        from tidelog.spark.session import local_session

        self.settings = settings
        java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
        self.spark: SparkSession = local_session(
            "pipeline",
            settings={
                "spark.master": settings.master,
                "spark.cores.max": "2",
                "spark.executor.cores": "1",
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": java,
                "spark.driver.extraJavaOptions": java,
                "spark.log.level": "ERROR",
            },
        )
        self.queries: Sequence[Any] = []

    @property
    def client(self) -> dict[str, str]:
        security = {f"kafka.{key}": value for key, value in self.settings.security.items()}
        return {"kafka.bootstrap.servers": self.settings.bootstrap, **security}

    def _path(self, name: str) -> str:
        return f"{self.settings.folder}/{name}"

    def _records(self) -> DataFrame:
        reader = self.spark.readStream.format("tidelog").options(**self.client, subscribe=self.settings.source)
        reader = reader.options(startingOffsets="earliest", onTruncation="rewind", includeLeaderEpoch="true")
        return reader.option("maxOffsetsPerTrigger", self.settings.batch_records_max).load()

    def _sinks(self) -> Iterator[Any]:
        from tidelog.spark import healing_writer

        copy = self._records().select("key", "value").writeStream.format("tidelog").options(**self.client)
        copy = copy.options(topic=self.settings.target, delivery="exactly-once", sinkId=self.settings.target)
        yield copy.option("checkpointLocation", self._path("copy"))
        self._records().createOrReplaceTempView("records")
        table = self.spark.sql(SQL).writeStream
        table = table.foreachBatch(healing_writer(self._path("table"), self._path("checkpoint")))
        yield table.option("checkpointLocation", self._path("checkpoint"))

    def start(self) -> None:
        self.queries = [sink.start() for sink in self._sinks()]

    def once(self) -> list[str]:
        self.queries = [sink.trigger(availableNow=True).start() for sink in self._sinks()]
        for query in self.queries:
            try:
                query.awaitTermination()
            except Exception:
                continue  # `check` says what it was
        return self.check()

    def stop(self) -> list[str]:
        failures = self.check()
        for query in self.queries:
            query.stop()
        return failures

    def check(self) -> list[str]:
        return [str(error) for query in self.queries if (error := query.exception()) is not None]

    def audit(self) -> list[int]:
        from tidelog.spark import audit

        report = audit(self.spark, self._path("table"), self._path("checkpoint"), SQL, self.client)
        return [report.differences, report.unverifiable, report.matching]


def main(settings: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes to the log
    pipeline = Pipeline(Settings(**json.loads(settings)))
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(pipeline, line.strip())()), file=answers, flush=True)
    pipeline.spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
