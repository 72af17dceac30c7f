"""Requests that list much, at a real node: each of what they list is answered, in their order, as in a short one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.clients.wire_client import WireClient, batch_of
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
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.api_34_alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
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
