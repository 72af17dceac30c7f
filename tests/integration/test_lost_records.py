"""Lost records are given back from what brokers keep of them, until they are too old."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster
from support.nodes.forked_command import run_command
from tidelog import Admin, Consumer, KafkaError, Producer, TopicPartition
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.base.losses import Loss
from tidelog.client.admin.descriptions import ConfigResource


@pytest.fixture(scope="module")
def module_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """As that of the others, and retention is looked at often."""
    config = {**PROMPT, "log.retention.check.interval.ms": "500"}
    started = Cluster(tmp_path_factory.mktemp("cluster") / "data", config=config)
    try:
        yield started
    finally:
        started.close()


def produce(cluster: Cluster, topic: str, start: int, end: int) -> None:
    """Keyed, compressed, with a header."""
    with Producer(cluster.bootstrap, compression_type="zstd") as producer:
        sent = [
            producer.send(topic, b"%d" % number, b"key", partition=0, headers=[("h", b"x")], timestamp_ms=number + 1)
            for number in range(start, end)
        ]
        for future in sent:
            future.result()


def lose(cluster: Cluster, topic: str) -> Loss:
    """Ten records of twenty are lost: the follower, which had missed them, leads, and the leader cuts them off."""
    cluster.create_topic(
        topic,
        replication_factor=2,
        min_insync_replicas="1",
        unclean_leader_election_enable="true",
        retention_ms="-1",
    )
    produce(cluster, topic, 0, 10)
    leader, follower = cluster.leader_of(topic), cluster.follower_of(topic)
    follower.kill()
    cluster.wait_until_in_sync(topic, without=[follower.node_id])
    produce(cluster, topic, 10, 20)
    leader.kill()
    follower.start()
    cluster.leader_of(topic)
    produce(cluster, topic, 100, 105)
    leader.start()

    def closed() -> list[Loss]:
        return [loss for loss in [entry(cluster, topic)] if not loss.is_open]

    return wait_until(closed, "it is closed", seconds=60)[0]


def entry(cluster: Cluster, topic: str) -> Loss:
    with Admin(cluster.bootstrap) as admin:
        (loss,) = admin.describe_losses([topic]).losses
    return loss


@pytest.mark.timeout(240)
def test_lost_records_are_given_back_until_they_are_too_old(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    loss = lose(cluster, topic)
    (keeper,) = (one.broker_id for one in loss.cut)
    with Admin(cluster.bootstrap) as admin:
        records = list(admin.read_lost_records(loss))
    assert [(one.offset, one.value, one.timestamp) for one in records] == [(n, b"%d" % n, n + 1) for n in range(10, 20)]
    (told,) = {(one.broker_id, one.key, one.headers, one.timestamp_type) for one in records}
    assert told == (keeper, b"key", (("h", b"x"),), "CreateTime")
    assert all(one.producer_id is not None and one.leader_epoch is not None for one in records)

    def export(*arguments: str, status: int = 0) -> str:
        done = run_command(["losses", "export", *arguments, "--bootstrap", cluster.bootstrap], timeout=60)
        assert done.returncode == status, done.stderr
        return done.stderr if status else done.stdout

    lines = [json.loads(line) for line in export(loss.name, "--json").splitlines()]
    assert [(line["offset"], line["value"], line["headers"]) for line in lines] == [
        (number, str(number), [{"key": "h", "value": "x"}]) for number in range(10, 20)
    ]
    file = tmp_path / "lost.arrow"
    export(loss.name, "--to", str(file), "--broker", str(keeper))
    with pa.ipc.open_file(str(file)) as reader:
        table = reader.read_all()
    assert table.column("value").to_pylist() == [b"%d" % number for number in range(10, 20)]
    assert [path.name for path in tmp_path.iterdir()] == ["lost.arrow"]
    assert "there already" in export(loss.name, "--to", str(file), status=2)
    assert "say --same-topic" in export(loss.name, "--topic", topic, status=2)
    assert "say where to" in export(loss.name, status=2)
    other = next(node_id for node_id in cluster.nodes if node_id not in [one.broker_id for one in loss.replicas])
    assert "NOT_LEADER_OR_FOLLOWER" in export(loss.name, "--json", "--broker", str(other), status=1)

    cluster.create_topic(f"{topic}-replayed", retention_ms="-1")
    export(loss.name, "--topic", f"{topic}-replayed")
    export(loss.name, "--topic", topic, "--same-topic")
    for name, values in ((f"{topic}-replayed", range(10, 20)), (topic, [*range(10), *range(100, 105), *range(10, 20)])):
        with Consumer(cluster.bootstrap) as consumer:
            consumer.assign([TopicPartition(name, PartitionIndex(0))])
            consumer.seek_to_beginning()
            assert [int(one.value or b"") for one in consumer.until_end()] == list(values)

    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs({ConfigResource("topic", topic): {"retention.ms": "1000"}})

        def is_dropped() -> bool:
            return not any(one.kept_size_bytes for one in entry(cluster, topic).cut)

        wait_until(is_dropped, "they are kept no more", seconds=60)
        directory = cluster.nodes[keeper].directory / f"{topic}-0"
        assert not list(directory.glob("*.lost"))
        with pytest.raises(KafkaError, match="no broker keeps") as refused:
            list(admin.read_lost_records(entry(cluster, topic)))
        assert refused.value.code is Code.RESOURCE_NOT_FOUND
        with pytest.raises(KafkaError, match="keeps no records of loss"):
            list(admin.read_lost_records(loss))
