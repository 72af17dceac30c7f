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
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import Offset, PartitionIndex, TopicId
from tidelog.coordinator.groups.consumer.assignment import Pace, Pieces
from tidelog.coordinator.groups.share import recorded
from tidelog.coordinator.groups.share.group import ShareGroup
from tidelog.coordinator.groups.share.group_work import GroupWork
from tidelog.coordinator.groups.share.requests import (
    STATES_ANYWHERE,
    DeleteStates,
    InitializeStates,
    LookForStates,
    RaiseStates,
    StateOutcomes,
)
from tidelog.coordinator.groups.share.share_journal import ShareJournal
from tidelog.coordinator.groups.share.states import (
    STATE_BYTES,
    RecordedStates,
    StateId,
    Topics,
    TopicStates,
    ids_of,
    partitions_in,
    record_bytes_of,
)
from tidelog.journal import KeyValue, Moment, RequestId, Send, SendId
from tidelog.metadata.image import MetadataView

logger = logging.getLogger("tidelog.server.groups")

BEGUN_AT_ONCE_MAX = 1_000
"""States of one group that are asked for at a time."""


NO_STATE_EPOCH = -1
"""A deletion is of states of all epochs."""
EPOCH_STEP_MAX = 1 << 20
"""By which the epoch of a group is raised at most: states of a higher one are there, of nobody knows which."""
STEPPED_EPOCH_MAX = 1 << 30
"""From here on it is raised by one: an epoch beyond 31 bits cannot be recorded, and takes the coordinator offline."""
TOPICS_AT_ONCE_MAX = 8
"""That are looked for in the states of each group at once, or of each group: there may be very many groups."""
TOLD_WORK = 100
"""What it takes to say a line, in elements looked at."""
LOOK_INTERVAL_MS = 60_000
"""For which nobody may learn that the states of a group are not kept any more."""


class Missing(NamedTuple):
    """States that a group is to begin with.

    Attributes:
        was_asked_for: whether one was asked for before: then it takes another epoch.
        record: that says so; None if there is nothing to begin with.
    """

    topics: Topics
    was_asked_for: bool
    record: KeyValue | None


NOTHING_MISSING = Missing({}, was_asked_for=False, record=None)

Done = Callable[[StateOutcomes, Pace], Pieces[None]]
"""Told once, what became of each state. Its last piece answers."""


@dataclass(frozen=True, slots=True)
class _Sent:
    group_id: str
    ids: tuple[StateId, ...]
    what: type[InitializeStates | RaiseStates | LookForStates | DeleteStates]
    done: Done | None
    request_id: RequestId | None

    @property
    def topic_ids(self) -> Iterator[TopicId]:
        """Each of them once: those of one topic follow each other."""
        return (topic_id for topic_id, _ in groupby(self.ids, itemgetter(0)))


class _Deletion(NamedTuple):
    """The states of a topic are to go. Nothing of it is begun before the last of the requests is answered.

    Attributes:
        first_id: of the first request for it, or of a later one: one that was sent before is of an earlier deletion.
        last_id: 0 until it is sent.
    """

    first_id: SendId
    last_id: SendId


