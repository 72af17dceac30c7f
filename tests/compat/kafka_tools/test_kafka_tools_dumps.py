"""Files both ways: kafka-dump-log reads what a node wrote, `tidelog log dump` what Apache Kafka wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support.clients.confluent import Sent, new_producer, produce, read_from
from support.clients.kafka_peer import KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.clients.wire_client import WireClient
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossCause, ReplicaFate, ReplicaLoss
from tidelog.metadata.records import (
    DelegationTokenRecord,
    ForgottenLoss,
    NoOpRecord,
    RemoveDelegationTokenRecord,
    encode_record,
)
from tidelog.records import BatchBuilder
from tidelog.wire.messages.losses import entry_of

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_MS = 1_700_000_000_000


def fill(bootstrap: str, topic: str) -> None:
    """A batch of 100 records in each compression, and then large ones until the indexes have entries."""
    for compression in COMPRESSIONS:
        producer = new_producer(bootstrap, compression_type=compression, enable_idempotence=True, linger_ms=200)
        records = [
            Sent(b"value %d" % i, b"key", (("name", b"header"),), timestamp_ms=TIMESTAMP_MS + i) for i in range(100)
        ]
        produce(producer, topic, records)
    for i in range(20):
        produce(new_producer(bootstrap), topic, [Sent(b"v" * 5_000, timestamp_ms=TIMESTAMP_MS + 1_000 + i)])


def dumped_by_tidelog(path: Path, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "tidelog", "log", "dump", str(path), *arguments, "--output", "json"]
    ran = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.fixture(scope="module")
def own_node(start_node: StartNode, tools: KafkaTools) -> NodeProcess:
    """A node with a topic of batches in every compression, stopped cleanly."""
    node = start_node(config={"offsets.topic.num.partitions": "1"})
    with WireClient(node.port) as client:
        client.create_topic("dumped", configs={"retention.ms": "-1"})
    fill(node.bootstrap, "dumped")
    at = ("--bootstrap-server", node.bootstrap, "--topic", "dumped")
    tools.run("kafka-console-consumer", *at, "--group", "readers", "--from-beginning", "--max-messages", "7")
    node.stop()
    return node


def dump(tools: KafkaTools, files: list[Path], *arguments: str) -> str:
    assert files
    said = tools.run("kafka-dump-log", *arguments, "--files", ",".join(str(file) for file in sorted(files)))
    # What it finds wrong it says on either.
    assert not re.search(
        r"(?i)mismatch|corrupt|not valid|invalid|Exception|non-consecutive", said.output + said.errors
    ), said
    return said.output


def test_kafka_dumps_a_segment_with_its_records(own_node: NodeProcess, tools: KafkaTools) -> None:
    directory = own_node.data_dir / "node-1" / "dumped-0"
    said = dump(tools, list(directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    batches = re.findall(r"^baseOffset: .*", said, re.MULTILINE)
    assert all("isvalid: true" in batch for batch in batches)
    assert {re.search(r"compresscodec: (\w+)", batch)[1] for batch in batches} == set(COMPRESSIONS)  # type: ignore[index]
    assert [int(offset) for offset in re.findall(r"^\| offset: (\d+)", said, re.MULTILINE)] == list(range(520))
    assert said.count("headerKeys: [name] key: key payload: value ") == 500


def test_kafka_finds_the_indexes_sane(own_node: NodeProcess, tools: KafkaTools) -> None:
    directory = own_node.data_dir / "node-1" / "dumped-0"
    said = dump(tools, list(directory.glob("*.index")))
    places = re.findall(r"^offset: (\d+) position: (\d+)", said, re.MULTILINE)
    assert len(places) >= 10
    said = dump(tools, list(directory.glob("*.timeindex")))
    times = re.findall(r"^timestamp: (\d+) offset: (\d+)", said, re.MULTILINE)
    assert len(times) >= 10
    assert times[-1] == (str(TIMESTAMP_MS + 1_019), "519")
    assert "passed sanity check" in dump(tools, list(directory.glob("*.index")), "--index-sanity-check")


def test_kafka_reads_the_producer_snapshot(own_node: NodeProcess, tools: KafkaTools) -> None:
    said = dump(tools, list((own_node.data_dir / "node-1" / "dumped-0").glob("*.snapshot")))
    rows = re.findall(
        r"^producerId: (\d+) producerEpoch: 0 coordinatorEpoch: -1 .*lastOffset: (\d+)", said, re.MULTILINE
    )
    assert [int(last) for _, last in rows] == [99, 199, 299, 399, 499]


def test_kafka_decodes_the_cluster_metadata(own_node: NodeProcess, tools: KafkaTools) -> None:
    directory = own_node.data_dir / "node-1" / "__cluster_metadata-0"
    said = dump(tools, list(directory.glob("*.log")), "--cluster-metadata-decoder")
    kinds = re.findall(r'payload: {"type":"(\w+)"', said)
    assert {"FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD"} <= set(kinds)
    assert '"name":"dumped"' in said
    assert "cannot" not in said.lower()


def test_kafka_passes_over_the_account_of_losses(tools: KafkaTools, tmp_path: Path) -> None:
    """Entries are tagged fields of ours in a record that says nothing to Kafka."""
    rows = (ReplicaLoss(BrokerId(1), ReplicaFate.CUT, Offset(40), Offset(30)), ReplicaLoss(BrokerId(2)))
    partition = "flights", TopicId(UUID(int=7)), PartitionIndex(0)
    loss = Loss(*partition, LeaderEpoch(4), LossCause.BY_OPERATOR, BrokerId(2), TIMESTAMP_MS, rows)
    builder = BatchBuilder()
    for record in (NoOpRecord(losses=[entry_of(loss)]), NoOpRecord(forgotten_losses=[ForgottenLoss(*loss.id)])):
        builder.append(TIMESTAMP_MS, None, encode_record(record))
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(builder.build(0, 1))
    said = dump(tools, [segment], "--cluster-metadata-decoder")
    assert re.findall(r'payload: {"type":"(\w+)"', said) == ["NO_OP_RECORD", "NO_OP_RECORD"]


def test_kafka_decodes_delegation_tokens(tools: KafkaTools, tmp_path: Path) -> None:
    token = DelegationTokenRecord(
        owner="User:alice",
        requester="User:bob",
        renewers=["User:carol", "User:dave"],
        issue_timestamp=TIMESTAMP_MS,
        max_timestamp=TIMESTAMP_MS + 2,
        expiration_timestamp=TIMESTAMP_MS + 1,
        token_id="an-id",
    )
    builder = BatchBuilder()
    for record in (token, RemoveDelegationTokenRecord(token_id="an-id")):
        builder.append(TIMESTAMP_MS, None, encode_record(record))
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(builder.build(0, 1))
    said = dump(tools, [segment], "--cluster-metadata-decoder")
    came, went = (json.loads(payload) for payload in re.findall(r"payload: ({.*})$", said, re.MULTILINE))
    assert came["type"] == "DELEGATION_TOKEN_RECORD"
    assert came["data"] == {
        "owner": "User:alice",
        "requester": "User:bob",
        "renewers": ["User:carol", "User:dave"],
        "issueTimestamp": TIMESTAMP_MS,
        "maxTimestamp": TIMESTAMP_MS + 2,
        "expirationTimestamp": TIMESTAMP_MS + 1,
        "tokenId": "an-id",
    }
    assert went["type"] == "REMOVE_DELEGATION_TOKEN_RECORD"
    assert went["data"] == {"tokenId": "an-id"}


def test_kafka_decodes_the_offsets_of_groups(own_node: NodeProcess, tools: KafkaTools) -> None:
    directory = own_node.data_dir / "node-1" / "__consumer_offsets-0"
    said = dump(tools, list(directory.glob("*.log")), "--offsets-decoder")
    payloads = re.findall(r"^\| .*?key: ({.*?}) payload: (.*)$", said, re.MULTILINE)
    offsets = [json.loads(value)["data"] for key, value in payloads if '"group":"readers","topic":"dumped"' in key]
    assert [row["offset"] for row in offsets][-1:] == [7]
    groups = [
        json.loads(value)
        for key, value in payloads
        if json.loads(key)["data"] == {"group": "readers"} and value != "<DELETE>"
    ]
    assert {group["data"]["protocolType"] for group in groups} == {"consumer"}


@pytest.fixture(scope="module")
def kafka_files(
    own_node: NodeProcess, kafka_peer: KafkaPeer, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of what Apache Kafka wrote until it was stopped; it runs again, with a partition that our node wrote."""
    at = ("--bootstrap-server", kafka_peer.bootstrap)
    for topic in ("written-by-kafka", "taken-over"):
        tools.run("kafka-topics", "--create", *at, "--topic", topic)
    fill(kafka_peer.bootstrap, "written-by-kafka")
    consumed = ("--topic", "written-by-kafka", "--group", "readers", "--from-beginning", "--max-messages", "7")
    tools.run("kafka-console-consumer", *at, *consumed)
    kafka_peer.stop()
    copy = tmp_path_factory.mktemp("written") / "by-kafka"
    shutil.copytree(kafka_peer.log_dir, copy)
    exchange(own_node.data_dir / "node-1" / "dumped-0", kafka_peer.log_dir / "taken-over-0")
    (kafka_peer.log_dir / ".kafka_cleanshutdown").unlink()  # so that it goes through every record
    kafka_peer.start()
    return copy


