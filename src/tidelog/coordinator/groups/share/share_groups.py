"""The share groups of one coordinator (KIP-932): what members and those who watch ask, and what is due.

```
 on_share_group_heartbeat ──► checks ──► ShareGroupChange: subscription, epochs, target, member ──► records ──► journal
 on_due, on_time ────────────────────────────────▲                                                              │
 on_sent ──► GroupStates: initialize, delete ────┘                          ShareGroup ◄── recorded.apply ◄─────┘
```

Several members read a partition, and the share coordinator keeps what they have done with it. A partition is assigned
once there is a state of it. Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import replace

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces, finished
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.group import Group
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.assignment_runs import ShareAssignmentRuns
from tidelog.coordinator.groups.share.describe_share_groups import viewed
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.group_change import ShareGroupChange
from tidelog.coordinator.groups.share.group_states import NOTHING_MISSING, GroupStates, Missing
from tidelog.coordinator.groups.share.group_work import GroupWork
from tidelog.coordinator.groups.share.heartbeat_checks import (
    JOIN_MEMBER_EPOCH,
    LEAVE_MEMBER_EPOCH,
    check_epoch,
    check_heartbeat,
    check_size,
    subscription_after,
)
from tidelog.coordinator.groups.share.member import ShareCurrent, ShareSubscription, in_order
from tidelog.coordinator.groups.share.settings import ShareGroupSettings
from tidelog.coordinator.groups.share.share_journal import ShareJournal
from tidelog.coordinator.groups.share.share_offsets import ShareGroupOffsets
from tidelog.coordinator.groups.share.states import PARTITIONS_PER_TOPIC_WORK
from tidelog.journal import Moment, RequestId, SendId
from tidelog.wire.messages.api_76_share_group_heartbeat import (
    ShareGroupHeartbeatAssignment,
    ShareGroupHeartbeatPartitions,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

AT_ONCE_MAX = 300
"""Members and partitions of a group that is assigned within one request, in a few milliseconds."""

METADATA_WAIT_MS = 1_000
"""How much longer a member has while the topics of the cluster are not known."""


class ShareGroups:
    """Part of a `GroupCoordinator`, which tells it when it is active.

    Args:
        classic: the classic groups of the coordinator.
        topics: of the cluster; None until they are known.

    Attributes:
        offsets: where the groups stand in partitions: to be altered and deleted.
    """

    def __init__(self, journal: GroupJournal, classic: Mapping[str, Group], written: ShareJournal) -> None:
        self._journal = journal
        self._classic = classic
        self._written = written
        self._work = GroupWork(journal)
        self._states = GroupStates(written, self._work)
        self._runs = ShareAssignmentRuns(written, self._work)
        self._overrides: Mapping[str, ShareGroupSettings] = {}
        self.offsets = ShareGroupOffsets(written, self._states, self._work, self.is_of_another_kind)

    @property
    def groups(self) -> dict[str, ShareGroup]:
        """By id. Nothing but a record changes them."""
        return self._written.groups

    @property
    def next_ms(self) -> int | None:
        """When to call `on_time`: at once, while work is done in pieces; None if there is nothing to do."""
        return None if self._runs.is_idle and self._work.is_idle else 0

    def is_of_another_kind(self, group_id: str) -> bool:
        """Whether an id belongs to a group that is no share group."""
        state = self._journal.state
        return group_id in self._classic or group_id in state.consumer_groups or state.has_offsets(group_id)

    # What clients ask.

    def on_share_group_heartbeat(
        self,
        request_id: RequestId,
        request: ShareGroupHeartbeatRequest,
        *,
        client_id: str,
        client_host: str,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with a `ShareGroupHeartbeatResponse`."""

        def beat(at: Moment) -> None:
            check_heartbeat(request)
            if request.member_epoch == LEAVE_MEMBER_EPOCH:
                pieces = self._leave(request_id, request.group_id, request.member_id)
            else:
                pieces = self._beat(request_id, request, client_id, client_host)
            is_droppable = request.subscribed_topic_names is not None and request.member_epoch != LEAVE_MEMBER_EPOCH
            self._work.do(request.group_id, pieces, at, request_id, is_droppable=is_droppable)

        self._journal.run(request_id, now_ms, wall_ms, beat)

    def on_share_group_describe(self, request_id: RequestId, group_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `ShareGroupView`; one that is not there is refused with GROUP_ID_NOT_FOUND."""

        def describe(at: Moment) -> None:
            self._journal.answer(request_id, viewed(self._group(group_id), self._written.topics))

        self._journal.run(request_id, now_ms, wall_ms, describe)

    # What else happens.

    def on_settings(self, settings: ShareGroupSettings, of_groups: Mapping[str, ShareGroupSettings]) -> None:
        """These are in force from now on; a session has the length that it began with.

        Args:
            of_groups: of those groups that have their own; nobody changes it.
        """
        self._journal.settings = replace(self._journal.settings, share=settings)
        self._overrides = of_groups

    def settings_of(self, group_id: str) -> ShareGroupSettings:
        """Its own, or those of all."""
        return self._overrides.get(group_id, self._journal.settings.share)

    def start(self, at: Moment) -> None:
        """The coordinator became active. Members have a whole session to be heard of."""
        for group in list(self.groups.values()):
            for member_id in [one for one in {**group.currents, **group.targets} if one not in group.subscriptions]:
                # of a member whose removal was cut off by a failover
                self._written.write(group.group_id, recorded.member_tombstones(group.group_id, member_id))
        self._written.settle_memory()
        for group in self.groups.values():
            for member_id in group.subscriptions:
                self._watch(group.group_id, member_id, at)
        self._states.start()

    def on_topics_deleted(self, topic_ids: Collection[TopicId], *, now_ms: int, wall_ms: int) -> None:
        """Nothing is kept of topics that are no more."""
        if self._journal.is_active:
            self._states.on_topics_deleted(topic_ids)

    def on_topics(self, known: Container[TopicId], *, now_ms: int, wall_ms: int) -> None:
        """There are no topics but these."""
        if self._journal.is_active:
            self._states.on_topics(known)

    def on_sent(self, send_id: SendId, outcome: object, *, now_ms: int, wall_ms: int) -> None:
        """The share coordinators answered."""
        if self._journal.is_active:
            self._states.on_sent(send_id, outcome, Moment(now_ms, wall_ms))

    def on_disconnected(self, request_id: RequestId) -> None:
        """See `GroupCoordinator.on_disconnected`. A member that leaves need not wait for the answer."""
        self._work.on_disconnected(request_id)

    def on_due(self, alarm: Alarm, at: Moment) -> None:
        """A member was not heard of: it is out."""
        self._work.do_later(alarm.group_id, self._throw_out(alarm))

    def on_time(self, at: Moment) -> None:
        """Do what takes long, and assign, for a while."""
        self._work.step(at, self._runs.group_ids)
        self._runs.step(at)

    def release(self, error: KafkaError) -> None:
        """The coordinator resigned: whoever waits is told `error`."""
        self._runs.release()
        self._work.release(error)
        self._states.release(error)
        self._written.release()

    # Heartbeats.

    def _beat(
        self, request_id: RequestId, request: ShareGroupHeartbeatRequest, client_id: str, client_host: str
    ) -> Pieces[None]:
        self._work.keep(request_id)  # what the group lacks is noted before it is written
        pace = Pace()
        is_joining = request.member_epoch == JOIN_MEMBER_EPOCH
        group = self._group(request.group_id, is_joining=is_joining)
        group_id, member_id, known = group.group_id, request.member_id, self._written.known
        version = known.version
        settings = self.settings_of(group_id)
        check_size(group, member_id, settings)
        old = group.subscriptions.get(member_id) if is_joining else group.member(member_id)
        before = group.current(member_id)
        if old is not None:
            check_epoch(group_id, before, request.member_epoch)
        new = subscription_after(old, request, client_id, client_host)
        self._check_room(group_id, old, new)

        change = ShareGroupChange(group, known)
        change.subscribe(member_id, new)
        missing = yield from self._raise_epoch(change, old, new, known, pace)
        if pace.counts(len(new.topic_names)):
            yield
        is_under_way = self._runs.is_under_way(group)
        is_assigned = is_under_way or self._assign_if_small(change, settings, self._work.at)
        current = change.stay() if is_under_way else change.move()
        has_missed = request.member_epoch != before.member_epoch  # our last answer, or it joins
        is_told = has_missed or request.subscribed_topic_names is not None or current.assigned != before.assigned
        answer = ShareGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            assignment=_told(current) if is_told else None,
        )
        if is_told and pace.counts(2 * len(current.assigned)):
            yield
        change.states_record = missing.record
        records = yield from change.records(pace)
        if group_id not in self.groups:
            self._group(group_id, is_joining=is_joining)  # another kind of group may have come meanwhile
        self._check_room(group_id, old, new)  # other groups may have taken it meanwhile
        lacks_states = group.lacks_states
        self._written.write(group_id, records)
        group = self.groups[group_id]
        group.lacks_states = lacks_states  # what is new was looked at
        change.note_hash(group)
        group.seen_version = version
        if change.epoch > group.target_epoch:
            group.lacks_assignment = False  # the next assignment is of all that may be assigned then
        if not is_assigned:
            self._runs.start(group)
        self._watch(group_id, member_id, self._work.at)
        if missing.topics:
            yield from self._states.begin(group_id, change.epoch, missing.topics, pace)
        yield from self._states.look(group, self._work.at.now_ms, pace)
        self._journal.answer(request_id, answer)

    def _raise_epoch(
        self,
        change: ShareGroupChange,
        old: ShareSubscription | None,
        new: ShareSubscription,
        known: KnownTopics,
        pace: Pace,
    ) -> Pieces[Missing]:
        """Raise the group epoch if somebody wants something else, or may have something else. Returns what is missing.

        Kafka looks at the topics likewise, and at each heartbeat at all partitions.
        """
        group, view = change.group, known.view
        is_other = old is None or old.topic_names != new.topic_names
        is_newer = group.seen_version != known.version
        may_differ = is_newer and known.may_differ(group.topics, group.seen_version)
        if is_other or (group.lacks_assignment and (yield from _lacks_assignment(group, known, pace))):
            change.raise_epoch()
        else:
            group.lacks_assignment = False
        if (is_other or may_differ) and (yield from change.refresh(pace)):
            change.raise_epoch()
        missing = NOTHING_MISSING
        if may_differ or group.lacks_states:
            missing = yield from self._states.missing(group, change.topic_names(), view, pace)
        elif is_other:
            missing = yield from self._states.missing(group, change.added_topics(), view, pace)
        if missing.was_asked_for:
            change.raise_epoch(group.epoch_step)
        return missing

    def _assign_if_small(self, change: ShareGroupChange, settings: ShareGroupSettings, at: Moment) -> bool:
        """Make a target assignment, if it is time to. Returns False where that takes long, and is to be begun."""
        group = change.group
        if change.epoch <= change.target_epoch or (change.epoch == group.epoch and self._runs.is_refused(group)):
            return True
        before_ms = group.assigned_at_ms
        if before_ms is not None and before_ms <= at.wall_ms < before_ms + settings.assignment_interval_ms:
            return True
        if change.weight > AT_ONCE_MAX:
            return False
        assigned = finished(change.assigned())
        if self._runs.has_room(group, change.epoch, sum(sum(map(len, one.values())) for one in assigned.values())):
            change.assign(assigned, at.wall_ms)
        return True

    def _group(self, group_id: str, *, is_joining: bool = False) -> ShareGroup:
        group = self.groups.get(group_id)
        if group is not None:
            return group
        if self.is_of_another_kind(group_id):
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"group {group_id!r} is no share group")
        if not is_joining:
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        return ShareGroup(group_id)

    def _check_room(self, group_id: str, old: ShareSubscription | None, new: ShareSubscription) -> None:
        more_bytes = new.size_bytes - (0 if old is None else old.size_bytes)
        if not self._written.has_room(more_bytes):
            memory = self._journal.memory
            raise refusal(
                Code.GROUP_MAX_SIZE_REACHED,
                f"group {group_id!r}: a member of {more_bytes} bytes finds no room beside the {memory.used_bytes} "
                f"bytes of all groups of this node (group.coordinator.memory.bytes is {memory.limit_bytes})",
            )

    # Leaving.

    def _leave(self, request_id: RequestId, group_id: str, member_id: str) -> Pieces[None]:
        group = self._group(group_id)
        group.member(member_id)
        yield from self._remove(group, member_id)
        answer = ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_MEMBER_EPOCH)
        self._journal.answer(request_id, answer)

    def _throw_out(self, alarm: Alarm) -> Pieces[None]:
        """The session of a member is over, unless it was heard of while this waited."""
        group = self.groups.get(alarm.group_id)
        if group is None or alarm.member_id not in group.subscriptions or alarm in self._journal.deadlines:
            return
        if self._written.topics is None:
            self._journal.deadlines.set(alarm, self._work.at.now_ms + METADATA_WAIT_MS)
        else:
            yield from self._remove(group, alarm.member_id)

    def _remove(self, group: ShareGroup, member_id: str) -> Pieces[None]:
        change, pace = ShareGroupChange(group, self._written.known), Pace()
        change.remove(member_id)
        yield from change.refresh(pace)
        change.raise_epoch()
        records = yield from change.records(pace)
        lacks_states = group.lacks_states
        self._written.write(group.group_id, records)
        group.lacks_states = lacks_states  # it wants no more than before
        change.note_hash(group)
        self._journal.deadlines.cancel(_session(group.group_id, member_id))

    def _watch(self, group_id: str, member_id: str, at: Moment) -> None:
        """Begin a session anew."""
        timeout_ms = self.settings_of(group_id).session_timeout_ms
        self._journal.deadlines.set(_session(group_id, member_id), at.now_ms + timeout_ms)


def _lacks_assignment(group: ShareGroup, known: KnownTopics, pace: Pace) -> Pieces[bool]:
    """Whether a partition that may be assigned, and that members want, is in nobody's target."""
    targets: dict[TopicId, set[int]] = {}
    for target in list(group.targets.values()):
        for topic_id, partitions in target.items():
            targets.setdefault(topic_id, set()).update(partitions)
            if pace.counts(1 + len(partitions) // PARTITIONS_PER_TOPIC_WORK):
                yield
    states = group.known_states
    for topic_id in states.initialized:
        is_read = known.name(topic_id) in group.topics
        if is_read and not states.assignable_of(topic_id).issubset(targets.get(topic_id, ())):
            return True
        if pace.counts(2):
            yield
    return False


def _told(current: ShareCurrent) -> ShareGroupHeartbeatAssignment:
    return ShareGroupHeartbeatAssignment(
        [ShareGroupHeartbeatPartitions(topic, sorted(current.assigned[topic])) for topic in in_order(current.assigned)]
    )


def _session(group_id: str, member_id: str) -> Alarm:
    return Alarm(Cause.SHARE_SESSION, group_id, member_id)
