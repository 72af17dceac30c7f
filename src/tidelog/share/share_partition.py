"""The leader's side of one partition for one share group: which records are delivered to whom, and what became of them.

```
             acquired by a member            its acknowledgement is kept by the share coordinator
 available ──────────────────────► acquired ─────────────────────────────────────────────────────► done, or available
     ▲                                │
     └────── its time is over, or its member has left; done, if it was delivered too often ◄─────┘
```

What holds, whatever happens: no two members have a record at once. An acknowledgement is answered once it is kept, and
counts from then on, whoever leads next. One change is written at a time; what comes meanwhile goes into the next.

One machine lives for one leader epoch. The next leader begins with what was kept, as far as it is true of its own log
(`reconciliation`). A member's records are then available, as its acknowledgements cannot find them any more.

Kafka: `SharePartition`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share.in_flight import ACKNOWLEDGED, ACQUIRED, ARCHIVED, AVAILABLE, InFlight, Run
from tidelog.share.reconciliation import epoch_before
from tidelog.share.state import DeliveryState, ShareState, StateBatch, StateChange
from tidelog.share.values import (
    AcknowledgedRecords,
    AcknowledgeReply,
    AcknowledgeType,
    AcquiredRecords,
    LogBatch,
    ShareReady,
    ShareSettings,
)

LOOK_INTERVAL_MS: Final = 50
"""Times that are over are looked for no more often: it takes a look at all runs in flight."""
RELEASED_AT_ONCE_MAX: Final = 500
"""Runs whose time is over, in one go: a fraction of a millisecond. The others are next."""
RETRY_MS: Final = 1_000
"""What nobody waits for is written again so long after a refusal, unless an acknowledgement comes first."""
NEVER_MS: Final = 1 << 62


class Acknowledging:
    """What one request acknowledges, until it is kept."""

    __slots__ = ("correlation_id", "runs")

    def __init__(self, correlation_id: CorrelationId, runs: list[Run]) -> None:
        self.correlation_id = correlation_id
        self.runs = runs


class Taking:
    """What one fetch acquires.

    Attributes:
        left: how many records more the member wants.
        acquired: what it has by now.
    """

    __slots__ = ("acquired", "deadline_ms", "is_strict", "left", "member_id")

    def __init__(self, member_id: str, deadline_ms: int, records_max: int, is_strict: bool) -> None:
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.left = records_max
        self.is_strict = is_strict
        self.acquired: list[AcquiredRecords] = []

    @property
    def is_cut(self) -> bool:
        """Whether it takes nothing more of the batch that it is at."""
        return self.is_strict and self.left <= 0

    def take(self, run: Run) -> None:
        """Make a run the member's."""
        run.member_id, run.deadline_ms = self.member_id, self.deadline_ms
        acquired = self.acquired
        self.left -= run.last - run.first + 1
        if acquired and acquired[-1].last + 1 == run.first and acquired[-1].delivery_count == run.delivery_count:
            acquired[-1] = acquired[-1]._replace(last=run.last)
        else:
            acquired.append(AcquiredRecords(run.first, run.last, run.delivery_count))


