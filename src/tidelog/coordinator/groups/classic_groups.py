"""The groups of the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A request for a group of KIP-848 that still has, or takes, members of the classic protocol goes on to `ClassicMembers`.
Kafka: `GroupMetadataManager`, `ClassicGroup`.
"""

from __future__ import annotations

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ports import Rng
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups import membership, rebalance
from tidelog.coordinator.groups.consumer.classic_members import ClassicMembers
from tidelog.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from tidelog.coordinator.groups.group import DOWNGRADED_MS, Change, Group
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX
from tidelog.coordinator.groups.share.share_groups import ShareGroups
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.journal import Moment, RequestId
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest


class ClassicGroups:
    """Answers the members of classic groups, and lets those go that are not heard of.

    Args:
        groups: by group id, shared with the coordinator.
        memory: that the groups are charged to.
    """

    def __init__(
        self,
        journal: GroupJournal,
        groups: dict[str, Group],
        consumer_groups: ConsumerGroups,
        share_groups: ShareGroups,
        *,
        memory: CoordinatorMemory,
        rng: Rng,
    ) -> None:
        self.groups = groups
        self._journal = journal
        self._consumer_groups = consumer_groups
        self._share_groups = share_groups
        self._classic_members = ClassicMembers(consumer_groups.members, journal, rng)
        self._memory = memory
        self._rng = rng

    def start(self, at: Moment) -> None:
        """The coordinator became active. Members that the log knows have a whole session to be heard of."""
        for group in self.groups.values():
            group.charge(self._memory)
            for member in group.members.values():
                rebalance.extend_session(self._journal, at, member)

    def rebalance_if_due(self, at: Moment) -> None:
        """Begin what the log cannot tell: groups that are too large by now, or that have just been converted."""
        for group in list(self.groups.values()):
            is_too_large = len(group.members) > self._journal.settings.group_size_max  # that was lowered meanwhile
            if is_too_large or (group.members and group.state_timestamp_ms == DOWNGRADED_MS):
                rebalance.begin(self._journal, at, group)

    def release(self, outcome: KafkaError) -> None:
        """The coordinator is one no more: whoever waits is told so, and nothing is charged."""
        for group in self.groups.values():
            for member in group.members.values():
                for request_id in (group.take_join(member), member.sync_request):
                    if request_id is not None:
                        self._journal.answer_at_once(request_id, outcome)
                member.sync_request = None
            group.release()
        self.groups.clear()

    # What members ask.

    def on_join(
        self,
        request_id: RequestId,
        request: JoinGroupRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with a `JoinGroupResponse` (that of MEMBER_ID_REQUIRED included) once the generation begins."""

        def join(at: Moment) -> None:
            group_id = checked_group_id(request.group_id)
            joiner = membership.Joiner(request, request_id, api_version, client_id, client_host)
            membership.check_join(self._journal, joiner)
            if self._classic_members.serves(group_id) and self._classic_members.on_join(at, joiner):
                return
            self._check_no_share_group(group_id)
            self._consumer_groups.give_up(group_id)
            group = self.groups.get(group_id)
            if group is None:
                if request.member_id:
                    raise refusal(Code.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}: join again")
                group = self.groups[group_id] = Group(group_id, self._memory)
            try:
                membership.on_join(self._journal, at, group, joiner, self._rng)
            finally:
                self.forget_if_nothing(group, at)

        self._journal.run(request_id, now_ms, wall_ms, join)

    def on_sync(self, request_id: RequestId, request: SyncGroupRequest, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `SyncGroupResponse` once the leader has assigned."""

        def sync(at: Moment) -> None:
            if self._classic_members.serves(request.group_id):
                self._classic_members.on_sync(request, request_id)
                return
            self._check_no_share_group(request.group_id)
            group = self._member_group(request.group_id)
            membership.on_sync(self._journal, at, group, request, request_id)

        self._journal.run(request_id, now_ms, wall_ms, sync)

    def on_heartbeat(self, request_id: RequestId, request: HeartbeatRequest, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `HeartbeatResponse`."""

        def beat(at: Moment) -> None:
            if self._classic_members.serves(request.group_id):
                self._classic_members.on_heartbeat(at, request, request_id)
                return
            group = self._member_group(request.group_id)
            membership.on_heartbeat(self._journal, at, group, request, request_id)

        self._journal.run(request_id, now_ms, wall_ms, beat)

    def on_leave(
        self, request_id: RequestId, request: LeaveGroupRequest, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a `LeaveGroupResponse`, which has the error of each member."""

        def leave(at: Moment) -> None:
            if self._classic_members.serves(request.group_id):
                self._classic_members.on_leave(at, request, request_id, api_version=api_version)
                return
            group = self.groups.get(checked_group_id(request.group_id))
            membership.on_leave(self._journal, at, group, request, request_id, api_version=api_version)
            if group is not None:
                self.forget_if_nothing(group, at)

        self._journal.run(request_id, now_ms, wall_ms, leave)

    # What else happens.

    def on_disconnected(self, at: Moment, request_id: RequestId) -> None:
        """See `GroupCoordinator.on_disconnected`."""
        journal = self._journal
        group_id, member_id = journal.pending_member_ids.pop(request_id, ("", ""))
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None or member.join_request != request_id:
            return
        rebalance.drop(journal, group, member)
        rebalance.begin_or_go_on(journal, at, group)

    def on_due(self, alarm: Alarm, at: Moment) -> None:
        """The time of a member, or of a phase of a rebalance, is over."""
        group = self.groups.get(alarm.group_id)
        if group is None:
            return
        if alarm.cause is Cause.SESSION:
            rebalance.on_session_due(self._journal, at, group, alarm.member_id)
        elif alarm.cause is Cause.JOIN:
            rebalance.on_join_due(self._journal, at, group)
        else:
            rebalance.on_sync_due(self._journal, at, group)
        self.forget_if_nothing(group, at)

    def forget_if_nothing(self, group: Group, at: Moment) -> None:
        """A group without members and offsets is none."""
        if group.is_forgettable:
            group.go(Change.DELETED, at.wall_ms)
            del self.groups[group.group_id]

    def _member_group(self, group_id: str) -> Group:
        """The group of someone who says that he is in it."""
        group = self.groups.get(checked_group_id(group_id))
        if group is None:
            raise refusal(Code.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}: join again")
        return group

    def _check_no_share_group(self, group_id: str) -> None:
        if group_id in self._share_groups.groups:
            raise refusal(
                Code.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group_id!r} is a share group: consumers take another group.id",
            )


def checked_group_id(group_id: str) -> str:
    """Raises KafkaError: INVALID_GROUP_ID: it is empty or too long."""
    if not group_id:
        raise refusal(Code.INVALID_GROUP_ID, "the group id is empty: set group.id")
    check_length(group_id)
    return group_id


def check_length(group_id: str) -> None:
    """Raises KafkaError: INVALID_GROUP_ID."""
    size = len(group_id.encode())
    if size > NAME_SIZE_BYTES_MAX:
        raise refusal(Code.INVALID_GROUP_ID, f"a group id of {size} bytes is longer than {NAME_SIZE_BYTES_MAX}")
