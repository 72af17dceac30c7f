"""Requests that are well-formed and ask for what there is not: a code for each part, and the other parts are served."""

from __future__ import annotations

import time
from collections.abc import Iterator
from uuid import UUID

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.api_02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_32_describe_configs import (
    RESOURCE_TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TOPIC = "bad-requests"
WIDE_TOPIC = "bad-requests-wide"
PARTITIONS, PARTITIONS_THERE = 1_000, 200


@pytest.fixture(scope="module")
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        client.create_topic(TOPIC)
        for i in range(3):
            client.produce(TOPIC, batch_of(b"%d" % i, timestamp_ms=1_700_000_000_000 + (1, 3, 2)[i]))
        yield client
        assert client.log_end_offset(TOPIC) == 3


@pytest.mark.parametrize("offset", [4, 1_000_000, 2**63 - 1, -1, -(2**63)])
def test_fetching_out_of_range(client: WireClient, offset: int) -> None:
    row = client.fetch(TOPIC, offset)
    assert Code(row.error_code) is Code.OFFSET_OUT_OF_RANGE
    assert not row.records


def test_fetching_at_the_end_is_in_range(client: WireClient) -> None:
    row = client.fetch(TOPIC, 3)
    assert (row.error_code, row.high_watermark, row.log_start_offset) == (0, 3, 0)
    assert not row.records


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, 3),
        (-2, 0),
        (0, 0),
        (2**62, -1),
        (-3, 1),
        (1_700_000_000_002, 1),
        (1_700_000_000_004, -1),
        (-4, 0),
        (-5, -1),
    ],
)
def test_offsets_by_name_and_time(client: WireClient, timestamp: int, expected: int) -> None:
    row = client.list_offset(TOPIC, timestamp, version=9)
    assert (Code(row.error_code), row.offset) == (Code.NONE, expected)


@pytest.mark.parametrize("timestamp", [-7, -1_000, -(2**63)])
def test_timestamps_without_a_meaning(client: WireClient, timestamp: int) -> None:
    row = client.list_offset(TOPIC, timestamp, version=9)
    assert Code(row.error_code) in {Code.INVALID_REQUEST, Code.UNSUPPORTED_VERSION}
    assert row.offset == -1


@pytest.mark.parametrize(("topic", "partition"), [("bad-requests-none", 0), (TOPIC, 7), (TOPIC, -1), ("a b", 0)])
def test_partitions_that_are_not_there(client: WireClient, topic: str, partition: int) -> None:
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    assert Code(client.fetch(topic, 0, partition=partition).error_code) is unknown
    assert Code(client.list_offset(topic, -1, partition=partition).error_code) is unknown
    assert Code(client.end_of_epoch(topic, 0, partition=partition).error_code) is unknown


@pytest.mark.parametrize("version", [10, 11, 12, 13])
@pytest.mark.parametrize(("topic_id", "code"), [(0, Code.INVALID_REQUEST), (99, Code.UNKNOWN_TOPIC_ID)])
def test_topics_that_are_asked_for_without_a_name(client: WireClient, version: int, topic_id: int, code: Code) -> None:
    asked = MetadataRequestTopic(topic_id=UUID(int=topic_id), name=None)
    answer = client.ask(ApiKey.METADATA, version, MetadataRequest(topics=[asked]), MetadataResponse).topics[0]
    assert (Code(answer.error_code), answer.name) == (code, "" if version < 12 else None)


def test_unknown_topic_ids(client: WireClient) -> None:
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic_id=UUID(int=99),
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)],
            )
        ],
    )
    answer = client.ask(ApiKey.FETCH, 13, request, FetchResponse)
    assert Code(answer.responses[0].partitions[0].error_code) is Code.UNKNOWN_TOPIC_ID
    asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=UUID(int=99))])
    described = client.ask(ApiKey.METADATA, 12, asked, MetadataResponse)
    assert Code(described.topics[0].error_code) is Code.UNKNOWN_TOPIC_ID


def test_a_fetch_session_that_nobody_opened(client: WireClient) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=77, session_epoch=3, topics=[])
    answer = client.ask(ApiKey.FETCH, 12, request, FetchResponse)
    assert Code(answer.error_code) is Code.FETCH_SESSION_ID_NOT_FOUND


def test_asking_to_open_a_session_gets_one_and_a_full_answer(client: WireClient) -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=0, session_epoch=0, topics=topics)
    answer = client.ask(ApiKey.FETCH, 12, request, FetchResponse)
    assert answer.session_id > 0
    assert answer.responses[0].partitions[0].records


