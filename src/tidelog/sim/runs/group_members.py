"""Members of a consumer group that speak its requests, one at a time, in either of its two protocols.

Each sends what a client sends, without what makes one useful: no threads, no repair but to join again.

| | classic | consumer (KIP-848) |
|---|---|---|
| says that it lives | Heartbeat | ConsumerGroupHeartbeat |
| comes, and is told its part | JoinGroup, SyncGroup; the first of all assigns, by ranges | ConsumerGroupHeartbeat |
| gives up, where the group changes | all it has, before it joins again | what is not its own any more |
| leaves | LeaveGroup | ConsumerGroupHeartbeat |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.client.core.values import code_of
from tidelog.sim.checkers.groups import FetchedOffset
from tidelog.sim.runs.coordinator_requests import REQUEST_MS, CoordinatorRequests, check_code
from tidelog.sim.runs.group_plan import GroupPlan
from tidelog.sim.runs.group_recorder import GroupRecorder
from tidelog.wire.compile import encode
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
)
from tidelog.wire.messages.api_10_find_coordinator import KEY_TYPE_GROUP
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    JOIN_MEMBER_EPOCH,
    LEAVE_MEMBER_EPOCH,
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidelog.wire.messages.consumer_protocol import (
    PROTOCOL_TYPE,
    VERSION_SIZE_BYTES,
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    assigned_partitions,
)

R = TypeVar("R")

ASSIGNOR = "range"
PROTOCOL_VERSION = 1
NO_EPOCH = -1
JOIN_SLACK_MS = 2_000
"""How much longer than the group waits for others a member waits for the answer to its JoinGroup."""
COMMIT_VERSION = 9
FETCH_VERSION = 9
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 4
CONSUMER_HEARTBEAT_VERSION = 1
OUT = frozenset((Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.ILLEGAL_GENERATION, Code.GROUP_ID_NOT_FOUND))
"""Who is told one of these is no member, or not as it believes."""
NEVER_DONE = OUT | {Code.STALE_MEMBER_EPOCH, Code.REBALANCE_IN_PROGRESS}
"""A commit that is refused with one of these is not done."""


class GroupReads(NamedTuple):
    """A group, and what it reads.

    Attributes:
        partitions: all of the topic.
    """

    group: str
    topic: str
    partitions: Sequence[TopicPartition]


class SimulatedMember(ABC):
    """See the module.

    Args:
        reads: the group that it joins, and what that reads.
        plan: how patient it is.
        requests: how it asks.
        recorder: is told of all that it is told.

    Attributes:
        member_id: by which the group knows it; empty before it does.
        epoch: the generation, or the member epoch; None while it is no member.
        wanted: what it is to read, as it was told last.
        owned: what it reads, or is about to: `give_up` ends that.
    """

    def __init__(
        self,
        reads: GroupReads,
        plan: GroupPlan,
        requests: CoordinatorRequests,
        recorder: GroupRecorder,
    ) -> None:
        self.reads = reads
        self.member_id = ""
        self.epoch: int | None = None
        self.wanted: frozenset[TopicPartition] = frozenset()
        self.owned: set[TopicPartition] = set()
        self._plan = plan
        self._requests = requests
        self._recorder = recorder

    @property
    def to_give_up(self) -> list[TopicPartition]:
        """What it reads, and is not to."""
        return sorted(self.owned - self.wanted)

    @abstractmethod
    async def beat(self) -> None:
        """Come, or say that it lives; be told what there is to read.

        Raises:
            TidelogError: there is no answer that says whether it is a member.
        """

    @abstractmethod
    async def leave(self) -> None:
        """Say that it goes. Raises TidelogError where nobody heard it."""

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """It reads them no more; its next heartbeat says so."""
        self._recorder.on_given_up(self.member_id, partitions)
        self.owned.difference_update(partitions)

    def on_out(self) -> None:
        """It is no member: what it read is another's by now."""
        self._recorder.on_out(self.member_id)
        self.epoch = None
        self.wanted = frozenset()
        self.owned.clear()

    async def commit(self, partition: TopicPartition, offset: int, leader_epoch: int | None) -> bool:
        """Say how far it has read, once. Returns whether that is done.

        Raises:
            TidelogError: nobody knows whether it is.
        """
        assert self.epoch is not None
        commit = self._recorder.on_commit_asked(self.member_id, self.epoch, partition, offset, leader_epoch)
        row = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1 if leader_epoch is None else leader_epoch,
            committed_metadata=str(commit.number),
        )
        request = OffsetCommitRequest(
            group_id=self.reads.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.reads.topic, partitions=[row])],
        )
        answer, _ = await self._ask(request, OffsetCommitResponse, COMMIT_VERSION)
        code = code_of(answer.topics[0].partitions[0].error_code)
        if code is Code.NONE:
            self._recorder.on_committed(commit)
            return True
        if code in NEVER_DONE:
            self._recorder.on_refused(commit)
            return False
        self._requests.forget()
        check_code(code, "OffsetCommit")
        return False

    async def committed(self, partition: TopicPartition) -> FetchedOffset | None:
        """How far the group has read. Raises TidelogError where it is not told."""
        asked = self._recorder.asked()
        topic = OffsetFetchRequestTopic(name=partition.topic, partition_indexes=[partition.partition])
        member_id, epoch = self._says_who_asks()
        wanted = OffsetFetchRequestGroup(
            group_id=self.reads.group, member_id=member_id, member_epoch=epoch, topics=[topic]
        )
        request = OffsetFetchRequest(groups=[wanted])
        answer, broker = await self._ask(request, OffsetFetchResponse, FETCH_VERSION)
        self._check(answer.groups[0].error_code, "OffsetFetch")
        row = answer.groups[0].topics[0].partitions[0]
        self._check(row.error_code, "OffsetFetch")
        leader_epoch = row.committed_leader_epoch if row.committed_leader_epoch >= 0 else None
        number = int(row.metadata) if row.metadata else None
        found = None if row.committed_offset < 0 else FetchedOffset(row.committed_offset, leader_epoch, number)
        self._recorder.on_fetched(partition, found, asked, broker)
        return found

    def _says_who_asks(self) -> tuple[str | None, int]:
        """Its id and epoch, where the protocol has a place for them in OffsetFetch."""
        return None, NO_EPOCH

    async def _ask(
        self, request: object, response: type[R], version: int, timeout_ms: int = REQUEST_MS
    ) -> tuple[R, BrokerId]:
        return await self._requests.ask(
            self.reads.group, KEY_TYPE_GROUP, request, response, version, timeout_ms=timeout_ms
        )

    def _check(self, number: int, what: str) -> None:
        """As `check_code`; who coordinates is looked for anew."""
        if number != Code.NONE.value:
            self._requests.forget()
        check_code(number, what)


