"""Compacted topics on a real node: a table made of the log is what it was, also when the node is killed meanwhile."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.clients.confluent import Read, read_from
from support.fixtures import log_files
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from tidelog import Consumer, Producer, TopicPartition
from tidelog.base.ids import PartitionIndex

DEADLINE_SECONDS = 60.0
CLEANER = {"log.cleaner.backoff.ms": "50", "log.flush.offset.checkpoint.interval.ms": "200"}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}

Table = dict[bytes | None, bytes | None]


def create(node: NodeProcess, topic: str, config: dict[str, str] = COMPACTED) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(10)


class Writer:
    """Writes keys again and again, and notes in order what each was set to; every tenth time it is deleted.

    Some keys are written once only, so that no part of the log can go unnoticed.
    """

    def __init__(self, node: NodeProcess, topic: str, *, batch_records: int = 50) -> None:
        self._topic = topic
        self._rng = random.Random(5)
        self.table: Table = {}
        self.failed: list[str] = []
        self.sent = self.acknowledged = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 2,
                "batch.num.messages": batch_records,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
            }
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            key = b"key %d" % self._rng.randrange(200) if self.sent % 20 else b"once %d" % self.sent
            value = None if self._rng.random() < 0.1 else b"value %d of this key and some more" % self.sent
            while len(self._producer) > 1000:
                self._producer.poll(0.01)
            self._producer.produce(self._topic, value, key, partition=0, on_delivery=self._on_delivery)
            self.table[key] = value
            self.sent += 1
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(DEADLINE_SECONDS) == 0, "records were never acknowledged"
        assert not self.failed
        assert self.acknowledged == self.sent

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))


def table_of(records: list[Read]) -> Table:
    return live({record.key: record.value for record in records})


def live(table: Table) -> Table:
    return {key: value for key, value in table.items() if value is not None}


@pytest.mark.timeout(120)
def test_the_log_becomes_small_and_the_table_stays(start_node: StartNode) -> None:
    node = start_node(config=CLEANER)
    create(node, "table")
    writer = Writer(node, "table")
    writer.write(20_000)
    writer.finish()
    wait_until(
        lambda: len(read_from(node.bootstrap, "table")) < 3_000, lambda: f"most records are gone: {node.log[-2000:]}"
    )
    records = read_from(node.bootstrap, "table")
    assert table_of(records) == live(writer.table)
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))

    # Our own reader: from the start, from inside a gap, and from a position that was read before the compaction.
    partition = TopicPartition("table", PartitionIndex(0))
    with Consumer(node.bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        seen: list[int] = []
        while not seen or seen[-1] < offsets[-1]:
            seen += [record.offset for record in consumer.poll(timeout_ms=5_000)]
        gap = next(low + 1 for low, high in pairwise(offsets) if high > low + 1)
        consumer.seek(partition, gap)
        first = consumer.poll(timeout_ms=5_000)[0]
        assert first.offset == min(offset for offset in offsets if offset >= gap)
    assert set(seen) <= set(range(offsets[-1] + 1))
    assert seen == sorted(seen)

    # Another policy, and an unclean stop: nobody takes what compaction left for damage.
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    resource = confluent_kafka.admin.ConfigResource("topic", "table")
    resource.add_incremental_config(
        confluent_kafka.admin.ConfigEntry(
            "cleanup.policy", "delete", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
        )
    )
    admin.incremental_alter_configs([resource])[resource].result(10)
    node.kill()
    node.restart()
    assert table_of(read_from(node.bootstrap, "table")) == live(writer.table)
    assert "missing" not in node.log
    assert "cut off" not in node.log


def kill_in_the_midst(node: NodeProcess, directory: Path, writer: Writer, rng: random.Random) -> None:
    """Kill it once it writes, or puts into its place, a segment that starts at a random offset or later."""
    ending = rng.choice([".log.cleaned", ".log.swap"])
    offset = rng.randrange(writer.sent)

    def is_there() -> bool:
        writer.write(10)  # so that it compacts on, in case that was just missed
        return any(int(path.name.removesuffix(ending)) >= offset for path in directory.glob(f"*{ending}"))

    wait_until(is_there, lambda: f"*{ending} from {offset} on: {node.log[-2000:]}", seconds=DEADLINE_SECONDS)
    node.kill()


@pytest.mark.timeout(120)
def test_killed_while_it_compacts_the_node_loses_nothing(start_node: StartNode) -> None:
    node = start_node(config={**CLEANER, "log.cleaner.io.max.bytes.per.second": "500000"})
    create(node, "table", {**COMPACTED, "segment.bytes": "5000"})
    writer = Writer(node, "table", batch_records=3)  # many batches take many steps, with rests in between
    rng = random.Random(8)
    suffixes = set()
    directory = log_files.partition_dir(node, "table")
    for _ in range(4):
        writer.write(3_000)
        kill_in_the_midst(node, directory, writer, rng)
        suffixes |= {path.suffix for path in directory.iterdir()}
        node.restart()
        assert not [path for path in directory.iterdir() if path.suffix == ".swap"]
    writer.finish()
    assert table_of(read_from(node.bootstrap, "table")) == live(writer.table)
    assert ".cleaned" in suffixes or ".swap" in suffixes, "it was never killed in the midst of it"


def test_a_log_that_is_damaged_is_left_alone_and_the_others_are_compacted(start_node: StartNode) -> None:
    node = start_node(config={**CLEANER, "log.cleaner.enable": "false"})
    for topic in ("damaged", "whole"):
        create(node, topic)
        writer = Writer(node, topic)
        writer.write(4_000)
        writer.finish()
    node.stop()
    segment = log_files.segments(node, "damaged")[0]
    log_files.change(segment, 100, lambda byte: byte ^ 1)
    node.config = CLEANER
    node.restart()
    wait_until(lambda: "whole-0: compacted up to offset" in node.log, lambda: node.log[-2000:])
    wait_until(lambda: "damaged-0 is not compacted any more" in node.log, lambda: node.log[-2000:])
    assert str(segment) in node.log
    assert len(read_from(node.bootstrap, "whole")) < 4_000
    assert segment.read_bytes()[100:101], "it is still there"
    with Producer(node.bootstrap) as producer:
        producer.send("damaged", b"still written to", key=b"k").result(10)
    assert node.log.count("damaged-0 is not compacted any more") == 1


@pytest.mark.timeout(120)
def test_what_groups_committed_survives_the_compaction_of_their_offsets(start_node: StartNode) -> None:
    settings = {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "5000",
        "log.cleaner.min.cleanable.ratio": "0.01",
    }
    node = start_node(config={**CLEANER, **settings})
    create(node, "flights", {})
    with Producer(node.bootstrap) as producer:
        for _ in range(10):
            producer.send("flights", b"x")
    groups = [f"group-{number}" for number in range(5)]

    def consumer(group: str) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {"bootstrap.servers": node.bootstrap, "group.id": group, "enable.auto.commit": False}
        )

    for group in groups:
        committing = consumer(group)
        for offset in range(1, 200):
            position = confluent_kafka.TopicPartition("flights", 0, offset, metadata=f"{group} at {offset}")
            committing.commit(offsets=[position], asynchronous=False)
        committing.close()
    wait_until(lambda: "__consumer_offsets-0: compacted up to offset" in node.log, lambda: node.log[-2000:])
    assert sum(path.stat().st_size for path in log_files.segments(node, "__consumer_offsets")) < 100_000
    node.kill()
    node.restart()
    for group in groups:
        asking = consumer(group)
        (found,) = asking.committed([confluent_kafka.TopicPartition("flights", 0)], timeout=20)
        assert (found.offset, found.metadata) == (199, f"{group} at 199")
        asking.close()