class SharePartition:
    """Delivers the records of one partition to one share group, in one leader epoch.

    Args:
        leader_epoch: of the partition's leader, which is this broker.
        state: as it was kept and reconciled with this log; its `start` is known.
        lineage: the log's. Only read here.
        is_kept: False where the state is not the one that was kept: it is written before anything is delivered, so
            that the group goes on there whoever leads next.

    Attributes:
        in_flight: what stands how.
        is_fenced: the coordinator knows of a newer leader or a newer state: this machine is of no use any more.
    """

    def __init__(
        self,
        leader_epoch: LeaderEpoch,
        state: ShareState,
        lineage: LeaderEpochLineage,
        *,
        settings: ShareSettings,
        is_kept: bool = True,
    ) -> None:
        invariant(state.start is not None, "a share partition begins without a start")
        assert state.start is not None
        self.leader_epoch = leader_epoch
        self.state_epoch = state.state_epoch
        self.in_flight = InFlight(state.start, state.batches, lineage)
        self.is_fenced = False
        self._lineage = lineage
        self._settings = settings
        self._kept_start = self._written_start = self.in_flight.start
        self._is_begun = is_kept
        self._must_write = not is_kept
        self._write_all = not is_kept
        self._writing: list[Acknowledging] | None = None
        self._queued: list[Acknowledging] = []
        self._answers: list[AcknowledgeReply] = []
        self._has_released = False
        self._look_ms = NEVER_MS  # no time is over before
        self._retry_ms: int | None = None

    # What is the case.

    @property
    def start(self) -> Offset:
        """All before it is done."""
        return Offset(self.in_flight.start)

    @property
    def end(self) -> Offset:
        """From here on (inclusive) nothing was delivered."""
        return Offset(self.in_flight.end)

    @property
    def is_ready(self) -> bool:
        """Whether records may be acquired: where the group begins is kept."""
        return self._is_begun and not self.is_fenced

    @property
    def is_idle(self) -> bool:
        """Whether all that there is to know of it is kept, and nobody has records."""
        if self._writing is not None or self._queued or self._must_write:
            return False
        return all(run.state is not ACQUIRED for run in self.in_flight.runs)

    def next_offset(self) -> Offset | None:
        """From where on to read what can be acquired; None while that is nothing, whatever the log holds."""
        if not self.is_ready:
            return None
        in_flight = self.in_flight
        offset = in_flight.first_available()
        if offset == in_flight.end and in_flight.open_count >= self._settings.records_max:
            return None
        return Offset(offset)

    @property
    def settings(self) -> ShareSettings:
        return self._settings

    # What happened.

    def on_settings(self, settings: ShareSettings) -> None:
        """They count from the next delivery on."""
        self._settings = settings

    def on_acquire(
        self,
        member_id: str,
        from_offset: int,
        batches: Iterable[LogBatch],
        *,
        records_max: int,
        is_strict: bool,
        now_ms: int,
    ) -> list[AcquiredRecords]:
        """A member is given what it can have of batches that were read.

        Args:
            from_offset: where the reading began: between there and the end of the batches, the log has no others.
            batches: by offset, all below the high watermark.
            records_max: how many records it wants.
            is_strict: whether that cuts a batch in two (KIP-1206); otherwise the last batch is given whole.

        Returns:
            What the member has now, by offset, for `settings.lock_ms`.
        """
        in_flight = self.in_flight
        if not self.is_ready or records_max <= 0:
            return []
        invariant(from_offset <= in_flight.end, "{} is read, {} was not", from_offset, in_flight.end)
        taking = Taking(member_id, now_ms + self._settings.lock_ms, records_max, is_strict)
        for first, last, is_delivered in self._ranges(batches, max(from_offset, in_flight.start), taking):
            if not is_delivered:
                self._pass_over(first, last)
            elif not self._acquire(first, last, taking):
                break
        if taking.acquired:
            self._look_ms = min(self._look_ms, taking.deadline_ms)
        in_flight.drop_done()
        in_flight.join()
        return taking.acquired

    def _ranges(self, batches: Iterable[LogBatch], position: int, taking: Taking) -> Iterator[LogBatch]:
        """What lies from an offset on: nothing, where no batch lies. Batches that follow each other are one, until they
        hold what is still wanted, or what may be in flight.
        """
        records_max, in_flight = self._settings.records_max, self.in_flight
        begin: int | None = None
        for first, last, is_delivered in batches:
            if last < position:
                continue
            if begin is not None:
                is_enough = position - begin >= min(taking.left, records_max - in_flight.open_count)
                if is_enough or not is_delivered or first > position:
                    yield LogBatch(begin, position - 1)
                    begin = None
            if first > position:
                yield LogBatch(position, first - 1, False)
                position = first
            if not is_delivered:
                yield LogBatch(position, last, False)
            elif begin is None:
                begin = position
            position = last + 1
        if begin is not None:
            yield LogBatch(begin, position - 1)

    def _acquire(self, first: int, last: int, taking: Taking) -> bool:
        """Give what can be had of whole batches, or their ends. Returns whether there may be more."""
        in_flight = self.in_flight
        if first < in_flight.end:
            index = in_flight.index_of(first)
            while index < len(in_flight.runs) and in_flight.runs[index].first <= last and not taking.is_cut:
                if in_flight.runs[index].is_available:
                    begin = max(in_flight.runs[index].first, first)
                    end = min(last, begin + taking.left - 1) if taking.is_strict else last
                    index = in_flight.cut(index, begin, end)
                    run = in_flight.runs[index]
                    run.state = ACQUIRED
                    run.delivery_count += 1
                    taking.take(run)
                index += 1
            first = in_flight.end
        if first <= last and not taking.is_cut:
            limit = self._settings.records_max - in_flight.open_count
            if limit <= 0:
                return False
            end = min(last, first + min(taking.left, limit) - 1) if taking.is_strict else last
            for run in self._put_in_flight(first, end, taking):
                taking.take(run)
            if end < last:
                return False
        return taking.left > 0

    def _put_in_flight(self, first: int, last: int, taking: Taking) -> list[Run]:
        """Put what was never delivered in flight. Returns it, in runs which may lie within those in flight."""
        in_flight = self.in_flight
        invariant(first == in_flight.end, "records from {} on are delivered, {} were not", first, in_flight.end)
        before = in_flight.runs[-1] if in_flight.runs else None
        runs = in_flight.append(last, ACQUIRED, 1)
        for run in runs:
            run.member_id, run.deadline_ms = taking.member_id, taking.deadline_ms
        if before is not None and before.is_like(runs[0]):
            in_flight.join_last(len(runs))
        return runs

    def _pass_over(self, first: int, last: int) -> None:
        """There is nothing to deliver at these offsets: the log has no records there, or none for readers."""
        in_flight = self.in_flight
        if first < in_flight.end:
            index = in_flight.index_of(first)
            while index < len(in_flight.runs) and in_flight.runs[index].first <= last:
                if in_flight.runs[index].is_available:
                    index = in_flight.cut(index, first, last)
                    in_flight.set_state(in_flight.runs[index], ARCHIVED)
                index += 1
        if last >= in_flight.end:
            in_flight.append(last, ARCHIVED, 0)

    def on_acknowledge(
        self, correlation_id: CorrelationId, member_id: str, batches: Sequence[AcknowledgedRecords], now_ms: int
    ) -> None:
        """A member says what became of records that it has. It is answered by `take_ready`, once that is kept.

        What lies before the start is done, or deleted, and nobody's any more: that is no error. It is answered once
        that start is kept.

        Args:
            batches: as `check_acknowledged` lets through.

        Raises:
            KafkaError: INVALID_RECORD_STATE: the member does not have one of the records, or not any more. Nothing was
                changed. NOT_LEADER_OR_FOLLOWER: see `is_fenced`.
        """
        if self.is_fenced:
            raise refusal(Code.NOT_LEADER_OR_FOLLOWER, "another broker delivers the records of this partition")
        parts: list[tuple[int, int, int]] = []
        start, end, is_kept = self.in_flight.start, self.in_flight.end, True
        if batches and batches[-1].last >= end:
            raise _not_delivered(batches[-1].last, end)
        begin = bisect_left(batches, start, key=attrgetter("last"))  # however many lie before it
        if begin:
            is_kept = batches[begin - 1].last < self._kept_start
        for index in range(begin, len(batches)):
            batch = batches[index]
            if batch.first < start:
                is_kept = is_kept and start <= self._kept_start
            for first, last, type_ in batch.runs():
                if last < start:
                    continue
                if parts and parts[-1][1] + 1 == first and parts[-1][2] == type_:
                    parts[-1] = (parts[-1][0], last, type_)
                else:
                    parts.append((max(first, start), last, type_))
        self._check_has(member_id, parts)
        runs: list[Run] = []
        for run, type_ in self.in_flight.divided(parts):
            if type_ == AcknowledgeType.RENEW:
                run.deadline_ms = now_ms + self._settings.lock_ms
                self._look_ms = min(self._look_ms, run.deadline_ms)
                continue
            if type_ == AcknowledgeType.ACCEPT:
                run.outcome = ACKNOWLEDGED
            elif type_ == AcknowledgeType.RELEASE:
                run.outcome = self._released(run)
            else:
                run.outcome = ARCHIVED
            runs.append(run)
        if runs or not is_kept:
            self._queued.append(Acknowledging(correlation_id, runs))
        else:
            self._answers.append(AcknowledgeReply(correlation_id, Code.NONE))
        self.in_flight.join()

    def _check_has(self, member_id: str, parts: Sequence[tuple[int, int, int]]) -> None:
        """Return if all that lies in these parts is the member's, and nothing of it was acknowledged."""
        in_flight = self.in_flight
        if not parts:
            return
        index = in_flight.index_of(parts[0][0])
        run = in_flight.runs[index]
        for first, last, _ in parts:
            while True:
                if run.last >= first and (
                    run.state is not ACQUIRED or run.outcome is not None or run.member_id != member_id
                ):
                    raise refusal(
                        Code.INVALID_RECORD_STATE,
                        f"member {member_id} acknowledges {max(first, run.first)}, and does not have it: its time was "
                        "over, or it was acknowledged before",
                    )
                if run.last >= last:
                    break
                index += 1
                run = in_flight.runs[index]

    def on_member_left(self, member_id: str) -> None:
        """A member's session is over: others may have its records, unless they were delivered too often.

        The delivery counts: a record may be what ended the member. What it has acknowledged before stands or falls as
        if it were there.
        """
        for run in self.in_flight.runs:
            if run.state is ACQUIRED and run.member_id == member_id and run.outcome is None:
                self._release(run, self._released(run))
        self.in_flight.drop_done()

    def on_log_start_moved(self, log_start_offset: Offset) -> None:
        """Retention or DeleteRecords removed what was below."""
        self.in_flight.drop_before(log_start_offset)
        self.in_flight.drop_done()

    def on_written(self, now_ms: int) -> None:
        """The change that was taken last is kept."""
        writing = self._take_writing()
        self._has_released |= not self._is_begun
        self._is_begun, self._kept_start = True, self._written_start
        in_flight = self.in_flight
        had_room = self.in_flight.open_count < self._settings.records_max
        for acknowledging in writing:
            for run in acknowledging.runs:
                if run.last < in_flight.start:
                    continue  # deleted meanwhile
                outcome = run.outcome
                invariant(outcome is not None, "records were acknowledged, and stand no more as they did")
                assert outcome is not None
                run.outcome = None
                in_flight.set_state(run, outcome)
                self._has_released |= outcome is AVAILABLE
            self._answers.append(AcknowledgeReply(acknowledging.correlation_id, Code.NONE))
        in_flight.drop_done()
        in_flight.join()
        self._has_released |= not had_room and in_flight.open_count < self._settings.records_max
        self.on_tick(now_ms)

    def on_write_refused(self, code: Code, now_ms: int, *, is_fenced: bool) -> None:
        """The change that was taken last is not kept, or nobody knows. What it acknowledged is acquired as before.

        It may be kept all the same. So the next change tells of all that is in flight, and not only of what changed.

        Args:
            is_fenced: no other change of this machine will be kept.
        """
        writing = self._take_writing()
        self.is_fenced |= is_fenced
        self._write_all = self._must_write = True
        self._retry_ms = now_ms + RETRY_MS
        if is_fenced:
            writing += self._queued
            self._queued = []
        for acknowledging in writing:
            for run in acknowledging.runs:
                run.outcome = None
            self._answers.append(AcknowledgeReply(acknowledging.correlation_id, code))
        self._look_ms = now_ms  # their time may be over
        self.on_tick(now_ms)

    def on_stopped(self) -> None:
        """The leadership is over: whoever waits is told to look for the next leader. It may be kept all the same."""
        self.is_fenced = True
        for acknowledging in (self._writing or []) + self._queued:
            self._answers.append(AcknowledgeReply(acknowledging.correlation_id, Code.NOT_LEADER_OR_FOLLOWER))
        self._writing, self._queued = None, []

    def _take_writing(self) -> list[Acknowledging]:
        writing, self._writing = self._writing, None
        invariant(writing is not None, "a change was kept or refused that was not written")
        assert writing is not None
        return writing

    def on_tick(self, now_ms: int) -> None:
        """Time has passed: take the records from members that have had them for too long."""
        if self._retry_ms is not None and now_ms >= self._retry_ms:
            self._retry_ms = None
        if now_ms < self._look_ms:
            return
        next_ms, left = NEVER_MS, RELEASED_AT_ONCE_MAX
        for run in self.in_flight.runs:
            if run.state is ACQUIRED and run.outcome is None:
                if run.deadline_ms > now_ms:
                    next_ms = min(next_ms, run.deadline_ms)
                elif left:
                    left -= 1
                    self._release(run, self._released(run))
                else:
                    next_ms = now_ms
                    break
        if next_ms > now_ms:
            next_ms = max(next_ms, now_ms + LOOK_INTERVAL_MS)
        self._look_ms = next_ms
        self.in_flight.drop_done()

    def _released(self, run: Run) -> DeliveryState:
        """What becomes of records that are released: those that were delivered too often are delivered no more."""
        return AVAILABLE if run.delivery_count < self._settings.delivery_count_max else ARCHIVED

    def _release(self, run: Run, state: DeliveryState) -> None:
        self.in_flight.set_state(run, state)
        run.is_dirty = self._must_write = self._has_released = True

    # What to do about it.

    def take_ready(self) -> ShareReady:
        """What is owed: a change to be written, if none is being written; answers; whether to read again."""
        change = None
        is_due = self._queued or (self._must_write and self._retry_ms is None)
        if is_due and self._writing is None and not self.is_fenced:
            change = self._take_change()
        answers, self._answers = tuple(self._answers), []
        has_released, self._has_released = self._has_released, False
        return ShareReady(change, answers, has_released)

    def next_deadline_ms(self) -> int | None:
        """When to call `on_tick`; None while nothing waits for time."""
        due_ms = self._look_ms
        if self._retry_ms is not None and self._must_write:
            due_ms = min(due_ms, self._retry_ms)
        return None if due_ms == NEVER_MS else due_ms

    def _take_change(self) -> StateChange:
        """All that differs from what is kept, as it will be once what was acknowledged counts."""
        start, done_count, is_prefix = self.in_flight.start, 0, True
        batches: list[StateBatch] = []
        for run in self.in_flight.runs:
            state = run.state if run.outcome is None else run.outcome
            is_done = state is ACKNOWLEDGED or state is ARCHIVED
            is_prefix = is_prefix and is_done
            if is_prefix:
                start = run.last + 1
            elif is_done:
                done_count += run.last - run.first + 1
            if not is_prefix and (run.is_dirty or run.outcome is not None or self._write_all):
                if state is ACQUIRED:  # as it was before this delivery, of which nobody else knows
                    _add_batch(batches, run, AVAILABLE, run.delivery_count - 1)
                else:
                    _add_batch(batches, run, state, run.delivery_count)
            run.is_dirty = False
        self._writing, self._queued = self._queued, []
        self._must_write = self._write_all = False
        self._written_start = start
        before = epoch_before(self._lineage, Offset(start))
        return StateChange(self.state_epoch, self.leader_epoch, Offset(start), before, done_count, tuple(batches))


def _add_batch(batches: list[StateBatch], run: Run, state: DeliveryState, delivery_count: int) -> None:
    """Tell how a run stands; together with what was told last, where that is next to it and stands likewise."""
    first = run.first
    if batches:
        last = batches[-1]
        is_like = last.state is state and last.delivery_count == delivery_count
        if is_like and last.last + 1 == first and last.leader_epoch == run.leader_epoch:
            first = last.first
            del batches[-1]
    batches.append(StateBatch(Offset(first), Offset(run.last), state, delivery_count, run.leader_epoch))


def _not_delivered(offset: int, end: int) -> KafkaError:
    return refusal(
        Code.INVALID_RECORD_STATE, f"offset {offset} is acknowledged, and nothing from {end} on was delivered"
    )