def exchange(source: Path, target: Path) -> None:
    """Put the log of one partition in the place of another's, which stays the partition of its topic."""
    for file in target.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in source.iterdir():
        if file.name != "partition.metadata":
            shutil.copy(file, target)


def test_tidelog_dumps_what_kafka_wrote(kafka_files: Path) -> None:
    directory = kafka_files / "written-by-kafka-0"
    files = {Path(row["file"]).name for row in dumped_by_tidelog(directory)}
    assert files == {file.name for file in directory.iterdir() if file.stat().st_size}
    records = dumped_by_tidelog(next(directory.glob("*.log")), "--records")
    assert [row["offset"] for row in records] == list(range(520))
    # Nor is anything wrong with what Kafka keeps for itself: groups, and the metadata of the cluster.
    for internal in ("__consumer_offsets-0", "__cluster_metadata-0"):
        assert dumped_by_tidelog(kafka_files / internal)


def test_kafka_serves_a_partition_that_a_node_wrote(kafka_files: Path, kafka_peer: KafkaPeer) -> None:
    found = read_from(kafka_peer.bootstrap, "taken-over")
    assert [record.offset for record in found] == list(range(520))
    assert [record.value for record in found[:500]] == [b"value %d" % (i % 100) for i in range(500)]
    assert produce(new_producer(kafka_peer.bootstrap), "taken-over", [Sent(b"after")]) == [520]


def test_a_node_serves_a_partition_that_kafka_wrote(
    kafka_files: Path, kafka_peer: KafkaPeer, start_node: StartNode
) -> None:
    node = start_node()
    try:
        with WireClient(node.port) as client:
            client.create_topic("handed-over", configs={"retention.ms": "-1"})
        node.kill()  # so that it goes through every record
        exchange(kafka_files / "written-by-kafka-0", node.data_dir / "node-1" / "handed-over-0")
        node.restart()
        assert read_from(node.bootstrap, "handed-over") == read_from(kafka_peer.bootstrap, "written-by-kafka")
        assert produce(new_producer(node.bootstrap), "handed-over", [Sent(b"after")]) == [520]
    finally:
        node.close()
