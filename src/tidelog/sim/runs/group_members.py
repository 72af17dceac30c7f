"""Members of a consumer group in either of its two protocols, one step at a time.

What they say and do is the client's own (`client.core.membership`). What is around it is simpler than the client's: no
retries but the next step, and commits one by one, each of which can be told from the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

from tidelog.base.errors import Code, TidelogError, refusal
from tidelog.base.ids import BrokerId, TopicPartition
from tidelog.client.core.consumer_membership import ConsumerMembership
from tidelog.client.core.membership import COORDINATOR_CODES, NO_EPOCH, KnownTopic, Membership
from tidelog.client.core.values import RebalanceKind, code_of
from tidelog.sim.checkers.groups import FetchedOffset
from tidelog.sim.runs.coordinator_requests import REQUEST_MS, CoordinatorRequests, check_code
from tidelog.sim.runs.group_recorder import Asked, GroupRecorder
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
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupResponse
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

R = TypeVar("R")

JOIN_SLACK_MS = 2_000
"""How much longer than the group waits for others a member waits for the answer to its JoinGroup."""
COMMIT_VERSION = 9
FETCH_VERSION = 9
LEAVE_VERSION = 4
REQUESTS: dict[type, tuple[type[Any], int]] = {
    JoinGroupRequest: (JoinGroupResponse, 7),
    SyncGroupRequest: (SyncGroupResponse, 5),
    HeartbeatRequest: (HeartbeatResponse, 4),
    LeaveGroupRequest: (LeaveGroupResponse, LEAVE_VERSION),
    ConsumerGroupHeartbeatRequest: (ConsumerGroupHeartbeatResponse, 1),
}
"""What answers them, and their versions."""
OUT = frozenset((Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH, Code.ILLEGAL_GENERATION, Code.GROUP_ID_NOT_FOUND))
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


class SimulatedMember:
    """See the module.

    Args:
        reads: the group that it joins, and what that reads.
        membership: what it says and does; None of one that only asks.
        requests: how it asks.
        recorder: is told of all that it is told.
        now_ms: the time, for the membership.
    """

    def __init__(
        self,
        reads: GroupReads,
        membership: Membership | None,
        requests: CoordinatorRequests,
        recorder: GroupRecorder,
        now_ms: Callable[[], int],
    ) -> None:
        self.reads = reads
        self._membership = membership
        self._requests = requests
        self._recorder = recorder
        self._now_ms = now_ms
        self._knows_topic = False
        self._told_by: tuple[Asked, BrokerId] | None = None  # when it was told last what to read
        if membership is not None:
            membership.subscribe([reads.topic])

    @property
    def epoch(self) -> int | None:
        """The generation, or the member epoch; None while it is no member."""
        member = self._membership
        return None if member is None or member.epoch == NO_EPOCH else member.epoch

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """What it reads; `give_up` ends that."""
        return frozenset() if self._membership is None else self._membership.owned

    @property
    def to_give_up(self) -> list[TopicPartition]:
        """What it reads, and is not to."""
        rebalance = None if self._membership is None else self._membership.rebalance
        is_revoked = rebalance is not None and rebalance.kind is RebalanceKind.REVOKED
        return sorted(rebalance.partitions) if rebalance is not None and is_revoked else []

    async def beat(self) -> None:
        """Come, or say that it lives; be told what there is to read.

        Raises:
            TidelogError: there is no answer that says whether it is a member.
        """
        member = self._membership
        assert member is not None
        if not self._knows_topic:
            await self._learn_topic()
        while (request := member.request(self._now_ms())) is not None:
            asked, before = self._recorder.asked(), member.epoch
            response, version = REQUESTS[type(request)]
            is_waiting = isinstance(request, JoinGroupRequest | SyncGroupRequest)
            timeout_ms = member.config.rebalance_timeout_ms + JOIN_SLACK_MS if is_waiting else REQUEST_MS
            try:
                answer, broker = await self._ask(request, response, version, timeout_ms)
            except TidelogError:
                member.on_no_answer(request, self._now_ms())
                raise
            code = member.on_response(request, answer, self._now_ms())
            if code in COORDINATOR_CODES:
                self._requests.forget()
            self._learn(answer, asked, broker, before)
            if member.error is not None:
                error = member.error
                member.subscribe([self.reads.topic])  # and so it tries again
                raise error
            if code.retriable:
                check_code(code, type(request).__name__)

    def _learn(self, answer: object, asked: Asked, broker: BrokerId, epoch: int) -> None:
        """What an answer changed: what comes is read at once, and what is lost no more."""
        member = self._membership
        assert member is not None
        if isinstance(answer, ConsumerGroupHeartbeatResponse) and epoch != NO_EPOCH and member.epoch > epoch:
            self._recorder.on_moved(member.member_id, member.epoch, asked)
        is_told = isinstance(answer, SyncGroupResponse) or (
            isinstance(answer, ConsumerGroupHeartbeatResponse) and answer.assignment is not None
        )
        if is_told and not code_of(answer.error_code):  # type: ignore[attr-defined]  # each of the two has one
            kept = member.owned if member.assigned is None else member.owned & member.assigned
            self._recorder.on_told(member.member_id, member.epoch, kept, asked, broker)
            self._told_by = asked, broker
        self._take()

    def _take(self) -> None:
        member = self._membership
        assert member is not None
        while member.rebalance is not None and member.rebalance.kind is not RebalanceKind.REVOKED:
            rebalance = member.take_rebalance()
            assert rebalance is not None
            if rebalance.kind is RebalanceKind.LOST:
                self._recorder.on_out(member.member_id)
            else:
                assert self._told_by is not None
                self._recorder.on_told(member.member_id, member.epoch, rebalance.partitions, *self._told_by)
            member.on_told(rebalance)

    async def leave(self) -> None:
        """Say that it goes. Raises TidelogError where nobody heard it."""
        member = self._membership
        assert member is not None
        self._recorder.on_given_up(member.member_id, member.owned)
        request = member.leaving(LEAVE_VERSION)
        if request is not None:
            response, version = REQUESTS[type(request)]
            await self._ask(request, response, version)

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """It reads them no more; its next heartbeat says so."""
        member = self._membership
        assert member is not None
        rebalance = member.take_rebalance()
        if rebalance is None or not partitions:
            return
        self._recorder.on_given_up(member.member_id, partitions)
        member.on_told(rebalance)
        self._take()

    def on_out(self) -> None:
        """It ends: what it read is another's by now."""
        if self._membership is not None:
            self._recorder.on_out(self._membership.member_id)

    async def commit(self, partition: TopicPartition, offset: int, leader_epoch: int | None) -> bool:
        """Say how far it has read, once. Returns whether that is done.

        Raises:
            TidelogError: nobody knows whether it is.
        """
        member, epoch = self._membership, self.epoch
        assert member is not None
        assert epoch is not None
        commit = self._recorder.on_commit_asked(member.member_id, epoch, partition, offset, leader_epoch)
        row = OffsetCommitRequestPartition(
            partition_index=partition.partition,
            committed_offset=offset,
            committed_leader_epoch=-1 if leader_epoch is None else leader_epoch,
            committed_metadata=str(commit.number),
        )
        request = OffsetCommitRequest(
            group_id=self.reads.group,
            generation_id_or_member_epoch=epoch,
            member_id=member.member_id,
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
        wanted = OffsetFetchRequestGroup(group_id=self.reads.group, topics=[topic])
        if isinstance(self._membership, ConsumerMembership) and self.epoch is not None:
            wanted.member_id, wanted.member_epoch = self._membership.member_id, self.epoch
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

    async def _learn_topic(self) -> None:
        cluster, topic = self._requests.cluster, self.reads.topic
        await cluster.fetch_metadata([topic])
        view = cluster.metadata.topics.get(topic)
        if view is None:
            raise refusal(Code.UNKNOWN_TOPIC_OR_PARTITION, f"nobody knows {topic}")
        assert self._membership is not None
        self._membership.on_topics({topic: KnownTopic(view.topic_id, view.partition_count)})
        self._knows_topic = True
