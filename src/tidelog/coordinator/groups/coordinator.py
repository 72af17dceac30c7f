"""The coordinator of the groups of one partition of `__consumer_offsets`: the way in and out of this package.

```
 classic_groups, consumer_groups, on_offset_commit ──► journal ──► take_ready
 on_time ──► deadlines, retention                         ▲
 replay ──► state                              on_committed
```

Pure: a shell appends the batches, says what is committed, sends the answers, and keeps the clocks. `now_ms` never goes
back (deadlines); `wall_ms` is the time of day (timestamps in records, retention).

Kafka: `GroupCoordinatorShard`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from tidelog.base.errors import Code, CorruptLogError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Rng
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups import describe, offsets, transactional_offsets
from tidelog.coordinator.groups.classic_groups import ClassicGroups, check_length, checked_group_id
from tidelog.coordinator.groups.consumer.commit_checks import check_fetch
from tidelog.coordinator.groups.consumer.consumer_groups import ConsumerGroups
from tidelog.coordinator.groups.expiry import OffsetExpiry
from tidelog.coordinator.groups.group import Group, restored
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.offsets import NO_SUCCESSORS
from tidelog.coordinator.groups.records import NAME_SIZE_BYTES_MAX, decode_group
from tidelog.coordinator.groups.settings import GroupSettings
from tidelog.coordinator.groups.share.share_groups import ShareGroups
from tidelog.coordinator.groups.share.share_journal import ShareJournal
from tidelog.coordinator.groups.state import check_record
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.journal import CoordinatorReady, Moment, RequestId, SendId
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitRequest
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup
from tidelog.wire.messages.api_28_txn_offset_commit import TxnOffsetCommitRequest
from tidelog.wire.messages.api_47_offset_delete import OffsetDeleteRequest

ALARMS_AT_ONCE_MAX = 50
"""That are seen to in one go: each may change a group."""


class GroupCoordinator:
    """Replays, becomes active, answers, resigns; then it is spent, and another leadership takes a new one.

    Every request gets one answer, unless `on_disconnected` says that nobody waits for it.

    Attributes:
        classic_groups: groups of the classic protocol.
        consumer_groups: those of KIP-848.
        share_groups: those of KIP-932.
        names_topics: whether the records of offsets name topics by their ids; may be set at any time, as the level of
            the metadata changes. Records of both kinds are read.
    """

    def __init__(
        self,
        partition: int,
        settings: GroupSettings,
        *,
        rng: Rng,
        memory: CoordinatorMemory | None = None,
        offsets_memory: CoordinatorMemory | None = None,
    ) -> None:
        """A coordinator that has read nothing yet.

        Args:
            partition: of `__consumer_offsets`, for messages.
            rng: draws the member ids.
            memory: what the groups of all coordinators of a node take together; None for no bound.
            offsets_memory: likewise, of their committed offsets.
        """
        self.partition = partition
        self.names_topics = True
        self.groups: dict[str, Group] = {}
        self._memory = CoordinatorMemory(sys.maxsize) if memory is None else memory
        self._restored = CoordinatorMemory(sys.maxsize)  # until it is active: `restore` may run on another thread
        self._journal = GroupJournal(settings, self._memory, offsets_memory or CoordinatorMemory(sys.maxsize))
        self.consumer_groups = ConsumerGroups(self._journal, self.groups, rng)
        share_journal = ShareJournal(self._journal, lambda: self.consumer_groups.members.topics)
        self.share_groups = ShareGroups(self._journal, self.groups, share_journal)
        self.classic_groups = ClassicGroups(
            self._journal, self.groups, self.consumer_groups, self.share_groups, memory=self._memory, rng=rng
        )
        self._expiry = OffsetExpiry(self._journal, self.groups)

    @property
    def batch_size_bytes_max(self) -> int:
        """Of the log behind it, in force from now on, whenever it is set."""
        return self._journal.batch_size_bytes_max

    @batch_size_bytes_max.setter
    def batch_size_bytes_max(self, size_bytes: int) -> None:
        self._journal.batch_size_bytes_max = size_bytes

    @property
    def is_active(self) -> bool:
        """Whether it answers; before that COORDINATOR_LOAD_IN_PROGRESS is all it says, afterwards NOT_COORDINATOR."""
        return self._journal.is_active

    @property
    def offsets_count(self) -> int:
        """How many committed offsets it holds."""
        return self._journal.state.offsets_count

    @property
    def groups_with_offsets(self) -> list[str]:
        """The ids of the groups, of either protocol, that have committed offsets here."""
        return list(self._journal.state.offsets)

    def offsets_by_topic(self, group_id: str) -> list[tuple[str, list[tuple[int, bytes]]]]:
        """The committed offsets of a group: by topic, the partitions with the values that `decode_offset` reads."""
        found = self._journal.state.offsets.get(group_id, {})
        return [(topic, list(positions.items())) for topic, positions in found.items()]

    @property
    def topics(self) -> frozenset[str]:
        """The topics in which there are offsets, be they pending."""
        state = self._journal.state
        return frozenset(
            topic for groups in (state.offsets, state.pending.groups) for one in groups.values() for topic in one
        )

    @property
    def pending_producer_ids(self) -> frozenset[int]:
        """Whose open transactions hold offsets here."""
        return self._journal.state.pending.producer_ids

    # Loading.

    def replay(
        self, key: bytes | None, value: bytes | None, offset: Offset, *, transaction_of: int | None = None
    ) -> None:
        """A committed record was read from the log. One of a kind that is not known here is skipped.

        Args:
            transaction_of: the producer whose transaction it is part of: an offset counts once `replay_end` says so,
                unless something newer was said of its position.

        Raises:
            CorruptLogError: it is not what it claims; names the offset. The partition is not to be led.
        """
        if key is None:
            return
        record = (key, value)
        try:
            check_record(record)
            self._journal.replay(record, offset, transaction_of=transaction_of)
        except CorruptLogError as error:
            raise CorruptLogError(f"__consumer_offsets-{self.partition}, offset {offset}: {error}") from error

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        """The transaction of a producer ended here."""
        self._journal.replay_end(producer_id, is_committed=is_committed)

    def restore(self) -> None:
        """Make the groups that the log tells of. `become_active` does it too: to call this before saves it the time."""
        for group_id, value in self._journal.state.groups.items():
            if group_id not in self.groups:
                self.groups[group_id] = restored(group_id, decode_group(value), self._restored)

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int) -> None:
        """All was replayed. Members that the log knows have a whole session to be heard of.

        Offsets of transactions that are open wait for their markers: the coordinator of those sends them here.
        """
        journal = self._journal
        at = Moment(now_ms, wall_ms)
        journal.become_active(leader_epoch, next_offset)
        self.restore()
        journal.state.pending.charge.charge(self._memory)
        journal.state.offsets_charge.charge(journal.offsets_memory)
        self.classic_groups.start(at)
        self.consumer_groups.start(at)
        self.share_groups.start(at)
        self._expiry.start(at)
        self.classic_groups.rebalance_if_due(at)

    def resign(self, error: KafkaError | None = None) -> None:
        """Leadership is lost, or the log refused a batch: whoever waits is told NOT_COORDINATOR, or `error`."""
        journal = self._journal
        if not journal.is_active:
            journal.resign(error)
            return
        journal.resign(error)
        outcome = error or refusal(Code.NOT_COORDINATOR)
        self.classic_groups.release(outcome)
        self.consumer_groups.release(outcome)
        self.share_groups.release(outcome)
        journal.state.pending.charge.release()
        journal.state.offsets_charge.release()

    # What clients ask.

    def on_offset_commit(
        self, request_id: RequestId, request: OffsetCommitRequest, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with an `OffsetCommitResponse`. That the partitions exist is for the caller to see to."""
        journal = self._journal
        if not journal.is_active:
            journal.answer_at_once(request_id, journal.why_inactive)
            return
        at = Moment(now_ms, wall_ms)
        group_id = request.group_id
        try:
            if len(group_id) > NAME_SIZE_BYTES_MAX // 4:
                check_length(group_id)
            self._check_has_offsets(group_id)
            group = self.groups.get(group_id)
            if not self.consumer_groups.check_commit(request, api_version):
                offsets.check_committer(journal, at, group, request, api_version)
            offsets.on_commit(
                journal, at, request, request_id, self.consumer_groups.topic_id, names_topics=self.names_topics
            )
        except KafkaError as error:
            journal.answer(request_id, error)

    def on_txn_offset_commit(
        self, request_id: RequestId, request: TxnOffsetCommitRequest, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a `TxnOffsetCommitResponse`.

        That the partitions exist, that the transaction is open, and that no newer epoch of the producer wrote to this
        log, is for the caller to see to.
        """

        def commit(at: Moment) -> None:
            group = self.groups.get(checked_group_id(request.group_id))
            self._check_has_offsets(request.group_id)
            transactional_offsets.check_producer(request)
            if not self.consumer_groups.check_transactional_commit(request):
                transactional_offsets.check_committer(self._journal, group, request)
            transactional_offsets.on_commit(
                self._journal,
                at,
                request,
                request_id,
                self.consumer_groups.topic_id,
                names_topics=self.names_topics,
                api_version=api_version,
            )

        self._journal.run(request_id, now_ms, wall_ms, commit)

    def on_end_transaction(
        self,
        request_id: RequestId,
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with `Code.NONE` once the marker is committed, and what it decided counts.

        Args:
            producer_epoch: that the marker carries; that it may still write to this log is for the caller to see to.
            coordinator_epoch: leader epoch of the transaction's coordinator; likewise.
        """

        def end(at: Moment) -> None:
            transactional_offsets.on_end(
                self._journal,
                request_id,
                producer_id,
                producer_epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
            )

        self._journal.run(request_id, now_ms, wall_ms, end)

    def on_offset_fetch(
        self,
        request_id: RequestId,
        request: OffsetFetchRequestGroup,
        *,
        require_stable: bool = False,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with an `OffsetFetchResponseGroup`; requests before version 8 hold one group without saying so.

        Args:
            require_stable: whether a position that an open transaction may move is an error.
        """

        def fetch(at: Moment) -> None:
            consumer_group = self.consumer_groups.groups.get(request.group_id)
            if consumer_group is not None:
                check_fetch(consumer_group, request)
            offsets.on_fetch(
                self._journal, request, request_id, self.consumer_groups.topic_id, require_stable=require_stable
            )

        self._journal.run(request_id, now_ms, wall_ms, fetch)

    def on_offset_delete(
        self, request_id: RequestId, request: OffsetDeleteRequest, *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with an `OffsetDeleteResponse`."""

        def delete(at: Moment) -> None:
            group = self.groups.get(checked_group_id(request.group_id))
            offsets.on_offset_delete(self._journal, group, request, request_id)

        self._journal.run(request_id, now_ms, wall_ms, delete)

    def on_describe_group(
        self, request_id: RequestId, group_id: str, *, api_version: int, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a `DescribedGroup`; one that is not there has its error in it, as the version asks."""

        def respond(at: Moment) -> None:
            answer = describe.described(self._journal, self.groups.get(group_id), group_id, api_version)
            self._journal.answer(request_id, answer)

        self._journal.run(request_id, now_ms, wall_ms, respond)

    def on_list_groups(
        self, request_id: RequestId, states: Sequence[str], types: Sequence[str], *, now_ms: int, wall_ms: int
    ) -> None:
        """Answered with a tuple of `ListedGroup`; empty filters let all pass."""

        def respond(at: Moment) -> None:
            self._journal.answer(request_id, describe.listed(self._journal, self.groups, states, types))

        self._journal.run(request_id, now_ms, wall_ms, respond)

    def on_delete_group(self, request_id: RequestId, group_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `DeletableGroupResult`."""

        def delete(at: Moment) -> None:
            if group_id in self.share_groups.groups:
                self.share_groups.offsets.on_delete_group(request_id, group_id, at)
                return
            group = self.groups.get(group_id)
            offsets.on_delete_group(self._journal, group, group_id, request_id)
            self.consumer_groups.members.settle_memory()
            if group is not None:
                self.classic_groups.forget_if_nothing(group, at)

        self._journal.run(request_id, now_ms, wall_ms, delete)

    # What else happens.

    def on_disconnected(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None:
        """Nobody waits for that answer any more, which may come all the same.

        A member stays until its session ends: it may be back in a moment. One that was never told its id cannot.
        """
        self.classic_groups.on_disconnected(Moment(now_ms, wall_ms), request_id)
        self.share_groups.on_disconnected(request_id)

    def on_topics_deleted(
        self, topics: Collection[str], successors: Mapping[str, UUID] = NO_SUCCESSORS, *, now_ms: int, wall_ms: int
    ) -> None:
        """Forget the offsets in topics that are no more. A topic of the same name is another one.

        Args:
            successors: which topics have these names by now. Whoever hears late of a deletion may have taken offsets
                in them already, which stay; where an offset does not say of which topic it is, it goes.
        """
        journal = self._journal
        if not journal.is_active:
            return
        names = frozenset(topics)
        state = journal.state
        groups = [one for one, positions in state.offsets.items() if not names.isdisjoint(positions)]
        groups += [
            one
            for one, positions in state.pending.groups.items()
            if not names.isdisjoint(positions) and names.isdisjoint(state.offsets.get(one, ()))
        ]
        journal.write_in_parts(
            record for one in groups for record in offsets.tombstones(journal, one, names, successors)
        )

    def on_sent(self, send_id: SendId, outcome: object, *, now_ms: int, wall_ms: int) -> None:
        """Share coordinators answered: share groups alone send something."""
        self.share_groups.on_sent(send_id, outcome, now_ms=now_ms, wall_ms=wall_ms)

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` (exclusive) is there to stay."""
        self._journal.on_committed(end_offset)

    def on_time(self, *, now_ms: int, wall_ms: int) -> None:
        """Do what is due. May be called early, and late."""
        journal = self._journal
        if not journal.is_active:
            return
        at = Moment(now_ms, wall_ms)
        for _ in range(ALARMS_AT_ONCE_MAX):
            if (alarm := journal.deadlines.pop_due(now_ms)) is None:
                break
            self._on_due(alarm, at)
        self.consumer_groups.on_time(at)
        self.share_groups.on_time(at)
        self._expiry.on_time(at)
        self.consumer_groups.members.settle_memory()

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time`, by the clock of `now_ms`; None while there is nothing to wait for."""
        if not self._journal.is_active:
            return None
        known = (
            self._journal.deadlines.next_ms(),
            self.consumer_groups.next_ms,
            self.share_groups.next_ms,
            self._expiry.next_ms,
        )
        return min((one for one in known if one is not None), default=None)

    # What to do about it.

    def take_ready(self) -> CoordinatorReady:
        """All that is owed since the last call."""
        ready = self._journal.take_ready()
        if self._journal.pending_member_ids:
            for answer in ready.answers:
                self._journal.pending_member_ids.pop(answer.request_id, None)
        return ready

    def _on_due(self, alarm: Alarm, at: Moment) -> None:
        if alarm.cause in (Cause.CONSUMER_SESSION, Cause.CONSUMER_REVOCATION):
            self.consumer_groups.on_due(alarm, at)
            return
        if alarm.cause is Cause.SHARE_SESSION:
            self.share_groups.on_due(alarm, at)
            return
        self.classic_groups.on_due(alarm, at)

    def _check_has_offsets(self, group_id: str) -> None:
        if group_id in self.share_groups.groups:
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"group {group_id!r} is a share group, which commits no offsets")
