"""confluent-kafka: what goes in comes out, whatever it is, however it is compressed and batched."""

from __future__ import annotations

import time
from importlib.metadata import version
from itertools import product
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, TopicPartition
from confluent_kafka.admin import AdminClient

from support.clients.confluent import (
    Read,
    Refused,
    Sent,
    as_sent,
    consumer_of,
    create_topic,
    learn_topic,
    new_producer,
    produce,
    read_from,
    read_to_end,
)
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.records import COMPRESSION_NAMES, BatchHeader, split_whole_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MESSAGE_SIZE_BYTES_MAX = 1_048_588
BIG_PRODUCER = {"message_max_bytes": 10_000_000, "batch_size": 10_000_000}


@pytest.fixture(scope="module")
def admin(shared_node: NodeProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": shared_node.bootstrap})


def batches_in(node: NodeProcess, topic: str) -> list[BatchHeader]:
    """The headers of the batches as they are stored, up to the first 50 MB."""
    with WireClient(node.port) as client:
        records = client.fetch(topic, 0).records
    return [header for _, header in split_whole_batches(records)]  # type: ignore[arg-type]


def test_the_version_is_the_pinned_one() -> None:
    pins = (Path(__file__).parents[3] / "constraints" / "all.txt").read_text().split()
    assert f"confluent-kafka=={version('confluent-kafka')}" in pins


@pytest.mark.parametrize(("codec", "idempotent"), list(product(CODECS, (False, True))))
def test_every_compression_round_trips(
    shared_node: NodeProcess, admin: AdminClient, topic: str, codec: str, idempotent: bool
) -> None:
    create_topic(admin, topic)
    sent = [
        Sent(b"value %d " % i * 8, b"key %d" % (i % 7), (("number", b"%d" % i),), 1_700_000_000_000 + i)
        for i in range(500)
    ]
    producer = new_producer(
        shared_node.bootstrap, compression_type=codec, enable_idempotence=idempotent, linger_ms=1_000
    )
    assert produce(producer, topic, sent) == list(range(500))
    assert as_sent(read_from(shared_node.bootstrap, topic)) == sent
    stored = batches_in(shared_node, topic)
    # librdkafka silently stops compressing for a broker whose versions it dislikes.
    assert {COMPRESSION_NAMES[header.compression] for header in stored} == {codec}
    assert {header.producer_id >= 0 for header in stored} == {idempotent}


def test_headers_nulls_and_empty_values(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    sent = [
        Sent(None, b"a tombstone"),
        Sent(b"", b"an empty value"),
        Sent(b"an empty key", b""),
        Sent(None, None),
        Sent(b"headers", None, (("null", None), ("empty", b""), ("twice", b"1"), ("twice", b"2"))),
        Sent(b"names", None, (("größe", b"\xff\xfe"), ("n" * 300, b"v" * 300))),
    ]
    assert produce(new_producer(shared_node.bootstrap), topic, sent) == list(range(len(sent)))
    assert as_sent(read_from(shared_node.bootstrap, topic)) == sent


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(shared_node: NodeProcess, admin: AdminClient, topic: str, acks: str) -> None:
    create_topic(admin, topic)
    sent = [Sent(b"%d" % i) for i in range(100)]
    produce(new_producer(shared_node.bootstrap, acks=acks), topic, sent)
    with consumer_of(shared_node.bootstrap) as consumer:
        found: list[Read] = []

        def all_came() -> bool:  # without acknowledgements the last ones may still be on their way
            consumer.assign([TopicPartition(topic, 0, len(found))])
            found.extend(read_to_end(consumer))
            return len(found) >= len(sent)

        wait_until(all_came, lambda: f"all came, not only {len(found)}")
    assert as_sent(found) == sent


def test_a_batch_of_one_record(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    producer = new_producer(shared_node.bootstrap, batch_num_messages=1)
    sent = [Sent(b"%d" % i) for i in range(20)]
    assert produce(producer, topic, sent) == list(range(20))
    assert [header.record_count for header in batches_in(shared_node, topic)] == [1] * 20
    assert as_sent(read_from(shared_node.bootstrap, topic)) == sent


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_batch_of_100_000_records(shared_node: NodeProcess, admin: AdminClient, topic: str, codec: str) -> None:
    create_topic(admin, topic)
    count = 100_000
    producer = new_producer(
        shared_node.bootstrap,
        batch_num_messages=count,
        batch_size=2_000_000,
        message_max_bytes=2_000_000,
        linger_ms=10_000,
        compression_type=codec,
        queue_buffering_max_messages=count,
    )
    learn_topic(producer, topic)
    values = [b"%x" % (i % 16) for i in range(count)]
    for value in values:
        producer.produce(topic, value, partition=0, timestamp=1_700_000_000_000)
    assert producer.flush(20) == 0
    assert [header.record_count for header in batches_in(shared_node, topic)] == [count]
    found = read_from(shared_node.bootstrap, topic)
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(count))


def test_reading_from_the_middle_of_a_batch(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    sent = [Sent(b"%d" % i, timestamp_ms=1_700_000_000_000 + i) for i in range(100)]
    producer = new_producer(shared_node.bootstrap, linger_ms=10_000, compression_type="lz4")
    learn_topic(producer, topic)
    produce(producer, topic, sent)
    assert len(batches_in(shared_node, topic)) == 1
    for start in (0, 1, 37, 99):
        found = read_from(shared_node.bootstrap, topic, start)
        assert [record.offset for record in found] == list(range(start, 100))
        assert as_sent(found) == sent[start:]
    assert read_from(shared_node.bootstrap, topic, 100) == []


def test_timestamps_of_the_producer_come_back(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    before = int(time.time() * 1000)
    # librdkafka takes 0 for "now".
    stamps = [1, 1_000, 1_700_000_000_000, 1_600_000_000_000, 1_700_000_000_001, before]
    sent = [Sent(b"x", timestamp_ms=stamp) for stamp in stamps]
    produce(new_producer(shared_node.bootstrap, linger_ms=10_000), topic, sent)
    assert [record.timestamp_ms for record in read_from(shared_node.bootstrap, topic)] == stamps


def test_timestamps_of_the_broker(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    produce(new_producer(shared_node.bootstrap, compression_type="gzip"), topic, [Sent(b"x"), Sent(b"y")])
    with consumer_of(shared_node.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        message = consumer.poll(10)
        assert message is not None
        kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp_ms <= int(time.time() * 1000)


def test_a_record_as_large_as_may_be_and_one_larger(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    # In front of the value: the batch's header, and the record's lengths and deltas.
    largest = MESSAGE_SIZE_BYTES_MAX - 61 - (3 + 1 + 1 + 1 + 1 + 3 + 1)
    producer = new_producer(shared_node.bootstrap, **BIG_PRODUCER)
    assert produce(producer, topic, [Sent(b"v" * largest)]) == [0]
    assert produce(producer, topic, [Sent(b"v" * (largest + 1))]) == [Refused("MSG_SIZE_TOO_LARGE")]
    assert produce(producer, topic, [Sent(b"after")]) == [1]
    assert batches_in(shared_node, topic)[0].size_bytes == MESSAGE_SIZE_BYTES_MAX
    found = read_from(shared_node.bootstrap, topic, message_max_bytes=2_000_000)
    assert [len(record.value or b"") for record in found] == [largest, 5]


def test_a_topic_with_a_limit_of_its_own(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic, max_message_bytes="5000000")
    producer = new_producer(shared_node.bootstrap, **BIG_PRODUCER)
    for offset in range(2):  # one by one: together they would be one batch
        assert produce(producer, topic, [Sent(b"v" * 4_900_000)]) == [offset]
    # Larger than the consumer asks for at a time: it is sent all the same.
    found = read_from(
        shared_node.bootstrap,
        topic,
        max_partition_fetch_bytes=100_000,
        fetch_max_bytes=200_000,
        message_max_bytes=100_000,
    )
    assert [len(record.value or b"") for record in found] == [4_900_000, 4_900_000]


def test_a_record_that_the_client_itself_finds_too_large(
    shared_node: NodeProcess, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic)
    producer = new_producer(shared_node.bootstrap)
    with pytest.raises(confluent_kafka.KafkaException) as raised:
        producer.produce(topic, b"v" * 1_100_000)
    assert raised.value.args[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE


def test_a_record_from_the_future_is_refused(shared_node: NodeProcess, admin: AdminClient, topic: str) -> None:
    create_topic(admin, topic)
    producer = new_producer(shared_node.bootstrap)
    tomorrow = int(time.time() * 1000) + 24 * 3_600_000
    assert produce(producer, topic, [Sent(b"x", timestamp_ms=tomorrow)]) == [Refused("INVALID_TIMESTAMP")]
    assert produce(producer, topic, [Sent(b"y")]) == [0]


def test_records_without_a_key_are_refused_by_a_compacted_topic(
    shared_node: NodeProcess, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, cleanup_policy="compact")
    producer = new_producer(shared_node.bootstrap)
    assert produce(producer, topic, [Sent(b"no key")]) == [Refused("INVALID_RECORD")]
    assert produce(producer, topic, [Sent(b"value", b"key")]) == [0]


def test_keys_spread_over_partitions_and_stay_in_order(
    shared_node: NodeProcess, admin: AdminClient, topic: str
) -> None:
    create_topic(admin, topic, 3)
    producer = new_producer(shared_node.bootstrap)
    for i in range(300):
        producer.produce(topic, b"%d" % i, b"key %d" % (i % 10))
    assert producer.flush(20) == 0
    with consumer_of(shared_node.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(3)])
        found = read_to_end(consumer, partitions=3)
    assert len(found) == 300
    for key in {record.key for record in found}:
        numbers = [int(record.value or b"") for record in found if record.key == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 30
