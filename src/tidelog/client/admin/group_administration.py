"""How an Admin asks the coordinators of groups, and makes values of what they say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeVar

from tidelog.base.errors import Code, KafkaError, MalformedMessageError, NetworkError
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.admin.group_descriptions import GroupDescription, GroupListing, GroupMember
from tidelog.client.admin.share_group_administration import ShareGroupAdministration
from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import Coordinators
from tidelog.client.core.group_metadata import GroupMetadata
from tidelog.client.core.offset_messages import (
    LAST_WITH_NAMES,
    by_topic,
    commit_codes,
    commit_request,
    fetched_offsets,
    offset_fetch_request,
)
from tidelog.client.core.values import CommittedOffset
from tidelog.client.refusals import raise_first, refused
from tidelog.net.connection import Connection
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitResponse
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchResponse
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.api_15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from tidelog.wire.messages.api_16_list_groups import ListGroupsRequest, ListGroupsResponse
from tidelog.wire.messages.api_42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidelog.wire.messages.api_69_consumer_group_describe import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidelog.wire.messages.consumer_protocol import PROTOCOL_TYPE, assigned_partitions

R = TypeVar("R")
A = TypeVar("A")

_FIRST_WITH_MEMBERS = 3
"""LeaveGroup before that is for a member itself."""
_STATE_OF_NO_GROUP = "Dead"
"""How DescribeGroups before version 6 says that there is no such group."""


class GroupAdministration:
    """See `AsyncAdmin`, whose methods these are.

    Args:
        request_timeout_ms: of one request; `cluster` knows how long all attempts may take together.
    """

    def __init__(self, cluster: Cluster, *, request_timeout_ms: int) -> None:
        self._cluster = cluster
        self._request_timeout_ms = request_timeout_ms
        self._coordinators = Coordinators(cluster, KEY_TYPE_GROUP, noun="group")
        self.shares = ShareGroupAdministration(self._coordinators, request_timeout_ms=request_timeout_ms)

    async def list_groups(self, states: Iterable[str]) -> list[GroupListing]:
        request = ListGroupsRequest(states_filter=list(states))

        async def request_one(broker_id: BrokerId) -> list[GroupListing]:
            connection = await self._cluster.broker(broker_id)
            response = await self._request(connection, request, ListGroupsResponse)
            raise_first([refused(response.error_code, f"broker {broker_id}", None)])
            return [
                GroupListing(row.group_id, row.protocol_type, row.group_state or None, row.group_type or None)
                for row in response.groups
            ]

        async def send_request() -> list[GroupListing]:
            await self._cluster.fetch_metadata([])
            found = await asyncio.gather(*(request_one(broker_id) for broker_id in self._cluster.metadata.brokers))
            by_id = {listing.group_id: listing for listings in found for listing in listings}
            return [by_id[group_id] for group_id in sorted(by_id)]

        return await self._cluster.retrying("list groups", send_request)

    async def describe_groups(self, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
        async def describe_new(group_id: str, coordinator: BrokerId, connection: Connection) -> GroupDescription | None:
            """A group of the new protocol (KIP-848); None if it is none."""
            request = ConsumerGroupDescribeRequest(group_ids=[group_id])
            response = await self._request(connection, request, ConsumerGroupDescribeResponse)
            (row,) = response.groups
            return _described_new(row, coordinator) if row.error_code == Code.NONE else None

        async def describe(group_id: str) -> GroupDescription:
            async def send_request(coordinator: BrokerId, connection: Connection) -> GroupDescription:
                request = DescribeGroupsRequest(groups=[group_id])
                response = await self._request(connection, request, DescribeGroupsResponse)
                row = next((row for row in response.groups if row.group_id == group_id), None)
                code = Code.UNKNOWN_SERVER_ERROR if row is None else row.error_code
                message = "the answer leaves it out" if row is None else row.error_message
                is_missing = code == Code.GROUP_ID_NOT_FOUND or (
                    row is not None and row.group_state == _STATE_OF_NO_GROUP
                )
                if is_missing and connection.versions.serves(ApiKey.CONSUMER_GROUP_DESCRIBE, 0):
                    found = await describe_new(group_id, coordinator, connection)
                    if found is not None:
                        return found
                if is_missing and connection.versions.serves(ApiKey.SHARE_GROUP_DESCRIBE, 1):
                    found = await self.shares.described(group_id, coordinator, connection)
                    if found is not None:
                        return found
                raise_first([refused(code, f"group {group_id!r}", message)])
                assert row is not None
                if row.group_state == _STATE_OF_NO_GROUP:
                    raise_first([refused(Code.GROUP_ID_NOT_FOUND, f"group {group_id!r}", None)])
                return _described(row, coordinator)

            return await self._at_coordinator("describe groups", group_id, send_request)

        names = list(dict.fromkeys(group_ids))
        return dict(zip(names, await asyncio.gather(*map(describe, names)), strict=True))

    async def delete_groups(self, group_ids: Iterable[str]) -> None:
        async def delete(group_id: str) -> KafkaError | None:
            async def send_request(_: BrokerId, connection: Connection) -> None:
                request = DeleteGroupsRequest(groups_names=[group_id])
                response = await self._request(connection, request, DeleteGroupsResponse)
                raise_first(refused(row.error_code, f"group {row.group_id!r}", None) for row in response.results)

            try:
                await self._at_coordinator("delete groups", group_id, send_request)
            except KafkaError as error:
                return error
            return None

        raise_first(await asyncio.gather(*map(delete, dict.fromkeys(group_ids))))

    async def remove_members(self, group_id: str, instance_ids: Iterable[str] | None, reason: str) -> None:
        if instance_ids is None:
            found = await self.describe_groups([group_id])
            leaving = [
                MemberIdentity(member_id=one.member_id, group_instance_id=one.group_instance_id, reason=reason)
                for one in found[group_id].members
            ]
        else:
            leaving = [
                MemberIdentity(member_id="", group_instance_id=instance_id, reason=reason)
                for instance_id in dict.fromkeys(instance_ids)
            ]

        may_be_out = instance_ids is None  # one that was found may have left by itself meanwhile

        async def send_request(_: BrokerId, connection: Connection) -> None:
            nonlocal may_be_out
            request = LeaveGroupRequest(group_id=group_id, members=leaving)
            try:
                response = await self._request(connection, request, LeaveGroupResponse, min_version=_FIRST_WITH_MEMBERS)
            except NetworkError:
                may_be_out = True  # by the request whose answer was lost
                raise
            raise_first([refused(response.error_code, f"group {group_id!r}", None)])
            raise_first(
                refused(row.error_code, f"member {row.group_instance_id or row.member_id!r} of {group_id!r}", None)
                for row in response.members
                if not may_be_out or row.error_code != Code.UNKNOWN_MEMBER_ID
            )

        if leaving:
            await self._at_coordinator("remove members of a group", group_id, send_request)

    async def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        wanted = None if partitions is None else list(partitions)

        async def send_request(_: BrokerId, connection: Connection) -> dict[TopicPartition, CommittedOffset]:
            version = connection.versions.version(ApiKey.OFFSET_FETCH, max_version=LAST_WITH_NAMES)
            request = offset_fetch_request(group_id, wanted, None, version=version)
            response = await self._request(connection, request, OffsetFetchResponse, version=version)
            code, found = fetched_offsets(response, None)
            raise_first([refused(code, f"group {group_id!r}", None)])
            raise_first(refused(row, str(key), None) for key, row in found.items() if isinstance(row, Code))
            return {key: row for key, row in found.items() if isinstance(row, CommittedOffset)}

        return await self._at_coordinator("list offsets of a group", group_id, send_request)

    async def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        async def send_request(_: BrokerId, connection: Connection) -> None:
            request = commit_request(GroupMetadata(group_id), offsets, None)
            version = connection.versions.version(ApiKey.OFFSET_COMMIT, max_version=LAST_WITH_NAMES)
            response = await self._request(connection, request, OffsetCommitResponse, version=version)
            codes = commit_codes(response, None)
            raise_first(_member_in_the_way(refused(code, str(key), None), group_id) for key, code in codes.items())

        if offsets:
            await self._at_coordinator("alter offsets of a group", group_id, send_request)

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        topics = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
            for name, indexes in by_topic(partitions).items()
        ]

        async def send_request(_: BrokerId, connection: Connection) -> None:
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            await self._cluster.caught_up(connection)  # no version of it carries a token
            response = await self._request(connection, request, OffsetDeleteResponse)
            raise_first([refused(response.error_code, f"group {group_id!r}", None)])
            raise_first(
                refused(row.error_code, f"{topic.name}-{row.partition_index}", None)
                for topic in response.topics
                for row in topic.partitions
            )

        if topics:
            await self._at_coordinator("delete offsets of a group", group_id, send_request)

    # How.
    async def _at_coordinator(
        self, what: str, group_id: str, send_request: Callable[[BrokerId, Connection], Awaitable[A]]
    ) -> A:
        return await self._coordinators.request(what, group_id, send_request)

    async def _request(
        self,
        connection: Connection,
        request: object,
        response: type[R],
        *,
        version: int | None = None,
        min_version: int = 0,
    ) -> R:
        return await connection.request(
            request, response, timeout_ms=self._request_timeout_ms, version=version, min_version=min_version
        )


def _member_in_the_way(error: KafkaError | None, group_id: str) -> KafkaError | None:
    """Only a group without members takes offsets from outside; what brokers answer does not say so."""
    if error is None or error.code not in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS):
        return error
    return KafkaError(
        f"group {group_id!r} has members, which would read on from where they are: stop its consumers first "
        f"({error.code.name})",
        code=Code.NON_EMPTY_GROUP,
    )


def _described(row: DescribedGroup, coordinator: BrokerId) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assignment(row.protocol_type, member.member_assignment),
        )
        for member in sorted(row.members, key=lambda member: (member.client_id, member.member_id))
    )
    return GroupDescription(row.group_id, row.group_state, row.protocol_type, row.protocol_data, coordinator, members)


def _described_new(row: ConsumerGroupDescribeGroup, coordinator: BrokerId) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
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
        row.group_id, row.group_state, PROTOCOL_TYPE, row.assignor_name, coordinator, members, row.group_epoch
    )


def _assignment(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    """What cannot be read is of an assignor with a format of its own: nothing is known of it."""
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return assigned_partitions(assignment)
    except MalformedMessageError:
        return ()
