"""kafka-consumer-groups and kafka-groups against a node, and against Apache Kafka: they say the same of both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.confluent import Sent, consumer_of, create_topic, new_producer, produce
from support.clients.kafka_peer import KafkaPeer
from support.clients.kafka_tools import KafkaTools
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess

At = tuple[str, str]


@pytest.fixture(params=["shared_node", "kafka_peer"])
def at(request: pytest.FixtureRequest) -> At:
    """The arguments that name the broker: a node, and then Apache Kafka."""
    broker: NodeProcess | KafkaPeer = request.getfixturevalue(request.param)
    return "--bootstrap-server", broker.bootstrap


@pytest.fixture
def group(at: At, topic: str) -> str:
    """The name of a topic with two partitions of ten records, and of a group that committed offset 4 of each."""
    create_topic(AdminClient({"bootstrap.servers": at[1]}), topic, 2)
    for partition in range(2):
        produce(new_producer(at[1]), topic, [Sent(b"x")] * 10, partition=partition)
    with member_of(at, topic) as consumer:
        for partition in consumer.assignment():
            partition.offset = 4
            consumer.commit(offsets=[partition], asynchronous=False)
    return topic


@contextmanager
def member_of(at: At, group: str) -> Iterator[Any]:
    """A member that has both partitions of the topic of the same name."""
    with consumer_of(at[1], group_id=group, auto_offset_reset="earliest", client_id="member") as consumer:
        consumer.subscribe([group])
        wait_until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 2, "both partitions assigned")
        yield consumer


def rows(output: str) -> list[dict[str, str]]:
    """The table that a tool printed, by the names of its columns."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head = next(number for number, line in enumerate(lines) if line[0] == "GROUP")
    # Beside the rows there may be sentences, in front and behind.
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :] if line[0] != "Consumer"]


def groups(tools: KafkaTools, at: At, *arguments: str) -> str:
    """What the tool says; its exit status is 0 even when it was refused something."""
    ran = tools.run("kafka-consumer-groups", *at, *arguments)
    return ran.output + ran.errors


def test_a_group_without_members(tools: KafkaTools, at: At, group: str) -> None:
    assert group in groups(tools, at, "--list").split()
    described = rows(groups(tools, at, "--describe", "--group", group))
    assert [(row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in described] == [
        ("0", "4", "10", "6"),
        ("1", "4", "10", "6"),
    ]
    (state,) = rows(groups(tools, at, "--describe", "--group", group, "--state"))
    assert "Empty" in state.values()
    listed = tools.run("kafka-groups", *at, "--list", "--consumer").output
    assert f"{group} Classic consumer" in " ".join(listed.split())


def test_a_group_with_a_member(tools: KafkaTools, at: At, group: str) -> None:
    with member_of(at, group):
        (member,) = rows(groups(tools, at, "--describe", "--group", group, "--members", "--verbose"))
        assert member["CLIENT-ID"] == "member"
        assert member["HOST"] == "/127.0.0.1"
        assert member["#PARTITIONS"] == "2"
        (state,) = rows(groups(tools, at, "--describe", "--group", group, "--state"))
        assert "Stable" in state.values()
        assert "range" in state.values()
        listed = groups(tools, at, "--list", "--state", "Stable").split()
        assert group in listed
        assert "could not" in groups(tools, at, "--delete", "--group", group).lower()
        refused = groups(tools, at, "--reset-offsets", "--to-earliest", "--all-topics", "--group", group, "--execute")
        assert "inactive" in refused


def test_offsets_are_reset_and_deleted(tools: KafkaTools, at: At, group: str) -> None:
    def reset(*how: str) -> list[str]:
        said = groups(tools, at, "--reset-offsets", "--group", group, "--topic", group, *how, "--execute")
        return [row["NEW-OFFSET"] for row in rows(said)]

    assert reset("--to-earliest") == ["0", "0"]
    assert reset("--to-latest") == ["10", "10"]
    assert reset("--shift-by", "-3") == ["7", "7"]
    assert reset("--to-datetime", "2001-01-01T00:00:00.000") == ["0", "0"]
    assert reset("--to-offset", "5") == ["5", "5"]
    assert [row["CURRENT-OFFSET"] for row in rows(groups(tools, at, "--describe", "--group", group))] == ["5", "5"]
    groups(tools, at, "--delete-offsets", "--group", group, "--topic", group)
    assert group not in groups(tools, at, "--describe", "--group", group).replace(f"'{group}'", "")


def test_groups_are_deleted(tools: KafkaTools, at: At, group: str) -> None:
    assert "successful" in groups(tools, at, "--delete", "--group", group)
    assert group not in groups(tools, at, "--list").split()
    assert "GroupIdNotFoundException" in groups(tools, at, "--describe", "--group", group)
