"""The members of consumer groups, whichever protocol they speak: they come, go on, and go (KIP-848).

All that changes a group goes through here: it is decided as a `GroupChange`, and written.
Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups import rebalance
from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces, finished
from tidelog.coordinator.groups.consumer.conversion import downgraded, retire
from tidelog.coordinator.groups.consumer.group import ConsumerGroup
from tidelog.coordinator.groups.consumer.group_change import GroupChange
from tidelog.coordinator.groups.consumer.heartbeat_checks import check_room
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription
from tidelog.coordinator.groups.consumer.pattern_searches import PatternSearches
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import AT_ONCE_MAX, AssignmentRuns, WaitingMember
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.journal import KeyValue, Moment


class Arrival(NamedTuple):
    """How somebody comes who is a member, or becomes one.

    Attributes:
        old_id: under which it is a member already.
        records: what is to be written of its group before.
        record: of what it wants, if that is made already.
    """

    old_id: str | None
    records: tuple[KeyValue, ...] = ()
    record: KeyValue | None = None


class ConsumerMembers:
    """Those of all consumer groups of one coordinator.

    Args:
        classic: the classic groups of the coordinator. One without members gives its id up to a consumer group.

    Attributes:
        overrides: the settings of groups that have their own.
        topics: of the cluster; None until they are known.
        searches: for the topics of patterns; None until then.
        runs: the target assignments that are being made.
    """

    def __init__(self, journal: GroupJournal, classic: dict[str, Group]) -> None:
        self.runs = AssignmentRuns(journal, journal.state.consumer_groups, self._advance)
        self.overrides: Mapping[str, ConsumerGroupSettings] = {}
        self.topics: KnownTopics | None = None
        self.searches: PatternSearches | None = None
        self._journal = journal
        self._classic = classic
        self._charged_bytes = 0

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        """By id. Nothing but a record changes them."""
        return self._journal.state.consumer_groups

    @property
    def known(self) -> KnownTopics:
        """The topics of the cluster. Raises COORDINATOR_LOAD_IN_PROGRESS until they are known."""
        if self.topics is None:
            raise refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, "the topics of the cluster are not known yet")
        return self.topics

    def admit(
        self, change: GroupChange, arriving: WaitingMember, new: ConsumerSubscription, arrival: Arrival, at: Moment
    ) -> None:
        """Note what a member wants, whether it is new or not; assign if it is time to; move it on, and answer it.

        Where an assignment takes long, the member is answered after it.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED or INVALID_REQUEST; nothing has changed.
        """
        group, member_id = change.group, arriving.member_id
        old = None if arrival.old_id is None else group.subscriptions[arrival.old_id]
        check_room(self._journal.memory, group.group_id, old, new)
        _subscribe(change, member_id, old, new, arrival.record, may_differ=self.may_differ(group))
        is_under_way = self.runs.is_under_way(group)
        is_assigned = is_under_way or self._assign_if_small(change, at)
        current = None
        if is_assigned and not is_under_way and not _is_heavy(change, arriving):
            current = finished(change.reconcile(member_id, arriving.owned, Pace()))
        self.write(change, arrival.records)
        self._drop_classic(group.group_id, at)
        self._after(member_id, arrival.old_id, old, change, at)
        if current is not None:
            self._journal.answer(arriving.request_id, finished(arriving.respond(current, Pace())))
            return
        recorded_group = self.groups[group.group_id]
        if not is_assigned:
            self._start_run(recorded_group)
        elif not is_under_way:
            self.runs.start_moving(recorded_group)
        self.runs.wait(recorded_group, arriving)

    def remove(self, group: ConsumerGroup, member_ids: Collection[str], at: Moment) -> None:
        """Members are out. If all that are left speak the classic protocol, the group becomes a classic one."""
        if len(member_ids) < len(group.subscriptions) and self.downgrade(group, member_ids, at):
            return
        change = self.change_of(group)
        for member_id in member_ids:
            change.remove(member_id)
        change.refresh()
        change.raise_epoch()
        patterns = {group.subscriptions[member_id].pattern for member_id in member_ids}
        self.write(change)
        for member_id in member_ids:
            self.forget_member(group.group_id, member_id)
        left = self.groups.get(group.group_id)
        if self.searches is None:
            return
        for pattern in patterns:
            if pattern is not None and (left is None or pattern not in left.patterns):
                self.searches.forget(group.group_id, pattern)

    def refresh(self, group: ConsumerGroup, at: Moment) -> None:
        """Look at the topics of a group again, and assign, if it is time to: for members that cannot ask for it."""
        change = self.change_of(group)
        if self.may_differ(group) and change.refresh():
            change.raise_epoch()
        is_done = self.runs.is_under_way(group) or self._assign_if_small(change, at)
        self.write(change)
        self._note_seen(group)
        if not is_done:
            self._start_run(group)

    def may_differ(self, group: ConsumerGroup) -> bool:
        """Whether a topic that a group reads may have changed since its hash was taken."""
        known = self.known
        if group.is_to_be_looked_at or group.seen_version == known.version:
            return False
        return known.may_differ(group.topics, group.seen_version)

    def _assign_if_small(self, change: GroupChange, at: Moment) -> bool:
        """Make a target assignment, if it is time to. Returns False where that takes long, and is to be begun."""
        if not change.is_assignment_due(at.wall_ms):
            return True
        if change.names_count > AT_ONCE_MAX:
            return False
        wanted = change.assignment_input()
        if wanted.weight(self.known) > AT_ONCE_MAX:
            return False
        assigned = finished(wanted.assigned(self.known))
        if self.runs.has_room(change.group, wanted, assigned):
            change.assign(assigned, at.wall_ms)
        return True

    def _start_run(self, group: ConsumerGroup) -> None:
        if not self.runs.is_under_way(group):
            self.runs.start(group, self.change_of(group).assignment_input(), self.known)

    def _advance(self, group: ConsumerGroup, waiting: WaitingMember, pace: Pace) -> Pieces[None]:
        """Move a member on that waited, and answer it."""
        member_id = waiting.member_id
        while True:
            try:
                subscription = group.member(member_id)
                before = group.current(member_id)
                change = self.change_of(group)
                current = yield from change.reconcile(member_id, waiting.owned, pace)
                if current is not before and current.partition_count + before.partition_count > AT_ONCE_MAX:
                    yield from change.prepare_move(member_id, pace)
                answer = yield from waiting.respond(current, pace)
                if group.current(member_id) is not before or group.member(member_id) is not subscription:
                    continue  # something happened to it meanwhile
                if change.is_outdated:
                    continue  # it would set the group epoch back
                group.indexed = change.moved
                self.write(change)
            except KafkaError as error:
                self._journal.answer(waiting.request_id, error.with_traceback(None))
                return
            if member_id in change.changed_currents:
                self.watch(group, member_id, self.runs.at, is_session=False)
                yield from group.forget_index(member_id, before, pace)
            self._journal.answer(waiting.request_id, answer)
            return

    def await_member(self, group: ConsumerGroup, member_id: str, at: Moment) -> None:
        """It is told to join again: it has its rebalance timeout for that, from the first time on."""
        if _revocation(group.group_id, member_id) not in self._journal.deadlines:
            self.watch(group, member_id, at, is_session=False)

    def change_of(self, group: ConsumerGroup) -> GroupChange:
        """A change of a group, still empty."""
        return GroupChange(group, self.known, self.settings_of(group.group_id))

    def watch(self, group: ConsumerGroup, member_id: str, at: Moment, *, is_session: bool) -> None:
        """Begin a session anew; or the time that a member has to give up, or to join again."""
        subscription = group.subscriptions[member_id]
        if is_session:
            classic = subscription.classic
            timeout_ms = (
                self.settings_of(group.group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
            )
            self._journal.deadlines.set(_session(group.group_id, member_id), at.now_ms + timeout_ms)
            return
        alarm = _revocation(group.group_id, member_id)
        if has_to_act(group, member_id):
            self._journal.deadlines.set(alarm, at.now_ms + max(subscription.rebalance_timeout_ms, 0))
        else:
            self._journal.deadlines.cancel(alarm)

    def settings_of(self, group_id: str) -> ConsumerGroupSettings:
        """Its own, or those of all."""
        return self.overrides.get(group_id, self._journal.settings.consumer)

    def settle_memory(self) -> None:
        """Have what the groups take count, after records of them were written."""
        more_bytes = self._journal.state.consumer_groups_bytes - self._charged_bytes
        self._journal.memory.used_bytes += more_bytes
        self._charged_bytes += more_bytes

    def release(self, error: KafkaError) -> None:
        """The coordinator resigned: what the groups took counts no more, and who waits is told `error`."""
        self.runs.end(error)
        self._journal.memory.used_bytes -= self._charged_bytes

    def _after(
        self, member_id: str, old_id: str | None, old: ConsumerSubscription | None, change: GroupChange, at: Moment
    ) -> None:
        group = self.groups[change.group.group_id]
        self._note_seen(group)
        if old_id is not None and old_id != member_id:
            self.forget_member(group.group_id, old_id)
        self.watch(group, member_id, at, is_session=True)
        if member_id in change.changed_currents:
            self.watch(group, member_id, at, is_session=False)
        pattern = group.subscriptions[member_id].pattern
        if self.searches is not None:
            if pattern is not None and pattern not in group.matched:
                self.searches.search(group.group_id, pattern)
            if old is not None and old.pattern is not None and old.pattern not in group.patterns:
                self.searches.forget(group.group_id, old.pattern)

    def _note_seen(self, group: ConsumerGroup) -> None:
        if not group.is_to_be_looked_at:
            group.seen_version = self.known.version

    def forget_member(self, group_id: str, member_id: str) -> None:
        """Wait for a member no more."""
        self._journal.deadlines.cancel(_session(group_id, member_id))
        self._journal.deadlines.cancel(_revocation(group_id, member_id))

    def write(self, change: GroupChange, before: tuple[KeyValue, ...] = ()) -> None:
        """Write a change, in one batch if it fits: then it is there as a whole or not at all.

        Otherwise the raised group epoch goes first. A leader that finds the rest missing assigns anew.

        Raises:
            KafkaError: INVALID_REQUEST for a record that no batch holds; nothing was written.
        """
        journal = self._journal
        records = [*before, *change.records()]
        if not journal.fits(records):
            if not change.is_raised:
                change.raise_epoch()
            records = change.records()
            if before and all(journal.fits((one,)) for one in records):
                journal.write(before)
        if journal.fits(records):
            if records:
                journal.write(tuple(records))
        elif all(journal.fits((one,)) for one in records):
            journal.write_in_parts(records)
        else:
            raise refusal(
                Code.INVALID_REQUEST,
                f"group {change.group.group_id!r}: a member wants or gets more than a batch of "
                f"{journal.batch_size_bytes_max} bytes holds",
            )
        group = self.groups.get(change.group.group_id)
        if group is not None:
            change.note_hash(group)
        self.settle_memory()

    def _drop_classic(self, group_id: str, at: Moment) -> None:
        """A classic group gave its id up. Its members, if it has any, are members still, and join again."""
        classic = self._classic.pop(group_id, None)
        if classic is None:
            return
        retire(self._journal, classic)
        group = self.groups[group_id]
        for member_id in classic.members:
            if member_id in group.subscriptions:
                self.watch(group, member_id, at, is_session=True)

    def downgrade(self, group: ConsumerGroup, leaving_ids: Collection[str], at: Moment) -> bool:
        """Make it a classic group if all that are left, or are to join, speak that protocol.

        Returns:
            Whether it is one now.
        """
        left_count = len(group.subscriptions) - len(leaving_ids)
        leaving_consumers = sum(group.subscriptions[one].classic is None for one in leaving_ids)
        if (
            leaving_consumers < group.consumer_count
            or not self.settings_of(group.group_id).migration_policy.downgrades
            or left_count > self._journal.settings.group_size_max
            or left_count > group.downgraded_count_max
        ):
            return False
        classic = downgraded(group, leaving_ids, self.known, self._journal.memory)
        records = (*recorded.group_tombstones(group), rebalance.record_of(classic))
        if not self._journal.fits(records):
            classic.release()  # its members go on as they are
            group.downgraded_count_max = left_count // 2  # to find that out costs as much as the group is large
            return False
        for member_id in list(group.subscriptions):
            self.forget_member(group.group_id, member_id)
        self._journal.write(records)
        self.settle_memory()
        classic.is_recorded = True
        self._classic[group.group_id] = classic
        for member in classic.members.values():
            rebalance.extend_session(self._journal, at, member)
        if classic.members:
            rebalance.begin(self._journal, at, classic)
        return True


def _is_heavy(change: GroupChange, arriving: WaitingMember) -> bool:
    """Whether it takes long to move a member on, or to tell it what it has."""
    weight = change.move_weight(arriving.member_id)
    if arriving.says_all:
        weight = max(weight, change.current(arriving.member_id).partition_count)
    return weight > AT_ONCE_MAX


def has_to_act(group: ConsumerGroup, member_id: str) -> bool:
    """Whether the group waits for a member: to give partitions up, or, if it is a classic one, to join again."""
    current = group.current(member_id)
    if current.state is ConsumerMemberState.UNREVOKED_PARTITIONS:
        return True
    return group.subscriptions[member_id].classic is not None and current.member_epoch < group.target_epoch


def _subscribe(
    change: GroupChange,
    member_id: str,
    old: ConsumerSubscription | None,
    new: ConsumerSubscription,
    record: KeyValue | None,
    *,
    may_differ: bool,
) -> None:
    """Note what a member wants, and raise the group epoch if that, or a topic, is another than before."""
    assignor = change.assignor()
    change.subscribe(member_id, new, record)
    is_raised = old is None or (old.topic_names, old.pattern) != (new.topic_names, new.pattern)
    if is_raised or may_differ:
        is_raised = change.refresh() or is_raised
    if is_raised or change.assignor() != assignor:
        change.raise_epoch()


def _session(group_id: str, member_id: str) -> Alarm:
    return Alarm(Cause.CONSUMER_SESSION, group_id, member_id)


def _revocation(group_id: str, member_id: str) -> Alarm:
    return Alarm(Cause.CONSUMER_REVOCATION, group_id, member_id)
