"""Topics that grow while a node runs, and how they are shown piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from support.clients import kafka_python_client as kafka_python
from support.clients.admin_requests import grow
from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

DEADLINE_SECONDS = 60.0


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        yield client


def count(client: WireClient, topic: str) -> int:
    return len(client.describe_topic(topic).partitions)


def test_every_version_adds_partitions_that_serve_at_once(client: WireClient) -> None:
    client.create_topic("grows")
    client.produce("grows", batch_of(b"before"))
    for version in range(4):
        row = grow(client, "grows", version + 2, version=version)
        assert (row.error_code, row.error_message) == (0, None)
        assert client.produce("grows", batch_of(b"new"), partition=version + 1).base_offset == 0
    assert count(client, "grows") == 5
    assert [record.value for record in client.read_all("grows")] == [b"before"]


def test_by_hand_and_only_checked(client: WireClient) -> None:
    client.create_topic("chosen")
    assert grow(client, "chosen", 3, [[1], [1]], validate_only=True).error_code == 0
    assert count(client, "chosen") == 1
    assert grow(client, "chosen", 3, [[1], [1]]).error_code == 0
    assert count(client, "chosen") == 3


@pytest.mark.parametrize(
    ("topic", "to", "assignments", "code"),
    [
        ("stays", 2, None, Code.INVALID_PARTITIONS),
        ("stays", 1, None, Code.INVALID_PARTITIONS),
        ("stays", 3, [[7]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("stays", 3, [], Code.INVALID_REPLICA_ASSIGNMENT),
        ("stays", 3, [[1, 1]], Code.INVALID_REPLICA_ASSIGNMENT),
        ("nowhere", 3, None, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_cannot_be_is_refused(
    client: WireClient, topic: str, to: int, assignments: list[list[int]] | None, code: Code
) -> None:
    client.create_topic("stays", partitions=2)
    row = grow(client, topic, to, assignments)
    assert row.error_code == code
    assert row.error_message
    assert count(client, "stays") == 2


def test_a_kill_loses_no_partition(node: NodeProcess) -> None:
    with WireClient(node.port) as client:
        client.create_topic("killed")
        assert grow(client, "killed", 4).error_code == 0
        assert client.produce("killed", batch_of(b"a"), partition=3).error_code == 0
    node.kill()
    node.restart()
    with WireClient(node.port) as client:
        assert count(client, "killed") == 4
        assert [record.value for record in client.read_all("killed", partition=3)] == [b"a"]


def test_confluents_admin_client(client: WireClient, shared_node: NodeProcess) -> None:
    client.create_topic("confluent-grows")
    admin = AdminClient({"bootstrap.servers": shared_node.bootstrap})
    admin.create_partitions([NewPartitions("confluent-grows", 3)])["confluent-grows"].result(DEADLINE_SECONDS)
    assert count(client, "confluent-grows") == 3
    with pytest.raises(KafkaException, match="has 3 partitions already"):
        admin.create_partitions([NewPartitions("confluent-grows", 3)])["confluent-grows"].result(DEADLINE_SECONDS)


def test_kafka_pythons_admin_client(client: WireClient, shared_node: NodeProcess) -> None:
    client.create_topic("kafka-python-grows")
    with kafka_python.admin_of(shared_node.bootstrap) as admin:
        admin.create_partitions({"kafka-python-grows": 3})
    assert count(client, "kafka-python-grows") == 3


# DescribeTopicPartitions.


def ask(
    client: WireClient, *topics: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(topic) for topic in topics],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(*cursor),
    )
    return client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)


def shown(answer: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics]


def test_topics_come_piece_by_piece_in_the_order_of_their_names(client: WireClient) -> None:
    for topic, partitions in (("piece-b", 3), ("piece-a", 2), ("piece-c", 1)):
        client.create_topic(topic, partitions=partitions)
    names = ("piece-c", "piece-b", "piece-a", "piece-b")
    first = ask(client, *names, limit=3)
    assert shown(first) == [("piece-a", [0, 1]), ("piece-b", [0])]
    assert first.next_cursor == Cursor("piece-b", 1)
    second = ask(client, *names, limit=2, cursor=("piece-b", 1))
    assert shown(second) == [("piece-b", [1, 2])]
    assert second.next_cursor == Cursor("piece-c", 0)
    third = ask(client, *names, limit=2, cursor=("piece-c", 0))
    assert shown(third) == [("piece-c", [0])]
    assert third.next_cursor is None


def test_a_topic_is_shown_whole(client: WireClient) -> None:
    client.create_topic("whole")
    (topic,) = ask(client, "whole").topics
    asked = client.describe_topic("whole")
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, asked.topic_id, False)
    (row,) = topic.partitions
    assert (row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes) == (1, 0, [1], [1])
    assert (row.eligible_leader_replicas, row.last_known_elr, row.offline_replicas) == ([], [], [])


def test_without_names_all_topics_are_shown(client: WireClient) -> None:
    client.create_topic("among-all")
    assert "among-all" in [topic.name for topic in ask(client).topics]


def test_topics_that_are_not_there(client: WireClient) -> None:
    codes = {topic.name: topic.error_code for topic in ask(client, "nowhere-at-all", "a/b").topics}
    assert codes == {"nowhere-at-all": Code.UNKNOWN_TOPIC_OR_PARTITION, "a/b": Code.INVALID_TOPIC_EXCEPTION}


def test_a_limit_or_a_cursor_that_makes_no_sense_is_refused(client: WireClient) -> None:
    assert [topic.error_code for topic in ask(client, "x", limit=0).topics] == [Code.INVALID_REQUEST]
    assert [topic.error_code for topic in ask(client, "x", cursor=("x", -1)).topics] == [Code.INVALID_REQUEST]
