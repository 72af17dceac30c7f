"""aiokafka: records in and out, every compression, keys, headers, timestamps, sizes; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka.errors
import pytest

from support.clients.aiokafka_client import TopicPartition, consumer_of, produce, producer_of, read_to_end, told
from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.records import split_whole_batches

START_MS = 1_700_000_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        yield connected


async def _write(bootstrap: str, topic: str, records: list[dict[str, Any]], **settings: Any) -> list[int]:
    async with producer_of(bootstrap, **settings) as producer:
        return await produce(producer, topic, records)


async def _read(bootstrap: str, topic: str, **settings: Any) -> list[Any]:
    place = TopicPartition(topic, 0)
    async with consumer_of(bootstrap, **settings) as consumer:
        consumer.assign([place])
        return await read_to_end(consumer, place)


def test_every_field_comes_back(shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    client.create_topic(topic)
    records: list[dict[str, Any]] = [
        {"value": b"one", "key": b"k", "timestamp_ms": START_MS, "headers": [("a", b"1"), ("a", b"2"), ("b", b"")]},
        {"value": None, "key": b"k", "timestamp_ms": START_MS + 1},
        {"value": b"", "key": b"", "timestamp_ms": START_MS + 2, "headers": []},
        {"value": "grüße".encode(), "key": None, "timestamp_ms": START_MS + 3},
    ]
    assert told(_write(shared_node.bootstrap, topic, records)) == [0, 1, 2, 3]
    found = told(_read(shared_node.bootstrap, topic))
    assert [(one.offset, one.key, one.value, one.timestamp) for one in found] == [
        (number, record["key"], record["value"], START_MS + number) for number, record in enumerate(records)
    ]
    assert found[0].headers == (("a", b"1"), ("a", b"2"), ("b", b""))
    assert {one.timestamp_type for one in found} == {0}


@pytest.mark.parametrize("is_idempotent", [False, True], ids=["plain", "idempotent"])
@pytest.mark.parametrize("codec", list(CODECS))
def test_every_compression(
    shared_node: NodeProcess, client: WireClient, topic: str, codec: str, is_idempotent: bool
) -> None:
    client.create_topic(topic)
    values = [b"again and again, number %d" % (number % 7) for number in range(2_000)]
    settings = {"compression_type": None if codec == "none" else codec, "enable_idempotence": is_idempotent}
    records = [{"value": value} for value in values]
    written = told(_write(shared_node.bootstrap, topic, records, linger_ms=20, **settings))
    assert written == list(range(2_000))
    stored: Any = client.fetch(topic, 0).records
    batches = [header for _, header in split_whole_batches(stored)]
    assert {header.attributes & 7 for header in batches} == {CODECS[codec]}
    assert {header.producer_id >= 0 for header in batches} == {is_idempotent}
    assert [one.value for one in told(_read(shared_node.bootstrap, topic))] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acknowledgement(shared_node: NodeProcess, client: WireClient, topic: str, acks: int | str) -> None:
    client.create_topic(topic)

    async def write() -> None:
        async with producer_of(shared_node.bootstrap, acks=acks) as producer:
            for number in range(20):
                await producer.send_and_wait(topic, b"%d" % number)

    told(write())
    wait_until(lambda: client.log_end_offset(topic) == 20, "everything is written")
    assert [one.value for one in told(_read(shared_node.bootstrap, topic))] == [b"%d" % n for n in range(20)]


def test_a_batch_made_by_hand(shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    client.create_topic(topic)

    async def write() -> int:
        async with producer_of(shared_node.bootstrap, compression_type="lz4") as producer:
            batch = producer.create_batch()
            for number in range(100):
                assert batch.append(key=None, value=b"%d" % number, timestamp=START_MS + number) is not None
            offset: int = (await (await producer.send_batch(batch, topic, partition=0))).offset
            return offset

    assert told(write()) == 0
    assert [one.timestamp for one in told(_read(shared_node.bootstrap, topic))] == [START_MS + n for n in range(100)]


def test_the_broker_stamps_where_the_topic_says_so(shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    client.create_topic(topic, configs={"message.timestamp.type": "LogAppendTime"})
    told(_write(shared_node.bootstrap, topic, [{"value": b"x", "timestamp_ms": START_MS}]))
    (found,) = told(_read(shared_node.bootstrap, topic))
    assert (found.timestamp_type, found.timestamp > START_MS) == (1, True)


def test_a_record_larger_than_a_fetch_asks_for(shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "3000000"})
    records = [{"value": b"v" * 2_900_000}, {"value": b"w"}]
    told(_write(shared_node.bootstrap, topic, records, max_request_size=4_000_000))
    found = told(_read(shared_node.bootstrap, topic, max_partition_fetch_bytes=1_000))
    assert [len(one.value) for one in found] == [2_900_000, 1]


def test_what_is_too_large_is_refused(shared_node: NodeProcess, client: WireClient, topic: str) -> None:
    client.create_topic(topic, configs={"max.message.bytes": "1000"})

    async def write() -> None:
        async with producer_of(shared_node.bootstrap) as producer:
            with pytest.raises(aiokafka.errors.MessageSizeTooLargeError):
                await producer.send_and_wait(topic, b"v" * 2_000)
            assert (await producer.send_and_wait(topic, b"after")).offset == 0

    told(write())


def test_producing_creates_a_topic(shared_node: NodeProcess, topic: str) -> None:
    assert told(_write(shared_node.bootstrap, topic, [{"value": b"first"}])) == [0]
    assert [one.value for one in told(_read(shared_node.bootstrap, topic))] == [b"first"]


def test_the_version_is_the_pinned_one() -> None:
    pins = (Path(__file__).parents[3] / "constraints" / "all.txt").read_text().split()
    assert f"aiokafka=={version('aiokafka')}" in pins
