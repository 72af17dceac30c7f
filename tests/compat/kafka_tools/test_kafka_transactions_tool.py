"""`kafka-transactions` against three nodes: it lists and finds what `tidelog transactions` does, and aborts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import confluent_kafka
import pytest

from support.clients.confluent import read_from
from support.clients.kafka_peer import KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.cli import rows, tidelog
from support.nodes.cluster_process import ClusterProcesses
from tidelog import Admin, NewTopic, TopicPartition
from tidelog.base.ids import PartitionIndex

TIMEOUT_SECONDS = 30


@pytest.fixture(scope="module")
def cluster(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    home = tmp_path_factory.mktemp("cluster")
    with ClusterProcesses(home, transaction_partition_verification_enable="false") as started:
        yield started


def told(tools: KafkaTools, cluster: ClusterProcesses | KafkaPeer, *arguments: str) -> list[dict[str, str]]:
    """The rows of the tool's table, by the names of its columns."""
    said = tools.run("kafka-transactions", "--bootstrap-server", cluster.bootstrap, *arguments).output
    lines = [re.split(r"\t+", line.strip()) for line in said.splitlines() if line.strip()]
    names = [name.strip() for name in lines[0]]
    return [dict(zip(names, (cell.strip() for cell in line), strict=False)) for line in lines[1:]]


def transactional(cluster: ClusterProcesses | KafkaPeer, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def test_open_transactions_are_listed_and_described_alike(tools: KafkaTools, cluster: ClusterProcesses) -> None:
    topic = "listed"
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)])
    producers = {name: transactional(cluster, name) for name in ("copier-a", "copier-b")}
    producer = producers["copier-a"]
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(TIMEOUT_SECONDS)

    ours = rows(tidelog(cluster, "transactions", "list", "-o", "json"))
    assert [
        (each["TransactionalId"], each["Coordinator"], each["ProducerId"], each["TransactionState"])
        for each in sorted(told(tools, cluster, "list"), key=lambda each: each["TransactionalId"])
    ] == [
        (each["transactional_id"], str(each["coordinator"]), str(each["producer_id"]), each["state"]) for each in ours
    ]
    assert {each["TransactionalId"] for each in told(tools, cluster, "list", "--duration-filter", "1")} == {"copier-a"}

    [described] = told(tools, cluster, "describe", "--transactional-id", "copier-a")
    [own] = rows(tidelog(cluster, "transactions", "describe", "copier-a", "-o", "json"))
    assert described["CoordinatorId"] == str(own["coordinator"])
    assert described["TransactionState"] == own["state"] == "Ongoing"
    assert described["TopicPartitions"] == ",".join(own["partitions"]) == f"{topic}-0"
    assert (described["TransactionTimeoutMs"], own["timeout_ms"]) == ("600000", 600_000)

    for replica in cluster.nodes:
        [of_replica] = told(
            tools, cluster, "describe-producers", "--topic", topic, "--partition", "0", "--broker-id", str(replica)
        )
        assert of_replica["ProducerId"] == str(own["producer_id"])
        assert of_replica["CurrentTransactionStartOffset"] == "0"
    assert told(tools, cluster, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0") == []
    producer.commit_transaction(TIMEOUT_SECONDS)


@pytest.mark.parametrize("broker", ["cluster", "kafka_peer"])
def test_patterns_are_of_the_whole_id(tools: KafkaTools, broker: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(broker)
    for name in ("pattern-1", "pattern-22", "not-a-pattern-1"):
        transactional(found, name)

    def matching(pattern: str) -> set[str]:
        by_kafka = told(tools, found, "list", "--transactional-id-pattern", pattern)
        assert {each["TransactionalId"] for each in by_kafka} == {
            each["transactional_id"]
            for each in rows(tidelog(found, "transactions", "list", "--pattern", pattern, "-o", "json"))
        }
        return {each["TransactionalId"] for each in by_kafka}

    assert matching("pattern-1") == {"pattern-1"}
    assert matching("pattern") == set()
    assert matching("(?i)PATTERN-[0-9]{1,2}$") == {"pattern-1", "pattern-22"}
    assert matching(r".*pattern-\d") == {"pattern-1", "not-a-pattern-1"}
    assert "INVALID_REGULAR_EXPRESSION" in tidelog(found, "transactions", "list", "--pattern", "pattern-(", status=1)


@pytest.mark.parametrize("by_kafka", [True, False])
def test_what_hangs_is_found_by_both_and_aborted_by_either(
    tools: KafkaTools, cluster: ClusterProcesses, by_kafka: bool
) -> None:
    topic = f"hanging-{by_kafka}".lower()
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)])
        leader = admin.describe_topics([topic])[topic].partitions[0].leader
    assert leader is not None
    with WireClient(cluster.nodes[leader].port) as client:
        batch = batch_of(b"nobody's", producer=(8_000_000, 0), base_sequence=0, transactional=True)
        wait_until(
            lambda: client.produce(topic, batch, transactional_id="nobody", acks=-1).error_code == 0,
            "its leader knows the topic",
        )
        assert client.produce(topic, batch_of(b"behind"), acks=-1).error_code == 0

    def found(*where: str) -> list[tuple[str, str]]:
        return [(each["ProducerId"], each["StartOffset"]) for each in told(tools, cluster, "find-hanging", *where)]

    def is_found_at(replica: str) -> bool:
        return found("--broker-id", replica) == [("8000000", "0")]

    assert found("--topic", topic) == [("8000000", "0")]
    for replica in cluster.nodes:
        wait_until(
            partial(is_found_at, str(replica)),
            "the replica has the record too",
        )
    [ours] = rows(tidelog(cluster, "transactions", "find-hanging", "-o", "json"))
    assert (ours["topic"], ours["producer_id"], ours["start_offset"]) == (topic, 8_000_000, 0)

    place = ("--partition", "0", "--start-offset", "0")
    if by_kafka:
        at = ("--bootstrap-server", cluster.bootstrap)
        tools.run("kafka-transactions", *at, "abort", "--topic", topic, *place)
    else:
        tidelog(cluster, "transactions", "abort", topic, *place)
    assert found("--topic", topic) == []
    with Admin(cluster.bootstrap) as admin:
        assert admin.find_hanging_transactions([TopicPartition(topic, PartitionIndex(0))]) == []
    committed = read_from(cluster.bootstrap, topic, isolation_level="read_committed")
    assert [each.value for each in committed] == [b"behind"]
