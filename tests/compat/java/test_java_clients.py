"""Java's producer, consumer and admin client, against a node and against Apache Kafka: they find the same in both."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.confluent import Sent, create_topic, new_producer, produce, read_from
from support.clients.kafka_peer import KafkaPeer
from support.nodes.node import NodeProcess, StartNode

NOT_AS_KAFKA = {
    # A group without members is gone with its last offset; Kafka keeps it until its next clean-up.
    "deleteConsumerGroups": "GroupIdNotFoundException",
}

Story = Callable[..., list[str]]
Broker = NodeProcess | KafkaPeer
VALIDATED = "validated"


def new_topic(broker: Broker, topic: str, partitions: int = 1, **config: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, partitions, **config)


def test_records_come_as_they_went(broker: Broker, story: Story, topic: str) -> None:
    """Idempotent, acks=all, in every compression."""
    new_topic(broker, topic, retention_ms="-1")
    compressions = ("none", "gzip", "snappy", "lz4", "zstd")
    for number, compression in enumerate(compressions):
        assert story("produce", broker.bootstrap, topic, compression, 200) == [f"{number * 200} {number * 200 + 199}"]
    *records, position = story("read", broker.bootstrap, topic, 1_000)
    epochs = {line.rpartition("|")[2] for line in records}
    assert len(epochs) == 1
    assert [line.rpartition("|")[0] for line in records] == [
        f"{offset}|{1_700_000_000_000 + offset % 200}|key {offset % 200}|value {offset % 200}|h{offset % 200}"
        for offset in range(1_000)
    ]
    assert position == "position 1000"


@pytest.mark.parametrize(
    ("assignor", "first_lost"), [("RangeAssignor", 4), ("RoundRobinAssignor", 4), ("CooperativeStickyAssignor", 2)]
)
def test_members_share_the_partitions(broker: Broker, story: Story, topic: str, assignor: str, first_lost: int) -> None:
    """An eager assignor takes all from everyone first; the cooperative one only what moves."""
    new_topic(broker, topic, 4)
    assert story("rebalance", broker.bootstrap, topic, assignor) == [
        "first has 4 partitions, lost 0",
        f"first has 2 partitions, lost {first_lost}",
        "second has 2 partitions, lost 0",
        "together [0, 1, 2, 3]",
        f"second has 4 partitions, lost {0 if assignor.startswith('Coop') else 2}",
    ]


def test_a_static_member_comes_back_without_a_rebalance(broker: Broker, story: Story, topic: str) -> None:
    new_topic(broker, topic, 4)
    assert story("static", broker.bootstrap, topic) == [
        "same partitions true",
        "same generation true",
        "the other is fenced",
    ]


def test_commits_carry_leader_epoch_and_metadata(broker: Broker, story: Story, topic: str) -> None:
    new_topic(broker, topic)
    produce(new_producer(broker.bootstrap), topic, [Sent(b"%d" % i) for i in range(10)])
    committed, went_on = story("commit", broker.bootstrap, topic)
    assert committed.startswith("committed OffsetAndMetadata{offset=5, leaderEpoch=")
    assert "leaderEpoch=null" not in committed
    assert committed.endswith("metadata='noted'}")
    assert went_on == "went on at 5"


@pytest.fixture(scope="module")
def restarted(needs_kafka: None, start_node: StartNode) -> tuple[NodeProcess, int, int]:
    """A node with five records of one leader epoch and five of a later one, and the two epochs."""
    node = start_node()
    create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), VALIDATED)
    epochs = []
    for _ in range(2):
        produce(new_producer(node.bootstrap), VALIDATED, [Sent(b"x")] * 5)
        epochs.append(read_epochs(node, VALIDATED)[-1])
        node.stop()
        node.restart()
    return node, epochs[0], epochs[1]


def read_epochs(node: NodeProcess, topic: str) -> list[int]:
    return [record.leader_epoch or 0 for record in read_from(node.bootstrap, topic)]


def test_a_position_is_validated_by_its_leader_epoch(restarted: tuple[NodeProcess, int, int], story: Story) -> None:
    node, first, second = restarted
    assert second > first
    assert story("validate", node.bootstrap, VALIDATED, 7, second) == ["read on at 7"]
    assert story("validate", node.bootstrap, VALIDATED, 5, first) == ["read on at 5"]
    # The log of the first epoch ended at 5: who stands at 7 in it read records that the log has lost.
    assert story("validate", node.bootstrap, VALIDATED, 7, first) == [f"truncated, divergent at 5 of epoch {first}"]


def test_transactions_work(shared_node: NodeProcess, story: Story, topic: str) -> None:
    new_topic(shared_node, topic)
    assert story("transaction", shared_node.bootstrap, topic) == ["transactions: committed"]


def test_the_admin_client(broker: Broker, story: Story, topic: str) -> None:
    found = dict(line.split(": ", 1) for line in story("admin", broker.bootstrap, topic))
    expected = {
        "createTopics": "2 partitions, -1",
        "createTopics again": "TopicExistsException",
        "listTopics": "true",
        "describeTopics": "2",
        "createPartitions": "null",
        "describeTopics then": "3",
        "describeCluster": "1",
        "incrementalAlterConfigs": "null",
        "incrementalAlterConfigs, unknown": "InvalidConfigurationException",
        "describeConfigs": "5000 delete,compact DYNAMIC_TOPIC_CONFIG DEFAULT_CONFIG",
        "describeConfigs of a broker": "true",
        "listConfigResources": "true",
        "produce": "10",
        "listOffsets EarliestSpec": "0 at -1",
        "listOffsets LatestSpec": "10 at -1",
        "listOffsets MaxTimestampSpec": "9 at 1009",
        "listOffsets TimestampSpec": "4 at 1004",
        "listOffsets EarliestLocalSpec": "0 at -1",
        "deleteRecords": "4",
        "describeLogDirs": "true",
        "describeProducers": "1",
        "alterConsumerGroupOffsets": "null",
        "listGroups": "[Classic Empty]",
        "describeConsumerGroups": "Empty",
        "describeClassicGroups": "Empty",
        "listConsumerGroupOffsets": "7",
        "deleteConsumerGroupOffsets": "null",
        "deleteConsumerGroups": "null",
        "describeFeatures": "true",
        "describeMetadataQuorum": "1",
        "deleteTopics": "null",
        "deleteTopics again": "UnknownTopicOrPartitionException",
    }
    assert int(found.pop("listTransactions")) >= 0, "as many as other tests have left there"
    if isinstance(broker, NodeProcess):
        expected |= NOT_AS_KAFKA
    assert found == expected
