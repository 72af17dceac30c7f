"""The pipeline on Spark's standalone cluster: what it copies, heals and audits when processes of it are killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.clients.kafka_peer import TOOL_FLAGS, KafkaCluster, missing_peers
from support.fixtures.waiting import wait_until
from support.nodes.cluster import PROMPT, Cluster
from support.nodes.node import NodeProcess
from support.nodes.spark_query import Topic, lose_records
from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.base.errors import TidelogError

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tidelog[spark-local]'")
pytest.importorskip("deltalake", reason="deltalake is not installed: pip install 'tidelog[spark-delta]'")

from support.load.spark_pipeline import Settings
from support.nodes.spark_standalone import PipelineDriver, SparkStandalone

PARTITIONS = 2
PROGRESS_SECONDS_MAX = 240.0
Row = list[int | str | None]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[SparkStandalone]:
    with SparkStandalone(tmp_path / "spark") as cluster:
        yield cluster


def rows_of(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> list[Row]:
    """What a reader of committed records is given."""
    with Consumer(bootstrap, isolation_level="read_committed", auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)], start="earliest")
        return sorted(
            [one.partition, one.offset, one.leader_epoch, (one.value or b"").decode()] for one in consumer.until_end()
        )


def rows_in(table: Path) -> list[Row]:
    """What the table holds now."""
    from deltalake import DeltaTable

    rows = DeltaTable(table).to_pyarrow_table(columns=["partition", "offset", "leaderEpoch", "name"]).to_pylist()
    return sorted(list(row.values()) for row in rows)


def values_of(rows: list[Row]) -> list[str]:
    return sorted(str(row[-1]) for row in rows)


@pytest.mark.timeout(300)
def test_a_table_heals_and_is_audited_on_a_standalone_cluster(
    standalone: SparkStandalone, node: NodeProcess, tmp_path: Path
) -> None:
    source, target = Topic(node, "source", 1), Topic(node, "target", 1)
    for topic in (source, target):
        topic.create()
    source.send("a", "b")
    source.send("c", "d")
    settings = Settings(standalone.url, node.bootstrap, source.name, target.name, str(tmp_path))
    with PipelineDriver(settings, tmp_path / "driver.log") as driver:
        assert driver.ask("once") == []
        standalone.kill_executor()
        end = rows_of(node.bootstrap, source.name, 1)
        lose_records(source, int(str(next(row[1] for row in end if row[-1] == "c"))))
        source.send("u", "v", "w")
        assert driver.ask("once") == []
        found = rows_in(tmp_path / "table")
        assert found == rows_of(node.bootstrap, source.name, 1)
        assert values_of(found) == list("abuvw")
        assert driver.ask("audit") == [0, 0, 5]
    # What was copied stays, and what came in its place is copied too.
    assert values_of(rows_of(node.bootstrap, target.name, 1)) == list("abcduvw")


class KafkaLog(KafkaCluster):
    """Of Apache Kafka, in small JVMs."""

    def __init__(self, directory: Path) -> None:
        config = {
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "transaction.state.log.num.partitions": "2",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
        }
        super().__init__(directory, 3, config=config, flags=TOOL_FLAGS)


@pytest.fixture(params=["tidelog", "kafka"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster | KafkaLog]:
    if request.param == "kafka" and (reason := missing_peers()) is not None:
        pytest.skip(reason)
    cluster = Cluster(tmp_path, config=PROMPT) if request.param == "tidelog" else KafkaLog(tmp_path / "kafka")
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def leader_of(log: Cluster | KafkaLog, topic: str) -> int:
    with Admin(log.bootstrap) as admin:
        found = admin.describe_topics([topic])[topic].partitions[0].leader
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_is_exact_when_executor_broker_and_driver_are_killed(
    standalone: SparkStandalone, log: Cluster | KafkaLog, tmp_path: Path
) -> None:
    with Admin(log.bootstrap) as admin:
        topics = [NewTopic(name, PARTITIONS, 3, {"min.insync.replicas": "2"}) for name in ("source", "target")]
        admin.create_topics(topics)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        with Producer(log.bootstrap) as producer:
            for number in range(sent, sent + count):
                producer.send("source", f"{number:05}", partition=number % PARTITIONS)
        sent += count

    def copied() -> int:
        with suppress(TidelogError):
            return len(rows_of(log.bootstrap, "target"))
        return 0

    def until_copied(count: int, driver: PipelineDriver) -> None:
        def is_so() -> bool:
            assert driver.ask("check") == []
            return copied() >= count

        wait_until(is_so, lambda: f"{count} are copied, not {copied()}", seconds=PROGRESS_SECONDS_MAX)

    settings = Settings(standalone.url, log.bootstrap, "source", "target", str(tmp_path))
    driver_log = tmp_path / "driver.log"
    send(200)
    with PipelineDriver(settings, driver_log) as driver:
        driver.ask("start")
        until_copied(40, driver)
        send(200)
        standalone.kill_executor()
        until_copied(240, driver)
        send(200)
        killed = log.nodes[leader_of(log, "source")]
        killed.kill()
        until_copied(440, driver)
        killed.start()
        send(400)
        until_copied(sent - 350, driver)  # while batches are under way
        driver.kill()
    assert copied() < sent
    with PipelineDriver(settings, driver_log) as driver:
        driver.ask("start")
        until_copied(sent, driver)
        assert driver.ask("stop") == []
        assert driver.ask("once") == []
        expected = rows_of(log.bootstrap, "source")
        assert rows_in(tmp_path / "table") == expected
        assert driver.ask("audit") == [0, 0, sent]
    assert values_of(expected) == [f"{number:05}" for number in range(sent)]
    assert values_of(rows_of(log.bootstrap, "target")) == values_of(expected)
