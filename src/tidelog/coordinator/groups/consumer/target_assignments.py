"""The target assignment of a group: small ones are made at once, large ones in pieces, with other requests in between.

```
 heartbeat ──► subscription, group epoch ──► run ── pieces ──► targets ── in batches ──► target epoch ──► answers
                                              ▲ what the group wants then      whoever asks meanwhile waits ┘
```

While a run is under way no member of its group is moved on: half of the targets would be of another assignment. The
group epoch may grow meanwhile; the next run is for that. A leader that fails in between leaves a group whose epoch is
above that of its targets, and the next leader assigns anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.coordinator.groups.consumer import recorded
from tidelog.coordinator.groups.consumer.assignment import (
    PIECE,
    AssignableMember,
    Assignment,
    Assignor,
    Pace,
    Pieces,
)
from tidelog.coordinator.groups.consumer.group import ConsumerGroup, MatchedTopics
from tidelog.coordinator.groups.consumer.known_topics import KnownTopics
from tidelog.coordinator.groups.consumer.member import ConsumerSubscription, CurrentAssignment, Wanted
from tidelog.coordinator.groups.consumer.range_assignor import range_
from tidelog.coordinator.groups.consumer.uniform_assignor import uniform
from tidelog.coordinator.groups.group_journal import GroupJournal
from tidelog.journal import KeyValue, Moment, RequestId

ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}

AT_ONCE_MAX = 300
"""Members and partitions of a group that is assigned within one request, in a few milliseconds."""

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
            for topic in found - counts.keys():
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
    """

    request_id: RequestId
    member_id: str
    owned: Assignment | None
    respond: Callable[[CurrentAssignment], object]


@dataclass(slots=True)
class _Run:
    group: ConsumerGroup
    epoch: int
    pieces: Iterator[None]
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
        advance: Callable[[ConsumerGroup, WaitingMember, Moment], None],
    ) -> None:
        self._journal = journal
        self._groups = groups
        self._advance = advance
        self._runs: dict[str, _Run] = {}
        self._wall_ms = 0

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
        epoch = group.epoch or 0
        self._drop(group.group_id)
        self._runs[group.group_id] = _Run(group, epoch, self._pieces(group, epoch, wanted, known))

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
        self._wall_ms = at.wall_ms
        if self._groups.get(run.group.group_id) is not run.group:
            self._drop(run.group.group_id)
            return
        try:
            if next(run.pieces, self) is not self:
                return
        except KafkaError as error:
            del self._runs[run.group.group_id]
            for one in run.waiting:
                self._journal.answer(one.request_id, error.with_traceback(None))
            return
        work = 0
        while run.waiting and work < PIECE:
            one = run.waiting.popleft()
            self._advance(run.group, one, at)
            work += RECORD_WORK * 10 + sum(map(len, run.group.target(one.member_id).values()))
        if not run.waiting:
            del self._runs[run.group.group_id]

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

    def _pieces(self, group: ConsumerGroup, epoch: int, wanted: AssignmentInput, known: KnownTopics) -> Iterator[None]:
        group_id = group.group_id
        assigned = yield from wanted.assigned(known)
        size_bytes_max = max((_size_bytes(group_id, *one) for one in assigned.items()), default=0)
        if size_bytes_max > self._journal.batch_size_bytes_max:
            raise refusal(
                Code.INVALID_REQUEST,
                f"group {group_id!r}: a member gets more than a batch of {self._journal.batch_size_bytes_max} bytes "
                "holds",
            )
        yield
        records: list[KeyValue] = []
        work = 0
        for computed_for, target in assigned.items():
            member_id = _successor(group, computed_for, wanted)
            if member_id is not None and target != group.target(member_id):
                records.append(recorded.target_record(group_id, member_id, target))
                work += RECORD_WORK + 4 * sum(map(len, target.values()))
            work += 1
            if work >= PIECE:
                self._journal.write_in_parts(records)
                records, work = [], 0
                yield
        records.append(recorded.target_epoch_record(group_id, epoch, self._wall_ms))
        self._journal.write_in_parts(records)
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
    return 256 + names_bytes + sum(32 + 9 * len(partitions) for partitions in target.values())
