"""The consumer groups of one coordinator (KIP-848): what members ask, what is due, what the metadata says.

```
 on_consumer_group_heartbeat ──► checks ──► GroupChange: subscription, epochs, target, member ──► records ──► journal
 on_due, on_time ────────────────────────────────▲                                                           │
 on_metadata ──► KnownTopics, pattern searches ──┘                    ConsumerGroup ◄── recorded.apply ◄─────┘
```

Kafka: `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import cast
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ports import Rng
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups.consumer import commit_checks, long_records, recorded
from tidelog.coordinator.groups.consumer.assignment import NO_PARTITIONS, Assignment, Pace, Pieces, sorted_topics
from tidelog.coordinator.groups.consumer.consumer_members import Arrival, ConsumerMembers, has_to_act
from tidelog.coordinator.groups.consumer.conversion import upgraded
from tidelog.coordinator.groups.consumer.describe_consumer_groups import viewed
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.heartbeat_checks import (
    Lists,
    check_epoch,
    check_heartbeat,
    check_joining,
    check_known,
    is_full,
    lists_of,
    subscription_after,
)
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import NAME_BYTES, CurrentAssignment, Holding
from tidelog.coordinator.groups.consumer.pattern_searches import PatternSearches, PatternTopics
from tidelog.coordinator.groups.consumer.recorded import Said
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import RECORD_WORK, WaitingMember
from tidelog.coordinator.groups.consumer_group_records import ConsumerMemberState
from tidelog.coordinator.groups.group import Group, GroupState
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
from tidelog.wire.primitives import ZERO_UUID

NAMES_AT_ONCE = 300
"""Topics that a heartbeat names which is seen to in one go."""

METADATA_WAIT_MS = 1_000
"""How much longer a member has while the topics of the cluster are not known: nobody can be assigned anything."""

ANSWER_WAIT_MS = 1_000
"""How much longer a member has to give up what it is to, while what it says about that is being looked at."""

logger = logging.getLogger("tidelog.server.groups")


@dataclass(frozen=True, slots=True)
class _Beat:
    """A heartbeat, and who sends it."""

    request_id: RequestId
    request: ConsumerGroupHeartbeatRequest
    lists: Lists
    client_id: str
    client_host: str


class ConsumerGroups:
    """Part of a `GroupCoordinator`, which tells it when it is active.

    Args:
        classic: the classic groups of the coordinator. One without members gives its id up to a consumer group.
        rng: draws the ids of members whose clients make none.

    Attributes:
        members: those of all groups.
    """

    def __init__(self, journal: GroupJournal, classic: dict[str, Group], rng: Rng) -> None:
        self.members = ConsumerMembers(journal, classic)
        self._journal = journal
        self._classic = classic
        self._rng = rng
        self._chores: deque[Pieces[None]] = deque()  # what takes long, one after the other
        self._long_beats: dict[RequestId, None] = {}  # that are among them
        self._pace = Pace()
        self._at = Moment(0, 0)

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        """By id. Nothing but a record changes them."""
        return self.members.groups

    @property
    def next_ms(self) -> int | None:
        """When to call `on_time`: at once, while work is done in pieces; None if there is nothing to do."""
        searches = self.members.searches
        is_idle = self.members.runs.is_idle and not self._chores and (searches is None or searches.is_idle)
        return None if is_idle else 0

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
        lists: Lists | None = None,
    ) -> None:
        """Answered with a `ConsumerGroupHeartbeatResponse`.

        Args:
            lists: of the request, where they were made already.
        """

        def beat(at: Moment) -> None:
            check_heartbeat(request, api_version, self.members.settings_of(request.group_id))
            if request.member_epoch < JOIN_MEMBER_EPOCH:
                self._leave(request_id, request, at)
                return
            found = _Beat(request_id, request, lists or lists_of(request), client_id, client_host)
            if len(found.lists.topic_names or ()) > NAMES_AT_ONCE:
                self._long_beats[request_id] = None
                self._chores.append(self._beat_in_pieces(found))
            else:
                self._beat(found, at)

        self._journal.run(request_id, now_ms, wall_ms, beat)

    def on_consumer_group_describe(self, request_id: RequestId, group_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `GroupView`; one that is not there is refused with GROUP_ID_NOT_FOUND."""

        def describe(at: Moment) -> None:
            group = self.groups.get(group_id)
            if group is None:
                raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no consumer group {group_id!r}")
            assignors = self.members.settings_of(group_id).assignors
            self._journal.answer(request_id, viewed(group, self.members.topics, assignors))

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
        members = self.members
        if members.topics is None or members.searches is None:
            members.topics = KnownTopics(view, version)
            members.searches = PatternSearches(members.topics)
            if self._journal.is_active:
                self._look_everything_up(members.searches)
            return
        if version <= members.topics.version:
            return  # it was told of newer metadata when it was made
        before = members.topics.view.topics_by_name
        members.topics.on_changed(view, version, None if has_moved else changed)
        if members.topics.may_differ((), version - 1):
            self._look_at_topics()
        names = tuple(one for one in changed if (one in before) != (one in view.topics_by_name))
        if not self._journal.is_active or not names:
            return
        for group in self.groups.values():
            if not group.has_patterns:
                continue
            for pattern in group.patterns:
                matched = group.matched.get(pattern)
                if matched is None:
                    members.searches.search(group.group_id, pattern)
                members.searches.look_again(group.group_id, pattern, matched.topics if matched else (), names)

    def on_settings(self, settings: ConsumerGroupSettings, of_groups: Mapping[str, ConsumerGroupSettings]) -> None:
        """These are in force from now on; a session has the length that it began with.

        Args:
            of_groups: of those groups that have their own; nobody changes it.
        """
        self._journal.settings = replace(self._journal.settings, consumer=settings)
        self.members.overrides = of_groups

    def start(self, at: Moment) -> None:
        """The coordinator became active. Members have a whole session to be heard of, and are told all once."""
        self.members.settle_memory()
        for group in self.groups.values():
            group.untold.update(group.subscriptions)
            for member_id in [one for one in {**group.currents, **group.targets} if one not in group.subscriptions]:
                group.set_current(member_id, None)  # of a member whose removal was cut off by a failover
                group.set_target(member_id, None)
            for member_id in group.subscriptions:
                self.members.watch(group, member_id, at, is_session=True)
                self.members.watch(group, member_id, at, is_session=False)
        self._look_at_topics()
        if self.members.searches is not None:
            self._look_everything_up(self.members.searches)

    def _look_at_topics(self) -> None:
        """All topics may have changed. Those of large groups are looked at in pieces, then taken to have."""
        for group in self.groups.values():
            if len(group.topics) > NAMES_AT_ONCE and not group.is_to_be_looked_at:
                group.is_to_be_looked_at = True
                self._chores.append(self._look_at_topics_of(group))

    def _look_at_topics_of(self, group: ConsumerGroup) -> Pieces[None]:
        if self.members.topics is not None:
            yield from self.members.topics.look_at(list(group.topics), self._pace)
        group.is_to_be_looked_at = False

    def on_due(self, alarm: Alarm, at: Moment) -> None:
        """A member was not heard of, or did not give its partitions up: it is out."""
        group = self.groups.get(alarm.group_id)
        if group is None or alarm.member_id not in group.subscriptions:
            return
        if self.members.topics is None:
            self._journal.deadlines.set(alarm, at.now_ms + METADATA_WAIT_MS)
        elif alarm.cause is Cause.CONSUMER_SESSION:
            self.members.remove(group, (alarm.member_id,), at)
        elif has_to_act(group, alarm.member_id):
            if self.members.runs.awaits(group, alarm.member_id):  # it may say that it did what it had to
                self._journal.deadlines.set(alarm, at.now_ms + ANSWER_WAIT_MS)
            else:
                self.members.remove(group, (alarm.member_id,), at)

    def on_time(self, at: Moment) -> None:
        """Assign, and look patterns up, for a while."""
        self.members.runs.step(at)
        if self.members.searches is not None:
            self._chores.extend(map(self._match_in_pieces, self.members.searches.step()))
        self._at = at
        while self._chores:
            try:
                next(self._chores[0])
            except StopIteration:
                self._chores.popleft()
                continue
            break

    def release(self, error: KafkaError) -> None:
        """The coordinator resigned: whoever waits is told `error`."""
        for request_id in self._long_beats:
            self._journal.answer_at_once(request_id, error)
        self._long_beats.clear()
        self._chores.clear()
        self.members.release(error)

    def check_commit(self, request: OffsetCommitRequest, api_version: int) -> bool:
        """Whether it is of a consumer group, and may be committed. Raises what `commit_checks.check_commit` does."""
        group = self.groups.get(request.group_id)
        if group is not None:
            commit_checks.check_commit(group, self.members.topics, request, api_version)
        return group is not None

    def check_transactional_commit(self, request: TxnOffsetCommitRequest) -> bool:
        """Whether it is of a consumer group, and may be committed. Raises likewise."""
        group = self.groups.get(request.group_id)
        if group is not None:
            commit_checks.check_transactional_commit(group, self.members.topics, request)
        return group is not None

    def topic_id(self, name: str) -> UUID:
        """The id of a topic; zero if there is none, or the topics of the cluster are not known yet."""
        topics = self.members.topics
        found = None if topics is None else topics.view.topics_by_name.get(name)
        return ZERO_UUID if found is None else found.topic_id

    def give_up(self, group_id: str) -> None:
        """A member of the classic protocol joins: a group without members gives its id up. Its offsets stay."""
        group = self.groups.get(group_id)
        if group is not None and not group.subscriptions:
            self._journal.write_in_parts(tuple(recorded.group_tombstones(group)))
            self.members.settle_memory()

    # Heartbeats.

    def _beat_in_pieces(self, beat: _Beat) -> Pieces[None]:
        """As `_beat`, of a member that names many topics."""
        request, names = beat.request, beat.lists.topic_names
        assert names is not None
        if self.members.topics is not None:
            yield from self.members.topics.look_at(names, self._pace)
        group = self.groups.get(request.group_id)
        old = None if group is None else group.subscriptions.get(request.member_id)
        record = None
        if request.member_id and (old is None or old.topic_names != names):
            new = subscription_after(old, request, names, beat.client_id, beat.client_host)
            record = yield from long_records.member_record(request.group_id, request.member_id, new, self._pace)
        del self._long_beats[beat.request_id]
        try:
            self._beat(beat, self._at, record)
        except KafkaError as error:
            self._journal.answer(beat.request_id, error.with_traceback(None))
        yield  # that took long enough

    def _beat(self, beat: _Beat, at: Moment, record: KeyValue | None = None) -> None:
        request = beat.request
        is_joining = request.member_epoch == JOIN_MEMBER_EPOCH
        group, records = self._group(request.group_id, is_joining=is_joining)
        settings = self.members.settings_of(group.group_id)
        member_id = request.member_id or str(self._rng.uuid())
        owned = beat.lists.owned
        change = self.members.change_of(group)
        old_id: str | None = member_id
        if is_joining:
            old_id = check_joining(group, member_id, request.instance_id, settings)
            if old_id is not None and (old_id != member_id or group.current(old_id).is_away):
                change.replace_static(old_id, member_id)
        else:
            check_known(group, member_id, request.instance_id)
            check_epoch(group.group_id, group.current(member_id), request.member_epoch, owned)
        old = None if old_id is None else group.subscriptions[old_id]
        before = group.current(member_id).assigned
        new = subscription_after(old, request, beat.lists.topic_names, beat.client_id, beat.client_host)
        if record is not None and cast(Said, record[1]).meaning != new:
            record = None  # another request of the member came before

        says_all = is_joining or is_full(request) or _may_have_missed(group, member_id)

        def respond(current: CurrentAssignment, pace: Pace) -> Pieces[ConsumerGroupHeartbeatResponse]:
            is_other = not (yield from _is_same(before, current.assigned, pace))
            if is_other or member_id in group.unconfirmed:
                if owned is not None and (yield from _is_read(owned, current.assigned, pace)):
                    group.unconfirmed.discard(member_id)
                elif not is_joining:
                    group.unconfirmed.add(member_id)
            is_told = says_all or is_other
            if is_told:
                group.untold.discard(member_id)
            return ConsumerGroupHeartbeatResponse(
                member_id=member_id,
                member_epoch=current.member_epoch,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                assignment=(yield from _told(current, pace)) if is_told else None,
            )

        arriving = WaitingMember(beat.request_id, member_id, owned, respond, says_all)
        self.members.admit(change, arriving, new, Arrival(old_id, records, record), at)

    def _group(self, group_id: str, *, is_joining: bool) -> tuple[ConsumerGroup, tuple[KeyValue, ...]]:
        """The group, and the records that are missing of it, where it was a classic group until now, or is new."""
        if group_id in self._journal.state.share_groups:
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"group {group_id!r} is a share group")
        classic = self._classic.get(group_id)
        tombstone = ((group_key(group_id), None),) if classic is not None and classic.is_recorded else ()
        if classic is not None and classic.state is not GroupState.EMPTY:
            settings = self.members.settings_of(group_id)
            is_small = len(classic.members) < settings.group_size_max
            group = None
            if is_joining and is_small and settings.migration_policy.upgrades:
                group = upgraded(classic, self.members.known)
            records = () if group is None else (*recorded.whole_group(group), *tombstone)
            if group is None or not self._journal.fits(records):
                raise refusal(
                    Code.GROUP_ID_NOT_FOUND,
                    f"group {group_id!r} is a classic group with members (group.consumer.migration.policy is "
                    f"{settings.migration_policy.value})",
                )
            return group, records
        known_group = self.groups.get(group_id)
        if known_group is None and not is_joining:
            raise refusal(Code.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return known_group or ConsumerGroup(group_id), tombstone

    # Leaving.

    def _leave(self, request_id: RequestId, request: ConsumerGroupHeartbeatRequest, at: Moment) -> None:
        group, _ = self._group(request.group_id, is_joining=False)
        member_id = request.member_id
        check_known(group, member_id, request.instance_id)
        if request.member_epoch == LEAVE_STATIC_MEMBER_EPOCH:
            change = self.members.change_of(group)
            change.send_away(member_id)
            self.members.write(change)
            self.members.watch(group, member_id, at, is_session=False)
        else:
            self.members.remove(group, (member_id,), at)
        answer = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
        self._journal.answer(request_id, answer)

    # Patterns.

    def _look_everything_up(self, searches: PatternSearches) -> None:
        """The metadata may have changed while nobody looked."""
        for group in self.groups.values():
            for pattern in group.patterns if group.has_patterns else ():
                searches.search(group.group_id, pattern)

    def _match_in_pieces(self, found: PatternTopics) -> Pieces[None]:
        """These are the topics of a pattern."""
        group = self.groups.get(found.group_id)
        if self._pace.counts(RECORD_WORK):
            yield
        if group is None or found.pattern not in group.patterns or self._is_known(group, found):
            return
        known = self.members.known
        topics = found.topics
        if not self._journal.memory.has_room(NAME_BYTES * len(topics)):
            self._warn(found, "they have no room (group.coordinator.memory.bytes)")
            topics = frozenset()
        yield from known.look_at(topics, self._pace)
        matched = MatchedTopics(topics, known.version, self._at.wall_ms)
        record = yield from long_records.pattern_record(found.group_id, found.pattern, matched, self._pace)
        if not self._journal.fits((record,)):
            self._warn(found, "they have no room in a batch of the log")
            matched = MatchedTopics(frozenset(), known.version, self._at.wall_ms)
            record = recorded.pattern_record(found.group_id, found.pattern, matched)
        if self.groups.get(found.group_id) is not group or found.pattern not in group.patterns:
            return
        change = self.members.change_of(group)
        change.match(found.pattern, matched, record)
        if change.refresh() or matched.topics != group.matched_topics(found.pattern):
            change.raise_epoch()
        self.members.write(change)
        if self._pace.counts(len(matched.topics)):
            yield

    def _is_known(self, group: ConsumerGroup, found: PatternTopics) -> bool:
        matched = group.matched.get(found.pattern)
        return matched is not None and matched.topics == found.topics

    def _warn(self, found: PatternTopics, why: str) -> None:
        logger.warning(
            "group %s: the pattern %.100r matches %d topics, and %s: it counts as if it matched none. Use a narrower "
            "one",
            *(found.group_id, found.pattern, len(found.topics), why),
        )


def _may_have_missed(group: ConsumerGroup, member_id: str) -> bool:
    """Whether a member may not know what it is assigned, though it does not ask for it.

    librdkafka does not ask after a heartbeat whose answer took longer than the heartbeat interval: it drops that
    answer, and sends a heartbeat that leaves out what it reads. With the epoch unchanged, nothing else would tell.
    """
    return (
        member_id in group.unconfirmed
        or group.current(member_id).state is ConsumerMemberState.UNREVOKED_PARTITIONS
        or member_id in group.untold
    )


def _is_same(one: Holding, other: Holding, pace: Pace) -> Pieces[bool]:
    """Whether both are of the same partitions, since whichever epoch."""
    if one is other or len(one) != len(other):
        return one is other
    for topic, partitions in one.items():
        others = other.get(topic)
        if others is None or (others is not partitions and others.keys() != partitions.keys()):
            return False
        if pace.counts(2):
            yield
    return True


def _is_read(owned: Assignment, holding: Holding, pace: Pace) -> Pieces[bool]:
    """Whether a member says that it reads just that."""
    if len(owned) != len(holding):
        return False
    for topic, partitions in holding.items():
        read = owned.get(topic, NO_PARTITIONS)
        if len(read) != len(partitions) or not read.issuperset(partitions):
            return False
        if pace.counts(2 + len(partitions) // 8):
            yield
    return True


def _told(current: CurrentAssignment, pace: Pace) -> Pieces[ConsumerGroupHeartbeatAssignment]:
    found = []
    for topic in (yield from sorted_topics(current.assigned, pace)):
        partitions = sorted(current.assigned[topic])
        found.append(ConsumerGroupHeartbeatPartitions(topic, partitions))
        if pace.counts(2 + len(partitions) // 8):
            yield
    return ConsumerGroupHeartbeatAssignment(found)