@pytest.mark.parametrize("size_bytes_max", [0, 1, -1])
def test_a_fetch_that_wants_nothing_still_makes_progress(client: WireClient, size_bytes_max: int) -> None:
    row = client.fetch(TOPIC, 0, size_bytes_max=size_bytes_max)
    assert row.error_code == 0
    assert row.records or size_bytes_max <= 0


def test_a_fetch_waits_as_long_as_it_says(client: WireClient) -> None:
    started = time.monotonic()
    assert not client.fetch(TOPIC, 3, wait_ms=200).records
    assert time.monotonic() - started > 0.15


def test_a_fetch_that_waits_is_woken(client: WireClient, shared_node: NodeProcess) -> None:
    with WireClient(shared_node.port) as reader:
        client.create_topic(TOPIC + "-woken")
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        topics = [FetchTopic(topic=TOPIC + "-woken", partitions=[partition])]
        reader.send(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=100_000, min_bytes=1, topics=topics))
        client.produce(TOPIC + "-woken", batch_of(b"x"))
        answer = reader.receive(ApiKey.FETCH, 12, FetchResponse)
        assert answer.responses[0].partitions[0].records


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "../up", "a\0b", "grüße", "n" * 250, "a:b", "-" * 3 + "\n", "a\\b"]
)
def test_illegal_topic_names(client: WireClient, shared_node: NodeProcess, name: str) -> None:
    created = client.create_topic(name)
    assert Code(created.error_code) is Code.INVALID_TOPIC_EXCEPTION
    assert created.error_message
    described = client.describe_topic(name, create=True)
    assert Code(described.error_code) in {Code.INVALID_TOPIC_EXCEPTION, Code.UNKNOWN_TOPIC_OR_PARTITION}
    files = {path.name for path in (shared_node.data_dir / "node-1").iterdir()}
    assert not any(part in files for part in (f"{name}-0", "up-0"))


def test_names_that_collide_in_metrics(client: WireClient) -> None:
    assert client.create_topic("bad-requests.collides").error_code == 0
    assert Code(client.create_topic("bad-requests_collides").error_code) is Code.INVALID_TOPIC_EXCEPTION


def test_a_topic_twice_in_one_request(client: WireClient) -> None:
    twice = [CreatableTopic(name="bad-requests-twice", num_partitions=1, replication_factor=1) for _ in range(2)]
    request = CreateTopicsRequest(topics=twice, timeout_ms=1_000)
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
    assert {Code(row.error_code) for row in answer.topics} == {Code.INVALID_REQUEST}
    assert client.describe_topic("bad-requests-twice").error_code != 0


@pytest.mark.parametrize(
    ("partitions", "replication_factor", "expected"),
    [
        (0, 1, Code.INVALID_PARTITIONS),
        (-7, 1, Code.INVALID_PARTITIONS),
        (1, 0, Code.INVALID_REPLICATION_FACTOR),
        (1, 2, Code.INVALID_REPLICATION_FACTOR),
        (2**31 - 1, 1, None),
    ],
)
def test_numbers_that_no_topic_has(
    client: WireClient, partitions: int, replication_factor: int, expected: Code | None
) -> None:
    new = CreatableTopic(name="bad-requests-odd", num_partitions=partitions, replication_factor=replication_factor)
    request = CreateTopicsRequest(topics=[new], timeout_ms=1_000)
    (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse).topics
    assert row.error_code != 0
    assert expected is None or Code(row.error_code) is expected


def test_deleting_what_is_not_there(client: WireClient) -> None:
    states = [DeleteTopicState(name="bad-requests-none"), DeleteTopicState(name=None, topic_id=UUID(int=5))]
    request = DeleteTopicsRequest(topics=states, timeout_ms=1_000)
    answer = client.ask(ApiKey.DELETE_TOPICS, 6, request, DeleteTopicsResponse)
    codes = [Code(row.error_code) for row in answer.responses]
    assert codes == [Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("topic", ["__cluster_metadata", "__consumer_offsets"])
def test_the_clusters_own_topics_are_not_for_clients(client: WireClient, topic: str) -> None:
    assert client.produce(topic, batch_of(b"x")).error_code != 0
    if topic == "__cluster_metadata":
        assert client.create_topic(topic).error_code != 0


def test_producer_ids(client: WireClient) -> None:
    ids = [client.new_producer_id() for _ in range(20)]
    assert len({producer_id for producer_id, _ in ids}) == 20
    assert {epoch for _, epoch in ids} == {0}
    asked = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1_000)
    answer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked, InitProducerIdResponse)
    assert answer.error_code != 0, "an id has a character at least"