class ClassicMember(SimulatedMember):
    """Reads nothing while the group rebalances: it gives all up before it joins again."""

    _must_join = True

    async def beat(self) -> None:
        """Come, or say that it lives."""
        if self.epoch is None or (self._must_join and not self.owned):
            await self._join()
            return
        request = HeartbeatRequest(group_id=self.reads.group, generation_id=self.epoch, member_id=self.member_id)
        answer, _ = await self._ask(request, HeartbeatResponse, HEARTBEAT_VERSION)
        code = code_of(answer.error_code)
        if code is Code.REBALANCE_IN_PROGRESS:
            self.wanted = frozenset()
            self._must_join = True
        elif code in OUT:
            self._on_refused(code)
        else:
            self._check(code, "Heartbeat")

    async def leave(self) -> None:
        self.give_up(list(self.owned))
        request = LeaveGroupRequest(group_id=self.reads.group, members=[MemberIdentity(member_id=self.member_id)])
        await self._ask(request, LeaveGroupResponse, LEAVE_VERSION)

    async def _join(self) -> None:
        self.wanted = frozenset()
        self._must_join = True
        patience_ms = self._plan.rebalance_ms + JOIN_SLACK_MS
        request = JoinGroupRequest(
            group_id=self.reads.group,
            session_timeout_ms=self._plan.session_ms,
            rebalance_timeout_ms=self._plan.rebalance_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(ASSIGNOR, self._metadata())],
        )
        answer, _ = await self._ask(request, JoinGroupResponse, JOIN_VERSION, patience_ms)
        code = code_of(answer.error_code)
        if code is Code.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            await self._join()
        elif code in OUT:
            self._on_refused(code)
        else:
            self._check(code, "JoinGroup")
            self.epoch = answer.generation_id
            await self._sync(answer, patience_ms)

    async def _sync(self, joined: JoinGroupResponse, patience_ms: int) -> None:
        asked = self._recorder.asked()
        member_ids = [one.member_id for one in joined.members] if joined.leader == self.member_id else []
        request = SyncGroupRequest(
            group_id=self.reads.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=self._by_ranges(sorted(member_ids)),
        )
        answer, broker = await self._ask(request, SyncGroupResponse, SYNC_VERSION, patience_ms)
        code = code_of(answer.error_code)
        if code is Code.REBALANCE_IN_PROGRESS:
            return
        if code in OUT:
            self._on_refused(code)
            return
        self._check(code, "SyncGroup")
        self._must_join = False
        self.wanted = frozenset(assigned_partitions(answer.assignment))
        self.owned = set(self.wanted)
        self._recorder.on_told(self.member_id, joined.generation_id, self.wanted, asked, broker)

    def _by_ranges(self, member_ids: Sequence[str]) -> list[SyncGroupRequestAssignment]:
        """The first members get one partition more than the others, where they do not divide evenly."""
        assignments = []
        begin = 0
        for place, member_id in enumerate(member_ids):
            share = len(self.reads.partitions) // len(member_ids) + (
                place < len(self.reads.partitions) % len(member_ids)
            )
            indexes = [int(one.partition) for one in self.reads.partitions[begin : begin + share]]
            begin += share
            rows = [ConsumerProtocolPartitions(self.reads.topic, indexes)] if indexes else []
            value = encode(ConsumerProtocolAssignment(assigned_partitions=rows), PROTOCOL_VERSION)
            assignments.append(SyncGroupRequestAssignment(member_id, _versioned(value)))
        return assignments

    def _metadata(self) -> bytes:
        return _versioned(encode(ConsumerProtocolSubscription(topics=[self.reads.topic]), PROTOCOL_VERSION))

    def _on_refused(self, code: Code) -> None:
        self.on_out()
        self._must_join = True
        if code is not Code.ILLEGAL_GENERATION:
            self.member_id = ""


