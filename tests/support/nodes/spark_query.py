"""Topics and streaming queries for the tests of the Spark source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.nodes.node import NodeProcess
from tidelog import Admin, NewTopic, Producer
from tidelog.records import split_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = dict[int, list[Any]]


@dataclass
class Topic:
    """A topic of a test's own."""

    node: NodeProcess
    name: str
    partitions: int

    @property
    def options(self) -> dict[str, str]:
        """What every read needs."""
        return {"kafka.bootstrap.servers": self.node.bootstrap, "subscribe": self.name}

    @property
    def sink_options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.node.bootstrap, "topic": self.name}

    def send(self, *values: str, partition: int = 0) -> None:
        """Write records with our own client. Each call makes batches of its own."""
        with Producer(self.node.bootstrap, linger_ms=0) as producer:
            for value in values:
                producer.send(self.name, value, partition=partition)

    def create(self) -> None:
        with Admin(self.node.bootstrap) as admin:
            admin.create_topics([NewTopic(self.name, num_partitions=self.partitions, replication_factor=1)])

    def delete(self) -> None:
        with Admin(self.node.bootstrap) as admin:
            admin.delete_topics([self.name])


def lose_records(topic: Topic, end_offset: int) -> None:
    """Cut the log of partition 0, as a disk that loses power does, and bring the node back."""
    topic.node.kill()
    log = topic.node.data_dir / "node-1" / f"{topic.name}-0" / "00000000000000000000.log"
    data = log.read_bytes()
    ends = [position for position, header in split_batches(data) if header.base_offset == end_offset]
    log.write_bytes(data[: ends[0]])
    topic.node.start()


@dataclass
class Query:
    """A streaming query that may be run again and again from one checkpoint, and what its batches held.

    `batches` is by batch id; a batch that runs again replaces what it held before, as a sink that knows ids would.
    """

    spark: SparkSession
    checkpoint: Path
    options: Mapping[str, str]
    batches: Batches = field(default_factory=dict)
    name: str | None = None
    on_batch: Callable[[int], object] = lambda batch_id: None

    def run(self, **more: str) -> None:
        """Read what there is now, then stop. Raises what the query failed with."""
        query = self._writer(**more).trigger(availableNow=True).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def start(self, **more: str) -> Any:
        """Start it, to run until it is stopped."""
        return self._writer(**more).start()

    def _writer(self, **more: str) -> Any:
        frame = self.spark.readStream.format("tidelog").options(**{**self.options, **more}).load()
        rows = frame.selectExpr("partition", "offset", "cast(value as string) as value")
        writer = rows.writeStream.foreachBatch(self._keep).option("checkpointLocation", str(self.checkpoint))
        return writer if self.name is None else writer.queryName(self.name)

    def _keep(self, frame: DataFrame, batch_id: int) -> None:
        self.on_batch(batch_id)
        self.batches[batch_id] = sorted(tuple(row) for row in frame.collect())

    @property
    def values(self) -> list[str]:
        """All that came, batch by batch."""
        return [row[2] for _, rows in sorted(self.batches.items()) for row in rows]

    def offset(self, batch_id: int) -> dict[str, Any]:
        """What the checkpoint says of a batch."""
        text = (self.checkpoint / "offsets" / str(batch_id)).read_text()
        offset: dict[str, Any] = json.loads(text.splitlines()[-1])
        return offset

    def forget_commit(self) -> int:
        """As after a crash: the last batch was planned and run, and nobody knows that it was. Returns its id."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last


NewTestTopic = Callable[..., Topic]
NewQuery = Callable[..., Query]
