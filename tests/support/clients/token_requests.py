"""What the client of a story of tokens asks, by the word for it."""

from __future__ import annotations

from collections.abc import Callable

from support.clients.wire_client import batch_of
from tidelog.base.ids import BrokerId
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.api_19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tidelog.wire.messages.api_20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.api_21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidelog.wire.messages.api_35_describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.messages.api_37_create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.api_43_elect_leaders import ElectLeadersRequest, TopicPartitions
from tidelog.wire.messages.api_44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.api_60_describe_cluster import DescribeClusterRequest
from tidelog.wire.messages.api_75_describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest

TIMEOUT_MS = 10_000
TOPIC = 2


def create(name: str, on: BrokerId) -> CreateTopicsRequest:
    """A topic of one partition and one replica."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(0, [on])],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=TIMEOUT_MS)


def _metadata(name: str | None) -> MetadataRequest:
    topics = None if name is None else [MetadataRequestTopic(name=name)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _partitions(name: str | None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=[] if name is None else [TopicRequest(name)])


def _produce(name: str | None) -> ProduceRequest:
    rows = [PartitionProduceData(0, batch_of(b"m1"))]
    return ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name=name or "", partition_data=rows)]
    )


def _fetch(name: str | None) -> FetchRequest:
    rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=name or "", partitions=rows)])


def _list_offsets(name: str | None) -> ListOffsetsRequest:
    rows = [ListOffsetsPartition(partition_index=0, timestamp=-2)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name or "", rows)])


def _commit(name: str | None) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=0)]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=name or "", partitions=rows)])


def _offset_delete(name: str | None) -> OffsetDeleteRequest:
    rows = [OffsetDeleteRequestTopic(name or "", [OffsetDeleteRequestPartition(0)])]
    return OffsetDeleteRequest(group_id="g", topics=rows)


def _delete_records(name: str | None) -> DeleteRecordsRequest:
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name or "", [DeleteRecordsPartition(0, 0)])])


def _epoch_end(name: str | None) -> OffsetForLeaderEpochRequest:
    rows = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(name or "", rows)])


def _grow(name: str | None) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name or "", 2)], timeout_ms=TIMEOUT_MS)


def _elect(name: str | None) -> ElectLeadersRequest:
    return ElectLeadersRequest(topic_partitions=[TopicPartitions(name or "", [0])], timeout_ms=TIMEOUT_MS)


def _alter(name: str | None) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", value="1000000")
    return IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(TOPIC, name or "", [config])])


def _configs(name: str | None) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(TOPIC, name or "")])


REQUESTS: dict[str, tuple[Callable[[str | None], object], int | None]] = {
    "metadata": (_metadata, None),
    "metadata-all": (_metadata, 12),
    "partitions": (_partitions, None),
    "partitions-all": (_partitions, None),
    "configs": (_configs, None),
    "log-dirs": (lambda _: DescribeLogDirsRequest(topics=None), None),
    "cluster": (lambda _: DescribeClusterRequest(), None),
    "produce": (_produce, 12),
    "fetch": (_fetch, 12),
    "list-offsets": (_list_offsets, None),
    "commit": (_commit, 9),
    "offset-delete": (_offset_delete, None),
    "delete-records": (_delete_records, None),
    "epoch-end": (_epoch_end, None),
    "grow": (_grow, None),
    "elect": (_elect, None),
    "alter": (_alter, None),
}
"""How it is made of a topic's name, and in which version; None for the latest."""

ALL_TOPICS = frozenset({"metadata-all", "partitions-all", "log-dirs", "cluster"})
"""What is asked of all topics."""
