"""What the newest versions of requests are answered: by a node, and by Apache Kafka, byte for byte where possible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from uuid import uuid4

import pytest

from support.clients.kafka_peer import KafkaPeer
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.api_35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

START_MS = 1_700_000_000_000
PLACES = range(-8, 0)


class Pair:
    """A node and a broker of Kafka, both with a topic of three records, the one in the middle being the newest."""

    def __init__(self, node: WireClient, peer: WireClient) -> None:
        self.clients = (node, peer)
        self.topic = f"newest-{uuid4().hex[:8]}"
        for client in self.clients:
            client.create_topic(self.topic)
            self._wait_for_topic(client)
            for age_ms in (20, 0, 10):
                assert client.produce(self.topic, batch_of(b"x", timestamp_ms=START_MS - age_ms)).error_code == 0

    def _wait_for_topic(self, client: WireClient) -> None:
        wait_until(lambda: client.describe_topic(self.topic).error_code == 0, "the topic is there")

    def bodies(self, key: ApiKey, version: int, request: object) -> list[bytes]:
        for client in self.clients:
            client.send(key, version, request)
        return [bytes(client.receive_body(key, version)) for client in self.clients]


@pytest.fixture(scope="module")
def pair(shared_node: NodeProcess, kafka_peer: KafkaPeer) -> Iterator[Pair]:
    ports = [int(broker.bootstrap.rpartition(":")[2]) for broker in (shared_node, kafka_peer)]
    with WireClient(ports[0]) as node, WireClient(ports[1]) as peer:
        yield Pair(node, peer)


@pytest.mark.parametrize("version", [1, 7, 8, 9, 10, 11])
def test_offsets_are_answered_with_the_same_bytes(pair: Pair, version: int) -> None:
    # One partition a request: Kafka answers several in the order of a hash of the topic's name.
    for timestamp, index in product((*PLACES, 0, START_MS, START_MS + 1), (0, 1)):
        partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp)]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(pair.topic, partitions)], timeout_ms=1_000)
        ours, kafkas = pair.bodies(ApiKey.LIST_OFFSETS, version, request)
        assert ours == kafkas, (timestamp, index)


def test_log_directories_are_described_alike(pair: Pair) -> None:
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(pair.topic, [0])])

    def asked(client: WireClient) -> DescribeLogDirsResult:
        (row,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 5, request, DescribeLogDirsResponse).results
        assert 0 < row.usable_bytes <= row.total_bytes
        row.log_dir, row.total_bytes, row.usable_bytes = "", 0, 0
        return row

    ours, kafkas = map(asked, pair.clients)
    assert ours == kafkas
    assert not ours.is_cordoned
