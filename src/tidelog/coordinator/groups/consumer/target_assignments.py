"""The target assignment of a group: small ones are made at once, large ones in pieces, with other requests in between.

```
 heartbeat ──► subscription, group epoch ──► run ── pieces ──► targets ── in batches ──► target epoch ──► answers
                                              ▲ what the group wants then      whoever asks meanwhile waits ┘
```

While a run is under way no member of its group is moved on: half of the targets would be of another assignment. The
group epoch may grow meanwhile; the next run is for that. A leader that fails in between leaves a group whose epoch is
above that of its targets, and the next leader assigns anew.

Kafka: `TargetAssignmentBuilder`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer import long_records, recorded
from tidelog.coordinator.groups.consumer.assignment import (
    AssignableMember,
    Assignment,
    Assignor,
    Pace,
    Pieces,
)
from tidelog.coordinator.groups.consumer.group import PARTITION_BYTES, ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment, Wanted
from tidelog.coordinator.groups.consumer.range_assignor import range_
from tidelog.coordinator.groups.consumer.uniform_assignor import uniform
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.journal import KeyValue, Moment, RequestId

logger = logging.getLogger("tidelog.server.groups")

ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}

AT_ONCE_MAX = 300
"""Members and partitions of a group that is assigned within one request, in a few milliseconds."""

TOPICS_AT_ONCE = 200
"""Of a target whose record is made in one go."""

RECORD_WORK = 25
"""What writing the target of a member takes, in partitions looked at."""


@dataclass(frozen=True, slots=True)
class AssignmentInput:
    """What a target assignment is made from; nobody changes it.

    Attributes:
        subscriptions: of the members.
        targets: that they have.
        wanted: what they are subscribed to, each once.
        matched: the topics of patterns.
    """

    subscriptions: Mapping[str, ConsumerSubscription]
    targets: Mapping[str, Assignment]
    wanted: Sequence[Wanted]
    matched: Mapping[str, MatchedTopics]
    assignor: str

    def weight(self, known: KnownTopics) -> int:
        """About how much work it is: the members, and the partitions of their topics."""
        topics = known.ids(frozenset().union(*map(self._names_of, self.wanted)))
        return len(self.subscriptions) + sum(map(known.partition_count, topics))

    def assigned(self, known: KnownTopics) -> Pieces[dict[str, Assignment]]:
        """What each member is to read."""
        ids: dict[Wanted, frozenset[TopicId]] = {}
        counts: dict[TopicId, int] = {}
        pace = Pace()
        for wanted in self.wanted:
            found = yield from known.ids_in_pieces(self._names_of(wanted), pace)
            ids[wanted] = found
            for topic in found.difference(counts):  # `found - counts.keys()` would look at all that were counted
                counts[topic] = known.partition_count(topic)
                if pace.counts(1):
                    yield
        assignable: dict[str, AssignableMember] = {}
        nothing: Assignment = {}
        for member_id, one in self.subscriptions.items():
            topics = ids[one.wanted]
            assignable[member_id] = AssignableMember(topics, self.targets.get(member_id, nothing), one.instance_id)
            if pace.counts(2 + len(one.topic_names) // 8):
                yield
        return (yield from ASSIGNORS[self.assignor](assignable, counts))

    def _names_of(self, wanted: Wanted) -> Collection[str]:
        names, pattern = wanted
        matched = self.matched.get(pattern) if pattern is not None else None
        if matched is None:
            return names
        return matched.topics.union(names) if names else matched.topics


@dataclass(frozen=True, slots=True)
class WaitingMember:
    """A member that is answered once its group has a target assignment.

    Attributes:
        owned: what it says that it reads.
        respond: makes the answer of what it has then.
        says_all: whether it is told all that it has, though it has that already.
    """

    request_id: RequestId
    member_id: str
    owned: Assignment | None
    respond: Callable[[CurrentAssignment, Pace], Pieces[object]]
    says_all: bool = False


Advance = Callable[[ConsumerGroup, WaitingMember, Pace], Pieces[None]]
"""Moves a member on that waited, and answers it."""


@dataclass(slots=True)
class _Run:
    group: ConsumerGroup
    pace: Pace = field(default_factory=Pace)
    pieces: Pieces[None] = field(init=False)
    waiting: deque[WaitingMember] = field(default_factory=deque)


class AssignmentRuns:
    """Those of one coordinator, a piece of each in turn.

    Args:
        groups: by id, as they are recorded.
        advance: moves a member on that waited, and answers it.
    """

    def __init__(
        self,
        journal: GroupJournal,
        groups: Mapping[str, ConsumerGroup],
        advance: Advance,
    ) -> None:
        self._journal = journal
        self._groups = groups
        self._advance = advance
        self._runs: dict[str, _Run] = {}
        self._at = Moment(0, 0)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is to be done."""
        return not self._runs

    def is_under_way(self, group: ConsumerGroup) -> bool:
        """Whether a target assignment is being made for a group."""
        run = self._runs.get(group.group_id)
        return run is not None and run.group is group

    def start(self, group: ConsumerGroup, wanted: AssignmentInput, known: KnownTopics) -> None:
        """Make the target assignment for the epoch that a group has now."""
        self._drop(group.group_id)
        run = self._runs[group.group_id] = _Run(group)
        run.pieces = self._pieces(run, group.epoch, wanted, known)

    def start_moving(self, group: ConsumerGroup) -> None:
        """Move members on, one after the other, whose group has the target assignment that it is to have."""
        self._drop(group.group_id)
        run = self._runs[group.group_id] = _Run(group)
        run.pieces = self._moves(run)

    def awaits(self, group: ConsumerGroup, member_id: str) -> bool:
        """Whether a member is answered once the assignment that is under way is made."""
        run = self._runs.get(group.group_id)
        return run is not None and any(one.member_id == member_id for one in run.waiting)

    def wait(self, group: ConsumerGroup, waiting: WaitingMember) -> None:
        """Answer a member once the assignment that is under way is made."""
        self._runs[group.group_id].waiting.append(waiting)

    def step(self, at: Moment) -> None:
        """Do the next piece of an assignment, or of the answers that wait for it; then it is another one's turn."""
        if not self._runs:
            return
        run = next(iter(self._runs.values()))
        self._runs[run.group.group_id] = self._runs.pop(run.group.group_id)
        self._at = at
        if self._groups.get(run.group.group_id) is not run.group:
            self._drop(run.group.group_id)
            return
        try:
            next(run.pieces)
        except StopIteration:
            del self._runs[run.group.group_id]
        except KafkaError as error:
            del self._runs[run.group.group_id]
            for one in run.waiting:
                self._journal.answer(one.request_id, error.with_traceback(None))

    def has_room(self, group: ConsumerGroup, wanted: AssignmentInput, assigned: Mapping[str, Assignment]) -> bool:
        """Whether what members are to have, and then have, finds room. If not, a group keeps its old assignment.

        Raises:
            KafkaError: GROUP_MAX_SIZE_REACHED: it has none yet.
        """
        before = sum(sum(map(len, one.values())) for one in wanted.targets.values())
        after = sum(sum(map(len, one.values())) for one in assigned.values())
        memory = self._journal.memory
        more_bytes = 2 * PARTITION_BYTES * (after - before)
        if more_bytes <= 0 or memory.has_room(more_bytes):
            return True
        problem = (
            f"group {group.group_id!r}: an assignment of {after} partitions finds no room beside the "
            f"{memory.used_bytes} bytes of all groups of this node (group.coordinator.memory.bytes is "
            f"{memory.limit_bytes})"
        )
        if group.target_epoch == 0:
            raise refusal(Code.GROUP_MAX_SIZE_REACHED, problem)
        logger.warning("%s: the group keeps the assignment that it has", problem)
        return False

    @property
    def at(self) -> Moment:
        """When the piece at hand is done."""
        return self._at

    def end(self, error: KafkaError) -> None:
        """The coordinator resigned: whoever waits is told so."""
        for run in self._runs.values():
            for one in run.waiting:
                self._journal.answer_at_once(one.request_id, error)
        self._runs.clear()

    def _drop(self, group_id: str) -> None:
        """The group is another one, or none. Who waits asks again: any other error ends Java's consumer."""
        run = self._runs.pop(group_id, None)
        for one in run.waiting if run is not None else ():
            self._journal.answer(
                one.request_id, refusal(Code.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id!r} has changed: try again")
            )

    def _pieces(self, run: _Run, epoch: int, wanted: AssignmentInput, known: KnownTopics) -> Pieces[None]:
        group, pace, journal = run.group, run.pace, self._journal
        group_id = group.group_id
        assigned = yield from wanted.assigned(known)
        for member_id, target in assigned.items():
            if _size_bytes(group_id, member_id, target) > journal.batch_size_bytes_max:
                raise refusal(
                    Code.INVALID_REQUEST,
                    f"group {group_id!r}: a member gets more than a batch of {journal.batch_size_bytes_max} bytes "
                    "holds",
                )
            if pace.counts(1 + len(target) // 4):
                yield
        if not self.has_room(group, wanted, assigned):
            yield from self._moves(run)
            return
        records: list[KeyValue] = []
        for computed_for, target in assigned.items():
            successor = _successor(group, computed_for, wanted)
            if successor is None or target == group.target(successor):
                is_others_turn = pace.counts(1 + len(target) // 8)
            elif len(target) <= TOPICS_AT_ONCE:
                records.append(recorded.target_record(group_id, successor, target))
                is_others_turn = pace.counts(RECORD_WORK + len(target) // 8 + 4 * sum(map(len, target.values())))
            else:
                journal.write_in_parts(records)
                records = []
                yield from self._write_long(run, computed_for, target, wanted)
                is_others_turn = pace.counts(1 + len(target) // 8)
            if is_others_turn:
                journal.write_in_parts(records)  # before others have their turn: a member may leave meanwhile
                records = []
                yield
        records.append(recorded.target_epoch_record(group_id, epoch, self._at.wall_ms))
        journal.write_in_parts(records)
        yield
        yield from self._moves(run)

    def _write_long(self, run: _Run, computed_for: str, target: Assignment, wanted: AssignmentInput) -> Pieces[None]:
        """Write the target of a member, or of who takes its place while the record is made."""
        group = run.group
        successor = _successor(group, computed_for, wanted)
        while successor is not None:
            record = yield from long_records.target_record(group.group_id, successor, target, run.pace)
            meant_for, successor = successor, _successor(group, computed_for, wanted)
            if successor == meant_for:
                self._journal.write_in_parts((record,))
                return

    def _moves(self, run: _Run) -> Pieces[None]:
        while run.waiting:
            one = run.waiting[0]
            yield from self._advance(run.group, one, run.pace)
            run.waiting.popleft()
            if run.pace.counts(10 * RECORD_WORK):
                yield


def _successor(group: ConsumerGroup, member_id: str, wanted: AssignmentInput) -> str | None:
    """Who is to have what was meant for a member: itself, or who took its place meanwhile; None if nobody did."""
    if member_id in group.subscriptions:
        return member_id
    instance_id = wanted.subscriptions[member_id].instance_id
    return None if instance_id is None else group.static_members.get(instance_id)


def _size_bytes(group_id: str, member_id: str, target: Assignment) -> int:
    """More than what the record of a member takes that has it all."""
    names_bytes = 4 * (len(group_id) + len(member_id))
    return 256 + names_bytes + 32 * len(target) + 9 * sum(map(len, target.values()))
