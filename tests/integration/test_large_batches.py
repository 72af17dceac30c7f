"""Batches that take longer than a turn of the event loop: they are checked on another thread, and keep their order."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC = "large-batches"
PARTITIONS = 3
GROWN = bytes(3 << 20)
"""Three kilobytes hold it."""
LARGE = batch_of(GROWN, GROWN, compression="zstd")
SMALL = batch_of(b"small")


@pytest.fixture(scope="module")
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        assert connected.create_topic(TOPIC, partitions=PARTITIONS).error_code == 0
        yield connected


def request(topic: str, *batches: tuple[int, bytes], acks: int = -1) -> ProduceRequest:
    rows = [PartitionProduceData(index, batch) for index, batch in batches]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=rows)])


def rows_of(answer: ProduceResponse) -> list[PartitionProduceResponse]:
    return answer.responses[0].partition_responses


def produce(client: WireClient, topic: str, *batches: tuple[int, bytes]) -> list[PartitionProduceResponse]:
    return rows_of(client.ask(ApiKey.PRODUCE, 9, request(topic, *batches), ProduceResponse))


def test_rows_and_requests_keep_their_order(client: WireClient) -> None:
    sent = [
        request(TOPIC, (0, SMALL), (1, LARGE), (2, SMALL), (1, SMALL)),
        request(TOPIC, (1, SMALL), (0, SMALL), acks=1),
    ]
    for one in sent:
        client.send(ApiKey.PRODUCE, 9, one)
    first, second = (rows_of(client.receive(ApiKey.PRODUCE, 9, ProduceResponse)) for _ in sent)
    assert [(row.index, row.error_code, row.base_offset) for row in first] == [
        (0, Code.NONE, 0),
        (1, Code.NONE, 0),
        (2, Code.NONE, 0),
        (1, Code.NONE, 2),
    ]
    assert [(row.index, row.error_code, row.base_offset) for row in second] == [(1, Code.NONE, 3), (0, Code.NONE, 1)]
    assert [record.value for record in client.read_all(TOPIC, partition=1)] == [GROWN, GROWN, b"small", b"small"]


def test_an_idempotent_producer_is_recognised(client: WireClient) -> None:
    assert client.create_topic("large-idempotent").error_code == 0
    batch = batch_of(GROWN, compression="gzip", producer=(77, 0), base_sequence=0)
    offsets = [produce(client, "large-idempotent", (0, batch))[0].base_offset for _ in range(2)]
    assert offsets == [0, 0]
    late = batch_of(GROWN, compression="gzip", producer=(77, 0), base_sequence=5)
    assert produce(client, "large-idempotent", (0, late))[0].error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_is_refused_is_refused_row_by_row(client: WireClient) -> None:
    damaged = bytearray(LARGE)
    damaged[-1] ^= 1
    rows = produce(client, TOPIC, (0, bytes(damaged)), (7, LARGE), (2, LARGE))
    assert [row.error_code for row in rows] == [Code.CORRUPT_MESSAGE, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NONE]
    rows = produce(client, "large-unknown", (0, LARGE))
    assert [row.error_code for row in rows] == [Code.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_row_of_many_batches_is_refused_before_they_are_looked_at(client: WireClient) -> None:
    """Each of them may take a tenth of a second, and a row has room for thousands."""
    row = LARGE * 300
    assert len(row) > 64 * 1024
    (answer,) = produce(client, TOPIC, (0, row))
    assert (answer.error_code, answer.error_message) == (
        Code.INVALID_RECORD,
        "more than one batch was sent to a partition; Produce 3+ takes one",
    )


def test_small_compressed_batches_are_appended_at_once(client: WireClient) -> None:
    assert client.create_topic("small-compressed", partitions=50).error_code == 0
    batches = [(index, batch_of(*[b"%d" % index] * 20, compression="lz4")) for index in range(50)]
    rows = produce(client, "small-compressed", *batches)
    assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(index, 0, 0) for index in range(50)]


def test_a_large_batch_is_compressed_anew(client: WireClient) -> None:
    assert client.create_topic("large-anew", configs={"compression.type": "lz4"}).error_code == 0
    assert [row.base_offset for row in produce(client, "large-anew", (0, LARGE), (0, SMALL))] == [0, 2]
    assert [record.value for record in client.read_all("large-anew")] == [GROWN, GROWN, b"small"]


def test_thousands_of_records_without_a_key_are_named(client: WireClient) -> None:
    assert client.create_topic("large-compacted", configs={"cleanup.policy": "compact"}).error_code == 0
    (row,) = produce(client, "large-compacted", (0, batch_of(*[b""] * 5_000)))
    assert row.error_code == Code.INVALID_RECORD
    assert [one.batch_index for one in row.record_errors] == list(range(1_000))


def test_who_waits_for_no_answer_may_be_gone(client: WireClient, shared_node: NodeProcess) -> None:
    assert client.create_topic("large-unasked").error_code == 0
    with WireClient(shared_node.port) as other:
        other.send(ApiKey.PRODUCE, 9, request("large-unasked", (0, LARGE), acks=0))
    wait_until(lambda: len(client.read_all("large-unasked")) == 2, "what was sent is not there")


def test_a_large_request_keeps_the_order_of_its_batches(client: WireClient) -> None:
    assert client.create_topic("large-request", partitions=8).error_code == 0
    batches = [(index, batch_of(bytes([index]) * 900_000)) for index in range(8)]
    for offset in range(2):
        rows = produce(client, "large-request", *batches)
        assert [(row.index, row.error_code, row.base_offset) for row in rows] == [(n, 0, offset) for n in range(8)]
    values = [client.read_all("large-request", partition=index)[1].value for index in range(8)]
    assert values == [bytes([index]) * 900_000 for index in range(8)]
