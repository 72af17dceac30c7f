"""The lineage of leader epochs against a naive model: the epoch of each record, in a list (KIP-101, KIP-279)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import CorruptLogError, InvariantBrokenError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records import EpochEntry, LeaderEpochLineage


def lineage(*entries: tuple[int, int]) -> LeaderEpochLineage:
    return LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def pairs(of: LeaderEpochLineage) -> list[tuple[int, int]]:
    return [(entry.leader_epoch, entry.start_offset) for entry in of.entries]


def ends(of: LeaderEpochLineage, log_end_offset: int, epochs: range) -> list[tuple[int, int] | None]:
    return [of.end_offset_for(LeaderEpoch(epoch), Offset(log_end_offset)) for epoch in epochs]


class NaiveLog:
    """A log as its records' epochs, and the epoch that was assigned at its end and has no record yet."""

    def __init__(self) -> None:
        self.start = 0
        self.epochs: list[int] = []
        self.waiting: int | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.epochs)

    @property
    def latest(self) -> int:
        return max([-1, *self.epochs, *([] if self.waiting is None else [self.waiting])])

    def lead(self, epoch: int, count: int) -> None:
        if count:
            self.epochs += [epoch] * count
            self.waiting = None
        elif epoch not in self.epochs:
            self.waiting = epoch

    def truncate_to(self, end: int) -> None:
        if end <= self.end:
            del self.epochs[max(end - self.start, 0) :]
            self.waiting = None
            self.start = min(self.start, end)

    def retain_from(self, start: int) -> None:
        latest = self.latest
        del self.epochs[: start - self.start]
        self.start = start
        if not self.epochs and latest >= 0:
            self.waiting = latest

    def first_offset_after(self, epoch: int) -> int:
        for index, written_in in enumerate(self.epochs):
            if written_in > epoch:
                return self.start + index
        return self.end

    def end_offset_for(self, asked: int) -> tuple[int, int] | None:
        known = set(self.epochs) | ({self.waiting} if self.waiting is not None else set())
        if not known or asked > max(known):
            return None
        not_newer = [epoch for epoch in known if epoch <= asked]
        return (max(not_newer) if not_newer else asked), self.first_offset_after(asked)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("lead"), st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("retain"), st.integers(0, 6), st.just(0)),
    ),
    max_size=25,
)


@given(operations)
def test_answers_are_those_of_a_list_of_epochs(done: list[tuple[str, int, int]]) -> None:
    log, real, epoch = NaiveLog(), LeaderEpochLineage(), 0
    for what, amount, count in done:
        if what == "lead":
            epoch += amount
            before = pairs(real)
            assert real.assign(LeaderEpoch(epoch), Offset(log.end)) == (pairs(real) != before)
            log.lead(epoch, count)
        elif what == "truncate" and log.end - amount >= log.start:
            before = pairs(real)
            assert real.truncate_from_end(Offset(log.end - amount)) == (pairs(real) != before)
            log.truncate_to(log.end - amount)
            epoch += 1  # whoever wrote what was cut never writes again
        elif what == "retain" and log.start + amount <= log.end:
            before = pairs(real)
            assert real.truncate_from_start(Offset(log.start + amount)) == (pairs(real) != before)
            log.retain_from(log.start + amount)
        asked = range(epoch + 3)
        assert ends(real, log.end, asked) == [log.end_offset_for(epoch) for epoch in asked]
        found = [real.epoch_at(Offset(offset)) for offset in range(log.start, log.end)]
        assert found == log.epochs
        assert (real.latest_leader_epoch if len(real) else -1) == log.latest
        assert LeaderEpochLineage.from_text(real.to_text()) == real


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_what_was_assigned_last_wins_and_the_rest_stays_in_order(assigned: list[tuple[int, int]]) -> None:
    real = LeaderEpochLineage()
    for epoch, start in assigned:
        kept = [entry for entry in pairs(real) if entry[0] < epoch and entry[1] < start]
        is_repeated = len(real) > 0 and pairs(real)[-1][0] == epoch and pairs(real)[-1][1] <= start
        before = pairs(real)
        changed = real.assign(LeaderEpoch(epoch), Offset(start))
        assert changed is not is_repeated
        assert pairs(real) == (before if is_repeated else [*kept, (epoch, start)])
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in zip(pairs(real), pairs(real)[1:], strict=False))


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    real = lineage((1, 0), (3, 6), (4, 9))
    assert ends(real, 11, range(6)) == [(0, 0), (1, 6), (1, 6), (3, 9), (4, 11), None]


