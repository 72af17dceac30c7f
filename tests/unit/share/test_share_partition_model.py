"""A share partition under everything that members, time, coordinators and failovers do, against records one by one.

Checked after every step: no two members have a record at once; a record whose acknowledgement was confirmed is never
delivered again; the machine's runs say of each offset what the model says; who waits for records is woken. At the end
one member reads all that there is, and no record was forgotten: each of the log was confirmed, or was delivered too
often, or comes now. That holds for those too whose offset another record had before a truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.examples import examples
from support.fixtures.share_states import changed
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import CorrelationId, LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share import (
    NO_LEADER_EPOCH,
    AcknowledgedRecords,
    AcknowledgeType,
    Bounds,
    DeliveryState,
    LogBatch,
    SharePartition,
    ShareSettings,
    ShareState,
    StateChange,
    reconciled,
)
from tidelog.share.share_partition import RETRY_MS

MEMBERS = ("a", "b", "c")
SETTINGS = ShareSettings(delivery_count_max=3, lock_ms=100, records_max=12)
DONE = (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)
TYPES = st.sampled_from([AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT])


@dataclass(frozen=True)
class Batch:
    """Of the log. Its records have numbers that no others ever have; a batch that is not delivered has none."""

    first: int
    last: int
    leader_epoch: int
    is_delivered: bool


@dataclass
class Asked:
    """A request that acknowledges: what, and how often its records were delivered then."""

    member: str
    outcomes: dict[int, AcknowledgeType]


@dataclass
class Log:
    batches: list[Batch] = field(default_factory=list)
    records: dict[int, int] = field(default_factory=dict)  # their numbers, by offset
    start: int = 0
    end: int = 0
    lineage: LeaderEpochLineage = field(default_factory=LeaderEpochLineage)

    @property
    def bounds(self) -> Bounds:
        return Bounds(Offset(self.start), Offset(self.end))


class SharePartitionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.log = Log()
        self.epoch = 0
        self.last_number = 0
        self.kept = ShareState(0, Offset(0), NO_LEADER_EPOCH)
        self.confirmed: set[int] = set()  # numbers of records
        self.perhaps_done: set[int] = set()  # acknowledged, and the answer was an error, or never came
        self.deliveries: dict[int, int] = {}
        self.next_id = 0
        self.lead()

    # The leader, and who leads next.

    def lead(self) -> None:
        self.epoch += 1
        self.log.lineage.assign(LeaderEpoch(self.epoch), Offset(self.log.end))
        before = self.kept
        state, self.forgotten = reconciled(before, self.log.lineage, self.log.bounds)
        self.machine = SharePartition(
            LeaderEpoch(self.epoch), state, self.log.lineage, settings=SETTINGS, is_kept=not self.forgotten
        )
        self.holders: dict[int, tuple[str, int]] = {}  # offset: who, until when
        self.asked: dict[int, Asked] = {}
        self.writing: StateChange | None = None
        self.could_acquire = (True, True)
        self.take()

    def take(self, *, is_told_otherwise: bool = False) -> None:
        ready = self.machine.take_ready()
        before, at = self.could_acquire, self.machine.next_offset()
        self.could_acquire = (at is not None, at is not None and at < self.machine.end)
        assert self.could_acquire <= before or ready.has_released or is_told_otherwise, "a fetch waits on"
        if ready.change is not None:
            assert self.writing is None, "two changes are written at a time"
            self.writing = ready.change
        for number, code in ready.answers:
            asked = self.asked.pop(number)
            for offset, type_ in asked.outcomes.items():
                record = self.log.records.get(offset)
                if record is None:
                    continue
                if code == Code.NONE and type_ != AcknowledgeType.RELEASE:
                    self.confirmed.add(record)
                elif type_ != AcknowledgeType.RELEASE:
                    self.perhaps_done.add(record)
                if code == Code.NONE:
                    self.holders.pop(offset, None)

    @rule(lands=st.booleans())
    def fail_over(self, lands: bool) -> None:
        self.end_leadership(lands)
        self.lead()

    @rule(lands=st.booleans(), share=st.floats(0, 1))
    def fail_over_to_a_shorter_log(self, lands: bool, share: float) -> None:
        """An unclean election. The next leader writes other records at the offsets."""
        self.end_leadership(lands)
        log = self.log
        batches = [one for one in log.batches if one.first < log.start + share * (log.end - log.start)]
        log.end = batches[-1].last + 1 if batches else log.start
        log.batches = batches
        log.records = {offset: number for offset, number in log.records.items() if offset < log.end}
        log.lineage.truncate_from_end(Offset(log.end))
        self.lead()

    def end_leadership(self, lands: bool) -> None:
        if self.writing is not None and lands:
            self.kept = changed(self.kept, self.writing)
        self.writing = None
        self.machine.on_stopped()
        self.take()

    # The log.

    @rule(count=st.integers(1, 5), is_delivered=st.integers(0, 4), hole=st.integers(0, 6))
    def produce(self, count: int, is_delivered: int, hole: int) -> None:
        log = self.log
        first = log.end + max(0, hole - 4)  # compaction has left nothing before it
        batch = Batch(first, first + count - 1, self.epoch, is_delivered > 0)
        log.batches.append(batch)
        log.end = batch.last + 1
        if batch.is_delivered:
            for offset in range(batch.first, batch.last + 1):
                self.last_number += 1
                log.records[offset] = self.last_number

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.log
        log.start += int(share * (log.end - log.start) / 2)
        log.lineage.truncate_from_start(Offset(log.start))
        log.batches = [one for one in log.batches if one.last >= log.start]
        log.records = {offset: number for offset, number in log.records.items() if offset >= log.start}
        self.holders = {offset: held for offset, held in self.holders.items() if offset >= log.start}
        self.machine.on_log_start_moved(Offset(log.start))
        self.take(is_told_otherwise=True)

    # Members.

    @rule(
        member=st.sampled_from(MEMBERS),
        batches_max=st.integers(1, 4),
        records_max=st.integers(1, 8),
        is_strict=st.booleans(),
    )
    def fetch(self, member: str, batches_max: int, records_max: int, is_strict: bool) -> None:
        machine, log = self.machine, self.log
        offset = machine.next_offset()
        if offset is None:
            return
        read = [one for one in log.batches if one.last >= offset][:batches_max]
        acquired = machine.on_acquire(
            member,
            offset,
            [LogBatch(one.first, one.last, one.is_delivered) for one in read],
            records_max=records_max,
            is_strict=is_strict,
            now_ms=self.now_ms,
        )
        count = 0
        for first, last, delivery_count in acquired:
            for at in range(first, last + 1):
                assert at not in self.holders, f"{at} is delivered to {member}, and {self.holders[at]} has it"
                assert at in log.records, f"{at} is delivered, and there is nothing"
                record = log.records[at]
                assert record not in self.confirmed, (
                    f"{at} is delivered again, though its acknowledgement was confirmed"
                )
                self.holders[at] = (member, self.now_ms + SETTINGS.lock_ms)
                self.deliveries[record] = self.deliveries.get(record, 0) + 1
                assert 1 <= delivery_count <= SETTINGS.delivery_count_max
                count += 1
        assert not is_strict or count <= records_max
        self.take()

    @rule(member=st.sampled_from(MEMBERS), types=st.lists(TYPES, min_size=1, max_size=6), skip=st.integers(0, 3))
    def acknowledge(self, member: str, types: list[AcknowledgeType], skip: int) -> None:
        """Some consecutive records of those that the member has, and has not acknowledged yet."""
        own = self.held_by(member)[skip:]
        offsets = [at for at in own if at - own[0] == own.index(at)][: len(types)]
        if offsets:
            self.send(member, offsets, types[: len(offsets)] if len(offsets) > 1 else types[:1])

    @rule(member=st.sampled_from(MEMBERS), type_=TYPES)
    def acknowledge_all(self, member: str, type_: AcknowledgeType) -> None:
        for offsets in runs_of(self.held_by(member)):
            self.send(member, offsets, [type_])

    @rule(member=st.sampled_from(MEMBERS))
    def renew(self, member: str) -> None:
        for offsets in runs_of(self.held_by(member)):
            self.send(member, offsets, [AcknowledgeType.RENEW])

    def held_by(self, member: str) -> list[int]:
        asked = {offset for one in self.asked.values() for offset in one.outcomes}
        return sorted(at for at, (who, _) in self.holders.items() if who == member and at not in asked)

    def send(self, member: str, offsets: list[int], types: list[AcknowledgeType]) -> None:
        self.next_id += 1
        each = types * len(offsets) if len(types) == 1 else types
        if types == [AcknowledgeType.RENEW]:
            self.asked[self.next_id] = Asked(member, {})
            for at in offsets:
                self.holders[at] = (member, self.now_ms + SETTINGS.lock_ms)
        else:
            self.asked[self.next_id] = Asked(member, dict(zip(offsets, each, strict=True)))
        batch = AcknowledgedRecords(offsets[0], offsets[-1], types)
        self.machine.on_acknowledge(CorrelationId(self.next_id), member, [batch], self.now_ms)
        self.take()

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def acknowledge_of_another(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from(sorted(self.holders)))
        other = next(one for one in MEMBERS if one != self.holders[at][0])
        before = repr(self.machine.in_flight.runs)
        with pytest.raises(KafkaError) as refused:
            self.machine.on_acknowledge(CorrelationId(0), other, [AcknowledgedRecords(at, at, [1])], self.now_ms)
        assert refused.value.code == Code.INVALID_RECORD_STATE
        assert repr(self.machine.in_flight.runs) == before, "a refusal has changed something"

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        left = self.held_by(member)
        self.machine.on_member_left(member)
        for at in left:
            del self.holders[at]
        self.take()

    # Time, and the coordinator.

    @rule(passed_ms=st.integers(1, 150))
    def pass_time(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.machine.on_tick(self.now_ms)
        self.expire()
        self.take()

    def expire(self) -> None:
        """The machine may look a little later than it could; then the member has the records for a little longer."""
        in_doubt = {offset for one in self.asked.values() for offset in one.outcomes}
        for run in self.machine.in_flight.runs:
            for at in range(run.first, run.last + 1):
                if at in self.holders and at not in in_doubt and self.holders[at][1] <= self.now_ms:
                    if run.state != DeliveryState.ACQUIRED:
                        del self.holders[at]
                    else:
                        assert self.now_ms - self.holders[at][1] < 50, f"{at} is never released"

    @precondition(lambda self: self.writing is not None)
    @rule()
    def keep(self) -> None:
        assert self.writing is not None
        self.kept = changed(self.kept, self.writing)
        self.writing = None
        self.machine.on_written(self.now_ms)
        self.take()
        self.expire()

    @precondition(lambda self: self.writing is not None)
    @rule(lands=st.booleans())
    def refuse(self, lands: bool) -> None:
        """It is not kept; or it is, and the answer is lost."""
        assert self.writing is not None
        if lands:
            self.kept = changed(self.kept, self.writing)
        self.writing = None
        self.machine.on_write_refused(Code.COORDINATOR_NOT_AVAILABLE, self.now_ms, is_fenced=False)
        self.take()
        self.expire()

    # What must hold.

    @invariant()
    def runs_are_as_the_model(self) -> None:
        in_flight, log = self.machine.in_flight, self.log
        position, open_count = in_flight.start, 0
        for run, first in zip(in_flight.runs, in_flight._firsts, strict=True):
            assert run.first == position == first, f"a hole at {position}: {in_flight.runs}"
            assert run.last >= run.first
            position = run.last + 1
            open_count += 0 if run.state in DONE else run.last - run.first + 1
            for at in range(run.first, run.last + 1):
                held = self.holders.get(at)
                if run.state == DeliveryState.ACQUIRED:
                    assert held is not None, f"nobody has {at}"
                    assert held[0] == run.member_id
                else:
                    assert held is None, f"{held} has {at}, which is {run}"
                if run.state in DONE:
                    self.check_done(at)
                if at in log.records:
                    assert run.leader_epoch == log.lineage.epoch_at(Offset(at))
        assert position == in_flight.end
        assert open_count == in_flight.open_count
        for at in log.records:
            if at < in_flight.start:
                self.check_done(at)

    def check_done(self, at: int) -> None:
        record = self.log.records.get(at)
        assert (
            record is None
            or record in self.confirmed
            or record in self.perhaps_done
            or self.deliveries.get(record, 0) >= SETTINGS.delivery_count_max
        ), f"{at} was forgotten"

    @invariant()
    def memory_is_bounded(self) -> None:
        in_flight = self.machine.in_flight
        epochs = len(self.log.lineage)
        assert len(in_flight.runs) <= max(64, 4 * (in_flight.open_count + epochs))

    def teardown(self) -> None:
        """One member reads all that there is."""
        while self.writing is not None:
            self.keep()
        for member in MEMBERS:
            self.leave(member)
        self.pass_time(RETRY_MS)
        for _ in range(1_000):
            while self.writing is not None:
                self.keep()
            offset = self.machine.next_offset()
            if offset is None or not any(one.last >= offset for one in self.log.batches):
                break
            self.fetch("a", 4, 100, False)
            self.acknowledge_all("a", AcknowledgeType.ACCEPT)
        else:
            raise AssertionError("what is there is never read")
        for at in self.log.records:
            self.check_done(at)


def runs_of(offsets: list[int]) -> list[list[int]]:
    """The longest runs of consecutive offsets."""
    runs: list[list[int]] = []
    for at in offsets:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


SharePartitionModel.TestCase.settings = settings(
    max_examples=examples(30), stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestSharePartition = SharePartitionModel.TestCase
