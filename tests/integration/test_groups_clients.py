"""Groups as stock clients make them: librdkafka and kafka-python subscribe, rebalance, commit, go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from confluent_kafka import ConsumerGroupState, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients import confluent, kafka_python_client
from support.clients.confluent import Sent
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode

PARTITIONS = 6
RECORDS_PER_PARTITION = 20


@pytest.fixture
def name() -> str:
    """Of a topic, and of the group that reads it."""
    return f"group-{uuid4().hex[:8]}"


@pytest.fixture
def topic(shared_node: NodeProcess, name: str) -> str:
    """A topic of six partitions with twenty records in each."""
    fill(shared_node, name)
    return name


def fill(node: NodeProcess, topic: str) -> None:
    confluent.create_topic(AdminClient({"bootstrap.servers": node.bootstrap}), topic, PARTITIONS)
    producer = confluent.new_producer(node.bootstrap)
    for partition in range(PARTITIONS):
        records = [Sent(f"{partition}-{number}".encode()) for number in range(RECORDS_PER_PARTITION)]
        confluent.produce(producer, topic, records, partition=partition)


class Reader:
    """A librdkafka consumer that subscribes, and remembers what it was given and what it read."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 100,
            "fetch.wait.max.ms": 50,
            "reconnect.backoff.max.ms": 200,
        }
        self.consumer = confluent_kafka.Consumer(
            config | {key.replace("_", "."): value for key, value in settings.items()}
        )
        self.values: list[bytes] = []
        self.revoked = 0
        self.assigned: set[int] = set()
        self.is_cooperative = "cooperative" in settings.get("partition_assignment_strategy", "")
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned |= {one.partition for one in partitions}

    def _on_revoke(self, consumer: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += len(partitions)
        self.assigned -= {one.partition for one in partitions}

    def poll(self) -> None:
        for message in self.consumer.consume(1000, timeout=0.02):
            if message.error() is None:
                self.values.append(message.value() or b"")

    def close(self) -> None:
        self.consumer.close()


NewReader = Callable[..., Reader]


@pytest.fixture
def new_reader() -> Iterator[NewReader]:
    with ExitStack() as readers:

        def make(*arguments: Any, **settings: Any) -> Reader:
            reader = Reader(*arguments, **settings)
            readers.callback(reader.close)
            return reader

        yield make


def wait_for(readers: list[Reader], condition: Callable[[], bool], what: str) -> None:
    def polled() -> bool:
        for reader in readers:
            reader.poll()
        return condition()

    wait_until(polled, what)


def shared_evenly(readers: list[Reader]) -> Callable[[], bool]:
    """Whether each has as many partitions as any other, all of them together, none twice."""

    def is_so() -> bool:
        parts = [reader.assigned for reader in readers]
        return (
            sum(map(len, parts)) == PARTITIONS
            and set().union(*parts) == set(range(PARTITIONS))
            and max(map(len, parts)) - min(map(len, parts)) <= 1
        )

    return is_so


def everything() -> list[bytes]:
    return sorted(
        f"{partition}-{number}".encode() for partition in range(PARTITIONS) for number in range(RECORDS_PER_PARTITION)
    )


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_librdkafka_shares_partitions_and_goes_on_where_the_group_was(
    shared_node: NodeProcess, topic: str, new_reader: NewReader, strategy: str
) -> None:
    settings = {"partition_assignment_strategy": strategy}
    first = new_reader(shared_node.bootstrap, topic, **settings)
    wait_for([first], lambda: len(first.values) == len(everything()), "the first reads everything")
    assert sorted(first.values) == everything()
    first.consumer.commit(asynchronous=False)
    others = [new_reader(shared_node.bootstrap, topic, **settings) for _ in range(2)]
    readers = [first, *others]
    wait_for(readers, shared_evenly(readers), "three share the partitions")
    if strategy == "cooperative-sticky":
        assert first.revoked == PARTITIONS - PARTITIONS // 3  # what it kept was never taken from it
    producer = confluent.new_producer(shared_node.bootstrap)
    for partition in range(PARTITIONS):
        confluent.produce(producer, topic, [Sent(b"new")], partition=partition)
    wait_for(readers, lambda: sum(map(len, (one.values for one in others))) >= 4, "the new ones read")
    assert [value for one in others for value in one.values] == [b"new"] * 4
    others[0].close()
    left = [first, others[1]]
    wait_for(left, shared_evenly(left), "two are left to share")


def test_a_static_member_of_librdkafka_comes_back_to_its_partitions(
    shared_node: NodeProcess, topic: str, new_reader: NewReader
) -> None:
    first = new_reader(shared_node.bootstrap, topic, group_instance_id="one")
    second = new_reader(shared_node.bootstrap, topic, group_instance_id="two")
    wait_for([first, second], shared_evenly([first, second]), "two share the partitions")
    before, revoked = set(second.assigned), first.revoked
    second.close()  # a static member does not leave
    again = new_reader(shared_node.bootstrap, topic, group_instance_id="two")
    wait_for([first, again], lambda: again.assigned == before, "it has its partitions again")
    assert first.revoked == revoked


def test_close_with_auto_commit_is_quick_and_commits(shared_node: NodeProcess, topic: str) -> None:
    reader = Reader(shared_node.bootstrap, topic, enable_auto_commit=True)
    wait_for([reader], lambda: len(reader.values) == len(everything()), "it reads everything")
    started = time.monotonic()
    reader.close()
    assert time.monotonic() - started < 20
    admin = AdminClient({"bootstrap.servers": shared_node.bootstrap})
    future = admin.list_consumer_group_offsets([confluent_kafka.ConsumerGroupTopicPartitions(topic)])[topic]
    offsets = {one.partition: one.offset for one in future.result(20).topic_partitions}
    assert offsets == dict.fromkeys(range(PARTITIONS), RECORDS_PER_PARTITION)


def test_an_assigning_consumer_commits_and_closes_quickly(shared_node: NodeProcess, topic: str) -> None:
    with confluent.consumer_of(shared_node.bootstrap, group_id=topic, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        assert len(confluent.read_to_end(consumer)) == RECORDS_PER_PARTITION
        (committed,) = consumer.commit(asynchronous=False)
        assert (committed.offset, committed.leader_epoch, committed.error) == (RECORDS_PER_PARTITION, 0, None)
    with confluent.consumer_of(shared_node.bootstrap, group_id=topic) as consumer:
        (found,) = consumer.committed([TopicPartition(topic, 1)], timeout=20)
        assert (found.offset, found.leader_epoch) == (RECORDS_PER_PARTITION, 0)
        with pytest.raises(confluent_kafka.KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
            consumer.commit(offsets=[TopicPartition(topic, 1, 3), TopicPartition(topic, 99, 3)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition(topic, 1)], timeout=20)
        assert found.offset == 3


def test_the_admin_client_lists_describes_resets_and_deletes(
    shared_node: NodeProcess, topic: str, new_reader: NewReader
) -> None:
    admin = AdminClient({"bootstrap.servers": shared_node.bootstrap})
    reader = new_reader(shared_node.bootstrap, topic, client_id="a-reader")
    wait_for([reader], shared_evenly([reader]), "it has all partitions")
    reader.consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    listed = {one.group_id: one for one in admin.list_consumer_groups().result(20).valid}
    assert listed[topic].state == ConsumerGroupState.STABLE
    found = admin.describe_consumer_groups([topic])[topic].result(20)
    assert (found.state, found.partition_assignor, found.coordinator.id) == (ConsumerGroupState.STABLE, "range", 1)
    (member,) = found.members
    assert (member.client_id, member.host) == ("a-reader", "/127.0.0.1")
    assert {one.partition for one in member.assignment.topic_partitions} == set(range(PARTITIONS))
    with pytest.raises(confluent_kafka.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([topic])[topic].result(20)
    reader.close()
    reset = confluent_kafka.ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([reset])[topic].result(20)
    asked = confluent_kafka.ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0)])
    (offset,) = admin.list_consumer_group_offsets([asked])[topic].result(20).topic_partitions
    assert offset.offset == 2
    admin.delete_consumer_groups([topic])[topic].result(20)
    assert topic not in {one.group_id for one in admin.list_consumer_groups().result(20).valid}


def test_librdkafka_goes_on_after_the_node_was_killed(start_node: StartNode, new_reader: NewReader) -> None:
    node = start_node()
    fill(node, "killed")
    reader = new_reader(node.bootstrap, "killed", enable_auto_commit=False)
    wait_for([reader], lambda: len(reader.values) == len(everything()), "it reads everything")
    reader.consumer.commit(asynchronous=False)
    node.kill()
    node.start()
    producer = confluent.new_producer(node.bootstrap)
    for partition in range(PARTITIONS):
        confluent.produce(producer, "killed", [Sent(b"new")], partition=partition)
    wait_for([reader], lambda: len(reader.values) >= len(everything()) + PARTITIONS, "it reads what is new")
    assert sorted(reader.values) == sorted([*everything(), *[b"new"] * PARTITIONS])
    reader.consumer.commit(asynchronous=False)
    node.stop()


def test_kafka_python_shares_partitions_and_goes_on_where_the_group_was(shared_node: NodeProcess, topic: str) -> None:
    settings = {
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 100,
    }
    with kafka_python_client.consumer_of(shared_node.bootstrap, **settings) as first:
        first.subscribe([topic])
        read: list[bytes] = []

        def poll(*consumers: Any) -> None:
            for consumer in consumers:
                for records in consumer.poll(timeout_ms=500).values():  # a shorter one may lose a join: see FINDINGS
                    read.extend(record.value for record in records)

        def first_has_read() -> bool:
            poll(first)
            return len(read) == len(everything())

        wait_until(first_has_read, "the first reads everything")
        assert sorted(read) == everything()
        first.commit()
        place = kafka_python_client.TopicPartition(topic, 0)
        assert first.committed(place) == RECORDS_PER_PARTITION
        with kafka_python_client.consumer_of(shared_node.bootstrap, **settings) as second:
            second.subscribe([topic])

            def is_shared() -> bool:
                poll(first, second)
                return len(first.assignment()) == len(second.assignment()) == PARTITIONS // 2

            wait_until(is_shared, "two share the partitions")
            assert first.assignment() | second.assignment() == {
                kafka_python_client.TopicPartition(topic, partition) for partition in range(PARTITIONS)
            }
        assert len(read) == len(everything())  # nothing was read twice
        with kafka_python_client.admin_of(shared_node.bootstrap) as admin:
            groups = admin.list_groups()
            assert topic in str(groups)
