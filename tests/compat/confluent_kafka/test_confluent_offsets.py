"""confluent-kafka: where reading starts, by offset, by timestamp and by name; and what is out of reach."""

from __future__ import annotations

from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import OffsetSpec as _OffsetSpec

from support.clients.confluent import (
    Sent,
    consumer_of,
    create_topic,
    learn_topic,
    new_producer,
    produce,
    read_from,
    read_to_end,
)
from support.nodes.node import NodeProcess

TOPIC = "confluent-offsets"
START_MS = 1_700_000_000_000
BATCHES, PER_BATCH = 5, 20
COUNT = BATCHES * PER_BATCH
OffsetSpec: Any = _OffsetSpec  # its methods are not typed
UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


@pytest.fixture(scope="module")
def admin(shared_node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_node.bootstrap})


@pytest.fixture(scope="module")
def filled(shared_node: NodeProcess, admin: AdminClient) -> str:
    """100 records in batches of 20, ten milliseconds apart."""
    create_topic(admin, TOPIC)
    producer = new_producer(shared_node.bootstrap, batch_num_messages=PER_BATCH, linger_ms=10_000)
    learn_topic(producer, TOPIC)
    sent = [Sent(b"%d" % i, timestamp_ms=START_MS + 10 * i) for i in range(COUNT)]
    assert produce(producer, TOPIC, sent) == list(range(COUNT))
    return TOPIC


def test_watermarks(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(filled, 0), timeout=10) == (0, COUNT)
        consumer.assign([TopicPartition(filled, 0, 0)])
        read_to_end(consumer)
        assert consumer.get_watermark_offsets(TopicPartition(filled, 0), cached=True) == (0, COUNT)
        assert consumer.position([TopicPartition(filled, 0)])[0].offset == COUNT


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (0, 0),
        (START_MS, 0),
        (START_MS + 1, 1),
        (START_MS + 10, 1),
        (START_MS + 195, 20),
        (START_MS + 200, 20),
        (START_MS + 555, 56),
        (START_MS + 990, 99),
    ],
)
def test_reading_from_a_timestamp(shared_node: NodeProcess, filled: str, timestamp_ms: int, expected: int) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, timestamp_ms)], timeout=10)
        assert found.error is None
        assert found.offset == expected
        consumer.assign([found])
        records = read_to_end(consumer)
    assert [record.offset for record in records] == list(range(expected, COUNT))
    assert all(record.timestamp_ms >= timestamp_ms for record in records)


