"""The coordinator of the groups of one partition of `__consumer_offsets`: the way in and out of this package.

```
 on_join_group … on_offset_commit ──► membership, rebalance, offsets ──► ledger (journal) ──► take_ready
 on_time ──► deadlines, retention                                            ▲
 replay ──► state                                                on_committed
```

Pure: a shell appends the batches, says what is committed, sends the answers, and keeps the clocks. `now_ms` never goes
back (deadlines); `wall_ms` is the time of day (timestamps in records, retention).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial

from tidelog.base.errors import Code, CorruptLogError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Rng
from tidelog.coordinator import describe, membership, offsets, rebalance
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.expiry import OffsetExpiry
from tidelog.coordinator.group import Change, Group, restored
from tidelog.coordinator.ledger import Ledger
from tidelog.coordinator.memory import GroupMemory
from tidelog.coordinator.records import NAME_SIZE_BYTES_MAX, decode_group
from tidelog.coordinator.settings import GroupSettings
from tidelog.coordinator.state import check_record
from tidelog.coordinator.values import KeyValue, Ready, RequestId
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitRequest
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest
from tidelog.wire.messages.api_47_offset_delete import OffsetDeleteRequest


class GroupCoordinator:
    """Replays, becomes active, answers, resigns; then it is spent, and another leadership takes a new one.

    Every request gets one answer, unless `on_disconnected` says that nobody waits for it.
    """

    def __init__(self, partition: int, settings: GroupSettings, *, rng: Rng, memory: GroupMemory | None = None) -> None:
        """A coordinator that has read nothing yet.

        Args:
            partition: of `__consumer_offsets`, for messages.
            rng: draws the member ids.
            memory: what the groups of all coordinators of a node take together; None for no bound.
        """
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self._rng = rng
        self._undecided: dict[int, dict[bytes, KeyValue]] = {}  # by producer id, then key
        self._memory = GroupMemory(sys.maxsize) if memory is None else memory
        self._restored = GroupMemory(sys.maxsize)  # until it is active: `restore` may run on another thread
        self._ledger = Ledger(settings, self._memory)
        self._expiry = OffsetExpiry(self._ledger, self.groups)

    @property
    def settings(self) -> GroupSettings:
        """In force from now on, whenever they are set."""
        return self._ledger.settings

    @settings.setter
    def settings(self, settings: GroupSettings) -> None:
        self._ledger.settings = settings

    @property
    def is_active(self) -> bool:
        """Whether it answers; before that COORDINATOR_LOAD_IN_PROGRESS is all it says, afterwards NOT_COORDINATOR."""
        return self._ledger.is_active

    @property
    def offsets_count(self) -> int:
        """How many committed offsets it holds."""
        return self._ledger.state.offsets_count

    @property
    def topics(self) -> frozenset[str]:
        """The topics in which there are offsets."""
        return frozenset(topic for topics in self._ledger.state.offsets.values() for topic in topics)

    # Loading.

    def replay(
        self, key: bytes | None, value: bytes | None, offset: Offset, *, transaction_of: int | None = None
    ) -> None:
        """A committed record was read from the log. One of a kind that is not known here is skipped.

        Args:
            transaction_of: the producer whose transaction it is part of. We write none, but an Apache Kafka may have:
                then it counts once `replay_end` says so, unless something newer was said outside of it.

        Raises:
            CorruptLogError: it is not what it claims; names the offset. The partition is not to be led.
        """
        if key is None:
            return
        record = (key, value)
        try:
            check_record(record)
            if transaction_of is not None:
                self._undecided.setdefault(transaction_of, {})[key] = record
                return
            for transaction in self._undecided.values():
                transaction.pop(key, None)
            self._ledger.replay(record, offset)
        except CorruptLogError as error:
            raise CorruptLogError(f"__consumer_offsets-{self.partition}, offset {offset}: {error}") from error

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        """The transaction of a producer ended here."""
        transaction = self._undecided.pop(producer_id, {})
        if is_committed:
            for record in transaction.values():
                self._ledger.state.apply(record)

    def restore(self) -> None:
        """Make the groups that the log tells of. `become_active` does it too: to call this before saves it the time."""
        for group_id, value in self._ledger.state.groups.items():
            if group_id not in self.groups:
                self.groups[group_id] = restored(group_id, decode_group(value), self._restored)

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int) -> None:
        """All was replayed. Members that the log knows have a whole session to be heard of."""
        ledger = self._ledger
        ledger.now_ms, ledger.wall_ms = now_ms, wall_ms
        ledger.become_active(leader_epoch, next_offset)
        self._undecided.clear()
        self.restore()
        for group in self.groups.values():
            group.charge(self._memory)
            for member in group.members.values():
                rebalance.extend_session(ledger, member)
        self._expiry.start()
        for group in list(self.groups.values()):
            if len(group.members) > ledger.settings.group_size_max:  # it was lowered meanwhile
                rebalance.begin(ledger, group)

    def resign(self, error: KafkaError | None = None) -> None:
        """Leadership is lost, or the log refused a batch: whoever waits is told NOT_COORDINATOR, or `error`."""
        ledger = self._ledger
        if not ledger.is_active:
            ledger.resign(error)
            return
        ledger.resign(error)
        outcome = error or refusal(Code.NOT_COORDINATOR)
        for group in self.groups.values():
            for member in group.members.values():
                for request_id in (group.take_join(member), member.sync_request):
                    if request_id is not None:
                        ledger.answer_at_once(request_id, outcome)
                member.sync_request = None
            group.release()
        self.groups.clear()

    # What clients ask.

    def on_join_group(
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

        def join() -> None:
            group_id = self._checked(request.group_id)
            joiner = membership.Joiner(request, request_id, api_version, client_id, client_host)
            membership.check_join(self._ledger, joiner)
            group = self.groups.get(group_id)
            if group is None:
                if request.member_id:
                    raise refusal(Code.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}: join again")
                group = self.groups[group_id] = Group(group_id, self._memory)
            try:
                membership.on_join(self._ledger, group, joiner, self._rng)
            finally:
                self._forget_if_nothing(group)

        self._run(request_id, now_ms, wall_ms, join)

    def on_sync_group(self, request_id: RequestId, request: SyncGroupRequest, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `SyncGroupResponse` once the leader has assigned."""

        def sync() -> None:
            group = self._member_group(request.group_id)
            membership.on_sync(self._ledger, group, request, request_id)

        self._run(request_id, now_ms, wall_ms, sync)

    def on_heartbeat(self, request_id: RequestId, request: HeartbeatRequest, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `HeartbeatResponse`."""

        def beat() -> None:
            group = self._member_group(request.group_id)
            membership.on_heartbeat(self._ledger, group, request, request_id)

        self._run(request_id, now_ms, wall_ms, beat)

    def on_leave_group(
        self, request_id: RequestId, request: LeaveGroupRequest, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a `LeaveGroupResponse`, which has the error of each member."""

        def leave() -> None:
            group = self.groups.get(self._checked(request.group_id))
            membership.on_leave(self._ledger, group, request, request_id, api_version)
            if group is not None:
                self._forget_if_nothing(group)

        self._run(request_id, now_ms, wall_ms, leave)

    def on_offset_commit(
        self, request_id: RequestId, request: OffsetCommitRequest, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with an `OffsetCommitResponse`. That the partitions exist is for the caller to see to."""
        ledger = self._ledger
        if not ledger.is_active:
            ledger.answer_at_once(request_id, ledger.why_inactive)
            return
        ledger.now_ms, ledger.wall_ms = now_ms, wall_ms
        group_id = request.group_id
        try:
            if len(group_id) > NAME_SIZE_BYTES_MAX // 4:
                self._check_length(group_id)
            offsets.on_commit(ledger, self.groups.get(group_id), request, request_id, api_version)
        except KafkaError as error:
            ledger.answer(request_id, error)

    def on_offset_fetch(
        self, request_id: RequestId, request: OffsetFetchRequestGroup, *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with an `OffsetFetchResponseGroup`; requests before version 8 hold one group without saying so."""
        self._run(request_id, now_ms, wall_ms, partial(offsets.on_fetch, self._ledger, request, request_id))

    def on_offset_delete(
        self, request_id: RequestId, request: OffsetDeleteRequest, *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with an `OffsetDeleteResponse`."""

        def delete() -> None:
            group = self.groups.get(self._checked(request.group_id))
            offsets.on_offset_delete(self._ledger, group, request, request_id)

        self._run(request_id, now_ms, wall_ms, delete)

    def on_describe_group(
        self, request_id: RequestId, group_id: str, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a `DescribedGroup`; one that is not there has its error in it, as the version asks."""

        def tell() -> None:
            answer = describe.described(self._ledger, self.groups.get(group_id), group_id, api_version)
            self._ledger.answer(request_id, answer)

        self._run(request_id, now_ms, wall_ms, tell)

    def on_list_groups(
        self, request_id: RequestId, states: Sequence[str], types: Sequence[str], *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a tuple of `ListedGroup`; empty filters let all pass."""

        def tell() -> None:
            self._ledger.answer(request_id, describe.listed(self._ledger, self.groups, states, types))

        self._run(request_id, now_ms, wall_ms, tell)

    def on_delete_group(self, request_id: RequestId, group_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `DeletableGroupResult`."""

        def delete() -> None:
            group = self.groups.get(group_id)
            offsets.on_delete_group(self._ledger, group, group_id, request_id)
            if group is not None:
                self._forget_if_nothing(group)

        self._run(request_id, now_ms, wall_ms, delete)

    # What else happens.

    def on_disconnected(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None:
        """Nobody waits for that answer any more, which may come all the same.

        A member stays until its session ends: it may be back in a moment. One that was never told its id cannot.
        """
        ledger = self._ledger
        group_id, member_id = ledger.nameless.pop(request_id, ("", ""))
        group = self.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None or member.join_request != request_id:
            return
        ledger.now_ms, ledger.wall_ms = now_ms, wall_ms
        rebalance.drop(ledger, group, member)
        rebalance.begin_or_go_on(ledger, group)

    def on_topics_deleted(self, topics: Collection[str], *, now_ms: int, wall_ms: int) -> None:
        """Forget the offsets in topics that are no more. A topic of the same name would be another one."""
        ledger = self._ledger
        if not ledger.is_active:
            return
        ledger.now_ms, ledger.wall_ms = now_ms, wall_ms
        names = frozenset(topics)
        groups = [one for one, positions in ledger.state.offsets.items() if not names.isdisjoint(positions)]
        ledger.write_in_parts(record for one in groups for record in offsets.tombstones(ledger, one, names))

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` (exclusive) is there to stay."""
        self._ledger.on_committed(end_offset)

    def on_time(self, *, now_ms: int, wall_ms: int) -> None:
        """Do what is due. May be called early, and late."""
        ledger = self._ledger
        if not ledger.is_active:
            return
        ledger.now_ms, ledger.wall_ms = now_ms, wall_ms
        while (alarm := ledger.deadlines.pop_due(now_ms)) is not None:
            self._on_due(alarm)
        self._expiry.on_time()

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time`, by the clock of `now_ms`; None while there is nothing to wait for."""
        if not self._ledger.is_active:
            return None
        known = [one for one in (self._ledger.deadlines.next_ms(), self._expiry.next_ms) if one is not None]
        return min(known, default=None)

    # What to do about it.

    def take_ready(self) -> Ready:
        """All that is owed since the last call."""
        return self._ledger.take_ready()

    def _run(self, request_id: RequestId, now_ms: int, wall_ms: int, work: Callable[[], None]) -> None:
        ledger = self._ledger
        if not ledger.is_active:
            ledger.answer_at_once(request_id, ledger.why_inactive)
            return
        ledger.now_ms, ledger.wall_ms = now_ms, wall_ms
        try:
            work()
        except KafkaError as error:
            ledger.answer(request_id, error.with_traceback(None))  # many may wait, each with its frames

    def _on_due(self, alarm: Alarm) -> None:
        group = self.groups.get(alarm.group_id)
        if group is None:
            return
        if alarm.cause is Cause.SESSION:
            rebalance.on_session_due(self._ledger, group, alarm.member_id)
        elif alarm.cause is Cause.JOIN:
            rebalance.on_join_due(self._ledger, group)
        else:
            rebalance.on_sync_due(self._ledger, group)
        self._forget_if_nothing(group)

    def _member_group(self, group_id: str) -> Group:
        """The group of someone who says that he is in it."""
        group = self.groups.get(self._checked(group_id))
        if group is None:
            raise refusal(Code.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}: join again")
        return group

    def _checked(self, group_id: str) -> str:
        if not group_id:
            raise refusal(Code.INVALID_GROUP_ID, "the group id is empty: set group.id")
        self._check_length(group_id)
        return group_id

    def _check_length(self, group_id: str) -> None:
        size = len(group_id.encode())
        if size > NAME_SIZE_BYTES_MAX:
            raise refusal(Code.INVALID_GROUP_ID, f"a group id of {size} bytes is longer than {NAME_SIZE_BYTES_MAX}")

    def _forget_if_nothing(self, group: Group) -> None:
        if group.is_forgettable:
            group.go(Change.DELETED, self._ledger.wall_ms)
            del self.groups[group.group_id]
