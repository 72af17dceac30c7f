"""Fetch sessions of a real node: kafka-python keeps them, topic ids take part, slots run out. A stop waits for none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.kafka_python_client import TopicPartition, consumer_of, produce, producer_of
from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

TOPIC = "sessions"
WIDE_TOPIC = "sessions-wide"
PARTITIONS = 300
NODE_ID = 1


@pytest.fixture(scope="module")
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as connected:
        for topic, partitions in ((TOPIC, 3), (WIDE_TOPIC, PARTITIONS)):
            assert connected.create_topic(topic, partitions=partitions).error_code == 0
        yield connected


def request(topics: list[FetchTopic], *, session_id: int = 0, epoch: int = 0, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, session_id=session_id, session_epoch=epoch, topics=topics)


def wanted(partition: int, offset: int = 0) -> FetchPartition:
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)


def test_kafka_python_reads_many_partitions_in_one_session(client: WireClient, shared_node: NodeProcess) -> None:
    partitions = [TopicPartition(WIDE_TOPIC, index) for index in range(PARTITIONS)]
    with (
        consumer_of(shared_node.bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50) as consumer,
        producer_of(shared_node.bootstrap) as producer,
    ):
        consumer.assign(partitions)
        found: set[tuple[int, int, bytes]] = set()

        def poll() -> None:
            for partition, records in consumer.poll(timeout_ms=200).items():
                found.update((partition.partition, record.offset, record.value) for record in records)

        sent: set[tuple[int, int, bytes]] = set()
        for turn, index in enumerate((7, 250, 7, 0, 299)):
            value = f"{turn}".encode()
            (offset,) = produce(producer, WIDE_TOPIC, [{"value": value}], partition=index)
            sent.add((index, offset, value))

            def all_came() -> bool:
                poll()
                return found >= sent

            wait_until(all_came, f"record {turn} of partition {index}")
        assert found == sent
        metadata = consumer._fetcher._session_handlers[NODE_ID].next_metadata
        assert metadata.session_id > 0
        assert metadata.epoch >= 5  # the same session all the time


def test_a_session_by_topic_id_speaks_of_ids(client: WireClient) -> None:
    topic_id = client.describe_topic(TOPIC).topic_id
    by_id = FetchTopic(topic_id=topic_id, partitions=[wanted(0), wanted(1)])
    first = client.ask(ApiKey.FETCH, 17, request([by_id]), FetchResponse)
    assert [topic.topic_id for topic in first.responses] == [topic_id]
    assert client.produce(TOPIC, batch_of(b"a"), partition=1).error_code == 0
    asked = request([], session_id=first.session_id, epoch=1)
    second = client.ask(ApiKey.FETCH, 17, asked, FetchResponse)
    (topic,) = second.responses
    assert (topic.topic_id, [row.partition_index for row in topic.partitions]) == (topic_id, [1])
    by_name = request([], session_id=first.session_id, epoch=2)
    refused = client.ask(ApiKey.FETCH, 12, by_name, FetchResponse)
    assert Code(refused.error_code) is Code.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_topic_that_is_deleted_is_told_to_the_session(client: WireClient, shared_node: NodeProcess) -> None:
    assert client.create_topic("sessions-doomed").error_code == 0
    topics = [FetchTopic(topic=name, partitions=[wanted(0)]) for name in ("sessions-doomed", TOPIC)]
    first = client.ask(ApiKey.FETCH, 12, request(topics), FetchResponse)
    asked = request([], session_id=first.session_id, epoch=1, wait_ms=15_000)
    client.send(ApiKey.FETCH, 12, asked)
    with WireClient(shared_node.port) as other:
        delete = DeleteTopicsRequest(topics=[DeleteTopicState(name="sessions-doomed")], timeout_ms=5_000)
        other.ask(ApiKey.DELETE_TOPICS, 6, delete, DeleteTopicsResponse)
    (topic,) = client.receive(ApiKey.FETCH, 12, FetchResponse).responses
    assert topic.topic == "sessions-doomed"
    assert Code(topic.partitions[0].error_code) in (
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.NOT_LEADER_OR_FOLLOWER,
    )


def test_without_slots_readers_are_served_without_sessions(start_node: StartNode) -> None:
    node = start_node(config={"max.incremental.fetch.session.cache.slots": "1"})
    with WireClient(node.port) as client:
        assert client.create_topic(TOPIC).error_code == 0
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted(0)])]
        ids = [client.ask(ApiKey.FETCH, 12, request(topics), FetchResponse).session_id for _ in range(3)]
        assert ids[0] > 0
        assert ids[1:] == [0, 0]
    node.close()


@pytest.mark.parametrize("has_partition", [True, False])
def test_a_stop_waits_for_no_fetch(start_node: StartNode, has_partition: bool) -> None:
    node = start_node()
    with WireClient(node.port) as client:
        assert client.create_topic(TOPIC).error_code == 0
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted(0)])] if has_partition else []
        client.send(ApiKey.FETCH, 12, request(topics, wait_ms=100_000))
        with WireClient(node.port) as other:
            other.describe_topic(TOPIC)  # the fetch came before
        node.stop()
        answer = client.receive(ApiKey.FETCH, 12, FetchResponse)
        codes = [row.error_code for topic in answer.responses for row in topic.partitions]
        assert codes == ([Code.NOT_LEADER_OR_FOLLOWER] if has_partition else [])
