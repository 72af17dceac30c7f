"""Groups as raw requests: a member that does what a test says, and the commits of whoever has no membership."""

from __future__ import annotations

from support.clients.wire_client import WireClient
from support.fixtures.waiting import wait_until
from tidelog.base.errors import Code
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from tidelog.wire.messages.api_10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.api_14_sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

COMMIT_VERSION = 9
FETCH_VERSION = 9
JOIN_VERSION = 9
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
LOADING = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE)


def find_coordinator(client: WireClient, group: str) -> Coordinator:
    """The answer for one group."""
    request = FindCoordinatorRequest(coordinator_keys=[group])
    answer = client.ask(ApiKey.FIND_COORDINATOR, 6, request, FindCoordinatorResponse)
    return answer.coordinators[0]


def commit_request(
    group: str,
    offsets: dict[tuple[str, int], int],
    *,
    leader_epoch: int = -1,
    metadata: str | None = "",
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )


def commit(client: WireClient, request: OffsetCommitRequest) -> dict[tuple[str, int], Code]:
    """What became of each partition."""
    answer = client.ask(ApiKey.OFFSET_COMMIT, COMMIT_VERSION, request, OffsetCommitResponse)
    return {
        (topic.name, row.partition_index): Code(row.error_code) for topic in answer.topics for row in topic.partitions
    }


def committed(client: WireClient, group: str, topic: str, partition: int = 0) -> OffsetFetchResponsePartition:
    """What is remembered of one partition."""
    rows = committed_of(client, group, {topic: [partition]})
    assert not isinstance(rows, Code), rows.name
    return rows[topic, partition]


def committed_of(
    client: WireClient, group: str, topics: dict[str, list[int]] | None = None
) -> dict[tuple[str, int], OffsetFetchResponsePartition] | Code:
    """What is remembered of some partitions, or of all; or the error of the group."""
    asked = (
        None
        if topics is None
        else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    )
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=asked)])
    (found,) = client.ask(ApiKey.OFFSET_FETCH, FETCH_VERSION, request, OffsetFetchResponse).groups
    if found.error_code:
        return Code(found.error_code)
    return {(topic.name, row.partition_index): row for topic in found.topics for row in topic.partitions}


def wait_for_coordinator(client: WireClient, group: str) -> None:
    """Return when the group's coordinator serves, making the topic if need be."""

    def serves() -> bool:
        if find_coordinator(client, group).error_code:
            return False
        rows = committed_of(client, group, {})
        assert not isinstance(rows, Code) or rows in LOADING, rows.name
        return not isinstance(rows, Code)

    wait_until(serves, f"the coordinator of {group} serves")


class GroupMember:
    """One member on a connection of its own. Each step is a request; those that wait are sent and received apart."""

    def __init__(
        self,
        port: int,
        group: str,
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        protocols: tuple[str, ...] = ("range",),
    ) -> None:
        self.client = WireClient(port)
        self.group = group
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[str] = []

    @property
    def is_leader(self) -> bool:
        return bool(self.member_id) and self.leader == self.member_id

    def close(self) -> None:
        self.client.close()

    def send_join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.session_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name, b"\0\1\0\0\0\0\xff\xff\xff\xff") for name in self.protocols],
        )
        self.client.send(ApiKey.JOIN_GROUP, JOIN_VERSION, request)

    def receive_join(self) -> Code:
        answer = self.client.receive(ApiKey.JOIN_GROUP, JOIN_VERSION, JoinGroupResponse)
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.send_join()
            return self.receive_join()
        if not answer.error_code:
            self.member_id, self.generation, self.leader = answer.member_id, answer.generation_id, answer.leader
            self.members = [one.member_id for one in answer.members]
        return Code(answer.error_code)

    def take_id(self) -> None:
        """The first half of joining: ask, and be told an id to come back with."""
        self.send_join()
        answer = self.client.receive(ApiKey.JOIN_GROUP, JOIN_VERSION, JoinGroupResponse)
        assert answer.error_code == Code.MEMBER_ID_REQUIRED, Code(answer.error_code).name
        self.member_id = answer.member_id

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self.protocols[0],
            assignments=[SyncGroupRequestAssignment(name, part) for name, part in (assignments or {}).items()],
        )
        self.client.send(ApiKey.SYNC_GROUP, SYNC_VERSION, request)

    def receive_sync(self) -> tuple[Code, bytes]:
        answer = self.client.receive(ApiKey.SYNC_GROUP, SYNC_VERSION, SyncGroupResponse)
        return Code(answer.error_code), answer.assignment

    def heartbeat(self) -> Code:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        answer = self.client.ask(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, request, HeartbeatResponse)
        return Code(answer.error_code)

    def leave(self) -> Code:
        one = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        request = LeaveGroupRequest(group_id=self.group, members=[one])
        answer = self.client.ask(ApiKey.LEAVE_GROUP, LEAVE_VERSION, request, LeaveGroupResponse)
        return Code(answer.error_code or answer.members[0].error_code)

    def commit(self, offsets: dict[tuple[str, int], int]) -> set[Code]:
        request = commit_request(
            self.group,
            offsets,
            generation=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )
        return set(commit(self.client, request).values())


def form(members: list[GroupMember]) -> None:
    """Make a group of them. The first is alone for a generation; the others are given ids, and so waited for."""
    first, *others = members
    first.send_join()
    assert first.receive_join() == Code.NONE
    first.send_sync({first.member_id: b""})
    assert first.receive_sync() == (Code.NONE, b"")
    for member in others:
        if member.instance_id is None:
            member.take_id()
    if others:
        rebalance(members)


def rebalance(members: list[GroupMember]) -> None:
    """Have all of them, whom the group knows, join and sync, which makes one generation."""
    for member in members:
        member.send_join()
    for member in members:
        assert member.receive_join() == Code.NONE
    for member in members:
        member.send_sync({one: one.encode() for one in member.members} if member.is_leader else None)
    for member in members:
        assert member.receive_sync() == (Code.NONE, member.member_id.encode())