def test_an_epoch_older_than_the_first_known_ends_where_that_one_starts() -> None:
    assert ends(lineage((5, 40), (6, 50)), 60, range(3, 7)) == [(3, 40), (4, 40), (5, 50), (6, 60)]


def test_an_empty_lineage_knows_no_end() -> None:
    assert LeaderEpochLineage().end_offset_for(LeaderEpoch(0), Offset(10)) is None
    assert LeaderEpochLineage().epoch_at(Offset(0)) is None
    assert LeaderEpochLineage().latest_leader_epoch is None


def test_an_epoch_in_which_nothing_was_written_leaves_no_trace() -> None:
    real = lineage((1, 0), (2, 7))
    assert real.assign(LeaderEpoch(3), Offset(7))
    assert pairs(real) == [(1, 0), (3, 7)]


def test_the_same_epoch_again_does_not_move_its_start_up() -> None:
    real = lineage((1, 0), (2, 7))
    assert not real.assign(LeaderEpoch(2), Offset(9))
    assert pairs(real) == [(1, 0), (2, 7)]
    assert real.assign(LeaderEpoch(2), Offset(5))
    assert pairs(real) == [(1, 0), (2, 5)]


def test_truncation_at_the_log_end_drops_an_epoch_without_records() -> None:
    real = lineage((1, 0), (2, 7))
    assert real.truncate_from_end(Offset(7))
    assert pairs(real) == [(1, 0)]
    assert not real.truncate_from_end(Offset(7))


def test_the_log_start_moves_the_epoch_that_covers_it() -> None:
    real = lineage((1, 0), (2, 7), (4, 9))
    assert real.truncate_from_start(Offset(8))
    assert pairs(real) == [(2, 8), (4, 9)]
    assert not real.truncate_from_start(Offset(8))
    assert not real.truncate_from_start(Offset(3))
    assert real.truncate_from_start(Offset(20))
    assert pairs(real) == [(4, 20)], "a log that retention emptied still knows its epoch"


def test_a_clone_is_independent() -> None:
    real = lineage((1, 0), (2, 7))
    copy = real.clone()
    assert copy == real
    copy.assign(LeaderEpoch(3), Offset(8))
    assert pairs(real) == [(1, 0), (2, 7)] != pairs(copy)
    assert copy.clear()
    assert not copy.clear()


def test_negative_numbers_are_our_bug() -> None:
    with pytest.raises(InvariantBrokenError):
        LeaderEpochLineage().assign(LeaderEpoch(-1), Offset(0))


def test_the_checkpoint_is_text_that_kafkas_tools_read() -> None:
    real = lineage((0, 0), (5, 120))
    assert real.to_text() == "0\n2\n0 0\n5 120\n"
    assert LeaderEpochLineage.from_text("0\n2\n0 0\n5 120\n").entries == (
        EpochEntry(LeaderEpoch(0), Offset(0)),
        EpochEntry(LeaderEpoch(5), Offset(120)),
    )
    assert LeaderEpochLineage.from_text("0\n0\n").entries == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("1\n0\n", 1),
        ("0\n", 2),
        ("0\nx\n", 2),
        ("0\n-1\n", 2),
        ("0\n2\n0 0\n", 2),
        ("0\n0\n0 0\n", 2),
        ("0\n1\n0\n", 3),
        ("0\n1\n0 -1\n", 3),
        ("0\n1\n0 1 2\n", 3),
        ("0\n2\n1 0\n1 5\n", 4),
        ("0\n2\n1 5\n2 5\n", 4),
        ("0\n3\n1 5\n4 8\n3 9\n", 5),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_its_line(text: str, line: int) -> None:
    with pytest.raises(CorruptLogError, match=rf"^a/path: line {line}: "):
        LeaderEpochLineage.from_text(text, path="a/path")
