"""Requests that list much, at a real node: each of what they list is answered, in their order, as in a short one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient, batch_of
from support.fixtures.waiting import wait_until
from support.load.group_member import commit, commit_request, wait_for_coordinator
from support.nodes.node import NodeProcess, StartNode
from tidelog.base.errors import Code
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidelog.wire.messages.api_02_list_offsets import (
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from tidelog.wire.messages.api_10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.messages.api_19_create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.api_24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.api_27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tidelog.wire.messages.api_34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.api_61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
)
from tidelog.wire.messages.api_65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from tidelog.wire.messages.api_75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

COUNT = 3_000


@pytest.fixture
def node_client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port, timeout_seconds=60) as client:
        yield client


def test_unknown_names_are_told_one_by_one(node_client: WireClient) -> None:
    names = [f"unknown-{number}" for number in range(COUNT)]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    answer = node_client.ask(ApiKey.METADATA, 12, request, MetadataResponse)
    assert [(one.name, one.error_code) for one in answer.topics] == [
        (name, Code.UNKNOWN_TOPIC_OR_PARTITION) for name in names
    ]
    assert len(answer.brokers) == 1


def test_many_partitions_of_one_topic_are_one_row(node_client: WireClient) -> None:
    assert node_client.create_topic("long-one", partitions=600).error_code == 0
    data = [PartitionProduceData(index, bytes(batch_of(b"%d" % index))) for index in range(600)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="long-one", partition_data=data)]
    )
    produced = node_client.ask(ApiKey.PRODUCE, 12, request, ProduceResponse)
    (topic,) = produced.responses
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (index, 0, 0) for index in range(600)
    ]
    asked = [ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP) for index in range(700)]
    offsets = node_client.ask(
        ApiKey.LIST_OFFSETS,
        7,
        ListOffsetsRequest(topics=[ListOffsetsTopic(name="long-one", partitions=asked)]),
        ListOffsetsResponse,
    )
    (found,) = offsets.topics
    assert [(one.partition_index, one.offset) for one in found.partitions] == [
        (index, 1 if index < 600 else -1) for index in range(700)
    ]


def test_many_topics_are_made_and_deleted_in_one_request(node_client: WireClient) -> None:
    names = [f"long-{number}" for number in range(300)]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in [*names, names[0], "a b"]
        ],
        timeout_ms=60_000,
    )
    created = node_client.ask(ApiKey.CREATE_TOPICS, 7, request, CreateTopicsResponse)
    codes = {one.name: Code(one.error_code) for one in created.topics}
    assert codes.pop(names[0]) is Code.INVALID_REQUEST, "it is named twice"
    assert codes.pop("a b") is Code.INVALID_TOPIC_EXCEPTION
    assert codes == dict.fromkeys(names[1:], Code.NONE)
    wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names[1:]])
    deleted = node_client.ask(ApiKey.DELETE_TOPICS, 6, wanted, DeleteTopicsResponse)
    assert [(one.name, one.error_code) for one in deleted.responses] == [(name, 0) for name in names[1:]]


def test_topics_are_described_in_the_order_of_their_names(node_client: WireClient) -> None:
    assert node_client.create_topic("long-described", partitions=3).error_code == 0
    names = sorted({"long-described", *(f"unknown-{number}" for number in range(COUNT))})
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name) for name in reversed(names)])
    answer = node_client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)
    assert [one.name for one in answer.topics] == names
    assert [(len(one.partitions), one.error_code) for one in answer.topics] == [
        (3, 0) if name == "long-described" else (0, Code.UNKNOWN_TOPIC_OR_PARTITION) for name in names
    ]


def test_each_replica_is_told_about_a_move(node_client: WireClient) -> None:
    assert node_client.create_topic("long-moved", partitions=300).error_code == 0
    named = [AlterReplicaLogDirTopic("long-moved", list(range(COUNT))), AlterReplicaLogDirTopic("long-moved", [])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir("/nowhere", named)])
    answer = node_client.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request, AlterReplicaLogDirsResponse)
    (told,) = answer.results
    assert [(one.partition_index, one.error_code) for one in told.partitions] == [
        (index, Code.LOG_DIR_NOT_FOUND) for index in range(COUNT)
    ]


@pytest.mark.parametrize("version", [1, 7, 9])
def test_positions_are_told_partition_by_partition(node_client: WireClient, version: int) -> None:
    node_client.create_topic("long-read", partitions=2)
    group = f"long-group-{version}"
    wait_for_coordinator(node_client, group)
    assert set(commit(node_client, commit_request(group, {("long-read", 1): 7})).values()) == {Code.NONE}
    topics = [
        OffsetFetchRequestTopic(name="long-read", partition_indexes=list(range(COUNT))),
        OffsetFetchRequestTopic(name="other", partition_indexes=[0]),
    ]
    if version < 8:
        request = OffsetFetchRequest(group_id=group, topics=topics)
    else:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    answer = node_client.ask(ApiKey.OFFSET_FETCH, version, request, OffsetFetchResponse)
    read, other = answer.topics if version < 8 else answer.groups[0].topics
    assert [(one.partition_index, one.committed_offset) for one in read.partitions] == [
        (index, 7 if index == 1 else -1) for index in range(COUNT)
    ]
    assert [one.committed_offset for one in other.partitions] == [-1]


def test_missing_topics_are_made_in_portions(start_node: StartNode) -> None:
    names = [f"missing-{number}" for number in range(400)]
    node = start_node()
    with WireClient(node.port, timeout_seconds=60) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        answer = client.ask(ApiKey.METADATA, 12, request, MetadataResponse)
        assert [(one.name, one.error_code) for one in answer.topics] == [(name, 0) for name in names]
    node.close()


def begun(client: WireClient, transactional_id: str) -> InitProducerIdResponse:
    """A producer of a transactional id, once its coordinator serves."""
    answers: list[InitProducerIdResponse] = []

    def is_served() -> bool:
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        client.ask(ApiKey.FIND_COORDINATOR, 4, asked, FindCoordinatorResponse)
        wanted = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answers.append(client.ask(ApiKey.INIT_PRODUCER_ID, 4, wanted, InitProducerIdResponse))
        return not answers[-1].error_code

    wait_until(is_served, f"{transactional_id} has a coordinator")
    return answers[-1]


def joining(transactional_id: str, producer: InitProducerIdResponse, indexes: range) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[AddPartitionsToTxnTopic(name="long-joined", partitions=list(indexes))],
    )


@pytest.fixture
def open_client(start_node: StartNode) -> Iterator[WireClient]:
    """Of a node that takes it for another one."""
    with WireClient(start_node(is_open=True).port) as client:
        yield client


def test_partitions_join_a_transaction_all_or_none(open_client: WireClient) -> None:
    assert open_client.create_topic("long-joined", partitions=600).error_code == 0
    producer = begun(open_client, "long-producer")

    def add(count: int, version: int) -> list[int]:
        one = joining("long-producer", producer, range(count))
        if version > 3:
            request = AddPartitionsToTxnRequest(transactions=[one])
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="long-producer",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=one.topics,
            )
        answer = open_client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request, AddPartitionsToTxnResponse)
        (topic,) = answer.results_by_topic_v3_and_below or answer.results_by_transaction[0].topic_results
        assert [row.partition_index for row in topic.results_by_partition] == list(range(count))
        return [row.partition_error_code for row in topic.results_by_partition]

    refused = [Code.OPERATION_NOT_ATTEMPTED] * 600 + [Code.UNKNOWN_TOPIC_OR_PARTITION] * (COUNT - 600)
    assert add(COUNT, 3) == refused
    assert add(COUNT, 5) == refused
    assert add(600, 3) == [Code.NONE] * 600
    (described,) = open_client.ask(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        DescribeTransactionsRequest(transactional_ids=["long-producer"]),
        DescribeTransactionsResponse,
    ).transaction_states
    assert [(one.topic, one.partitions) for one in described.topics] == [("long-joined", list(range(600)))]
    verified = joining("long-producer", producer, range(COUNT))
    verified.verify_only = True
    strangers = [joining(f"nobody-{number}", producer, range(1)) for number in range(COUNT)]
    request = AddPartitionsToTxnRequest(transactions=[*strangers, verified])
    answer = open_client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, request, AddPartitionsToTxnResponse)
    told = {
        one.transactional_id: [row.partition_error_code for row in one.topic_results[0].results_by_partition]
        for one in answer.results_by_transaction
    }
    assert told.pop("long-producer") == [0] * 600 + [Code.TRANSACTION_ABORTABLE] * (COUNT - 600)
    assert list(told) == [one.transactional_id for one in strangers]
    assert {code for codes in told.values() for code in codes} == {Code.INVALID_PRODUCER_ID_MAPPING}


def test_ids_that_nobody_has_are_described_one_by_one(node_client: WireClient) -> None:
    begun(node_client, "long-id")
    names = [f"no-id-{number}" for number in range(COUNT)]
    request = DescribeTransactionsRequest(transactional_ids=[*names, "long-id"])
    answer = node_client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request, DescribeTransactionsResponse)
    assert [(one.transactional_id, one.error_code) for one in answer.transaction_states] == [
        *((name, Code.TRANSACTIONAL_ID_NOT_FOUND) for name in names),
        ("long-id", Code.NONE),
    ]


def test_the_producers_of_a_partition_are_told_once(node_client: WireClient) -> None:
    """Each time would be all of them: the answer would have no bound."""
    assert node_client.create_topic("long-producers", partitions=2).error_code == 0
    topics = [
        DescribeProducersTopic(name="long-producers", partition_indexes=[0, 1, *[0] * COUNT]),
        DescribeProducersTopic(name="long-producers", partition_indexes=[1]),
        DescribeProducersTopic(name="long-unknown", partition_indexes=[0]),
    ]
    request = DescribeProducersRequest(topics=topics)
    answer = node_client.ask(ApiKey.DESCRIBE_PRODUCERS, 0, request, DescribeProducersResponse)
    first, second, unknown = ([row.error_code for row in topic.partitions] for topic in answer.topics)
    assert first == [Code.NONE, Code.NONE, *[Code.INVALID_REQUEST] * COUNT]
    assert (second, unknown) == ([Code.INVALID_REQUEST], [Code.UNKNOWN_TOPIC_OR_PARTITION])
    assert answer.topics[1].partitions[0].error_message == "the request names long-producers-1 more than once"


def test_markers_are_answered_partition_by_partition(node_client: WireClient) -> None:
    assert node_client.create_topic("long-marked", partitions=100).error_code == 0
    markers = [
        WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=False,
            coordinator_epoch=0,
            topics=[WritableTxnMarkerTopic(name="long-marked", partition_indexes=list(range(300)))],
        )
        for producer_id in (1_000_000, 1_000_001)
    ]
    request = WriteTxnMarkersRequest(markers=markers)
    answer = node_client.ask(ApiKey.WRITE_TXN_MARKERS, 1, request, WriteTxnMarkersResponse)
    for marker, asked in zip(answer.markers, markers, strict=True):
        assert marker.producer_id == asked.producer_id
        (topic,) = marker.topics
        assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
            (index, Code.NONE if index < 100 else Code.UNKNOWN_TOPIC_OR_PARTITION) for index in range(300)
        ]
    ends = [ListOffsetsPartition(partition_index=index, timestamp=LATEST_TIMESTAMP) for index in range(100)]
    asked_ends = ListOffsetsRequest(topics=[ListOffsetsTopic(name="long-marked", partitions=ends)])
    (ended,) = node_client.ask(ApiKey.LIST_OFFSETS, 7, asked_ends, ListOffsetsResponse).topics
    assert {row.offset for row in ended.partitions} == {2}


def test_more_settings_than_there_are_are_refused_whatever_they_say(node_client: WireClient) -> None:
    named = [CreatableTopicConfig(name="retention.ms", value=str(number)) for number in range(COUNT)]
    topics = [
        CreatableTopic(name="long-set", num_partitions=1, replication_factor=1, configs=named),
        CreatableTopic(name="short-set", num_partitions=1, replication_factor=1, configs=named[:1]),
    ]
    made = node_client.ask(
        ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse
    )
    assert [(one.name, one.error_code) for one in made.topics] == [
        ("long-set", Code.INVALID_CONFIG),
        ("short-set", Code.NONE),
    ]
    changes = [AlterableConfig(name=one.name, config_operation=0, value=one.value) for one in named]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name="short-set", configs=changes)]
    )
    (changed,) = node_client.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request, IncrementalAlterConfigsResponse
    ).responses
    assert (changed.error_code, changed.resource_name) == (Code.INVALID_REQUEST, "short-set")
