"""kafka-share-groups and kafka-console-share-consumer against a node, and against Apache Kafka: they say the same."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.confluent import Sent, create_topic, new_producer, produce
from support.clients.kafka_peer import KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.nodes.node import NodeProcess

At = tuple[str, str]


@pytest.fixture(params=["shared_node", pytest.param("kafka_peer", marks=pytest.mark.slow)])
def at(request: pytest.FixtureRequest) -> At:
    """The arguments that name the broker: a node, and then Apache Kafka."""
    broker: NodeProcess | KafkaPeer = request.getfixturevalue(request.param)
    return "--bootstrap-server", broker.bootstrap


@pytest.fixture
def group(tools: KafkaTools, at: At, topic: str) -> str:
    """The name of a topic of ten records, and of a group that has read and accepted six of them."""
    create_topic(AdminClient({"bootstrap.servers": at[1]}), topic, 1)
    produce(new_producer(at[1]), topic, [Sent(b"%d" % number) for number in range(6)])
    config = ("--entity-type", "groups", "--entity-name", topic, "--alter", "--add-config")
    tools.run("kafka-configs", *at, *config, "share.auto.offset.reset=earliest")
    read = ("--topic", topic, "--group", topic, "--max-messages", "6", "--timeout-ms", "30000")
    ran = tools.run("kafka-console-share-consumer", *at, *read)
    assert ran.output.split() == [str(number) for number in range(6)], ran.errors
    produce(new_producer(at[1]), topic, [Sent(b"x")] * 4)
    return topic


def share_groups(tools: KafkaTools, at: At, *arguments: str) -> str:
    """What the tool says; its exit status is 0 even when it was refused something."""
    ran = tools.run("kafka-share-groups", *at, *arguments)
    return ran.output + ran.errors


def rows(output: str) -> list[dict[str, str]]:
    """The table that the tool printed, by the names of its columns."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head = next(number for number, line in enumerate(lines) if line[0] == "GROUP")
    # Beside the rows there may be sentences, in front and behind.
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :] if line[0] != "Share"]


def test_a_group_is_listed_described_reset_and_deleted(tools: KafkaTools, at: At, group: str) -> None:
    assert group in share_groups(tools, at, "--list").split()
    listed = tools.run("kafka-groups", *at, "--list", "--share").output
    assert f"{group} Share share" in " ".join(listed.split())
    (state,) = rows(share_groups(tools, at, "--describe", "--group", group, "--state"))
    assert "Empty" in state.values()

    def lag() -> str:
        """Kafka keeps a start offset later than what is done from it on."""
        (row,) = rows(share_groups(tools, at, "--describe", "--group", group))
        return row["LAG"]

    assert lag() == "4"
    reset = ("--reset-offsets", "--group", group, "--topic", group, "--to-earliest")
    (planned,) = rows(share_groups(tools, at, *reset, "--dry-run"))
    assert planned["NEW-OFFSET"] == "0"
    assert lag() == "4"
    share_groups(tools, at, *reset, "--execute")
    assert lag() == "10"
    read = ("--topic", group, "--group", group, "--max-messages", "10", "--timeout-ms", "30000")
    assert len(tools.run("kafka-console-share-consumer", *at, *read).output.split()) == 10
    assert lag() == "0"

    said = share_groups(tools, at, "--delete-offsets", "--group", group, "--topic", group)
    assert "Error" not in said, said
    assert "START-OFFSET" not in share_groups(tools, at, "--describe", "--group", group)
    assert "was successful" in share_groups(tools, at, "--delete", "--group", group)
    assert group not in share_groups(tools, at, "--list").split()


def test_a_group_that_is_not_there(tools: KafkaTools, at: At, topic: str) -> None:
    assert "GroupIdNotFound" in share_groups(tools, at, "--describe", "--group", topic)
    assert "not" in share_groups(tools, at, "--delete", "--group", topic)