class ConsumerMember(SimulatedMember):
    """Goes on with what it keeps, while it gives up what is another's.

    Args:
        member_id: it makes its own (KIP-1082).
    """

    def __init__(
        self,
        reads: GroupReads,
        plan: GroupPlan,
        requests: CoordinatorRequests,
        recorder: GroupRecorder,
        *,
        member_id: UUID,
    ) -> None:
        super().__init__(reads, plan, requests, recorder)
        self.member_id = str(member_id)
        self._topic_id: UUID | None = None
        self._says_all = True

    async def beat(self) -> None:
        """Come, or say that it lives."""
        if self._topic_id is None:
            await self._learn_topic_id()
        asked = self._recorder.asked()
        sent_epoch = self.epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.reads.group,
            member_id=self.member_id,
            member_epoch=JOIN_MEMBER_EPOCH if sent_epoch is None else sent_epoch,
            topic_partitions=self._read(),
        )
        if self._says_all:
            request.rebalance_timeout_ms = self._plan.rebalance_ms
            request.subscribed_topic_names = [self.reads.topic]
            request.server_assignor = self._plan.assignor
        self._says_all = True  # unless there is an answer
        answer, broker = await self._ask(request, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT_VERSION)
        code = code_of(answer.error_code)
        if code in OUT:
            self.on_out()
            if code is Code.GROUP_ID_NOT_FOUND and sent_epoch is None:
                check_code(code, f"ConsumerGroupHeartbeat: {answer.error_message}")
            return
        self._check(code, "ConsumerGroupHeartbeat")
        self._says_all = False
        self.epoch = answer.member_epoch
        if sent_epoch is not None and answer.member_epoch > sent_epoch:
            self._recorder.on_moved(self.member_id, answer.member_epoch, asked)
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self.wanted = frozenset(
                TopicPartition(self.reads.topic, PartitionIndex(index)) for row in rows for index in row.partitions
            )
            self._recorder.on_told(self.member_id, answer.member_epoch, self.wanted, asked, broker)
            self.owned |= self.wanted

    async def leave(self) -> None:
        self.give_up(list(self.owned))
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.reads.group, member_id=self.member_id, member_epoch=LEAVE_MEMBER_EPOCH
        )
        await self._ask(request, ConsumerGroupHeartbeatResponse, CONSUMER_HEARTBEAT_VERSION)

    def _read(self) -> list[ConsumerGroupHeartbeatPartitions]:
        """What it reads; who joins reads nothing."""
        indexes = [int(one.partition) for one in sorted(self.owned)]
        return [ConsumerGroupHeartbeatPartitions(self._topic_id, indexes)] if indexes and self._topic_id else []

    def _says_who_asks(self) -> tuple[str | None, int]:
        return (None, NO_EPOCH) if self.epoch is None else (self.member_id, self.epoch)

    async def _learn_topic_id(self) -> None:
        cluster = self._requests.cluster
        await cluster.fetch_metadata([self.reads.topic])
        self._topic_id = cluster.metadata.topic_id(self.reads.topic)
        if self._topic_id is None:
            raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"nobody knows the id of {self.reads.topic}")


def _versioned(value: bytes) -> bytes:
    return PROTOCOL_VERSION.to_bytes(VERSION_SIZE_BYTES) + value
