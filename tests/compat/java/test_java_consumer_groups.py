"""Java's consumer with group.protocol=consumer (KIP-848), against a node and against Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from support.clients.confluent import Sent, create_topic, new_producer, produce
from support.clients.kafka_peer import KafkaPeer
from support.nodes.node import NodeProcess

Story = Callable[..., list[str]]
Broker = NodeProcess | KafkaPeer


def new_topic(broker: Broker, topic: str, partitions: int = 4) -> None:
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic, partitions)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_the_partitions_and_give_up_only_what_moves(
    broker: Broker, story: Story, topic: str, assignor: str
) -> None:
    new_topic(broker, topic)
    assert story("new-rebalance", broker.bootstrap, topic, assignor) == [
        "first has 4 partitions, lost 0",
        "first has 2 partitions, lost 2",
        "second has 2 partitions, lost 0",
        "together [0, 1, 2, 3]",
        "second has 4 partitions, lost 0",
    ]


def test_a_static_member_comes_back_and_keeps_its_place(broker: Broker, story: Story, topic: str) -> None:
    new_topic(broker, topic)
    assert story("new-static", broker.bootstrap, topic) == [
        "same epoch true",
        "the thief: UnreleasedInstanceIdException",
    ]


def test_a_pattern_finds_a_topic_that_is_made_later(broker: Broker, story: Story, topic: str) -> None:
    new_topic(broker, topic)
    assert story("new-pattern", broker.bootstrap, topic) == ["assigned 4", "assigned 7"]


def test_what_is_refused_reaches_the_program(broker: Broker, story: Story, topic: str) -> None:
    new_topic(broker, topic)
    assert story("new-refused", broker.bootstrap, topic) == [
        "an assignor: UnsupportedAssignorException",
        "a pattern: InvalidRegularExpression",
    ]


def test_commits_carry_leader_epoch_and_metadata(broker: Broker, story: Story, topic: str) -> None:
    new_topic(broker, topic, 1)
    produce(new_producer(broker.bootstrap), topic, [Sent(b"%d" % i) for i in range(10)])
    committed, went_on = story("new-commit", broker.bootstrap, topic)
    assert committed.startswith("committed OffsetAndMetadata{offset=5, leaderEpoch=")
    assert "leaderEpoch=null" not in committed
    assert committed.endswith("metadata='noted'}")
    assert went_on == "went on at 5"


def test_a_group_goes_over_to_the_new_protocol_and_back_while_its_members_read(
    broker: Broker, story: Story, topic: str
) -> None:
    new_topic(broker, topic)
    assert story("both", broker.bootstrap, topic) == [
        "classic has 4 partitions, lost 0",
        "classic has 2 partitions, lost 2",
        "new has 2 partitions, lost 0",
        "new has 4 partitions, lost 0",
        "again has 2 partitions, lost 0",
        "again has 4 partitions, lost 0",
    ]
