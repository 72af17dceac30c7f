"""The consumer groups of one coordinator (KIP-848): what members ask, what is due, what the metadata says.

```
 on_consumer_group_heartbeat ──► checks ──► GroupChange: subscription, epochs, target, member ──► records ──► journal
 on_due, on_time ────────────────────────────────▲                                                           │
 on_metadata ──► needs_refresh, pattern searches ┘                    ConsumerGroup ◄── recorded.apply ◄─────┘
```

Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidelog.base.errors import Code, refusal
from tidelog.base.ports import Rng
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups import rebalance
from tidelog.coordinator.groups.consumer import commit_checks, describe_consumer_groups, recorded
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.group_change import GroupChange
from tidelog.coordinator.groups.consumer.heartbeat_checks import (
    check_epoch,
    check_heartbeat,
    check_joining,
    check_known,
    check_room,
    is_full,
    owned_by,
    subscription_after,
)
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment, Holding
from tidelog.coordinator.groups.consumer.pattern_searches import Found, PatternSearches
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.coordinator.groups.group import Change, Group, GroupState
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.coordinator.groups.records import group_key
from tidelog.journal import KeyValue, Moment, RequestId
from tidelog.metadata.image import MetadataView
from tidelog.wire.messages.api_08_offset_commit import OffsetCommitRequest
from tidelog.wire.messages.api_28_txn_offset_commit import TxnOffsetCommitRequest
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    JOIN_MEMBER_EPOCH,
    LEAVE_STATIC_MEMBER_EPOCH,
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatPartitions,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

METADATA_WAIT_MS = 1_000
"""How much longer a member has while the topics of the cluster are not known: nobody can be assigned anything."""


@dataclass(frozen=True, slots=True)
class _Beat:
    """A heartbeat, and who sends it."""

    request_id: RequestId
    request: ConsumerGroupHeartbeatRequest
    client_id: str
    client_host: str


class ConsumerGroups:
    """Part of a `GroupCoordinator`, which tells it when it is active.

    Args:
        classic: the classic groups of the coordinator. One without members gives its id up to a consumer group.
        rng: draws the ids of members whose clients make none.

    Attributes:
        overrides: the settings of groups that have their own.
    """

    def __init__(self, journal: GroupJournal, classic: dict[str, Group], rng: Rng) -> None:
        self.overrides: dict[str, ConsumerGroupSettings] = {}
        self._journal = journal
        self._classic = classic
        self._rng = rng
        self._known: KnownTopics | None = None
        self._searches: PatternSearches | None = None
        self._charged_bytes = 0

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        """By id. Nothing but a record changes them."""
        return self._journal.state.consumer_groups

    @property
    def next_ms(self) -> int | None:
        """When to call `on_time`: at once, while patterns are looked up; None if there is nothing to do."""
        return None if self._searches is None or self._searches.is_idle else 0

    # What clients ask.

    def on_consumer_group_heartbeat(
        self,
        request_id: RequestId,
        request: ConsumerGroupHeartbeatRequest,
        *,
        api_version: int,
        client_id: str,
        client_host: str,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with a `ConsumerGroupHeartbeatResponse`."""

        def beat(at: Moment) -> None:
            known = self._known
            if known is None:
                raise refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, "the topics of the cluster are not known yet")
            settings = self._settings(request.group_id)
            check_heartbeat(request, api_version, settings)
            if request.member_epoch < JOIN_MEMBER_EPOCH:
                self._leave(known, request_id, request)
            else:
                self._beat(known, _Beat(request_id, request, client_id, client_host), at)

        self._journal.run(request_id, now_ms, wall_ms, beat)

    def on_consumer_group_describe(self, request_id: RequestId, group_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `ConsumerGroupDescribeGroup`; one that is not there has its error in it."""

        def describe(at: Moment) -> None:
            assignors = self._settings(group_id).assignors
            answer = describe_consumer_groups.described(self.groups.get(group_id), group_id, self._known, assignors)
            self._journal.answer(request_id, answer)

        self._journal.run(request_id, now_ms, wall_ms, describe)

    # What else happens.

    def on_metadata(
        self, view: MetadataView, version: int, changed: Collection[str], *, has_moved: bool = False
    ) -> None:
        """There is newer metadata; heartbeats are answered from the first one on.

        Args:
            version: grows with the metadata.
            changed: the topics that were made, deleted or altered.
            has_moved: whether brokers came, or changed their racks, so that any topic may stand elsewhere.
        """
        if self._known is None or self._searches is None:
            self._known = KnownTopics(view, version)
            self._searches = PatternSearches(self._known)
            if self._journal.is_active:
                self._look_everything_up(self._searches)
            return
        self._known.on_changed(view, version, None if has_moved else changed)
        if not self._journal.is_active:
            return
        names = tuple(changed)
        for group in self.groups.values():
            if has_moved or any(map(group.reads, names)):
                group.needs_refresh = True
            for pattern in group.patterns if names else ():
                matched = group.matched.get(pattern)
                if matched is None:
                    self._searches.search(group.group_id, pattern)
                self._searches.look_again(group.group_id, pattern, matched.topics if matched else (), names)

    def start(self, at: Moment) -> None:
        """The coordinator became active. Members have a whole session to be heard of."""
        self.settle_memory()
        for group in self.groups.values():
            timeout_ms = self._settings(group.group_id).session_timeout_ms
            for member_id in [one for one in {**group.currents, **group.targets} if one not in group.subscriptions]:
                group.set_current(member_id, None)  # of a member whose removal was cut off by a failover
                group.set_target(member_id, None)
            for member_id in group.subscriptions:
                self._journal.deadlines.set(_session(group.group_id, member_id), at.now_ms + timeout_ms)
                self._watch_revocation(group, member_id, at)
        if self._searches is not None:
            self._look_everything_up(self._searches)

    def release(self) -> None:
        """The coordinator resigned."""
        self._journal.memory.used_bytes -= self._charged_bytes
        self._charged_bytes = 0

    def on_due(self, alarm: Alarm, at: Moment) -> None:
        """A member was not heard of, or did not give its partitions up: it is out."""
        group = self.groups.get(alarm.group_id)
        if group is None or alarm.member_id not in group.subscriptions:
            return
        if self._known is None:
            self._journal.deadlines.set(alarm, at.now_ms + METADATA_WAIT_MS)
            return
        if (
            alarm.cause is Cause.CONSUMER_REVOCATION
            and group.current(alarm.member_id).state is not ConsumerMemberState.UNREVOKED_PARTITIONS
        ):
            return
        self._write(self._removal(group, alarm.member_id, self._known))
        self._forget_member(group.group_id, alarm.member_id)

    def on_time(self, at: Moment) -> None:
        """Look patterns up for a while."""
        if self._searches is not None and self._known is not None:
            for found in self._searches.step():
                self._on_found(found, at, self._known)

    def settle_memory(self) -> None:
        """Have what the groups take count, after records of them were written."""
        more_bytes = self._journal.state.consumer_groups_bytes - self._charged_bytes
        self._journal.memory.used_bytes += more_bytes
        self._charged_bytes += more_bytes

    def check_commit(self, request: OffsetCommitRequest, api_version: int) -> bool:
        """Whether it is of a consumer group, and may be committed. Raises what `commit_checks.check_commit` does."""
        group = self.groups.get(request.group_id)
        if group is not None:
            commit_checks.check_commit(group, self._known, request, api_version)
        return group is not None

    def check_transactional_commit(self, request: TxnOffsetCommitRequest) -> bool:
        """Whether it is of a consumer group, and may be committed. Raises likewise."""
        group = self.groups.get(request.group_id)
        if group is not None:
            commit_checks.check_transactional_commit(group, self._known, request)
        return group is not None

    def give_up(self, group_id: str) -> None:
        """A member of the classic protocol joins: a group without members gives its id up. Its offsets stay.

        Raises:
            KafkaError: INCONSISTENT_GROUP_PROTOCOL if it has members.
        """
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.subscriptions:
            raise refusal(
                Code.INCONSISTENT_GROUP_PROTOCOL,
                f"group {group_id!r} has members of the consumer protocol: set group.protocol=consumer, or stop them",
            )
        self._journal.write_in_parts(recorded.group_tombstones(group))
        self.settle_memory()

    # Heartbeats.

    def _beat(self, known: KnownTopics, beat: _Beat, at: Moment) -> None:
        request = beat.request
        is_joining = request.member_epoch == JOIN_MEMBER_EPOCH
        group = self._group(request.group_id, is_joining=is_joining)
        settings = self._settings(group.group_id)
        member_id = request.member_id or str(self._rng.uuid())
        owned = owned_by(request)
        change = GroupChange(group, known, settings)
        old_id: str | None = member_id
        if is_joining:
            old_id = check_joining(group, member_id, request.instance_id, settings)
            if old_id is not None and group.current(old_id).is_away:
                change.replace_static(old_id, member_id)
        else:
            check_known(group, member_id, request.instance_id)
            check_epoch(group.group_id, group.current(member_id), request.member_epoch, owned)
        old = None if old_id is None else group.subscriptions[old_id]
        new = subscription_after(old, request, beat.client_id, beat.client_host)
        check_room(self._journal.memory, group.group_id, old, new)
        self._subscribe(change, member_id, old, new)
        if change.is_assignment_due(at.wall_ms):
            change.assign(at.wall_ms)
        current = change.reconcile(member_id, owned)
        is_told = is_joining or is_full(request) or not _is_same(group.current(member_id).assigned, current.assigned)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            assignment=_told(current) if is_told else None,
        )
        self._write(change, self._classic_tombstone(group.group_id))
        self._journal.answer(beat.request_id, answer)
        self._drop_classic(group.group_id, at)
        self._after_beat(member_id, old_id, old, change, at)

    def _group(self, group_id: str, *, is_joining: bool) -> ConsumerGroup:
        """The group, be it a new one that is not recorded yet."""
        classic = self._classic.get(group_id)
        if classic is not None and not (is_joining and classic.state is GroupState.EMPTY):
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"group {group_id!r} is a classic group with members")
        group = self.groups.get(group_id)
        if group is None:
            if not is_joining:
                raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
            group = ConsumerGroup(group_id)
        return group

    def _subscribe(
        self, change: GroupChange, member_id: str, old: ConsumerSubscription | None, new: ConsumerSubscription
    ) -> None:
        """Note what a member wants, and raise the group epoch if that, or a topic, is another than before."""
        assignor = None if old is None or old.assignor == new.assignor else change.assignor()
        change.subscribe(member_id, new)
        is_raised = old is None or (old.topic_names, old.pattern) != (new.topic_names, new.pattern)
        if is_raised or change.group.needs_refresh:
            is_raised = change.refresh() or is_raised
        if is_raised or (assignor is not None and change.assignor() != assignor):
            change.raise_epoch()

    def _after_beat(
        self, member_id: str, old_id: str | None, old: ConsumerSubscription | None, change: GroupChange, at: Moment
    ) -> None:
        group = self.groups[change.group.group_id]
        group.needs_refresh = False
        if old_id is not None and old_id != member_id:
            self._forget_member(group.group_id, old_id)
        timeout_ms = self._settings(group.group_id).session_timeout_ms
        self._journal.deadlines.set(_session(group.group_id, member_id), at.now_ms + timeout_ms)
        if member_id in change.changed_currents:
            self._watch_revocation(group, member_id, at)
        pattern = group.subscriptions[member_id].pattern
        if self._searches is not None:
            if pattern is not None and pattern not in group.matched:
                self._searches.search(group.group_id, pattern)
            if old is not None and old.pattern is not None and old.pattern not in group.patterns:
                self._searches.forget(group.group_id, old.pattern)

    # Leaving.

    def _leave(self, known: KnownTopics, request_id: RequestId, request: ConsumerGroupHeartbeatRequest) -> None:
        group = self._group(request.group_id, is_joining=False)
        member_id = request.member_id
        check_known(group, member_id, request.instance_id)
        answer = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        if request.member_epoch == LEAVE_STATIC_MEMBER_EPOCH:
            change = GroupChange(group, known, self._settings(group.group_id))
            change.send_away(member_id)
            self._write(change)
            self._journal.answer(request_id, answer)
            self._journal.deadlines.cancel(_revocation(group.group_id, member_id))
            return
        change = self._removal(group, member_id, known)
        self._write(change)
        self._journal.answer(request_id, answer)
        self._forget_member(group.group_id, member_id)

    def _removal(self, group: ConsumerGroup, member_id: str, known: KnownTopics) -> GroupChange:
        change = GroupChange(group, known, self._settings(group.group_id))
        change.remove(member_id)
        change.refresh()
        change.raise_epoch()
        return change

    def _forget_member(self, group_id: str, member_id: str) -> None:
        self._journal.deadlines.cancel(_session(group_id, member_id))
        self._journal.deadlines.cancel(_revocation(group_id, member_id))

    def _watch_revocation(self, group: ConsumerGroup, member_id: str, at: Moment) -> None:
        alarm = _revocation(group.group_id, member_id)
        if group.current(member_id).state is ConsumerMemberState.UNREVOKED_PARTITIONS:
            self._journal.deadlines.set(alarm, at.now_ms + max(group.subscriptions[member_id].rebalance_timeout_ms, 0))
        else:
            self._journal.deadlines.cancel(alarm)

    # Patterns.

    def _look_everything_up(self, searches: PatternSearches) -> None:
        """The metadata may have changed while nobody looked."""
        for group in self.groups.values():
            group.needs_refresh = True
            for pattern in group.patterns:
                searches.search(group.group_id, pattern)

    def _on_found(self, found: Found, at: Moment, known: KnownTopics) -> None:
        group = self.groups.get(found.group_id)
        if group is None or found.pattern not in group.patterns:
            return
        before = group.matched.get(found.pattern)
        if before is not None and before.topics == found.topics:
            return
        change = GroupChange(group, known, self._settings(group.group_id))
        change.match(found.pattern, MatchedTopics(found.topics, known.version, at.wall_ms))
        change.refresh()
        if before is not None or found.topics:
            change.raise_epoch()
        self._write(change)

    # Writing.

    def _write(self, change: GroupChange, before: tuple[KeyValue, ...] = ()) -> None:
        """Write a change, in one batch if it fits: then it is there as a whole or not at all.

        Otherwise the raised group epoch goes first. A leader that finds the rest missing assigns anew.

        Raises:
            KafkaError: INVALID_REQUEST for a record that no batch holds; nothing was written.
        """
        journal = self._journal
        records = [*before, *change.records()]
        if not journal.fits(records) and not change.is_raised:
            change.raise_epoch()
            records = [*before, *change.records()]
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
        self.settle_memory()

    def _settings(self, group_id: str) -> ConsumerGroupSettings:
        return self.overrides.get(group_id, self._journal.settings.consumer)

    # Classic groups.

    def _classic_tombstone(self, group_id: str) -> tuple[KeyValue, ...]:
        classic = self._classic.get(group_id)
        return ((group_key(group_id), None),) if classic is not None and classic.is_recorded else ()

    def _drop_classic(self, group_id: str, at: Moment) -> None:
        """A classic group without members gave its id up. Its offsets stay."""
        classic = self._classic.pop(group_id, None)
        if classic is not None:
            for member_id in sorted(classic.pending):
                rebalance.drop_pending(self._journal, classic, member_id)
            classic.go(Change.DELETED, at.wall_ms)


def _session(group_id: str, member_id: str) -> Alarm:
    return Alarm(Cause.CONSUMER_SESSION, group_id, member_id)


def _revocation(group_id: str, member_id: str) -> Alarm:
    return Alarm(Cause.CONSUMER_REVOCATION, group_id, member_id)


def _is_same(one: Holding, other: Holding) -> bool:
    return one is other or (
        one.keys() == other.keys() and all(one[topic].keys() == other[topic].keys() for topic in one)
    )


def _told(current: CurrentAssignment) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        [ConsumerGroupHeartbeatPartitions(topic, sorted(current.assigned[topic])) for topic in sorted(current.assigned)]
    )