def test_refusals_on_and_on_do_not_fill_the_log(client: WireClient, shared_node: NodeProcess) -> None:
    before = len(shared_node.log)
    asked = InitProducerIdRequest(transactional_id="t" * 30_000, transaction_timeout_ms=1_000)
    for _ in range(50):
        assert client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked, InitProducerIdResponse).error_code != 0
    said = shared_node.log[before:]
    assert len(said) < 5_000


def test_a_thousand_partitions_in_one_request(client: WireClient) -> None:
    """Two hundred that are there, and eight hundred that are not."""
    created = client.create_topic(WIDE_TOPIC, partitions=PARTITIONS_THERE)
    assert created.error_code == 0, created.error_message
    there, missing = [(0, 0)] * PARTITIONS_THERE, [(3, -1)] * (PARTITIONS - PARTITIONS_THERE)
    batch = batch_of(b"wide")
    data = [PartitionProduceData(index=i, records=batch) for i in range(PARTITIONS)]
    produce = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=WIDE_TOPIC, partition_data=data)]
    )
    produced = client.ask(ApiKey.PRODUCE, 9, produce, ProduceResponse).responses[0].partition_responses
    assert [row.index for row in produced] == list(range(PARTITIONS))
    assert [(row.error_code, row.base_offset) for row in produced] == there + missing

    wanted = [FetchPartition(partition=i, fetch_offset=0, partition_max_bytes=1_000) for i in range(PARTITIONS)]
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=WIDE_TOPIC, partitions=wanted)])
    fetched = client.ask(ApiKey.FETCH, 12, fetch, FetchResponse).responses[0].partitions
    assert [bool(row.records) for row in fetched] == [code == 0 for code, _ in there + missing]
    assert [row.error_code for row in fetched] == [code for code, _ in there + missing]

    asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(PARTITIONS)]
    listing = ListOffsetsRequest(topics=[ListOffsetsTopic(name=WIDE_TOPIC, partitions=asked)])
    listed = client.ask(ApiKey.LIST_OFFSETS, 7, listing, ListOffsetsResponse).topics[0].partitions
    assert [(row.error_code, row.offset) for row in listed] == [(0, 1)] * PARTITIONS_THERE + missing

    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=WIDE_TOPIC)], timeout_ms=10_000)
    assert client.ask(ApiKey.DELETE_TOPICS, 6, delete, DeleteTopicsResponse).responses[0].error_code == 0


def test_the_same_partition_twice_in_one_request(client: WireClient) -> None:
    topic = TOPIC + "-same"
    client.create_topic(topic)
    data = [PartitionProduceData(index=0, records=batch_of(b"%d" % i)) for i in range(2)]
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    rows = client.ask(ApiKey.PRODUCE, 9, request, ProduceResponse).responses[0].partition_responses
    accepted = [row.base_offset for row in rows if row.error_code == 0]
    assert accepted == list(range(len(accepted)))
    assert client.log_end_offset(topic) == len(accepted)


@pytest.mark.parametrize("version", [1, 4])
def test_a_refusal_that_quotes_a_very_long_name_can_be_sent(client: WireClient, version: int) -> None:
    """Strings of versions that are not flexible take 32,767 bytes, the quoted name included."""
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(RESOURCE_TOPIC, "n" * 32_767)])
    (row,) = client.ask(ApiKey.DESCRIBE_CONFIGS, version, asked, DescribeConfigsResponse).results
    assert Code(row.error_code) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert row.error_message is not None
    assert "there is no topic 'nnn" in row.error_message


def test_what_is_asked_for_often_is_told_once(client: WireClient) -> None:
    asked = DescribeConfigsRequest(resources=[DescribeConfigsResource(RESOURCE_TOPIC, TOPIC) for _ in range(9)])
    assert len(client.ask(ApiKey.DESCRIBE_CONFIGS, 4, asked, DescribeConfigsResponse).results) == 1
    named = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC) for _ in range(9)])
    assert len(client.ask(ApiKey.METADATA, 12, named, MetadataResponse).topics) == 1


def test_without_an_answer_the_log_says_why_a_produce_request_failed(shared_node: NodeProcess) -> None:
    with WireClient(shared_node.port) as unanswered, pytest.raises(ConnectionError):
        unanswered.produce("bad-requests-none", batch_of(b"x"), acks=0)
    assert "UNKNOWN_TOPIC_OR_PARTITION: there is no partition bad-requests-none-0" in shared_node.log
