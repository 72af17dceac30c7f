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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ports import Rng
from tidelog.coordinator.deadlines import Alarm, Cause
from tidelog.coordinator.groups.consumer import commit_checks, recorded
from tidelog.coordinator.groups.consumer.consumer_members import Arrival, ConsumerMembers, has_to_act
from tidelog.coordinator.groups.consumer.conversion import upgraded
from tidelog.coordinator.groups.consumer.describe_consumer_groups import viewed
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.heartbeat_checks import (
    check_epoch,
    check_heartbeat,
    check_joining,
    check_known,
    is_full,
    owned_by,
    subscription_after,
)
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import CurrentAssignment, Holding
from tidelog.coordinator.groups.consumer.pattern_searches import Found, PatternSearches
from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.consumer.target_assignments import WaitingMember
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

METADATA_WAIT_MS = 1_000
"""How much longer a member has while the topics of the cluster are not known: nobody can be assigned anything."""

logger = logging.getLogger("tidelog.server.groups")


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
        members: those of all groups.
    """

    def __init__(self, journal: GroupJournal, classic: dict[str, Group], rng: Rng) -> None:
        self.members = ConsumerMembers(journal, classic)
        self._journal = journal
        self._classic = classic
        self._rng = rng

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        """By id. Nothing but a record changes them."""
        return self.members.groups

    @property
    def next_ms(self) -> int | None:
        """When to call `on_time`: at once, while work is done in pieces; None if there is nothing to do."""
        searches = self.members.searches
        is_idle = self.members.runs.is_idle and (searches is None or searches.is_idle)
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
    ) -> None:
        """Answered with a `ConsumerGroupHeartbeatResponse`."""

        def beat(at: Moment) -> None:
            check_heartbeat(request, api_version, self.members.settings_of(request.group_id))
            if request.member_epoch < JOIN_MEMBER_EPOCH:
                self._leave(request_id, request, at)
            else:
                self._beat(_Beat(request_id, request, client_id, client_host), at)

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
        """The coordinator became active. Members have a whole session to be heard of."""
        self.members.settle_memory()
        for group in self.groups.values():
            for member_id in [one for one in {**group.currents, **group.targets} if one not in group.subscriptions]:
                group.set_current(member_id, None)  # of a member whose removal was cut off by a failover
                group.set_target(member_id, None)
            for member_id in group.subscriptions:
                self.members.watch(group, member_id, at, is_session=True)
                self.members.watch(group, member_id, at, is_session=False)
        if self.members.searches is not None:
            self._look_everything_up(self.members.searches)

    def on_due(self, alarm: Alarm, at: Moment) -> None:
        """A member was not heard of, or did not give its partitions up: it is out."""
        group = self.groups.get(alarm.group_id)
        if group is None or alarm.member_id not in group.subscriptions:
            return
        if self.members.topics is None:
            self._journal.deadlines.set(alarm, at.now_ms + METADATA_WAIT_MS)
        elif alarm.cause is Cause.CONSUMER_SESSION:
            self.members.remove(group, (alarm.member_id,), at)
        elif has_to_act(group, alarm.member_id) and not self.members.runs.awaits(group, alarm.member_id):
            self.members.remove(group, (alarm.member_id,), at)  # else it did what it had to, and is answered later

    def on_time(self, at: Moment) -> None:
        """Assign, and look patterns up, for a while."""
        self.members.runs.step(at)
        if self.members.searches is not None:
            for found in self.members.searches.step():
                self._on_found(found, at)

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

    def _beat(self, beat: _Beat, at: Moment) -> None:
        request = beat.request
        is_joining = request.member_epoch == JOIN_MEMBER_EPOCH
        group, records = self._group(request.group_id, is_joining=is_joining)
        settings = self.members.settings_of(group.group_id)
        member_id = request.member_id or str(self._rng.uuid())
        owned = owned_by(request)
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
        new = subscription_after(old, request, beat.client_id, beat.client_host)

        def respond(current: CurrentAssignment) -> ConsumerGroupHeartbeatResponse:
            is_told = is_joining or is_full(request) or not _is_same(before, current.assigned)
            return ConsumerGroupHeartbeatResponse(
                member_id=member_id,
                member_epoch=current.member_epoch,
                heartbeat_interval_ms=settings.heartbeat_interval_ms,
                assignment=_told(current) if is_told else None,
            )

        arriving = WaitingMember(beat.request_id, member_id, owned, respond)
        self.members.admit(change, arriving, new, Arrival(old_id, records), at)

    def _group(self, group_id: str, *, is_joining: bool) -> tuple[ConsumerGroup, tuple[KeyValue, ...]]:
        """The group, and the records that are missing of it, where it was a classic group until now, or is new."""
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

    def _on_found(self, found: Found, at: Moment) -> None:
        group = self.groups.get(found.group_id)
        if group is None or found.pattern not in group.patterns:
            return
        before = group.matched.get(found.pattern)
        if before is not None and before.topics == found.topics:
            return
        if not self._journal.memory.has_room(sum(map(len, found.topics))):
            self._match(group, found._replace(topics=frozenset()), at)
            self._warn(found, "they have no room (group.coordinator.memory.bytes)")
            return
        try:
            self._match(group, found, at)
        except KafkaError:  # the record is larger than a batch
            self._match(group, found._replace(topics=frozenset()), at)
            self._warn(found, "they have no room in a batch of the log")

    def _match(self, group: ConsumerGroup, found: Found, at: Moment) -> None:
        """These are the topics of a pattern. Raises KafkaError: a record of the group is too large."""
        before = group.matched.get(found.pattern)
        change = self.members.change_of(group)
        change.match(found.pattern, MatchedTopics(found.topics, self.members.known.version, at.wall_ms))
        if change.refresh() or before is not None or found.topics:
            change.raise_epoch()
        self.members.write(change)

    def _warn(self, found: Found, why: str) -> None:
        logger.warning(
            "group %s: the pattern %.100r matches %d topics, and %s: it counts as if it matched none. Use a narrower "
            "one",
            *(found.group_id, found.pattern, len(found.topics), why),
        )


def _is_same(one: Holding, other: Holding) -> bool:
    return one is other or (
        one.keys() == other.keys() and all(one[topic].keys() == other[topic].keys() for topic in one)
    )


def _told(current: CurrentAssignment) -> ConsumerGroupHeartbeatAssignment:
    return ConsumerGroupHeartbeatAssignment(
        [ConsumerGroupHeartbeatPartitions(topic, sorted(current.assigned[topic])) for topic in sorted(current.assigned)]
    )
