"""kafka-topics, kafka-configs, kafka-get-offsets, kafka-delete-records and kafka-log-dirs against a node."""

from __future__ import annotations

import json
from pathlib import Path

from support.clients.kafka_tools import KafkaTools
from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess

At = tuple[str, str]


def test_topics_are_created_listed_described_grown_and_deleted(tools: KafkaTools, at: At, topic: str) -> None:
    def topics(*arguments: str, status: int = 0) -> str:
        return tools.run("kafka-topics", *at, *arguments, "--topic", topic, status=status).output

    created = topics("--create", "--partitions", "2", "--config", "retention.ms=100000")
    assert created == f"Created topic {topic}.\n"
    assert "exists" in topics("--create", status=1)
    assert topic in tools.run("kafka-topics", *at, "--list").output.split()
    head, *rows = topics("--describe").splitlines()
    assert "PartitionCount: 2\tReplicationFactor: 1\tConfigs: retention.ms=100000" in head
    assert [row.split("\t")[2:6] for row in rows] == [
        [f"Partition: {index}", "Leader: 1", "Replicas: 1", "Isr: 1"] for index in range(2)
    ]
    topics("--alter", "--partitions", "5")
    assert "PartitionCount: 5" in topics("--describe")
    assert "5 partition" in topics("--alter", "--partitions", "5", status=1)
    assert "3" in topics("--alter", "--partitions", "3", status=1)
    topics("--delete")
    assert topic not in tools.run("kafka-topics", *at, "--list").output.split()
    assert "does not exist" in topics("--describe", status=1)


def test_settings_of_a_topic(tools: KafkaTools, at: At, topic: str) -> None:
    def configs(*arguments: str, status: int = 0) -> str:
        ran = tools.run("kafka-configs", *at, "--topic", topic, *arguments, status=status)
        return ran.output + ran.errors

    tools.run("kafka-topics", *at, "--create", "--topic", topic)
    configs("--alter", "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    described = configs("--describe")
    assert "retention.ms=5000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000" in described
    assert "cleanup.policy=compact,delete" in described
    configs("--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in configs("--describe")
    assert "retention.ms=604800000" in configs("--describe", "--all")
    assert "no.such" in configs("--alter", "--add-config", "no.such=1", status=1)
    assert "retention.ms" in configs("--alter", "--add-config", "retention.ms=soon", status=1)


def test_settings_of_a_broker(tools: KafkaTools, at: At) -> None:
    def configs(*arguments: str, status: int = 0) -> str:
        ran = tools.run("kafka-configs", *at, *arguments, status=status)
        return ran.output + ran.errors

    assert "log.retention.ms" in configs("--describe", "--broker", "1", "--all")
    configs("--alter", "--broker", "1", "--add-config", "log.retention.ms=123456789")
    assert "log.retention.ms=123456789" in configs("--describe", "--broker", "1")
    configs("--alter", "--broker", "1", "--delete-config", "log.retention.ms")
    assert "123456789" not in configs("--describe", "--broker", "1")
    configs("--alter", "--broker-defaults", "--add-config", "log.retention.ms=987654321")
    assert "log.retention.ms=987654321" in configs("--describe", "--broker-defaults")
    configs("--alter", "--broker-defaults", "--delete-config", "log.retention.ms")
    assert "log.dirs" in configs("--alter", "--broker", "1", "--add-config", "log.dirs=/elsewhere", status=1)


def test_offsets_and_deleted_records(
    tools: KafkaTools, at: At, shared_node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    with WireClient(shared_node.port) as client:
        client.create_topic(topic, partitions=2)
        client.produce(topic, batch_of(*[b"x"] * 10, timestamp_ms=1_000))
        client.produce(topic, batch_of(b"y", timestamp_ms=500), partition=1)

    def offsets(*arguments: str) -> list[str]:
        return tools.run("kafka-get-offsets", *at, "--topic", topic, *arguments).output.split()

    assert offsets() == [f"{topic}:0:10", f"{topic}:1:1"]
    assert offsets("--time", "earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("--time", "max-timestamp") == [f"{topic}:0:9", f"{topic}:1:0"]
    assert offsets("--time", "1005") == [f"{topic}:0:5"]  # the other has none that late
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]}))
    deleted = tools.run("kafka-delete-records", *at, "--offset-json-file", str(asked)).output
    assert f"partition: {topic}-0\tlow_watermark: 4" in deleted
    assert offsets("--time", "earliest") == [f"{topic}:0:4", f"{topic}:1:0"]


def test_log_dirs(tools: KafkaTools, at: At, shared_node: NodeProcess, topic: str) -> None:
    batch = batch_of(b"x" * 1000)
    with WireClient(shared_node.port) as client:
        client.create_topic(topic)
        client.produce(topic, batch)
    said = tools.run("kafka-log-dirs", *at, "--describe", "--topic-list", topic).output.splitlines()
    (directory,) = json.loads(said[-1])["brokers"][0]["logDirs"]
    assert directory["error"] is None
    assert Path(directory["logDir"]) == shared_node.data_dir / "node-1"
    (partition,) = directory["partitions"]
    assert partition == {"partition": f"{topic}-0", "size": len(batch), "offsetLag": 0, "isFuture": False}


def test_what_is_served(tools: KafkaTools, at: At) -> None:
    said = tools.run("kafka-broker-api-versions", *at).output
    assert "Produce(0): 0 to 13 [usable: 13]" in said
    assert "OffsetForLeaderEpoch(23): 2 to 4 [usable: 4]" in said
    assert tools.run("kafka-cluster", "cluster-id", *at).output.startswith("Cluster ID: ")
