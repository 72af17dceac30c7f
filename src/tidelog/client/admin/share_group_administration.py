"""How an Admin asks the coordinators of share groups (KIP-932), and makes values of what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from tidelog.base.errors import Code
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.admin.group_descriptions import GroupDescription, GroupMember, ShareGroupOffset
from tidelog.client.coordinators import Coordinators
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire.messages.api_77_share_group_describe import (
    ShareGroupDescribeGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tidelog.wire.messages.api_90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from tidelog.wire.messages.api_91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from tidelog.wire.messages.api_92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)

R = TypeVar("R")

SHARE = "share"


class ShareGroupAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        coordinators: of groups.
    """

    def __init__(self, coordinators: Coordinators, *, request_timeout_ms: int) -> None:
        self._coordinators = coordinators
        self._request_timeout_ms = request_timeout_ms

    async def described(self, group_id: str, coordinator: BrokerId, connection: Connection) -> GroupDescription | None:
        """A share group; None if it is none."""
        request = ShareGroupDescribeRequest(group_ids=[group_id])
        response = await self._request(connection, request, ShareGroupDescribeResponse)
        (row,) = response.groups
        return _described(row, coordinator) if row.error_code == Code.NONE else None

    async def list_share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        async def send_request(_: BrokerId, connection: Connection) -> dict[TopicPartition, ShareGroupOffset]:
            group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
            request = DescribeShareGroupOffsetsRequest(groups=[group])
            response = await self._request(connection, request, DescribeShareGroupOffsetsResponse)
            (row,) = response.groups
            raise_first([refused(row.error_code, f"group {group_id!r}", row.error_message)])
            found: dict[TopicPartition, ShareGroupOffset] = {}
            for topic in row.topics:
                for one in topic.partitions:
                    partition = TopicPartition(topic.topic_name, PartitionIndex(one.partition_index))
                    raise_first([refused(one.error_code, str(partition), one.error_message)])
                    if one.start_offset >= 0:
                        found[partition] = ShareGroupOffset(one.start_offset, one.lag if one.lag >= 0 else None)
            return found

        return await self._coordinators.request("list offsets of a share group", group_id, send_request)

    async def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, list[AlterShareGroupOffsetsRequestPartition]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, []).append(AlterShareGroupOffsetsRequestPartition(index, offset))
        request = AlterShareGroupOffsetsRequest(
            group_id=group_id, topics=[AlterShareGroupOffsetsRequestTopic(*one) for one in topics.items()]
        )

        async def send_request(_: BrokerId, connection: Connection) -> None:
            response = await self._request(connection, request, AlterShareGroupOffsetsResponse)
            raise_first([refused(response.error_code, f"group {group_id!r}", response.error_message)])
            raise_first(
                refused(one.error_code, f"{topic.topic_name}-{one.partition_index}", one.error_message)
                for topic in response.responses
                for one in topic.partitions
            )

        if topics:
            await self._coordinators.request("alter offsets of a share group", group_id, send_request)

    async def delete_share_group_offsets(self, group_id: str, topics: Iterable[str]) -> None:
        rows = [DeleteShareGroupOffsetsRequestTopic(topic) for topic in dict.fromkeys(topics)]

        async def send_request(_: BrokerId, connection: Connection) -> None:
            request = DeleteShareGroupOffsetsRequest(group_id=group_id, topics=rows)
            response = await self._request(connection, request, DeleteShareGroupOffsetsResponse)
            raise_first([refused(response.error_code, f"group {group_id!r}", response.error_message)])
            raise_first(refused(one.error_code, one.topic_name, one.error_message) for one in response.responses)

        if rows:
            await self._coordinators.request("delete offsets of a share group", group_id, send_request)

    async def _request(self, connection: Connection, request: object, response: type[R]) -> R:
        return await connection.request(request, response, timeout_ms=self._request_timeout_ms)


def _described(row: ShareGroupDescribeGroup, coordinator: BrokerId) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic.topic_name, PartitionIndex(index))
                for topic in sorted(member.assignment.topic_partitions, key=lambda topic: topic.topic_name)
                for index in sorted(topic.partitions)
            ),
            member.member_epoch,
        )
        for member in sorted(row.members, key=lambda member: (member.client_id, member.member_id))
    )
    return GroupDescription(
        row.group_id, row.group_state, SHARE, row.assignor_name, coordinator, members, row.group_epoch
    )
