"""Requests that a right decides: whoever may not is told so, and whoever may, that there is no such topic or group.

Those about topics would wait for the metadata of their tokens without an authorizer as well, for there is no such
topic. Those about groups would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog.base.errors import Code
from tidelog.metadata import ResourceType
from tidelog.metadata.acls import AclResourceType
from tidelog.wire.messages.api_01_fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.api_02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidelog.wire.messages.api_15_describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.api_19_create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.api_21_delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidelog.wire.messages.api_32_describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TIMEOUT_MS = 5_000
_BY_NAME = 12
"""The last version of Fetch that names topics."""

Probe = Callable[[str], tuple[object, int | None]]
"""A topic or group that is not there, to a request, and its version; None for the latest."""

DENIALS = frozenset((Code.TOPIC_AUTHORIZATION_FAILED, Code.GROUP_AUTHORIZATION_FAILED))
PERMITS = frozenset(
    (
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.GROUP_ID_NOT_FOUND,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
"""What may be wrong with a request that is allowed."""


def _fetch(name: str) -> tuple[object, int | None]:
    rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=name, partitions=rows)]), _BY_NAME


def _list_offsets(name: str) -> tuple[object, int | None]:
    rows = [ListOffsetsPartition(partition_index=0, timestamp=-2)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name, rows)]), None


def _metadata(name: str) -> tuple[object, int | None]:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False), None


def _create(name: str) -> tuple[object, int | None]:
    """Nothing is made."""
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=True), None


def _delete_records(name: str) -> tuple[object, int | None]:
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)])]), None


def _epoch_end(name: str) -> tuple[object, int | None]:
    rows = [OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    return OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(name, rows)]), None


def _configs(name: str) -> tuple[object, int | None]:
    return DescribeConfigsRequest(resources=[DescribeConfigsResource(ResourceType.TOPIC, name)]), None


def _offsets(name: str) -> tuple[object, int | None]:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None)]), None


def _groups(name: str) -> tuple[object, int | None]:
    return DescribeGroupsRequest(groups=[name]), None


PROBES: Mapping[AclResourceType, Sequence[Probe]] = {
    AclResourceType.TOPIC: (_fetch, _list_offsets, _metadata, _create, _delete_records, _epoch_end, _configs),
    AclResourceType.GROUP: (_offsets, _groups),
}
"""Of reads and of what is none, of what a broker decides and of what a controller does."""


def may_do(codes: Sequence[Code]) -> bool | None:
    """Whether who asked may do it, by the errors of the answer; None where they do not say."""
    if not DENIALS.isdisjoint(codes):
        return False
    return True if PERMITS.issuperset(codes) else None
