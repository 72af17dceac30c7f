"""The follower's side of one partition: make the log a prefix of the leader's, then copy what comes.

One machine lives for one leader epoch: whatever was asked in another is no news here (rule 2). It sends one request at
a time, and none while the disk owes it something: a fetch says that all below its offset is here. Only where that does
not matter, as all of it is committed already, it fetches on before the last records are written (`fetch_ahead`).

Kafka: `AbstractFetcherThread`.
"""

from __future__ import annotations

from typing import Self

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from tidelog.base.invariant import invariant
from tidelog.metadata.image import PartitionImage
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica.fetch_ahead import AheadRule, is_committed_without
from tidelog.replica.follower_states import TRANSITIONS, FollowerCause, FollowerState
from tidelog.replica.follower_values import (
    EpochEndRequest,
    FetchOutcome,
    FollowerReady,
    FollowerRequest,
    FollowerSettings,
    Halt,
    LogStartRequest,
    RecordsRequest,
    Truncation,
)
from tidelog.replica.leader_epoch import check_leader_epoch
from tidelog.replica.lineage_walk import LineageWalk
from tidelog.replica.truncation import (
    EpochEndOffset,
    HaltRule,
    OwnLog,
    TruncationRule,
    TruncationStep,
    belies_what_was_committed,
    truncation_point,
)
from tidelog.replica.values import LogBounds


