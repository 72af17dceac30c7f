"""Records in flight are held in runs; they stand as if each were held alone."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.examples import examples
from support.executed_lines import executed_lines
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share import DeliveryState, StateBatch
from tidelog.share.in_flight import JOIN_FROM_RUNS, InFlight, Run

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = DeliveryState
DONE = (ACKNOWLEDGED, ARCHIVED)
LINEAGE = LeaderEpochLineage([(LeaderEpoch(epoch), Offset(7 * epoch)) for epoch in range(1, 40)])
OUTCOMES = {0: AVAILABLE, 1: ACKNOWLEDGED, 2: ARCHIVED}


@dataclass
class Record:
    """One record in flight, held alone."""

    state: DeliveryState
    delivery_count: int
    leader_epoch: int
    member_id: str = ""
    deadline_ms: int = 0
    outcome: DeliveryState | None = None
    is_dirty: bool = False

    def is_like(self, other: Record) -> bool:
        if self.is_dirty or other.is_dirty or self.outcome is not None or other.outcome is not None:
            return False
        if self.leader_epoch != other.leader_epoch:
            return False
        return self == other or (self.state in DONE and other.state in DONE)


def epoch_of(offset: int) -> int:
    epoch = LINEAGE.epoch_at(Offset(offset))
    return -1 if epoch is None else epoch


class InFlightModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.in_flight = InFlight(Offset(3), [StateBatch(Offset(5), Offset(6), ARCHIVED, 2, LeaderEpoch(-1))], LINEAGE)
        self.start = 3
        self.records = [Record(AVAILABLE, 0, -1), Record(AVAILABLE, 0, -1), *(Record(ARCHIVED, 2, -1) for _ in "12")]
        self.under_way: list[Run] = []

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def of(self, run: Run) -> list[Record]:
        return self.records[run.first - self.start : run.last + 1 - self.start]

    def a_part(self, data: st.DataObject, first: int, length_max: int = 5) -> tuple[int, int]:
        begin = data.draw(st.integers(first, self.end - 1))
        return begin, min(begin + data.draw(st.integers(1, length_max)), self.end) - 1

    @rule(
        lengths=st.lists(st.integers(1, 3), min_size=1, max_size=12),
        state=st.sampled_from([ACQUIRED, ACQUIRED, ARCHIVED, AVAILABLE]),
        member_id=st.sampled_from("ab"),
    )
    def append(self, lengths: list[int], state: DeliveryState, member_id: str) -> None:
        for length in lengths:
            runs = self.in_flight.append(self.end + length - 1, state, 1)
            assert (runs[0].first, runs[-1].last) == (self.end, self.end + length - 1)
            for offset in range(self.end, self.end + length):
                self.records.append(Record(state, 1, epoch_of(offset)))
            for run in runs if state is ACQUIRED else ():
                run.member_id, run.deadline_ms = member_id, 50
                for record in self.of(run):
                    record.member_id, record.deadline_ms = member_id, 50

    @rule(length=st.integers(1, 3))
    def join_what_was_appended_last(self, length: int) -> None:
        before = self.in_flight.runs[-1] if self.in_flight.runs else None
        last = self.records[-1] if self.records else None
        if before is None or last is None or last.state is ACQUIRED:
            return
        runs = self.in_flight.append(self.end + length - 1, last.state, last.delivery_count)
        end = self.end
        self.records += [Record(last.state, last.delivery_count, epoch_of(end + at)) for at in range(length)]
        assert before.is_like(runs[0]) == last.is_like(self.of(runs[0])[0])
        if before.is_like(runs[0]):
            self.in_flight.join_last(len(runs))

    @precondition(lambda self: self.records)
    @rule(data=st.data(), member_id=st.sampled_from("ab"))
    def acquire(self, data: st.DataObject, member_id: str) -> None:
        offset = data.draw(st.integers(self.start, self.end - 1))
        index = self.in_flight.index_of(offset)
        run = self.in_flight.runs[index]
        assert run.is_available == (self.records[offset - self.start].state is AVAILABLE and run.outcome is None)
        if run.is_available:
            last = data.draw(st.integers(offset, offset + 5))
            run = self.in_flight.runs[self.in_flight.cut(index, offset, last)]
            assert (run.first, run.last <= last) == (offset, True)
            run.state, run.member_id, run.deadline_ms = ACQUIRED, member_id, 60
            run.delivery_count += 1
            for record in self.of(run):
                record.state, record.member_id, record.deadline_ms = ACQUIRED, member_id, 60
                record.delivery_count += 1

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        parts: list[tuple[int, int, int]] = []
        first = self.start
        while first < self.end and len(parts) < 6:
            begin, last = self.a_part(data, first, 4)
            part = self.records[begin - self.start : last + 1 - self.start]
            if any(one.state is not ACQUIRED or one.outcome is not None for one in part):
                break
            parts.append((begin, last, data.draw(st.integers(0, 2))))
            first = last + 1
        self.outcomes(parts)

    @precondition(lambda self: len(self.records) > 3)
    @rule(step=st.integers(1, 3), type_=st.integers(0, 2))
    def acknowledge_one_by_one(self, step: int, type_: int) -> None:
        offsets = range(self.start, self.end, step)
        self.outcomes(
            [
                (one, one, (type_ + one) % 3)
                for one in offsets
                if self.records[one - self.start].state is ACQUIRED and self.records[one - self.start].outcome is None
            ]
        )

    def outcomes(self, parts: list[tuple[int, int, int]]) -> None:
        found = self.in_flight.divided(parts)
        types = {offset: type_ for first, last, type_ in parts for offset in range(first, last + 1)}
        assert {offset: type_ for run, type_ in found for offset in range(run.first, run.last + 1)} == types
        for run, type_ in found:
            run.outcome = OUTCOMES[type_]
            self.under_way.append(run)
        for offset, type_ in types.items():
            self.records[offset - self.start].outcome = OUTCOMES[type_]

    @rule(is_dirty=st.booleans())
    def settle(self, is_dirty: bool) -> None:
        """Of what was acknowledged; the runs are those that were found then."""
        for run in self.under_way:
            if run.last < self.start:
                continue
            assert run.outcome is not None
            state, run.outcome = run.outcome, None
            self.in_flight.set_state(run, state)
            run.is_dirty = is_dirty
            for record in self.of(run):
                assert record.outcome is state
                record.state, record.outcome, record.member_id, record.is_dirty = state, None, "", is_dirty
        self.under_way.clear()

    @rule()
    def keep(self) -> None:
        for run in self.in_flight.runs:
            run.is_dirty = False
        for record in self.records:
            record.is_dirty = False

    @precondition(lambda self: self.records)
    @rule(data=st.data(), state=st.sampled_from([AVAILABLE, ARCHIVED]))
    def release(self, data: st.DataObject, state: DeliveryState) -> None:
        run = self.in_flight.runs[self.in_flight.index_of(data.draw(st.integers(self.start, self.end - 1)))]
        if run.outcome is None and run.state not in DONE:
            self.in_flight.set_state(run, state)
            for record in self.of(run):
                record.state, record.member_id = state, ""

    @rule()
    def drop_done(self) -> None:
        self.in_flight.drop_done()
        while self.records and self.records[0].state in DONE and self.records[0].outcome is None:
            del self.records[0]
            self.start += 1

    @rule(more=st.integers(-3, 9))
    def delete_records(self, more: int) -> None:
        to = self.start + more
        self.in_flight.drop_before(to)
        if more > 0:
            del self.records[:more]
            self.start = to

    @rule(beyond=st.integers(0, 2))
    def delete_all_records(self, beyond: int) -> None:
        self.delete_records(len(self.records) + beyond)

    @rule()
    def join(self) -> None:
        before = len(self.in_flight.runs)
        self.in_flight.join()
        assert before < JOIN_FROM_RUNS or len(self.in_flight.runs) <= before
        if before >= JOIN_FROM_RUNS and len(self.in_flight.runs) < before:
            self.check_none_is_like_the_next()

    def check_none_is_like_the_next(self) -> None:
        runs = self.in_flight.runs
        for one, other in pairwise(runs):
            assert not self.of(one)[-1].is_like(self.of(other)[0])

    @invariant()
    def each_record_stands_as_if_it_were_held_alone(self) -> None:
        in_flight = self.in_flight
        assert (in_flight.start, in_flight.end) == (self.start, self.end)
        position = self.start
        for index, run in enumerate(in_flight.runs):
            assert run.first == position <= run.last
            position = run.last + 1
            assert [in_flight.index_of(at) for at in range(run.first, run.last + 1)] == [index] * (position - run.first)
            for record in self.of(run):
                if run.state in DONE and run.outcome is None:  # it is not told how
                    assert record.state in DONE
                    assert (record.outcome, record.is_dirty) == (None, run.is_dirty)
                    continue
                assert run.leader_epoch == record.leader_epoch
                assert record == Record(
                    run.state,
                    run.delivery_count,
                    record.leader_epoch,
                    run.member_id,
                    run.deadline_ms,
                    run.outcome,
                    run.is_dirty,
                )
        assert position == self.end
        assert in_flight.open_count == sum(one.state not in DONE for one in self.records)

    @rule()
    def look_for_the_first_that_is_available(self) -> None:
        available = (at for at, one in enumerate(self.records) if one.state is AVAILABLE and one.outcome is None)
        assert self.in_flight.first_available() == self.start + next(available, len(self.records))


InFlightModel.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=60, deadline=None)
TestInFlight = InFlightModel.TestCase


def test_runs_are_joined_once_there_are_twice_as_many_as_after_the_last_time() -> None:
    in_flight = InFlight(Offset(7 * 39), (), LINEAGE)
    numbers = count()

    def joined(pairs: int) -> int:
        """So many pairs come, each of two that are alike; how many runs there are then."""
        for _ in range(pairs):
            number = next(numbers)
            in_flight.append(in_flight.end, AVAILABLE, number)
            in_flight.append(in_flight.end, AVAILABLE, number)
        in_flight.join()
        return len(in_flight.runs)

    assert JOIN_FROM_RUNS == 32
    assert [joined(15), joined(1)] == [30, 16]
    assert [joined(7), joined(1)] == [30, 24]
    assert [joined(11), joined(1)] == [46, 36]
    in_flight.drop_before(in_flight.end - 1)
    assert [joined(15), joined(1)] == [31, 17]
    assert joined(8) == 33
    in_flight.drop_before(in_flight.start + 3)
    assert [joined(1), joined(1)] == [33, 25]


def test_runs_that_differ_in_one_thing_stay_two() -> None:
    def run(**attributes: object) -> Run:
        one = Run(0, 0, AVAILABLE, 1, LeaderEpoch(3))
        for name, value in attributes.items():
            setattr(one, name, value)
        return one

    assert run().is_like(run())
    assert run(state=ARCHIVED, delivery_count=2).is_like(run(state=ACKNOWLEDGED))
    for attributes in (
        {"state": ACQUIRED},
        {"state": ARCHIVED},
        {"delivery_count": 2},
        {"leader_epoch": LeaderEpoch(4)},
        {"member_id": "m"},
        {"deadline_ms": 1},
        {"outcome": AVAILABLE},
        {"is_dirty": True},
    ):
        assert not run().is_like(run(**attributes))
        assert not run(**attributes).is_like(run())
    for attributes in ({"leader_epoch": LeaderEpoch(4)}, {"is_dirty": True}, {"outcome": AVAILABLE}):
        assert not run(state=ARCHIVED).is_like(run(state=ARCHIVED, **attributes))


def test_what_is_kept_is_in_flight_and_what_lies_between_was_never_delivered() -> None:
    kept = [(3, 4, ARCHIVED), (5, 6, ACKNOWLEDGED), (8, 8, AVAILABLE), (11, 12, ARCHIVED)]
    in_flight = InFlight(
        Offset(3), [StateBatch(Offset(first), Offset(last), state, 2) for first, last, state in kept], LINEAGE
    )
    runs = [(run.first, run.last, run.state, run.delivery_count) for run in in_flight.runs]
    assert runs == [
        (7, 7, AVAILABLE, 0),
        (8, 8, AVAILABLE, 2),
        (9, 10, AVAILABLE, 0),
        (11, 12, ARCHIVED, 2),
    ]
    assert (in_flight.start, in_flight.end, in_flight.open_count, in_flight.first_available()) == (7, 13, 4, 7)


def test_the_first_that_is_available_is_not_looked_for_twice() -> None:
    in_flight = InFlight(Offset(0), (), LINEAGE)
    for offset in range(200):
        in_flight.append(offset, ACQUIRED, 1)
    for first, found in ((None, 200), (150, 150)):
        if first is not None:
            in_flight.set_state(in_flight.runs[first], AVAILABLE)
            in_flight.set_state(in_flight.runs[3], AVAILABLE)
            in_flight.set_state(in_flight.runs[3], ACQUIRED)
        assert executed_lines(in_flight.first_available) > 100
        assert executed_lines(in_flight.first_available) < 20
        assert in_flight.first_available() == found


def test_the_rest_of_a_run_stands_likewise() -> None:
    run = Run(4, 9, ACQUIRED, 2, LeaderEpoch(3))
    run.member_id, run.deadline_ms, run.outcome, run.is_dirty = "m", 7, ARCHIVED, True
    rest = run.split(6)
    assert (run.first, run.last, rest.first, rest.last) == (4, 5, 6, 9)
    for name in ("state", "delivery_count", "leader_epoch", "member_id", "deadline_ms", "outcome", "is_dirty"):
        assert getattr(rest, name) == getattr(run, name)


def test_a_run_says_what_it_is() -> None:
    assert repr(Run(4, 6, ARCHIVED, 2, LeaderEpoch(3))) == "Run(4-6 ARCHIVED x2 @3)"
