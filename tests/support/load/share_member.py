"""A member of a share group (KIP-932) as raw requests, that does what a test says; and what those ask who watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid4

from support.clients.wire_client import WireClient
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_76_share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tidelog.wire.messages.api_77_share_group_describe import (
    ShareGroupDescribeGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from tidelog.wire.messages.api_90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
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


class ShareMember:
    """One, on a connection of its own.

    Attributes:
        epoch: as the last answer said.
        assigned: the partitions of each topic's id, likewise.
        message: the text of the last refusal.
        answer: the last one.
    """

    def __init__(self, port: int, group: str, *, member_id: str | None = None) -> None:
        self.client = WireClient(port)
        self.group = group
        self.member_id = str(uuid4()) if member_id is None else member_id
        self.epoch = 0
        self.assigned: dict[UUID, list[int]] = {}
        self.message: str | None = None
        self.answer = ShareGroupHeartbeatResponse()

    def close(self) -> None:
        self.client.close()

    def join(self, *topics: str, rack_id: str | None = None) -> Code:
        """Say all that there is to say, for the first time."""
        self.assigned = {}
        return self.send(0, subscribed_topic_names=list(topics), rack_id=rack_id)

    def beat(self, **options: object) -> Code:
        """Say that it is there."""
        return self.send(self.epoch, **options)

    def leave(self) -> Code:
        return self.send(-1)

    def send(self, epoch: int, **options: object) -> Code:
        """One heartbeat, with whatever is in it."""
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=epoch,
            **options,  # type: ignore[arg-type]
        )
        self.answer = self.client.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, ShareGroupHeartbeatResponse)
        self.message = self.answer.error_message
        code = Code(self.answer.error_code)
        if code is Code.NONE:
            self.epoch = self.answer.member_epoch
            if self.answer.assignment is not None:
                self.assigned = {
                    one.topic_id: sorted(one.partitions) for one in self.answer.assignment.topic_partitions
                }
        return code

    @property
    def partition_count(self) -> int:
        """How many partitions it reads."""
        return sum(map(len, self.assigned.values()))


def share_group(client: WireClient, group: str, *, asks_operations: bool = False) -> ShareGroupDescribeGroup:
    """The group, as ShareGroupDescribe shows it."""
    request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=asks_operations)
    (found,) = client.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, request, ShareGroupDescribeResponse).groups
    return found


def share_offsets(
    client: WireClient, group: str, topics: Mapping[str, Sequence[int]] | None, *, version: int = 1
) -> DescribeShareGroupOffsetsResponseGroup:
    """Where a group stands in some partitions, or in all."""
    wanted = (
        None
        if topics is None
        else [DescribeShareGroupOffsetsRequestTopic(name, list(partitions)) for name, partitions in topics.items()]
    )
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted)]
    )
    answer = client.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, request, DescribeShareGroupOffsetsResponse)
    return answer.groups[0]


def alter_share_offsets(
    client: WireClient, group: str, topics: Mapping[str, Mapping[int, int]]
) -> AlterShareGroupOffsetsResponse:
    """Have a group begin elsewhere."""
    rows = [
        AlterShareGroupOffsetsRequestTopic(
            name, [AlterShareGroupOffsetsRequestPartition(index, offset) for index, offset in offsets.items()]
        )
        for name, offsets in topics.items()
    ]
    request = AlterShareGroupOffsetsRequest(group_id=group, topics=rows)
    return client.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, request, AlterShareGroupOffsetsResponse)


def delete_share_offsets(client: WireClient, group: str, *topics: str) -> DeleteShareGroupOffsetsResponse:
    """Have a group forget topics."""
    request = DeleteShareGroupOffsetsRequest(
        group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(one) for one in topics]
    )
    return client.ask(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, request, DeleteShareGroupOffsetsResponse)