class GroupStates:
    """Those of all share groups of one coordinator, and what is under way about them."""

    def __init__(self, written: ShareJournal, work: GroupWork) -> None:
        self._written = written
        self._work = work
        self._last_send_id = 0
        self._sent: dict[SendId, _Sent] = {}
        self._beginning: dict[str, dict[StateId, SendId]] = {}
        self._deleting: dict[str, dict[TopicId, _Deletion]] = {}
        self._looking: dict[str, SendId] = {}  # what is begun or deleted meanwhile makes the answer worthless
        self._postponed: dict[str, list[_Sent]] = {}  # deletions, until what is being begun has been

    # Beginning.

    def missing(
        self,
        group: ShareGroup,
        names: Iterable[str],
        view: MetadataView,
        pace: Pace,
        states: RecordedStates | None = None,
    ) -> Pieces[Missing]:
        """The states of the group's topics that are neither there nor under way, as far as they are begun at once.

        Those too that are there, and of which it is not known whether they begin elsewhere: `begin` settles it.

        Args:
            view: the topics of the cluster.
            states: that there are; None for what is recorded.
        """
        group_id = group.group_id
        states = states or group.known_states
        beginning = self._beginning.get(group_id, {})
        deleting = self._deleting.get(group_id, {})
        topics: dict[TopicId, TopicStates] = {}
        room = BEGUN_AT_ONCE_MAX - len(beginning)
        memory_room = self._written.bytes_left // (2 * STATE_BYTES)
        record_room = self._written.record_bytes_left(group_id, states.record_bytes)
        is_whole, was_asked_for, count, left_out = True, False, 0, 0
        for name in names:
            if pace.counts(2):
                yield
            topic = view.topics_by_name.get(name)
            if topic is None:
                continue
            topic_id, partition_count = topic.topic_id, len(topic.partitions)
            there = states.assignable_of(topic_id)
            if len(there) >= partition_count:
                continue
            if topic_id in deleting or room <= 0:
                is_whole = False
                continue
            lacking = [one for one in range(partition_count) if one not in there]
            if beginning:
                lacking = [one for one in lacking if (topic_id, PartitionIndex(one)) not in beginning]
            if pace.counts(4 + partition_count // 4):
                yield
            wanted = lacking[:room]
            some = frozenset(wanted[: max(min(memory_room - count, partitions_in(record_room, name)), 0)])
            left_out += len(wanted) - len(some)
            room -= len(wanted)
            if some:
                count += len(some)
                record_room -= record_bytes_of(name, len(some))
                topics[topic_id] = TopicStates(name, some)
                asked = states.initializing.get(topic_id)
                was_asked_for = was_asked_for or (asked is not None and not some.isdisjoint(asked.partitions))
        group.lacks_states = bool(topics) or not is_whole
        if left_out:
            self._tell_left_out(group, left_out, is_for_memory=memory_room <= count)
        if not topics:
            return NOTHING_MISSING
        begun = yield from states.beginning(topics, pace)
        record = yield from recorded.states_record(group_id, begun, pace)
        return Missing(topics, was_asked_for, record)

    def _tell_left_out(self, group: ShareGroup, count: int, *, is_for_memory: bool) -> None:
        if is_for_memory:
            group.lacks_states = True
            memory = self._written.journal.memory
            logger.warning(
                "group %s: %d partitions more find no room beside the %d bytes of all groups of this node "
                "(group.coordinator.memory.bytes is %d): it does not read them",
                *(group.group_id, count, memory.used_bytes, memory.limit_bytes),
            )
        else:
            group.lacks_states = False  # until other topics are read
            logger.warning(
                "group %s: no batch of %d bytes holds %d partitions more: it does not read them. Divide its topics "
                "between groups, or raise max.message.bytes of __consumer_offsets",
                *(group.group_id, self._written.journal.batch_size_bytes_max, count),
            )

    def begin(
        self,
        group_id: str,
        state_epoch: int,
        topics: Topics,
        pace: Pace,
        *,
        starts: dict[StateId, Offset | None] | None = None,
        done: Done | None = None,
        request_id: RequestId | None = None,
    ) -> Pieces[None]:
        """Ask for states that are recorded as `initializing`.

        Args:
            starts: where they begin; nothing is left in it. None: a leader finds out, and what is there stays.
            done: told of the outcome after it was recorded.
            request_id: that is answered then.
        """
        ids: list[StateId] = []
        there: list[StateId] = []
        states = self._written.groups[group_id].known_states
        for one in ids_of(topics):
            is_there = starts is None and states.is_initialized(*one)
            (there if is_there else ids).append(one)
            if pace.counts(1):
                yield
        if there:
            sent = _Sent(group_id, tuple(there), RaiseStates, done=None, request_id=None)
            send_id = yield from self._note_beginning(sent, pace)
            self._send(send_id, sent, RaiseStates(group_id, state_epoch, sent.ids))
        if ids:
            offsets: list[Offset | None] = []
            for one in ids:
                offsets.append(None if starts is None else starts.pop(one))
                if pace.counts(1):
                    yield
            sent = _Sent(group_id, tuple(ids), InitializeStates, done=done, request_id=request_id)
            send_id = yield from self._note_beginning(sent, pace)
            beginning = InitializeStates(group_id, state_epoch, sent.ids, tuple(offsets))
            self._send(send_id, sent, beginning)

    def is_being_deleted(self, group_id: str, topic_id: TopicId) -> bool:
        """Whether the states of a topic are about to go."""
        return topic_id in self._deleting.get(group_id, {})

    # Looking for them.

    def look(self, group: ShareGroup, now_ms: int, pace: Pace) -> Pieces[None]:
        """Ask whether what the group works with is kept, if it is time to."""
        group_id = group.group_id
        if group.look_ms is None:
            group.look_ms = now_ms + LOOK_INTERVAL_MS
        if now_ms < group.look_ms or any(group_id in one for one in (self._beginning, self._deleting, self._looking)):
            return
        group.look_ms = now_ms + LOOK_INTERVAL_MS
        ids: list[StateId] = []
        states = group.known_states
        for topic_id in states.initialized:
            ids += [(topic_id, PartitionIndex(one)) for one in sorted(states.assignable_of(topic_id))]
            if pace.counts(2 + len(states.initialized[topic_id].partitions) // 4):
                yield
        if ids:
            sent = _Sent(group_id, tuple(ids), LookForStates, done=None, request_id=None)
            send_id = self._looking[group_id] = self._new_send_id()
            self._send(send_id, sent, LookForStates(group_id, sent.ids))

    def _on_looked_for(self, send_id: SendId, sent: _Sent, outcomes: StateOutcomes, pace: Pace) -> Pieces[None]:
        if self._looking.get(sent.group_id) != send_id:
            return
        del self._looking[sent.group_id]
        group = self._written.groups.get(sent.group_id)
        lost = [one for one, error in zip(sent.ids, outcomes, strict=True) if error is not None and _is_lost(error)]
        if group is not None and lost:
            yield from self._record_lost(group, lost, pace)

    # Deleting.

    def delete(
        self,
        group_id: str,
        ids: tuple[StateId, ...],
        pace: Pace,
        *,
        done: Done | None = None,
        request_id: RequestId | None = None,
    ) -> Pieces[None]:
        """Delete states of topics that are recorded as `deleting`, once none of the group is being begun."""
        sent = _Sent(group_id, ids, DeleteStates, done=done, request_id=request_id)
        if self._beginning.get(group_id):
            yield from self._note_deleting(sent, SendId(0), pace)
            self._postponed.setdefault(group_id, []).append(sent)
        else:
            yield from self._send_deletion(sent, pace)

    def ids_to_delete(
        self, states: RecordedStates, topic_ids: Iterable[TopicId], pace: Pace
    ) -> Pieces[tuple[StateId, ...]]:
        """The states that there may be of topics; of one that is no more there is none."""
        found: list[StateId] = []
        for topic_id in topic_ids:
            partitions = set(states.of_topic(topic_id))
            if topic_id in states.deleting:
                partitions.update(range(self._written.known.partition_count(topic_id)))
            found += [(topic_id, PartitionIndex(one)) for one in sorted(partitions)]
            if pace.counts(4 + len(partitions) // 4):
                yield
        return tuple(found)

    def _note_beginning(self, sent: _Sent, pace: Pace) -> Pieces[SendId]:
        """Have states be under way. Returns the id of what is to be sent."""
        self._looking.pop(sent.group_id, None)
        beginning, send_id = self._beginning.setdefault(sent.group_id, {}), self._new_send_id()
        for one in sent.ids:
            beginning[one] = send_id
            if pace.counts(1):
                yield
        return send_id

    def _send_deletion(self, sent: _Sent, pace: Pace) -> Pieces[None]:
        group = self._written.groups.get(sent.group_id)
        epoch = NO_STATE_EPOCH if group is None else group.epoch
        send_id = self._new_send_id()
        yield from self._note_deleting(sent, send_id, pace)
        self._send(send_id, sent, DeleteStates(sent.group_id, epoch, sent.ids))

    def _note_deleting(self, sent: _Sent, send_id: SendId, pace: Pace) -> Pieces[None]:
        self._looking.pop(sent.group_id, None)
        topics = self._deleting.setdefault(sent.group_id, {})
        next_id = send_id or SendId(self._last_send_id + 1)
        for topic_id in sent.topic_ids:
            before = topics.get(topic_id)
            topics[topic_id] = _Deletion(next_id if before is None else before.first_id, send_id)
            if pace.counts(1):
                yield

    # What happens.

    def start(self) -> None:
        """The coordinator became active: an earlier leader may have left deletions undone."""
        for group in list(self._written.groups.values()):
            if group.known_states.deleting and self._written.topics is not None:
                self._work.do_later(group.group_id, self._delete_again(group))

    def _delete_again(self, group: ShareGroup) -> Pieces[None]:
        states = group.known_states
        ids = yield from self.ids_to_delete(states, states.deleting, Pace())
        if ids:
            yield from self.delete(group.group_id, ids, Pace())

    def on_topics_deleted(self, topic_ids: Collection[TopicId]) -> None:
        """Share coordinators delete the states of topics that are no more by themselves."""
        gone = frozenset(topic_ids)
        self._forget_later(lambda states: _may_have_any(states, gone), lambda _: gone, RecordedStates.has)

    def on_topics(self, known: Container[TopicId]) -> None:
        """There are no topics but these."""
        self._forget_later(
            lambda states: states.topic_count > 0,
            lambda states: states.topic_ids,
            lambda _, topic_id: topic_id not in known,
        )

    def _forget_later(
        self,
        may_have_any: Callable[[RecordedStates], bool],
        among: Callable[[RecordedStates], Iterable[TopicId]],
        is_gone: Callable[[RecordedStates, TopicId], bool],
    ) -> None:
        """Nothing is kept of topics that are gone: one group after the other, of those that may have any."""
        for group_id in list({**self._written.groups, **dict.fromkeys(self._work.group_ids)}):
            group = self._written.groups.get(group_id)
            if self._work.is_under_way(group_id) or (group is not None and may_have_any(group.known_states)):
                self._work.do_later(group_id, self._forget(group_id, among, is_gone))

    def _forget(
        self,
        group_id: str,
        among: Callable[[RecordedStates], Iterable[TopicId]],
        is_gone: Callable[[RecordedStates, TopicId], bool],
    ) -> Pieces[None]:
        group = self._written.groups.get(group_id)
        if group is None:
            return
        pace = Pace()
        there: list[TopicId] = []
        for topic_id in among(group.known_states):
            if is_gone(group.known_states, topic_id):
                there.append(topic_id)
            if pace.counts(1):
                yield
        if there:
            yield from self._record(group, (yield from group.known_states.without(there, pace)), pace)

    def on_sent(self, send_id: SendId, outcome: object, at: Moment) -> None:
        """The share coordinators answered: for each state why it was not done, or None."""
        sent = self._sent.pop(send_id, None)
        if sent is not None:
            self._work.do(sent.group_id, self._on_sent(send_id, sent, outcome), at, sent.request_id)

    def _on_sent(self, send_id: SendId, sent: _Sent, outcome: object) -> Pieces[None]:
        pace = Pace()
        outcomes: StateOutcomes = (
            (outcome,) * len(sent.ids) if isinstance(outcome, KafkaError) else tuple(outcome)  # type: ignore[arg-type]
        )
        if sent.what is DeleteStates:
            yield from self._on_deleted(send_id, sent, outcomes, pace)
        elif sent.what is LookForStates:
            yield from self._on_looked_for(send_id, sent, outcomes, pace)
        else:
            yield from self._on_begun(send_id, sent, outcomes, pace)
        if sent.done is not None:
            yield from sent.done(outcomes, pace)

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

    def _on_begun(self, send_id: SendId, sent: _Sent, outcomes: StateOutcomes, pace: Pace) -> Pieces[None]:
        beginning = self._beginning.get(sent.group_id, {})
        begun: list[StateId] = []
        refused: list[StateId] = []
        lost: list[StateId] = []
        failed: KafkaError | None = None
        is_fenced = False
        for state_id, error in zip(sent.ids, outcomes, strict=True):
            if pace.counts(2):
                yield
            failed = error or failed
            if beginning.get(state_id) != send_id:
                continue  # it was asked for anew since
            del beginning[state_id]
            if error is None:
                begun.append(state_id)
                continue
            is_fenced = is_fenced or error.code == Code.FENCED_STATE_EPOCH
            if sent.what is RaiseStates:
                if _is_lost(error):
                    lost.append(state_id)
            elif not _may_be_begun(error):
                refused.append(state_id)
            logger.info("group %s: %s is not begun: %s", sent.group_id, state_id, error)
        if not beginning:
            self._beginning.pop(sent.group_id, None)
        group = self._written.groups.get(sent.group_id)
        if group is not None:
            is_to_step = is_fenced and group.epoch < STEPPED_EPOCH_MAX
            group.epoch_step = min(2 * group.epoch_step, EPOCH_STEP_MAX) if is_to_step else 1
            if failed is not None:
                group.lacks_states = True  # heartbeats have looked away while it was under way
            if lost:
                yield from self._record_lost(group, lost, pace)
            if begun or refused:
                yield from self._record_begun(group, begun, refused, pace)
        if sent.group_id not in self._beginning:
            postponed = self._postponed.get(sent.group_id, [])
            while postponed:
                yield from self._send_deletion(postponed[0], pace)
                del postponed[0]
            self._postponed.pop(sent.group_id, None)

    def _record_begun(
        self, group: ShareGroup, begun: Collection[StateId], refused: Collection[StateId], pace: Pace
    ) -> Pieces[None]:
        """Record what is there, and begin with what was too much to begin with at once."""
        states = yield from group.known_states.begun(begun, pace)
        if refused:
            states = yield from states.not_begun(refused, pace)
        if states == group.known_states:
            return
        group_id, known, more = group.group_id, self._written.topics, NOTHING_MISSING
        may_go_on = not refused and group_id not in self._beginning and group_id not in self._postponed
        if known is not None and may_go_on:
            more = yield from self.missing(group, list(group.topics), known.view, pace, states)
        if more.record is not None and not more.was_asked_for and self._write(group, more.record):
            yield from self.begin(group_id, group.epoch, more.topics, pace)
        else:
            yield from self._record(group, states, pace)

    def _record_lost(self, group: ShareGroup, ids: Collection[StateId], pace: Pace) -> Pieces[None]:
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
            if pace.counts(TOLD_WORK):
                yield
        yield from self._record(group, (yield from states.lost(ids, pace)), pace)

    def _on_deleted(self, send_id: SendId, sent: _Sent, outcomes: StateOutcomes, pace: Pace) -> Pieces[None]:
        deleting = self._deleting.get(sent.group_id, {})
        failed: set[TopicId] = set()
        for (topic_id, _), error in zip(sent.ids, outcomes, strict=True):
            if error is not None and not is_of_no_topic(error):
                failed.add(topic_id)
            if pace.counts(1):
                yield
        gone: list[TopicId] = []
        for topic_id in sent.topic_ids:
            deletion = deleting.get(topic_id)
            if deletion is not None and send_id >= deletion.first_id:  # else it was begun since
                if send_id == deletion.last_id:
                    del deleting[topic_id]
                if topic_id not in failed:
                    gone.append(topic_id)
            if pace.counts(1):
                yield
        if not deleting:
            self._deleting.pop(sent.group_id, None)
        group = self._written.groups.get(sent.group_id)
        if group is None:
            return
        group.lacks_states = True
        left: list[TopicId] = []
        for one in gone:
            if one in group.known_states.deleting:
                left.append(one)
            if pace.counts(1):
                yield
        if left:
            yield from self._record(group, (yield from group.known_states.without(left, pace)), pace)

    def _record(self, group: ShareGroup, states: RecordedStates, pace: Pace) -> Pieces[None]:
        self._write(group, (yield from recorded.states_record(group.group_id, states, pace)))

    def _write(self, group: ShareGroup, record: KeyValue) -> bool:
        try:
            self._written.write(group.group_id, (record,))
        except KafkaError as error:
            logger.warning("%s", error)
            return False
        return True

    def _new_send_id(self) -> SendId:
        self._last_send_id += 1
        return SendId(self._last_send_id)

    def _send(
        self, send_id: SendId, sent: _Sent, request: InitializeStates | RaiseStates | LookForStates | DeleteStates
    ) -> None:
        self._sent[send_id] = sent
        self._written.journal.send(Send(send_id, STATES_ANYWHERE, request))


def _may_have_any(states: RecordedStates, topic_ids: frozenset[TopicId]) -> bool:
    """Whether there may be something of one of these topics: it is looked at where there are few of either."""
    if len(topic_ids) <= TOPICS_AT_ONCE_MAX:
        return any(map(states.has, topic_ids))
    return states.topic_count > TOPICS_AT_ONCE_MAX or not topic_ids.isdisjoint(states.topic_ids)


def _may_be_begun(error: KafkaError) -> bool:
    """Whether a request may yet be done, or another epoch helps: it stays recorded, so that the next one is raised."""
    return error.retriable or error.code == Code.FENCED_STATE_EPOCH


def _is_lost(error: KafkaError) -> bool:
    """Whether a state that was begun is not kept."""
    return error.code == Code.INVALID_REQUEST


def is_of_no_topic(error: KafkaError) -> bool:
    """Whether a state is gone with its topic."""
    return error.code in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID)
