"""kafka-python: offsets by name and by timestamp, the admin client, and what it does when the log was truncated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from support.clients.kafka_python_client import (
    ConfigResource,
    ConfigResourceType,
    OffsetSpec,
    TopicPartition,
    admin_of,
    consumer_of,
    kafka,
    produce,
    producer_of,
    read_to_end,
)
from support.fixtures.log_files import cut, last_segment
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess

TOPIC = "kafka-python-offsets"
PARTITION = TopicPartition(TOPIC, 0)
START_MS = 1_700_000_000_000
COUNT = 100


@pytest.fixture(scope="module")
def admin(shared_node: NodeProcess) -> Iterator[Any]:
    with admin_of(shared_node.bootstrap) as client:
        yield client


@pytest.fixture(scope="module")
def filled(shared_node: NodeProcess, admin: Any) -> str:
    """100 records in 5 batches, ten milliseconds apart."""
    admin.create_topics({TOPIC: {"num_partitions": 1, "replication_factor": 1}})
    with producer_of(shared_node.bootstrap, linger_ms=60_000) as producer:
        for first in range(0, COUNT, 20):
            rows = [{"value": b"%d" % i, "timestamp_ms": START_MS + 10 * i} for i in range(first, first + 20)]
            assert produce(producer, TOPIC, rows) == list(range(first, first + 20))
    return TOPIC


def test_beginning_and_end_offsets(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        assert consumer.beginning_offsets([PARTITION]) == {PARTITION: 0}
        assert consumer.end_offsets([PARTITION]) == {PARTITION: COUNT}
        assert consumer.partitions_for_topic(filled) == {0}
        consumer.assign([PARTITION])
        consumer.seek_to_beginning()
        assert len(read_to_end(consumer, PARTITION)) == COUNT
        assert consumer.highwater(PARTITION) == COUNT
        consumer.seek_to_end()
        assert consumer.position(PARTITION) == COUNT


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(0, 0), (START_MS, 0), (START_MS + 1, 1), (START_MS + 195, 20), (START_MS + 200, 20), (START_MS + 990, 99)],
)
def test_reading_from_a_timestamp(shared_node: NodeProcess, filled: str, timestamp_ms: int, expected: int) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        found = consumer.offsets_for_times({PARTITION: timestamp_ms})[PARTITION]
        assert (found.offset, found.timestamp) == (expected, START_MS + 10 * expected)
        assert found.leader_epoch is not None
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, found.offset)
        records = read_to_end(consumer, PARTITION)
    assert [record.offset for record in records] == list(range(expected, COUNT))
    assert {record.leader_epoch for record in records} == {found.leader_epoch}


def test_a_timestamp_after_the_last_record_is_nowhere(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap) as consumer:
        assert consumer.offsets_for_times({PARTITION: START_MS + 991}) == {PARTITION: None}


def test_an_offset_beyond_the_end(shared_node: NodeProcess, filled: str) -> None:
    with consumer_of(shared_node.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, COUNT + 5)
        raised: list[Exception] = []

        def refused() -> bool:
            try:
                consumer.poll(timeout_ms=200)
            except kafka.errors.OffsetOutOfRangeError as error:
                raised.append(error)
            return bool(raised)

        wait_until(refused, "the consumer is told that its offset is out of range")
    with consumer_of(shared_node.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, COUNT + 5)
        found: list[Any] = []

        def came() -> bool:
            found.extend(consumer.poll(timeout_ms=200).get(PARTITION, []))
            return bool(found)

        wait_until(came, "the consumer starts at the beginning")
    assert found[0].offset == 0


def test_list_partition_offsets(admin: Any, filled: str) -> None:
    def look_up(spec: Any) -> tuple[int, int]:
        found = admin.list_partition_offsets({PARTITION: spec})[PARTITION]
        return found.offset, found.timestamp

    assert look_up(OffsetSpec.EARLIEST) == (0, -1)
    assert look_up(OffsetSpec.LATEST) == (COUNT, -1)
    assert look_up(OffsetSpec.MAX_TIMESTAMP) == (COUNT - 1, START_MS + 10 * (COUNT - 1))
    assert look_up(OffsetSpec.EARLIEST_LOCAL) == (0, -1)
    assert look_up(START_MS + 101) == (11, START_MS + 110)


def test_create_describe_and_delete(admin: Any, topic: str) -> None:
    created = admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})["topics"][0]
    assert (created["error_code"], created["num_partitions"], created["replication_factor"]) == (0, 2, 1)
    assert topic in admin.list_topics()
    (described,) = admin.describe_topics([topic])
    assert described["topic_id"] == created["topic_id"]
    assert [(row["partition_index"], row["leader_id"]) for row in described["partitions"]] == [(0, 1), (1, 1)]
    (by_id,) = admin.describe_topics([UUID(str(described["topic_id"]))])
    assert by_id["name"] == topic
    with pytest.raises(kafka.errors.TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}})
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    with pytest.raises(kafka.errors.UnknownTopicOrPartitionError):
        admin.delete_topics([topic])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("bad/name", {}, "InvalidTopicError"),
        ("kafka-python-none", {"num_partitions": 0, "replication_factor": 1}, "InvalidPartitionsError"),
        ("kafka-python-many", {"num_partitions": 1, "replication_factor": 2}, "InvalidReplicationFactorError"),
        ("kafka-python-typo", {"configs": {"retention.m": "1"}}, "InvalidConfigurationError"),
    ],
)
def test_illegal_topics_are_refused(admin: Any, name: str, options: dict[str, Any], expected: str) -> None:
    with pytest.raises(getattr(kafka.errors, expected)):
        admin.create_topics({name: options})
    assert name not in admin.list_topics()


def test_describe_configs(admin: Any, topic: str) -> None:
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": "60000"}}})
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic), ConfigResource(ConfigResourceType.BROKER, "1")]
    found = admin.describe_configs(resources, config_filter="all", include_synonyms=True)
    configs = found["topic"][topic]
    assert configs["retention.ms"]["value"] == "60000"
    assert configs["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert configs["segment.bytes"]["config_source"] == "DEFAULT_CONFIG"
    assert found["broker"]["1"]["node.id"]["value"] == "1"
    modified = admin.describe_configs([resources[0]])["topic"][topic]
    assert list(modified) == ["retention.ms"]


def test_describe_cluster(shared_node: NodeProcess, admin: Any) -> None:
    cluster = admin.describe_cluster()
    assert len(cluster["cluster_id"]) == 22
    assert [(row["broker_id"], row["port"]) for row in cluster["brokers"]] == [(1, shared_node.port)]


def test_a_truncated_log_is_noticed(node: NodeProcess, topic: str) -> None:
    """The promise, seen by a stock client: what it read and the log lost is reported, though offsets are used again."""
    partition = TopicPartition(topic, 0)
    with producer_of(node.bootstrap, linger_ms=60_000) as producer:
        for value in (b"kept", b"lost"):
            produce(producer, topic, [{"value": value}] * 10)
    with consumer_of(node.bootstrap, metadata_max_age_ms=500) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert len(read_to_end(consumer, partition)) == 20
        node.kill()
        log = last_segment(node, topic)
        cut(log, log.stat().st_size // 2)
        node.restart()
        with producer_of(node.bootstrap, linger_ms=60_000) as producer:
            assert produce(producer, topic, [{"value": b"another"}] * 15)[0] == 10
        reports: list[Any] = []

        def reported() -> bool:
            try:
                unseen = consumer.poll(timeout_ms=200)
                assert not unseen, f"it read on as if nothing had happened: {unseen}"
            except kafka.errors.LogTruncationError as error:
                reports.append(error)
            return bool(reports)

        wait_until(reported, "the consumer reports the truncation")
    assert reports[0].divergent_offsets[partition].offset == 10
