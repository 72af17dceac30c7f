"""kafka-python: what goes in comes out, whatever it is, however it is compressed and batched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from support.clients.kafka_python_client import (
    TopicPartition,
    admin_of,
    consumer_of,
    kafka,
    lend_codecs,
    produce,
    producer_of,
    read_to_end,
)
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.records import COMPRESSION_NAMES, BatchBuilder, BatchHeader, split_whole_batches

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
MESSAGE_SIZE_BYTES_MAX = 1_048_588


@pytest.fixture(scope="module", autouse=True)
def _codecs() -> None:
    lend_codecs()


@pytest.fixture(scope="module")
def admin(shared_node: NodeProcess) -> Iterator[Any]:
    with admin_of(shared_node.bootstrap) as client:
        yield client


def create_topic(admin: Any, topic: str, partitions: int = 1, **config: str) -> None:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})


def batches_in(node: NodeProcess, topic: str) -> list[BatchHeader]:
    with WireClient(node.port) as client:
        records = client.fetch(topic, 0).records
    return [header for _, header in split_whole_batches(records)]  # type: ignore[arg-type]


def read_from(node: NodeProcess, topic: str, offset: int = 0, **settings: Any) -> list[Any]:
    partition = TopicPartition(topic, 0)
    with consumer_of(node.bootstrap, **settings) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return read_to_end(consumer, partition)


def as_sent(records: list[Any]) -> list[dict[str, Any]]:
    return [
        {
            "value": record.value,
            "key": record.key,
            "headers": [tuple(header) for header in record.headers],
            "timestamp_ms": record.timestamp,
        }
        for record in records
    ]


def test_the_version_is_the_pinned_one() -> None:
    pins = (Path(__file__).parents[3] / "constraints" / "all.txt").read_text().split()
    assert f"kafka-python=={version('kafka-python')}" in pins


@pytest.mark.parametrize(("codec", "idempotent"), list(product(CODECS, (False, True))))
def test_every_compression_round_trips(
    shared_node: NodeProcess, admin: Any, topic: str, codec: str | None, idempotent: bool
) -> None:
    create_topic(admin, topic)
    sent = [
        {
            "value": b"value %d " % i * 8,
            "key": b"key %d" % (i % 7),
            "headers": [("number", b"%d" % i)],
            "timestamp_ms": START_MS + i,
        }
        for i in range(300)
    ]
    settings = {"compression_type": codec, "enable_idempotence": idempotent, "linger_ms": 50}
    with producer_of(shared_node.bootstrap, **settings) as producer:
        assert produce(producer, topic, sent) == list(range(300))
    assert as_sent(read_from(shared_node, topic)) == sent
    stored = batches_in(shared_node, topic)
    assert {COMPRESSION_NAMES[header.compression] for header in stored} == {codec or "none"}
    assert {header.producer_id >= 0 for header in stored} == {idempotent}


def test_headers_nulls_and_empty_values(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic)
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
        (None, b"a tombstone", []),
        (b"", b"an empty value", []),
        (b"an empty key", b"", []),
        (b"headers", None, [("empty", b""), ("twice", b"1"), ("twice", b"2")]),
        (b"names", None, [("größe", b"\xff\xfe"), ("n" * 300, b"v" * 300)]),
    ]
    sent = [{"value": value, "key": key, "headers": headers, "timestamp_ms": START_MS} for value, key, headers in rows]
    with producer_of(shared_node.bootstrap) as producer:
        assert produce(producer, topic, sent) == list(range(len(sent)))
    assert as_sent(read_from(shared_node, topic)) == sent


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_kind_of_acknowledgement(shared_node: NodeProcess, admin: Any, topic: str, acks: int | str) -> None:
    create_topic(admin, topic)
    sent = [{"value": b"%d" % i} for i in range(50)]
    with producer_of(shared_node.bootstrap, acks=acks, enable_idempotence=acks == "all") as producer:
        produce(producer, topic, sent)
    found: list[Any] = []

    def all_came() -> bool:  # without acknowledgements the last ones may still be on their way
        found.extend(read_from(shared_node, topic, len(found)))
        return len(found) >= len(sent)

    wait_until(all_came, lambda: f"all came, not only {len(found)}")
    assert [record.value for record in found] == [record["value"] for record in sent]


def test_headers_of_others_that_are_null(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    """kafka-python sends no null in a header, and no record without key and value; it reads them."""
    create_topic(admin, topic)
    builder = BatchBuilder()
    builder.append(START_MS, None, None, (("null", None), ("empty", b"")))
    with WireClient(shared_node.port) as client:
        assert client.produce(topic, builder.build()).error_code == 0
    (found,) = read_from(shared_node, topic)
    assert (found.key, found.value) == (None, None)
    assert [tuple(header) for header in found.headers] == [("null", None), ("empty", b"")]


def test_a_batch_of_one_record(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic)
    with producer_of(shared_node.bootstrap, batch_size=0) as producer:
        assert produce(producer, topic, [{"value": b"%d" % i} for i in range(20)]) == list(range(20))
    assert [header.record_count for header in batches_in(shared_node, topic)] == [1] * 20
    assert [record.value for record in read_from(shared_node, topic)] == [b"%d" % i for i in range(20)]


def test_a_batch_of_100_000_records(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic)
    count = 100_000
    values = [b"%x" % (i % 16) for i in range(count)]
    settings = {"batch_size": 2_000_000, "linger_ms": 60_000, "compression_type": "gzip", "max_request_size": 2_000_000}
    with producer_of(shared_node.bootstrap, **settings) as producer:
        for value in values:
            producer.send(topic, value, partition=0, timestamp_ms=START_MS)
        producer.flush(timeout=20)
    assert [header.record_count for header in batches_in(shared_node, topic)] == [count]
    found = read_from(shared_node, topic)
    assert [record.value for record in found] == values
    assert [record.offset for record in found] == list(range(count))


def test_reading_from_the_middle_of_a_batch(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic)
    with producer_of(shared_node.bootstrap, linger_ms=60_000) as producer:
        produce(producer, topic, [{"value": b"%d" % i} for i in range(100)])
    assert len(batches_in(shared_node, topic)) == 1
    for start in (0, 1, 37, 99):
        found = read_from(shared_node, topic, start)
        assert [record.offset for record in found] == list(range(start, 100))
        assert found[0].value == b"%d" % start
    assert read_from(shared_node, topic, 100) == []


def test_timestamps_come_back(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic)
    create_topic(admin, topic + "-append", message_timestamp_type="LogAppendTime")
    stamps = [0, 1_000, START_MS, START_MS - 100_000_000_000, START_MS + 1]
    before = int(time.time() * 1000)
    with producer_of(shared_node.bootstrap, linger_ms=1_000) as producer:
        produce(producer, topic, [{"value": b"x", "timestamp_ms": stamp} for stamp in stamps])
        future = producer.send(topic + "-append", b"x", timestamp_ms=START_MS)
        assert before <= future.get(10).timestamp <= int(time.time() * 1000)
    found = read_from(shared_node, topic)
    assert [record.timestamp for record in found] == stamps
    assert {record.timestamp_type for record in found} == {0}
    (stamped,) = read_from(shared_node, topic + "-append")
    assert stamped.timestamp_type == 1
    assert before <= stamped.timestamp <= int(time.time() * 1000)


def test_a_record_as_large_as_may_be_and_one_larger(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic)
    largest = MESSAGE_SIZE_BYTES_MAX - 61 - (3 + 1 + 1 + 1 + 1 + 3 + 1)
    # Idempotent, it would take the refusal for the end of the producer.
    with producer_of(shared_node.bootstrap, max_request_size=10_000_000, enable_idempotence=False) as producer:
        assert produce(producer, topic, [{"value": b"v" * largest}]) == [0]
        with pytest.raises(kafka.errors.MessageSizeTooLargeError):
            produce(producer, topic, [{"value": b"v" * (largest + 1)}])
        assert produce(producer, topic, [{"value": b"after"}]) == [1]
    assert batches_in(shared_node, topic)[0].size_bytes == MESSAGE_SIZE_BYTES_MAX
    assert [len(record.value) for record in read_from(shared_node, topic)] == [largest, 5]


def test_a_record_larger_than_a_fetch_asks_for_comes_all_the_same(
    shared_node: NodeProcess, admin: Any, topic: str
) -> None:
    create_topic(admin, topic, max_message_bytes="3000000")
    with producer_of(shared_node.bootstrap, max_request_size=4_000_000) as producer:
        produce(producer, topic, [{"value": b"v" * 2_900_000}, {"value": b"w"}])
    found = read_from(shared_node, topic, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000)
    assert [len(record.value) for record in found] == [2_900_000, 1]


def test_refusals_reach_the_sender(shared_node: NodeProcess, admin: Any, topic: str) -> None:
    create_topic(admin, topic, cleanup_policy="compact")
    tomorrow = int(time.time() * 1000) + 24 * 3_600_000
    with producer_of(shared_node.bootstrap, enable_idempotence=False) as producer:
        with pytest.raises(kafka.errors.InvalidTimestampError):
            produce(producer, topic, [{"value": b"x", "key": b"k", "timestamp_ms": tomorrow}])
        with pytest.raises(kafka.errors.KafkaError) as raised:
            produce(producer, topic, [{"value": b"no key"}])
        assert raised.value.errno == 87  # INVALID_RECORD
        assert produce(producer, topic, [{"value": b"x", "key": b"k"}]) == [0]


def test_producing_creates_a_topic(shared_node: NodeProcess, topic: str) -> None:
    with producer_of(shared_node.bootstrap) as producer:
        assert produce(producer, topic, [{"value": b"first"}]) == [0]
    assert [record.value for record in read_from(shared_node, topic)] == [b"first"]
