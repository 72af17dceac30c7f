"""A group coordinator with a log, a clock and members, all in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.coordinator import GroupCoordinator, GroupMemory, GroupSettings
from tidelog.journal import KeyValue, RequestId
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.wire.messages.api_15_describe_groups import DescribedGroup

T = TypeVar("T")

WALL_START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


class CountingRng:
    """An `Rng` whose ids are numbered."""

    def __init__(self) -> None:
        self.count = 0

    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int) -> int:
        return start

    def uuid(self) -> UUID:
        self.count += 1
        return UUID(int=self.count)


def subscription(*topics: str) -> bytes:
    """The metadata of a consumer that wants some topics, version 0."""
    names = b"".join(len(topic).to_bytes(2) + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4) + names + b"\xff\xff\xff\xff"


@dataclass
class Coordinated:
    """A coordinator that is active, its log, and its clock. Answers are kept by request until they are taken."""

    settings: GroupSettings = field(default_factory=GroupSettings)
    log: list[tuple[Offset, KeyValue]] = field(default_factory=list)
    commits_at_once: bool = True
    memory_bytes: int = 1 << 60

    def __post_init__(self) -> None:
        self.now_ms = 0
        self.rng = CountingRng()
        self.answers: dict[RequestId, object] = {}
        self.next_offset = 0
        self.leader_epoch = 0
        self.last_request = 0
        self.memory = GroupMemory(self.memory_bytes)
        self.batches: list[tuple[KeyValue, ...]] = []
        self.fail_over()

    @property
    def wall_ms(self) -> int:
        return WALL_START_MS + self.now_ms

    @property
    def committed(self) -> list[KeyValue]:
        """The records of the log, without their offsets."""
        return [record for _, record in self.log]

    def fail_over(self) -> None:
        """Another leader loads the log."""
        if self.leader_epoch:
            self.coordinator.resign()
            assert self.memory.used_bytes == 0
        self.coordinator: GroupCoordinator = GroupCoordinator(0, self.settings, rng=self.rng, memory=self.memory)
        for offset, (key, value) in self.log:
            self.coordinator.replay(key, value, offset)
        self.leader_epoch += 1
        self.next_offset = (self.log[-1][0] + 1 if self.log else 0) + 1  # the control record of the epoch
        self.coordinator.become_active(
            LeaderEpoch(self.leader_epoch), Offset(self.next_offset), now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.drive()

    def drive(self) -> None:
        """Do what is owed."""
        while ready := self.coordinator.take_ready():
            for batch in ready.batches:
                assert batch.base_offset == self.next_offset
                assert batch.leader_epoch == self.leader_epoch
                self.batches.append(batch.records)
                for record in batch.records:
                    self.log.append((Offset(self.next_offset), record))
                    self.next_offset += 1
            for answer in ready.answers:
                assert answer.request_id not in self.answers, "answered twice"
                self.answers[answer.request_id] = answer.outcome
            if self.commits_at_once:
                self.commit_log()

    def commit_log(self) -> None:
        self.coordinator.on_committed(Offset(self.next_offset))

    def pass_ms(self, ms: int) -> None:
        """Let time pass, from deadline to deadline."""
        end_ms = self.now_ms + ms
        while True:
            due_ms = self.coordinator.next_deadline_ms()
            if due_ms is None or due_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, due_ms)
            self.coordinator.on_time(now_ms=self.now_ms, wall_ms=self.wall_ms)
            self.drive()
        self.now_ms = end_ms

    def request_id(self) -> RequestId:
        self.last_request += 1
        return RequestId(self.last_request)

    def taken(self, request_id: RequestId, kind: type[T]) -> T:
        """The answer, which must be there and of a kind."""
        outcome = self.answers[request_id]
        assert isinstance(outcome, kind), outcome
        return outcome

    def refused(self, request_id: RequestId) -> Code:
        """The code of the refusal that must be there."""
        return self.taken(request_id, KafkaError).code

    # Requests. Each returns the id of the request; the answer may be there already.

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        api_version: int = 5,
        protocol_type: str = "consumer",
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> RequestId:
        request_id = self.request_id()
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols],
        )
        self.coordinator.on_join_group(
            request_id,
            request,
            api_version=api_version,
            client_id=client_id,
            client_host="/127.0.0.1",
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
        )
        self.drive()
        return request_id

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> RequestId:
        request_id = self.request_id()
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[SyncGroupRequestAssignment(*one) for one in (assignments or {}).items()],
        )
        self.coordinator.on_sync_group(request_id, request, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.drive()
        return request_id

    def heartbeat(
        self, member_id: str, generation_id: int, *, group_id: str = "g", instance_id: str | None = None
    ) -> RequestId:
        request_id = self.request_id()
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        self.coordinator.on_heartbeat(request_id, request, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.drive()
        return request_id

    def leave(self, *members: tuple[str, str | None], group_id: str = "g", api_version: int = 3) -> RequestId:
        request_id = self.request_id()
        request = (
            LeaveGroupRequest(
                group_id=group_id,
                members=[MemberIdentity(member_id=one, group_instance_id=name) for one, name in members],
            )
            if api_version >= 3
            else LeaveGroupRequest(group_id=group_id, member_id=members[0][0])
        )
        self.coordinator.on_leave_group(
            request_id, request, api_version=api_version, now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.drive()
        return request_id

    def commit(
        self,
        offsets: dict[tuple[str, int], int],
        member_id: str = "",
        generation_id: int = -1,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        metadata: str | None = None,
        leader_epoch: int = -1,
        retention_ms: int = -1,
        api_version: int = 7,
    ) -> RequestId:
        request_id = self.request_id()
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            one = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, []).append(one)
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(*one) for one in topics.items()],
        )
        self.coordinator.on_offset_commit(
            request_id, request, api_version=api_version, now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.drive()
        return request_id

    # Requests that are answered at once, with what is in their answers.

    def member_id_required(self, **join: object) -> str:
        """The id that a new member is given."""
        answer = self.taken(self.join(**join), JoinGroupResponse)  # type: ignore[arg-type]
        assert answer.error_code == Code.MEMBER_ID_REQUIRED
        return answer.member_id

    def commit_codes(self, request_id: RequestId) -> list[int]:
        answer = self.taken(request_id, OffsetCommitResponse)
        return [one.error_code for topic in answer.topics for one in topic.partitions]

    def leave_codes(self, request_id: RequestId) -> list[int]:
        return [one.error_code for one in self.taken(request_id, LeaveGroupResponse).members]

    def fetched(self, group_id: str = "g") -> dict[tuple[str, int], int]:
        """All offsets of a group."""
        request_id = self.request_id()
        self.coordinator.on_offset_fetch(
            request_id, OffsetFetchRequestGroup(group_id=group_id), now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.drive()
        answer = self.taken(request_id, OffsetFetchResponseGroup)
        return {
            (topic.name, one.partition_index): one.committed_offset
            for topic in answer.topics
            for one in topic.partitions
        }

    def described(self, group_id: str = "g", api_version: int = 6) -> DescribedGroup:
        request_id = self.request_id()
        self.coordinator.on_describe_group(
            request_id, group_id, api_version=api_version, now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.drive()
        return self.taken(request_id, DescribedGroup)

    def delete_group(self, group_id: str = "g") -> RequestId:
        request_id = self.request_id()
        self.coordinator.on_delete_group(request_id, group_id, now_ms=self.now_ms, wall_ms=self.wall_ms)
        self.drive()
        return request_id

    # Whole stories.

    def stable_group(self, *names: str, **join: object) -> list[str]:
        """A group of dynamic members (one, unless named) that is stable in generation 1; the first one leads."""
        members = [self.member_id_required(client_id=name, **join) for name in names or ("client",)]
        joins = [self.join(one, **join) for one in members]  # type: ignore[arg-type]
        while joins[0] not in self.answers:
            self.pass_ms(1_000)
        generation_id = self.taken(joins[0], JoinGroupResponse).generation_id
        self.synced(members, generation_id, leader=self.taken(joins[0], JoinGroupResponse).leader)
        return members

    def synced(self, members: list[str], generation_id: int, *, leader: str) -> None:
        """All members sync; each is assigned the bytes of its own id."""
        followers = [self.sync(one, generation_id) for one in members if one != leader]
        led = self.sync(leader, generation_id, {one: one.encode() for one in members})
        for one, request_id in zip([*(m for m in members if m != leader), leader], [*followers, led], strict=True):
            assert self.taken(request_id, SyncGroupResponse).assignment == one.encode()