class FollowerReplica:
    """Follows the leader of one partition in one leader epoch."""

    __slots__ = (
        "_ahead",
        "_ahead_rule",
        "_answer",
        "_append",
        "_awaited",
        "_epochs",
        "_halt",
        "_halt_rule",
        "_is_appending",
        "_is_lineage_whole",
        "_is_nothing_shared",
        "_is_reconciled",
        "_is_truncating",
        "_learnt",
        "_lineage",
        "_moved_log_start",
        "_next_epoch_to_request",
        "_number",
        "_retry_ms",
        "_settings",
        "_truncation",
        "_truncation_rule",
        "_unclean_epoch",
        "_walk",
        "broker_id",
        "high_watermark",
        "leader",
        "leader_epoch",
        "log_end_offset",
        "log_start_offset",
        "partition",
        "state",
    )

    def __init__(
        self,
        partition: TopicPartition,
        broker_id: BrokerId,
        state: PartitionImage,
        log: LogBounds,
        lineage: LeaderEpochLineage,
        *,
        settings: FollowerSettings,
        truncation: TruncationRule = truncation_point,
        halts: HaltRule = belies_what_was_committed,
        ahead: AheadRule = is_committed_without,
    ) -> None:
        """Begin to follow, in `state.leader_epoch`.

        Args:
            state: the partition as the metadata has it. A member of the ISR has the leader's lineage whole: it had to,
                to join; who is not one learns it.
            lineage: the log's own, which changes as the log does. Only read here.
            truncation: what to cut. Tests pass the rules that were replaced; production has one.
            halts: what not to cut, likewise.
            ahead: when to fetch on before what came is written, likewise.
        """
        invariant(state.leader != broker_id, "{}: broker {} leads it, and follows nobody", partition, broker_id)
        self.partition = partition
        self.broker_id = broker_id
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.log_start_offset = log.log_start_offset
        self.log_end_offset = log.log_end_offset
        self.high_watermark = log.clamped_high_watermark
        self.state = FollowerState.LEADERLESS if state.leader is None else FollowerState.TRUNCATING
        self._lineage = lineage
        self._settings = settings
        self._truncation_rule = truncation
        self._halt_rule = halts
        self._ahead_rule = ahead
        self._unclean_epoch = state.unclean_epoch
        self._halt: Halt | None = None
        self._number = 0
        self._awaited: FollowerRequest | None = None
        self._retry_ms: int | None = None
        self._next_epoch_to_request: LeaderEpoch | None = None
        self._truncation: Truncation | None = None
        self._is_truncating = False
        self._is_nothing_shared = False
        self._is_lineage_whole = broker_id in state.isr
        self._walk: LineageWalk | None = None
        self._learnt: tuple[EpochEntry, ...] = ()
        self._epochs: tuple[EpochEntry, ...] = ()
        self._answer = FetchOutcome()
        self._append: int | None = None
        self._is_appending = False
        self._ahead: RecordsRequest | None = None
        self._moved_log_start: Offset | None = None
        self._is_reconciled = False
        if state.leader is not None:
            self._truncate(self._truncation_rule(self._own_log, None))

    # What is the case.

    @property
    def is_reconciled(self) -> bool:
        """Whether the leader of this epoch accepted a fetch: what is here is a prefix of its log."""
        return self._is_reconciled

    @property
    def is_appending(self) -> bool:
        """Whether records are to be written yet: until `on_appended` no answer is to be told."""
        return self._is_appending

    @property
    def unclean_epoch(self) -> LeaderEpoch | None:
        """The newest leader epoch from which on a leader may lack what was committed before."""
        return self._unclean_epoch

    def check_serves(self, sent: LeaderEpoch | None) -> None:
        """Whether consumers may be served, up to `high_watermark` (rule 9).

        Raises:
            FencedLeaderEpochError: the sender missed an election.
            UnknownLeaderEpochError: the sender knows of a newer one.
            KafkaError: NOT_LEADER_OR_FOLLOWER until the leader of this epoch has accepted a fetch: before, records
                could be shown that are about to go.
        """
        check_leader_epoch(self.partition, sent=sent, leader_epoch=self.leader_epoch)
        if not self._is_reconciled:
            raise refusal(
                Code.NOT_LEADER_OR_FOLLOWER,
                f"{self.partition}: broker {self.broker_id} is {self.state.value} in leader epoch {self.leader_epoch}, "
                "and does not know yet which of its records the leader has",
            )

    # What happened.

    def on_epoch_end(self, number: int, end: tuple[LeaderEpoch, Offset] | None, now_ms: int) -> None:
        """The leader told where an epoch ends; None is its (-1, -1), which never is a reason to truncate (rule 1)."""
        requested = self._answered(number)
        if not isinstance(requested, EpochEndRequest):
            return
        if end is None or end[0] > requested.leader_epoch:
            self._back_off(now_ms)
        elif self._walk is not None:
            self._walk.on_answer(*end)
            self._learn()
        else:
            self._truncate(self._truncation_rule(self._own_log, EpochEndOffset(requested.leader_epoch, *end)))

    def on_fetched(self, number: int, answer: FetchOutcome, now_ms: int) -> None:
        """The leader answered a fetch. `take_ready` says whether the records are to be appended.

        To one that went ahead, the answer is told once the records before it are written (`is_appending`). Where they
        could not be, it is of no use.
        """
        requested = self._answered(number)
        if not isinstance(requested, RecordsRequest):
            return
        invariant(not self._is_appending, "{}: an answer overtook what is to be appended", self.partition)
        if requested.fetch_offset != self.log_end_offset:
            return
        diverging = answer.diverging
        if diverging is not None:
            self._is_reconciled = False
            if requested.last_fetched_epoch is None or diverging.leader_epoch > requested.last_fetched_epoch:
                self._back_off(now_ms)
                return
            self._move(FollowerCause.DIVERGED)
            self._truncate(
                self._truncation_rule(self._own_log, EpochEndOffset(requested.last_fetched_epoch, *diverging))
            )
            return
        self._is_reconciled = True
        self._answer = answer
        if answer.end_offset is None or answer.end_offset <= self.log_end_offset:
            self._follow()
        else:
            self._append, self._is_appending = number, True
            if answer.last_leader_epoch is not None and self._ahead_rule(answer.end_offset, answer.high_watermark):
                self._ahead = self._fetch(requested.leader, answer.end_offset, answer.last_leader_epoch)

    def on_log_start(self, number: int, log_start_offset: Offset, now_ms: int) -> None:
        """The leader told where its log starts: our offset was out of range, or nothing of our log is to be kept."""
        if not isinstance(self._answered(number), LogStartRequest):
            return
        if self._is_nothing_shared:
            self._owe(Truncation(log_start_offset, starts_anew=True, below_high_watermark=self.high_watermark))
            return
        if log_start_offset > self.log_end_offset or self.log_start_offset == self.log_end_offset:
            self._owe(Truncation(log_start_offset, starts_anew=True))  # the leader's retention removed all that is here
            return
        self._move(FollowerCause.LIES_WITHIN)
        self._back_off(now_ms)
        self._truncate(self._truncation_rule(self._own_log, None))

    def on_refused(self, number: int, code: Code, now_ms: int) -> None:
        """The leader refused. Both epoch errors may pass (KIP-320); if there is another epoch, it has a new machine.

        No refusal is a reason to truncate. OFFSET_OUT_OF_RANGE is one to ask where the leader's log starts.
        """
        requested = self._answered(number)
        if requested is None:
            return
        if (
            code is Code.OFFSET_OUT_OF_RANGE
            and isinstance(requested, RecordsRequest)
            and requested.fetch_offset == self.log_end_offset
        ):
            self._is_reconciled = False
            self._move(FollowerCause.OUT_OF_RANGE)
        else:
            self._back_off(now_ms)

    def on_unanswered(self, number: int, now_ms: int) -> None:
        """The request timed out, or its connection closed: it is sent again, later."""
        if self._answered(number) is not None:
            self._back_off(now_ms)

    def on_truncated(self, log_end_offset: Offset) -> None:
        """The truncation is done, and outlasts a loss of power. The log may end lower: a batch goes as a whole."""
        if self.state is FollowerState.STOPPED:
            return  # the next machine looks at the log itself
        invariant(self._is_truncating and self._truncation is None, "{}: truncated without need", self.partition)
        self._is_truncating = False
        self.log_end_offset = log_end_offset
        self.high_watermark = min(self.high_watermark, log_end_offset)
        if self.state is FollowerState.LOCATING or log_end_offset <= self.log_start_offset:
            self.log_start_offset = self.high_watermark = log_end_offset  # no record is left
            self._next_epoch_to_request, self._is_lineage_whole = None, False
        if self.state is FollowerState.LOCATING:
            self._is_nothing_shared = False
            self._move(FollowerCause.STARTED_ANEW)
            self._begin_to_learn()
        else:
            self._go_on()

    def on_appended(self, log_end_offset: Offset) -> None:
        """What was to be appended is written, and the lineage has the epochs of its batches; the end is exclusive."""
        if self.state is FollowerState.STOPPED:
            return
        invariant(self._is_appending and self._append is None, "{}: appended unasked", self.partition)
        invariant(log_end_offset >= self.log_end_offset, "{}: the log end went back", self.partition)
        self._is_appending = False
        self.log_end_offset = log_end_offset
        self._note_epochs()
        self._follow()

    def on_tick(self, now_ms: int) -> None:
        """Time has passed: what was held back is sent."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None

    def on_stopped(self) -> None:
        """Another epoch, or no replica here any more: nothing is sent, and no answer counts."""
        self._move(FollowerCause.STOPPED)
        self._awaited = self._halt = self._truncation = self._append = self._ahead = self._retry_ms = None
        self._is_truncating = self._is_appending = self._is_reconciled = False
        self._epochs = ()

    # What to do about it.

    def take_ready(self) -> FollowerReady:
        """What is owed, in the order in which it is to be done: nothing is sent before the disk has what it says."""
        request = None if self._is_truncating or self._is_appending else self._next_request()
        ready = FollowerReady(
            self._halt,
            self._truncation,
            self._ahead,
            self._append,
            self._epochs,
            self._moved_log_start,
            self.high_watermark,
            request,
        )
        self._halt = self._truncation = self._ahead = self._append = self._moved_log_start = None
        self._epochs = ()
        return ready

    def next_deadline_ms(self) -> int | None:
        """When to call `on_tick`; None when nothing is held back."""
        return self._retry_ms

    def clone(self, lineage: LeaderEpochLineage | None = None) -> Self:
        """An independent copy, for the exhaustive checker.

        Args:
            lineage: of the copied log; None for a copy of this one's.
        """
        copy = type(self).__new__(type(self))
        for name in FollowerReplica.__slots__:
            setattr(copy, name, getattr(self, name))
        copy._lineage = self._lineage.clone() if lineage is None else lineage
        copy._walk = None if self._walk is None else self._walk.clone()
        return copy

    def canonical_key(self) -> tuple[object, ...]:
        """Equal for machines that behave alike, clocks and the numbers of requests aside."""
        return (
            self.broker_id,
            self.leader,
            self.leader_epoch,
            self.state,
            self.log_start_offset,
            self.log_end_offset,
            self.high_watermark,
            self._lineage.entries,
            self._awaited is not None,  # what was asked follows from the rest, unless it went ahead
            self._went_ahead,
            self._ahead is not None,
            self._retry_ms is not None,
            self._next_epoch_to_request,
            self._truncation,
            self._append is not None,
            (self._is_truncating, self._is_appending, self._is_reconciled),
            (self._is_lineage_whole, self._is_nothing_shared),
            (self._halt, self._unclean_epoch),
            None if self._walk is None else self._walk.canonical_key(),
            self._learnt,
            self._epochs,
            self._answer if self._is_appending else None,
            self._moved_log_start,
        )

    @property
    def _own_log(self) -> OwnLog:
        return OwnLog(self.log_start_offset, self.log_end_offset, self.high_watermark, self._lineage)

    @property
    def _went_ahead(self) -> tuple[Offset, LeaderEpoch | None] | None:
        awaited = self._awaited
        if not isinstance(awaited, RecordsRequest) or awaited.fetch_offset == self.log_end_offset:
            return None
        return awaited.fetch_offset, awaited.last_fetched_epoch

    def _move(self, cause: FollowerCause) -> None:
        invariant((self.state, cause) in TRANSITIONS, "{}: {} while {}", self.partition, cause, self.state)
        self.state = TRANSITIONS[self.state, cause]

    def _answered(self, number: int) -> FollowerRequest | None:
        """The request that this is the answer to; None for one that nobody waits for: it came late, or twice."""
        requested = self._awaited
        if requested is None or requested.number != number:
            return None
        self._awaited = None
        return requested

    def _back_off(self, now_ms: int) -> None:
        self._retry_ms = now_ms + self._settings.fetch_backoff_ms

    def _truncate(self, step: TruncationStep) -> None:
        """Truncate by the rule, with the epochs that no record is left of; then go on, or be reconciled."""
        self._next_epoch_to_request = step.next_epoch_to_request
        if self._halt_rule(self._own_log, step.end_offset, self._unclean_epoch):
            self._next_epoch_to_request = None
            self._halt = Halt(step.end_offset, self.high_watermark, self._own_log.last_leader_epoch)
            self._move(FollowerCause.BELIED)
            return
        has_newer_epochs = step.agreed_epoch not in (
            None,
            self._lineage.latest_leader_epoch,
        )  # they have no record left
        if step.end_offset < self.log_start_offset:
            self._next_epoch_to_request, self._is_nothing_shared = None, True
            self._move(FollowerCause.NOTHING_SHARED)
        elif step.end_offset < self.log_end_offset or has_newer_epochs:
            is_below = step.end_offset < self.high_watermark
            self._owe(Truncation(step.end_offset, below_high_watermark=self.high_watermark if is_below else None))
        else:
            self._go_on()

    def _owe(self, truncation: Truncation) -> None:
        self._truncation, self._is_truncating = truncation, True

    def _go_on(self) -> None:
        if self._next_epoch_to_request is None:
            self._move(FollowerCause.RECONCILED)
            self._begin_to_learn()

    def _begin_to_learn(self) -> None:
        if self._learnt:  # and not all of it noted yet
            self._is_lineage_whole, self._learnt = False, ()
        self._walk = None if self._is_lineage_whole else LineageWalk(self.leader_epoch, self.log_start_offset)
        self._learn()

    def _learn(self) -> None:
        """Request the next epoch, or take what was learnt for the records here; the rest waits for its records."""
        if self._walk is not None:
            if self._walk.question is not None:
                return
            oldest, *newer = self._walk.entries
            known = self._lineage.epoch_at(oldest.start_offset)
            # Where the leader's log was cut at its start, ours may still know where that epoch really began.
            self._learnt = tuple(newer) if known is not None and known >= oldest.leader_epoch else (oldest, *newer)
            self._walk = None
            self._is_lineage_whole = True
            self._note_epochs()
        self._move(FollowerCause.LEARNT)

    def _note_epochs(self) -> None:
        here = tuple(entry for entry in self._learnt if entry.start_offset < self.log_end_offset)
        if not here:
            return
        corrected = self._lineage.clone()
        for entry in here:
            corrected.assign(*entry)
        if corrected != self._lineage:
            self._epochs = here
        self._learnt = self._learnt[len(here) :]

    def _follow(self) -> None:
        """Take over what the leader says is committed and kept, as far as it is here."""
        answer = self._answer
        if answer.high_watermark is not None:
            known = min(answer.high_watermark, self.log_end_offset)
            self.high_watermark = max(self.high_watermark, known)
        if answer.log_start_offset is not None:
            log_start_offset = min(answer.log_start_offset, self.high_watermark)
            if log_start_offset > self.log_start_offset:
                self.log_start_offset = self._moved_log_start = log_start_offset

    def _next_request(self) -> FollowerRequest | None:
        if self._awaited is not None or self._retry_ms is not None or self.leader is None:
            return None
        question = self._next_epoch_to_request if self._walk is None else self._walk.question
        if self.state is FollowerState.FETCHING:
            return self._fetch(self.leader, self.log_end_offset, self._own_log.last_leader_epoch)
        number = self._number + 1
        request: FollowerRequest
        if self.state is FollowerState.LOCATING:
            request = LogStartRequest(number, self.leader, self.leader_epoch)
        elif question is not None and self.state is not FollowerState.STOPPED:
            request = EpochEndRequest(number, self.leader, self.leader_epoch, question)
        else:
            return None
        self._number = number
        self._awaited = request
        return request

    def _fetch(self, leader: BrokerId, fetch_offset: Offset, last_fetched_epoch: LeaderEpoch | None) -> RecordsRequest:
        self._number += 1
        request = RecordsRequest(
            self._number, leader, self.leader_epoch, fetch_offset, last_fetched_epoch, self.log_start_offset
        )
        self._awaited = request
        return request
