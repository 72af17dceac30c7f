"""What the share coordinator is to keep for share groups: begun before it is assigned, deleted with group and topic.

```
 heartbeat ──► missing ──► "initializing" ──► InitializeStates ──► on_sent ──► "initialized" ──► next assignment
 heartbeat, now and then ──► LookForStates ──► on_sent ──► what is not kept is "initializing" again, and told
 DeleteGroups, DeleteShareGroupOffsets ──► "deleting" ──► DeleteStates ──► on_sent ──► forgotten, answered
```

What was asked of the share coordinator is recorded first, so that the next leader finishes it. A state that was asked
for in vain, or by an earlier leader, is asked for again with a raised epoch: if the older request comes late, it is
fenced, and does not begin anew what members have worked on since. Kafka does not raise it. A state that was to begin
elsewhere, and of which that is not known, is given a higher epoch for the same reason, and keeps what it has.

A deletion names the group epoch, so that it spares what was begun since if it comes late. The group may have been made
anew before it comes, or the log of a share coordinator may be lost. So it looks for the states now and then. A group
of Kafka reads such a partition no more.

Kafka: `GroupCoordinatorService`, `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset, PartitionIndex, TopicId
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.requests import (
    STATES_ANYWHERE,
    DeleteStates,
    InitializeStates,
    LookForStates,
    RaiseStates,
    StateOutcomes,
)
from tidelog.coordinator.groups.share.share_journal import ShareJournal
from tidelog.coordinator.groups.share.states import STATE_BYTES, RecordedStates, StateId, Topics, TopicStates, ids_of
from tidelog.journal import RequestId, Send, SendId

logger = logging.getLogger("tidelog.server.groups")

BEGUN_AT_ONCE_MAX = 1_000
"""States of one group that are asked for at a time."""


NO_STATE_EPOCH = -1
"""A deletion is of states of all epochs."""
LOOK_INTERVAL_MS = 60_000
"""For which nobody may learn that the states of a group are not kept any more."""


class Missing(NamedTuple):
    """States that a group is to begin with.

    Attributes:
        was_asked_for: whether one was asked for before: then it takes another epoch.
    """

    topics: Topics
    was_asked_for: bool


Done = Callable[[StateOutcomes], None]
"""Told once, what became of each state."""


@dataclass(frozen=True, slots=True)
class _Sent:
    group_id: str
    ids: tuple[StateId, ...]
    what: type[InitializeStates | RaiseStates | LookForStates | DeleteStates]
    done: Done | None
    request_id: RequestId | None


class GroupStates:
    """Those of all share groups of one coordinator, and what is under way about them."""

    def __init__(self, written: ShareJournal) -> None:
        self._written = written
        self._last_send_id = 0
        self._sent: dict[SendId, _Sent] = {}
        self._beginning: dict[str, dict[StateId, SendId]] = {}
        self._deleting: dict[str, dict[TopicId, SendId]] = {}
        self._looking: dict[str, SendId] = {}  # what is begun or deleted meanwhile makes the answer worthless
        self._postponed: dict[str, list[_Sent]] = {}  # deletions, until what is being begun has been

    # Beginning.

    def missing(
        self, group: ShareGroup, names: Iterable[str], known: KnownTopics, states: RecordedStates | None = None
    ) -> Missing:
        """The states of the group's topics that are neither there nor under way, as far as they are begun at once.

        Those too that are there, and of which it is not known whether they begin elsewhere: `begin` settles it.

        Args:
            states: that there are; None for what is recorded.
        """
        states = states or group.known_states
        beginning = self._beginning.get(group.group_id, {})
        deleting = self._deleting.get(group.group_id, {})
        topics: dict[TopicId, TopicStates] = {}
        assignable = states.assignable
        room = BEGUN_AT_ONCE_MAX - len(beginning)
        is_whole, was_asked_for = True, False
        for name in names:
            topic = known.view.topics_by_name.get(name)
            if topic is None:
                continue
            topic_id, count = topic.topic_id, len(topic.partitions)
            there = assignable.get(topic_id)
            if there is not None and len(there.partitions) >= count:
                continue
            if topic_id in deleting or room <= 0:
                is_whole = False
                continue
            lacking = [
                one
                for one in range(count)
                if not (there is not None and one in there.partitions)
                and (topic_id, PartitionIndex(one)) not in beginning
            ]
            is_whole = is_whole and len(lacking) <= room
            some = frozenset(lacking[:room])
            room -= len(some)
            if some:
                topics[topic_id] = TopicStates(name, some)
                asked = states.initializing.get(topic_id)
                was_asked_for = was_asked_for or (asked is not None and not some.isdisjoint(asked.partitions))
        group.lacks_states = bool(topics) or not is_whole
        count = sum(len(one.partitions) for one in topics.values())
        if not self._written.has_room(2 * STATE_BYTES * count):
            logger.warning(
                "group %s: %d partitions more find no room beside the %d bytes of all groups of this node "
                "(group.coordinator.memory.bytes is %d): it does not read them",
                *(group.group_id, count, self._written.journal.memory.used_bytes),
                self._written.journal.memory.limit_bytes,
            )
            return Missing({}, was_asked_for=False)
        if topics and not self._written.journal.fits(
            (recorded.states_record(group.group_id, states.beginning(topics)),)
        ):
            logger.warning(
                "group %s: no batch of %d bytes holds %d partitions more: it does not read them. Divide its topics "
                "between groups, or raise max.message.bytes of __consumer_offsets",
                *(group.group_id, self._written.journal.batch_size_bytes_max, count),
            )
            group.lacks_states = False  # until other topics are read
            return Missing({}, was_asked_for=False)
        return Missing(topics, was_asked_for)

    def begin(
        self,
        group_id: str,
        state_epoch: int,
        topics: Topics,
        *,
        starts: Mapping[StateId, Offset | None] | None = None,
        done: Done | None = None,
        request_id: RequestId | None = None,
    ) -> None:
        """Ask for states that are recorded as `initializing`.

        Args:
            starts: where they begin. None: a leader finds out, and what is there stays.
            done: told of the outcome after it was recorded.
            request_id: that is answered then.
        """
        ids = tuple(ids_of(topics))
        if starts is None:
            states = self._written.groups[group_id].known_states
            there = tuple(one for one in ids if states.is_initialized(*one))
            if there:
                sent = _Sent(group_id, there, RaiseStates, done=None, request_id=None)
                self._note_beginning(sent, self._send(sent, RaiseStates(group_id, state_epoch, there)))
                left = frozenset(ids).difference(there)
                ids = tuple(one for one in ids if one in left)
                if not ids:
                    return
            starts = {}
        sent = _Sent(group_id, ids, InitializeStates, done=done, request_id=request_id)
        request = InitializeStates(group_id, state_epoch, ids, tuple(starts.get(one) for one in ids))
        self._note_beginning(sent, self._send(sent, request))

    def is_being_deleted(self, group_id: str, topic_id: TopicId) -> bool:
        """Whether the states of a topic are about to go."""
        return topic_id in self._deleting.get(group_id, {})

    # Looking for them.

    def look(self, group: ShareGroup, now_ms: int) -> None:
        """Ask whether what the group works with is kept, if it is time to."""
        group_id = group.group_id
        if group.look_ms is None:
            group.look_ms = now_ms + LOOK_INTERVAL_MS
        if now_ms < group.look_ms or group_id in {**self._beginning, **self._deleting, **self._looking}:
            return
        group.look_ms = now_ms + LOOK_INTERVAL_MS
        ids = tuple(ids_of(group.known_states.assignable))
        if ids:
            sent = _Sent(group_id, ids, LookForStates, done=None, request_id=None)
            self._looking[group_id] = self._send(sent, LookForStates(group_id, ids))

    def _on_looked_for(self, send_id: SendId, sent: _Sent, outcomes: StateOutcomes) -> None:
        if self._looking.get(sent.group_id) != send_id:
            return
        del self._looking[sent.group_id]
        group = self._written.groups.get(sent.group_id)
        lost = [one for one, error in zip(sent.ids, outcomes, strict=True) if error is not None and _is_lost(error)]
        if group is not None and lost:
            self._record_lost(group, lost)

    # Deleting.

    def delete(
        self,
        group_id: str,
        ids: tuple[StateId, ...],
        *,
        done: Done | None = None,
        request_id: RequestId | None = None,
    ) -> None:
        """Delete states of topics that are recorded as `deleting`, once none of the group is being begun."""
        sent = _Sent(group_id, ids, DeleteStates, done=done, request_id=request_id)
        if self._beginning.get(group_id):
            self._postponed.setdefault(group_id, []).append(sent)
            self._note_deleting(sent, SendId(0))
        else:
            self._send_deletion(sent)

    def ids_to_delete(self, states: RecordedStates, topic_ids: Collection[TopicId]) -> tuple[StateId, ...]:
        """The states that there may be of topics; of one that is no more there is none."""
        found = []
        for topic_id in topic_ids:
            partitions = set(states.of_topic(topic_id))
            if topic_id in states.deleting:
                partitions.update(range(self._written.known.partition_count(topic_id)))
            found += [(topic_id, PartitionIndex(one)) for one in sorted(partitions)]
        return tuple(found)

    def _note_beginning(self, sent: _Sent, send_id: SendId) -> None:
        self._looking.pop(sent.group_id, None)
        self._beginning.setdefault(sent.group_id, {}).update(dict.fromkeys(sent.ids, send_id))

    def _send_deletion(self, sent: _Sent) -> None:
        group = self._written.groups.get(sent.group_id)
        epoch = NO_STATE_EPOCH if group is None else group.epoch
        self._note_deleting(sent, self._send(sent, DeleteStates(sent.group_id, epoch, sent.ids)))

    def _note_deleting(self, sent: _Sent, send_id: SendId) -> None:
        self._looking.pop(sent.group_id, None)
        topics = self._deleting.setdefault(sent.group_id, {})
        topics.update((topic_id, send_id) for topic_id, _ in sent.ids)

    # What happens.

    def start(self) -> None:
        """The coordinator became active: an earlier leader may have left deletions undone."""
        for group in list(self._written.groups.values()):
            states = group.known_states
            if states.deleting and self._written.topics is not None:
                ids = self.ids_to_delete(group.known_states, states.deleting)
                if ids:
                    self.delete(group.group_id, ids)

    def on_topics_deleted(self, topic_ids: Collection[TopicId]) -> None:
        """Share coordinators delete the states of topics that are no more by themselves."""
        gone = frozenset(topic_ids)
        for group in list(self._written.groups.values()):
            states = group.known_states
            if not gone.isdisjoint(states.topic_ids):
                self._record(group, states.without(gone))

    def on_topics(self, known: Mapping[TopicId, object]) -> None:
        """There are no topics but these."""
        gone = {one for group in self._written.groups.values() for one in group.known_states.topic_ids} - known.keys()
        if gone:
            self.on_topics_deleted(gone)

    def on_sent(self, send_id: SendId, outcome: object) -> None:
        """The share coordinators answered: for each state why it was not done, or None."""
        sent = self._sent.pop(send_id, None)
        if sent is None:
            return
        outcomes: StateOutcomes = (
            (outcome,) * len(sent.ids) if isinstance(outcome, KafkaError) else tuple(outcome)  # type: ignore[arg-type]
        )
        if sent.what is DeleteStates:
            self._on_deleted(send_id, sent, outcomes)
        elif sent.what is LookForStates:
            self._on_looked_for(send_id, sent, outcomes)
        else:
            self._on_begun(send_id, sent, outcomes)
        if sent.done is not None:
            sent.done(outcomes)

    def release(self, error: KafkaError) -> None:
        """The coordinator resigned: whoever waits is told `error`."""
        for one in (*self._sent.values(), *(one for some in self._postponed.values() for one in some)):
            if one.request_id is not None:
                self._written.journal.answer_at_once(one.request_id, error)
        self._sent.clear()
        self._beginning.clear()
        self._deleting.clear()
        self._looking.clear()
        self._postponed.clear()

    # How.

    def _on_begun(self, send_id: SendId, sent: _Sent, outcomes: StateOutcomes) -> None:
        beginning = self._beginning.get(sent.group_id, {})
        begun: list[StateId] = []
        refused: list[StateId] = []
        lost: list[StateId] = []
        for state_id, error in zip(sent.ids, outcomes, strict=True):
            if beginning.get(state_id) != send_id:
                continue  # it was asked for anew since
            del beginning[state_id]
            if error is None:
                begun.append(state_id)
            elif sent.what is RaiseStates:
                if _is_lost(error):
                    lost.append(state_id)
            elif not _may_be_begun(error):
                refused.append(state_id)
            if error is not None:
                logger.info("group %s: %s is not begun: %s", sent.group_id, state_id, error)
        if not beginning:
            self._beginning.pop(sent.group_id, None)
        group = self._written.groups.get(sent.group_id)
        if group is not None and any(error is not None for error in outcomes):
            group.lacks_states = True  # heartbeats have looked away while it was under way
        if group is not None and lost:
            self._record_lost(group, lost)
        if group is not None and (begun or refused):
            self._record_begun(group, begun, refused)
        if sent.group_id not in self._beginning:
            for one in self._postponed.pop(sent.group_id, ()):
                self._send_deletion(one)

    def _record_begun(self, group: ShareGroup, begun: Collection[StateId], refused: Collection[StateId]) -> None:
        """Record what is there, and begin with what was too much to begin with at once."""
        states = group.known_states.begun(begun).not_begun(refused)
        if states == group.known_states:
            return
        known, more = self._written.topics, Missing({}, was_asked_for=False)
        may_go_on = begun and not refused and group.group_id not in {**self._beginning, **self._postponed}
        if known is not None and may_go_on:
            more = self.missing(group, group.topics, known, states)
        if more.topics and not more.was_asked_for and self._record(group, states.beginning(more.topics)):
            self.begin(group.group_id, group.epoch, more.topics)
        else:
            self._record(group, states)

    def _record_lost(self, group: ShareGroup, ids: Collection[StateId]) -> None:
        """States that the group works with are not kept any more: it begins anew there, with the next heartbeat."""
        states = group.known_states
        for topic_id, partition in ids:
            there = states.initialized.get(topic_id)
            if there is not None and partition in there.partitions:
                logger.warning(
                    "group %s: THE POSITION IN %s-%d IS LOST: the share coordinator keeps nothing of it. The group "
                    "begins anew there, where share.auto.offset.reset says. To have it begin elsewhere, stop its "
                    "members and reset its offsets",
                    *(group.group_id, there.name, partition),
                )
        self._record(group, states.lost(ids))

    def _on_deleted(self, send_id: SendId, sent: _Sent, outcomes: StateOutcomes) -> None:
        deleting = self._deleting.get(sent.group_id, {})
        failed = {
            topic_id
            for (topic_id, _), error in zip(sent.ids, outcomes, strict=True)
            if error is not None and not is_of_no_topic(error)
        }
        gone: set[TopicId] = set()
        for topic_id in dict(sent.ids):
            if deleting.get(topic_id) == send_id:
                del deleting[topic_id]
                if topic_id not in failed:
                    gone.add(topic_id)
        if not deleting:
            self._deleting.pop(sent.group_id, None)
        group = self._written.groups.get(sent.group_id)
        if group is None:
            return
        group.lacks_states = True
        left = gone.intersection(group.known_states.deleting)
        if left:
            self._record(group, group.known_states.without(left))

    def _record(self, group: ShareGroup, states: RecordedStates) -> bool:
        try:
            self._written.write(group.group_id, (recorded.states_record(group.group_id, states),))
        except KafkaError as error:
            logger.warning("%s", error)
            return False
        return True

    def _send(self, sent: _Sent, request: InitializeStates | RaiseStates | LookForStates | DeleteStates) -> SendId:
        self._last_send_id += 1
        send_id = SendId(self._last_send_id)
        self._sent[send_id] = sent
        self._written.journal.send(Send(send_id, STATES_ANYWHERE, request))
        return send_id


def _may_be_begun(error: KafkaError) -> bool:
    """Whether a request may yet be done, or another epoch helps: it stays recorded, so that the next one is raised."""
    return error.retriable or error.code == Code.FENCED_STATE_EPOCH


def _is_lost(error: KafkaError) -> bool:
    """Whether a state that was begun is not kept."""
    return error.code == Code.INVALID_REQUEST


def is_of_no_topic(error: KafkaError) -> bool:
    """Whether a state is gone with its topic."""
    return error.code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID)
