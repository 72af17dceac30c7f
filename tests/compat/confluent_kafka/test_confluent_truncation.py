"""librdkafka after an unclean election: from where it validates the position that a group has committed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from support.fixtures.waiting import wait_until
from tidelog import Producer
from tidelog.testing import Cluster

TOPIC = "orders"
TRUNCATED = "Partition log truncation detected at offset 10 (leader epoch 0): broker end offset is 5"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Its group "billing" has committed position 10, the log was truncated to 5, and ends at 20."""
    with Cluster(config={"group.initial.rebalance.delay.ms": "0"}) as started:
        started.create_topic(TOPIC)
        write(started, b"old", 10)
        consumer = consumer_of(started, "earliest")
        consumer.subscribe([TOPIC])
        for _ in range(10):
            next_message(consumer)
        consumer.commit(asynchronous=False)
        consumer.close()
        started.truncate(TOPIC, records=5)
        write(started, b"new", 15)
        yield started


def write(cluster: Cluster, value: bytes, count: int) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        for _ in range(count):
            producer.send(TOPIC, value, partition=0)


def consumer_of(cluster: Cluster, reset: str = "error") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "billing",
            "enable.auto.commit": False,
            "auto.offset.reset": reset,
        }
    )


def next_message(consumer: Consumer) -> Message:
    """A record or an error."""
    found = wait_until(lambda: consumer.poll(0.2), "a record or an error comes")
    assert found is not None
    return found


def test_a_member_of_a_group_reads_on_from_its_commit_as_if_nothing_was_lost(cluster: Cluster) -> None:
    consumer = consumer_of(cluster)
    consumer.subscribe([TOPIC])
    found = next_message(consumer)
    assert (found.error(), found.offset(), found.value()) == (None, 10, b"new")
    consumer.close()


def test_a_seek_to_the_committed_position_has_it_validated(cluster: Cluster) -> None:
    consumer = consumer_of(cluster)
    positions: list[TopicPartition] = []

    def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        positions.extend(consumer.committed(partitions))
        consumer.assign(positions)
        consumer.pause(positions)  # no record before the seek

    def has_sought() -> bool:
        consumer.poll(0.1)
        try:
            for position in positions:
                consumer.seek(position)  # with its leader epoch
        except KafkaException:  # the fetcher has not started
            return False
        return bool(positions)

    consumer.subscribe([TOPIC], on_assign=on_assign)
    wait_until(has_sought, "the consumer has sought the committed position")
    consumer.resume(positions)
    error = next_message(consumer).error()
    assert error is not None
    assert (error.name(), error.str()[: len(TRUNCATED)]) == ("_AUTO_OFFSET_RESET", TRUNCATED)
    consumer.close()
