"""confluent-kafka over restarts of the node, with settings of its own: nothing is lost, nothing read twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.confluent import (
    Read,
    Sent,
    consumer_of,
    create_topic,
    new_producer,
    produce,
    read_from,
    read_to_end,
)
from support.nodes.node import NodeProcess


@pytest.fixture(scope="module")
def own_node(start_node) -> Iterator[NodeProcess]:  # type: ignore[no-untyped-def]
    started: NodeProcess = start_node(config={"num.partitions": "4"})
    yield started
    started.close()


def test_topics_made_by_producing_have_the_default_number_of_partitions(own_node: NodeProcess, topic: str) -> None:
    producer = new_producer(own_node.bootstrap)
    assert produce(producer, topic, [Sent(b"x")], partition=3) == [0]
    known = AdminClient({"bootstrap.servers": own_node.bootstrap}).list_topics(timeout=10).topics[topic]
    assert sorted(known.partitions) == [0, 1, 2, 3]


def test_a_producer_and_a_consumer_live_through_restarts(own_node: NodeProcess, topic: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": own_node.bootstrap}), topic)
    producer = new_producer(own_node.bootstrap, enable_idempotence=True)
    with consumer_of(own_node.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        produced: list[bytes] = []
        epochs = []
        for number in range(3):
            if number == 1:
                own_node.stop()
                own_node.restart()
            elif number == 2:
                own_node.kill()
                own_node.restart()
            values = [b"%d.%d" % (number, i) for i in range(50)]
            answers = produce(producer, topic, [Sent(value) for value in values])
            assert answers == list(range(len(produced), len(produced) + 50))
            produced += values
            found: list[Read] = []
            while len(found) < 50:
                found += read_to_end(consumer)
            assert [record.value for record in found] == values
            epochs.append({record.leader_epoch for record in found})
    # Each restart of the only replica is an election, and each batch says under which leader it was written.
    assert all(len(one) == 1 for one in epochs)
    numbers = [one.pop() or 0 for one in epochs]
    assert numbers == sorted(set(numbers))
    assert [record.value for record in read_from(own_node.bootstrap, topic)] == produced