def test_a_timestamp_after_the_last_record_is_the_end(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        (found,) = consumer.offsets_for_times([TopicPartition(filled, 0, START_MS + 991)], timeout=10)
    assert found.offset == OFFSET_END


@pytest.mark.parametrize(("start", "expected"), [(OFFSET_BEGINNING, 0), (OFFSET_END, COUNT), (COUNT - 3, COUNT - 3)])
def test_reading_from_a_named_place(shared_node: NodeProcess, filled: str, start: int, expected: int) -> None:
    assert [record.offset for record in read_from(shared_node.bootstrap, filled, start)] == list(range(expected, COUNT))


def test_seeking_back_and_forth(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        consumer.assign([TopicPartition(filled, 0, 0)])
        read_to_end(consumer)
        for start in (50, 13, 99):
            consumer.seek(TopicPartition(filled, 0, start))
            assert [record.offset for record in read_to_end(consumer)] == list(range(start, COUNT))


def test_pausing_and_resuming(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        consumer.assign([TopicPartition(filled, 0, 90)])
        consumer.pause([TopicPartition(filled, 0)])
        assert consumer.poll(0.3) is None
        consumer.resume([TopicPartition(filled, 0)])
        assert [record.offset for record in read_to_end(consumer)] == list(range(90, COUNT))


def test_list_offsets(admin: AdminClient, filled: str) -> None:
    partition = TopicPartition(filled, 0)

    def look_up(spec: Any, **settings: Any) -> tuple[int, int, int | None]:
        found = admin.list_offsets({partition: spec}, request_timeout=10, **settings)[partition].result()
        return found.offset, found.timestamp, found.leader_epoch

    assert look_up(OffsetSpec.earliest())[:2] == (0, -1)
    assert look_up(OffsetSpec.latest())[:2] == (COUNT, -1)
    assert look_up(OffsetSpec.latest(), isolation_level=IsolationLevel.READ_COMMITTED)[0] == COUNT
    assert look_up(OffsetSpec.max_timestamp())[:2] == (COUNT - 1, START_MS + 10 * (COUNT - 1))
    assert look_up(OffsetSpec.for_timestamp(START_MS + 101))[:2] == (11, START_MS + 110)
    assert look_up(OffsetSpec.for_timestamp(START_MS + 10_000))[:2] == (-1, -1)
    assert (look_up(OffsetSpec.latest())[2] or 0) >= 0


def test_list_offsets_of_an_empty_topic(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    partition = TopicPartition(topic, 0)
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 0),
        (OffsetSpec.max_timestamp(), -1),
        (OffsetSpec.for_timestamp(0), -1),
    ):
        assert admin.list_offsets({partition: spec})[partition].result(10).offset == expected
    assert read_from(shared_node.bootstrap, topic) == []


def test_the_largest_timestamp_need_not_be_the_last(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    stamps = [5_000, 9_000, 1_000, 9_000, 3_000]
    sent = [Sent(b"x", timestamp_ms=START_MS + stamp) for stamp in stamps]
    produce(new_producer(shared_node.bootstrap, linger_ms=10_000), topic, sent[:3])
    produce(new_producer(shared_node.bootstrap, linger_ms=10_000), topic, sent[3:])
    partition = TopicPartition(topic, 0)
    found = admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result(10)
    assert (found.offset, found.timestamp) == (1, START_MS + 9_000)
    with consumer_of(shared_node.bootstrap) as consumer:
        (at,) = consumer.offsets_for_times([TopicPartition(topic, 0, START_MS + 5_001)], timeout=10)
    assert at.offset == 1


def test_an_offset_beyond_the_end_is_reported(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(filled, 0, COUNT + 1)])
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            read_to_end(consumer)
    assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    assert "out of range" in str(raised.value).lower()


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 0), ("latest", COUNT)])
def test_an_offset_beyond_the_end_is_reset(shared_node: NodeProcess, filled: str, policy: str, expected: int) -> None:
    found = read_from(shared_node.bootstrap, filled, COUNT + 1_000, auto_offset_reset=policy)
    assert [record.offset for record in found] == list(range(expected, COUNT))


def test_a_consumer_at_the_end_waits_for_what_comes(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    producer = new_producer(shared_node.bootstrap)
    with consumer_of(shared_node.bootstrap, fetch_wait_max_ms=100_000, enable_partition_eof=False) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.5) is None  # by now its fetch waits at the node
        produce(producer, topic, [Sent(b"woken")])
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"woken"


def test_unknown_partitions_and_topics(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        for unknown in (TopicPartition(filled, 7, START_MS), TopicPartition("confluent-no-such-topic", 0, START_MS)):
            with pytest.raises(confluent_kafka.KafkaException) as raised:
                consumer.offsets_for_times([unknown], timeout=10)
            assert raised.value.args[0].code() in UNKNOWN
            with pytest.raises(confluent_kafka.KafkaException) as raised:
                consumer.get_watermark_offsets(unknown, timeout=10)
            assert raised.value.args[0].code() in UNKNOWN


def test_consuming_a_topic_that_comes_later(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    """librdkafka does not tell a consumer that its topic is missing; it asks again until it is there."""
    with consumer_of(shared_node.bootstrap, allow_auto_create_topics=False) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert consumer.poll(0.3) is None
        assert topic not in admin.list_topics(timeout=10).topics
        create_topic(admin, topic)
        produce(new_producer(shared_node.bootstrap), topic, [Sent(b"at last")])
        message = consumer.poll(10)
        assert message is not None
        assert message.value() == b"at last"
