"""What one is authorized to do, for clients that ask (KIP-430): everything that is not for nodes alone.

The numbers are what Apache Kafka 4.3 answers without an authorizer, but for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from support.clients.wire_client import WireClient
from support.load.group_member import wait_for_coordinator
from support.nodes.node import NodeProcess
from tidelog.base.errors import Code
from tidelog.metadata.acls import AclOperation
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.api_60_describe_cluster import (
    ENDPOINT_CONTROLLERS,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from tidelog.wire.messages.api_75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

TOPIC = "authorized"
NOWHERE = "authorized-nowhere"
UNASKED = -0x8000_0000
OF_TOPIC, OF_GROUP, OF_CLUSTER = 3_576, 3_400, 8_096 - (1 << AclOperation.CLUSTER_ACTION)


@pytest.fixture
def client(shared_node: NodeProcess) -> Iterator[WireClient]:
    with WireClient(shared_node.port) as client:
        client.create_topic(TOPIC)
        yield client


@pytest.mark.parametrize("is_asked", [True, False])
def test_metadata(client: WireClient, is_asked: bool) -> None:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name=NOWHERE)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=is_asked,
        include_cluster_authorized_operations=is_asked,
    )
    answer = client.ask(ApiKey.METADATA, 9, request, MetadataResponse)
    of_topic, of_cluster = (OF_TOPIC, OF_CLUSTER) if is_asked else (UNASKED, UNASKED)
    assert {one.name: (one.error_code, one.topic_authorized_operations) for one in answer.topics} == {
        TOPIC: (0, of_topic),
        NOWHERE: (Code.UNKNOWN_TOPIC_OR_PARTITION, of_topic),
    }
    assert answer.cluster_authorized_operations == of_cluster


def test_metadata_of_all_topics_and_of_an_unknown_id(client: WireClient) -> None:
    request = MetadataRequest(topics=None, include_topic_authorized_operations=True)
    answer = client.ask(ApiKey.METADATA, 12, request, MetadataResponse)
    assert {one.topic_authorized_operations for one in answer.topics} == {OF_TOPIC}
    request.topics = [MetadataRequestTopic(name=None, topic_id=UUID(int=77))]
    (topic,) = client.ask(ApiKey.METADATA, 12, request, MetadataResponse).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (Code.UNKNOWN_TOPIC_ID, UNASKED)


@pytest.mark.parametrize("is_asked", [True, False])
def test_describe_cluster(client: WireClient, is_asked: bool) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=is_asked)
    answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, request, DescribeClusterResponse)
    assert answer.cluster_authorized_operations == (OF_CLUSTER if is_asked else UNASKED)


def test_describe_cluster_refused(client: WireClient) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True, endpoint_type=ENDPOINT_CONTROLLERS)
    answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 1, request, DescribeClusterResponse)
    assert (answer.error_code, answer.cluster_authorized_operations) == (Code.MISMATCHED_ENDPOINT_TYPE, UNASKED)


def test_describe_topic_partitions_always_says(client: WireClient) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC), TopicRequest(name=NOWHERE)])
    answer = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request, DescribeTopicPartitionsResponse)
    assert [one.topic_authorized_operations for one in answer.topics] == [OF_TOPIC, OF_TOPIC]


@pytest.mark.parametrize(
    ("version", "is_asked", "expected"),
    [(5, True, (0, OF_GROUP)), (5, False, (0, UNASKED)), (6, True, (Code.GROUP_ID_NOT_FOUND, UNASKED))],
)
def test_describe_groups(client: WireClient, version: int, is_asked: bool, expected: tuple[int, int]) -> None:
    wait_for_coordinator(client, NOWHERE)
    request = DescribeGroupsRequest(groups=[NOWHERE], include_authorized_operations=is_asked)
    (group,) = client.ask(ApiKey.DESCRIBE_GROUPS, version, request, DescribeGroupsResponse).groups
    assert (group.error_code, group.authorized_operations) == expected
