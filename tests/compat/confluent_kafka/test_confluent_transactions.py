"""confluent-kafka's transactions (librdkafka, the protocol of versions 0 and 1): what is committed is read once."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.confluent import consumer_of, create_topic, read_from, read_to_end
from support.nodes.node import NodeProcess

TIMEOUT_SECONDS = 30
BATCH = 20


@pytest.fixture(scope="module")
def own_node(start_node) -> Iterator[NodeProcess]:  # type: ignore[no-untyped-def]
    started: NodeProcess = start_node()
    yield started
    started.close()


def transactional(node: NodeProcess, transactional_id: str, **settings: object) -> confluent_kafka.Producer:
    """A producer that has its epoch."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.bootstrap, "transactional.id": transactional_id, "linger.ms": 5, **settings}
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def values(node: NodeProcess, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    return [one.value for one in read_from(node.bootstrap, topic, isolation_level=isolation_level)]


def test_readers_of_committed_records_skip_what_was_aborted(own_node: NodeProcess, topic: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": own_node.bootstrap}), topic)
    producer = transactional(own_node, topic)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(TIMEOUT_SECONDS)  # or an abort would take it back before it is sent
        (producer.commit_transaction if commits else producer.abort_transaction)(TIMEOUT_SECONDS)
    assert values(own_node, topic) == [b"0", b"2"]
    assert values(own_node, topic, "read_uncommitted") == [b"0", b"1", b"2"]


def test_what_is_open_is_not_read_and_ends_with_its_time(own_node: NodeProcess, topic: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": own_node.bootstrap}), topic)
    producer = transactional(own_node, topic, **{"transaction.timeout.ms": 2_000})
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(TIMEOUT_SECONDS)
    outside = confluent_kafka.Producer({"bootstrap.servers": own_node.bootstrap})
    outside.produce(topic, b"outside", partition=0)
    outside.flush(TIMEOUT_SECONDS)
    with consumer_of(own_node.bootstrap, isolation_level="read_committed", enable_partition_eof=False) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None
        assert message.value() == b"outside", "it lies behind the open transaction, which the coordinator aborted"
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_SECONDS)


def test_a_newer_instance_fences_the_one_before(own_node: NodeProcess, topic: str) -> None:
    create_topic(AdminClient({"bootstrap.servers": own_node.bootstrap}), topic)
    older = transactional(own_node, topic)
    older.begin_transaction()
    older.produce(topic, b"older", partition=0)
    older.flush(TIMEOUT_SECONDS)
    newer = transactional(own_node, topic)
    with pytest.raises(KafkaException) as fenced:
        older.commit_transaction(TIMEOUT_SECONDS)
    assert fenced.value.args[0].fatal()
    newer.begin_transaction()
    newer.produce(topic, b"newer", partition=0)
    newer.commit_transaction(TIMEOUT_SECONDS)
    assert values(own_node, topic) == [b"newer"]


@pytest.mark.timeout(240)
def test_a_copy_is_exact_though_the_node_and_the_copier_are_killed(node: NodeProcess, topic: str) -> None:
    """Records are read, and written with the offsets read, in transactions; each time another instance goes on."""
    source, target, group = f"{topic}-source", f"{topic}-target", f"{topic}-copier"
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    create_topic(admin, source)
    create_topic(admin, target)
    written = [b"%d" % number for number in range(10 * BATCH)]
    outside = confluent_kafka.Producer({"bootstrap.servers": node.bootstrap})
    for value in written:
        outside.produce(source, value, partition=0)
    outside.flush(TIMEOUT_SECONDS)
    for round_number in range(4):
        producer = transactional(node, topic)
        with consumer_of(node.bootstrap, group_id=group, isolation_level="read_committed") as consumer:
            (committed,) = consumer.committed([TopicPartition(source, 0)], timeout=TIMEOUT_SECONDS)
            consumer.assign([TopicPartition(source, 0, max(committed.offset, 0))])
            found = read_to_end(consumer)
            batches = [found[at : at + BATCH] for at in range(0, len(found), BATCH)]
            for number, batch in enumerate(batches[:3]):
                producer.begin_transaction()
                for record in batch:
                    producer.produce(target, record.value, partition=0)
                position = TopicPartition(source, 0, batch[-1].offset + 1)
                producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), TIMEOUT_SECONDS)
                if number == 2 and round_number < 3:
                    producer.flush(TIMEOUT_SECONDS)
                    node.kill()  # with a transaction open; its records and offsets must not count
                    node.restart()
                    break
                producer.commit_transaction(TIMEOUT_SECONDS)
    assert [value for value in values(node, target) if value is not None] == written[: len(values(node, target))]
    (committed,) = committed_of(node, group, source)
    assert committed.offset == len(values(node, target)), "offsets and records are committed together"


def committed_of(node: NodeProcess, group: str, topic: str) -> list[TopicPartition]:
    with consumer_of(node.bootstrap, group_id=group) as consumer:
        found: list[TopicPartition] = consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_SECONDS)
        return found
