"""NoSilentLoss: what readers must be told of, and what they need not be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.base.ids import LeaderEpoch
from tidelog.sim.checkers.readers import NoSilentLoss
from tidelog.sim.checkers.views import Record


def records(text: str) -> list[Record]:
    words = [token.partition("@") for token in text.split()]
    return [(LeaderEpoch(int(leader_epoch)), value) for value, _, leader_epoch in words]


OLD, NEW = records("m1@0 m2@0 m3@0"), records("m1@0 m4@1 m5@1")


def before(leader_epoch: LeaderEpoch, offset: int) -> Record | None:
    """As two logs had it: one that is gone, and the one that there is."""
    for log in (OLD, NEW):
        if 0 < offset < len(log) and log[offset][0] == leader_epoch:
            return log[offset - 1]
    return None


def read(log: list[Record], offsets: range, checker: NoSilentLoss | None = None) -> tuple[NoSilentLoss, list[str]]:
    checker = NoSilentLoss(before) if checker is None else checker
    return checker, [str(one) for offset in offsets for one in checker.on_given("R", offset, log[offset])]


def settled(checker: NoSilentLoss, log: list[Record] = NEW, start: int = 0) -> list[str]:
    return [str(one) for one in checker.check_settled(start, log[start:])]


def test_a_log_read_in_order() -> None:
    checker, broken = read(NEW, range(3))
    assert broken == settled(checker) == []


def test_a_record_that_is_left_out() -> None:
    checker, _ = read(NEW, range(1))
    assert list(map(str, checker.on_given("R", 2, NEW[2]))) == [
        "NoSilentLoss: R was given m5@1 at offset=2 after offset=0, and was told of nothing"
    ]


def test_reading_on_in_another_log_than_before() -> None:
    checker, _ = read(OLD, range(2))
    _, broken = read(NEW, range(2, 3), checker)
    told = "R was given m5@1 after m2@0 at offset=1, where that log has m4@1, and was told of nothing"
    assert broken == [f"NoSilentLoss: {told}"]


def test_reading_on_where_the_logs_part_after_what_was_read() -> None:
    checker, _ = read(OLD, range(1))
    _, broken = read(NEW, range(1, 3), checker)
    assert broken == settled(checker) == []


def test_a_reader_that_is_told_reads_on_from_where_the_logs_part() -> None:
    checker, _ = read(OLD, range(3))
    checker.on_told("R", 1, 1)
    _, broken = read(NEW, range(1, 3), checker)
    assert broken == settled(checker) == []


def test_a_reader_that_is_told_of_too_little() -> None:
    checker, _ = read(OLD, range(3))
    checker.on_told("R", 2, 2)
    _, broken = read(NEW, range(2, 3), checker)
    assert len(broken) == 1
    assert settled(checker) == [
        "NoSilentLoss: R has m2@0 at offset=1, the log has m4@1, and it was told of nothing",
    ]


def test_a_reader_that_cannot_be_told_where_goes_on_anywhere() -> None:
    checker, _ = read(OLD, range(3))
    checker.on_told("R", None, None)
    _, broken = read(NEW, range(2, 3), checker)
    assert broken == settled(checker) == []


def test_a_reader_that_stands_past_the_end_and_hears_nothing() -> None:
    checker, _ = read(OLD, range(3))
    short = OLD[:1]
    assert settled(checker, short) == [
        "NoSilentLoss: R has m2@0 at offset=1, the log has nothing, and it was told of nothing"
    ]
    checker.on_told("R", 1, 1)
    assert settled(checker, short) == []


def test_at_the_end_everybody_has_everything() -> None:
    checker, _ = read(NEW, range(2))
    assert settled(checker) == ["NoSilentLoss: R has nothing at offset=2, the log has m5@1, and it was told of nothing"]


@pytest.mark.parametrize(
    "leave", [lambda checker: checker.on_left("R"), lambda checker: checker.on_sought("R", 3)], ids=["left", "sought"]
)
def test_who_goes_of_its_own_accord_is_owed_nothing(leave: Callable[[NoSilentLoss], None]) -> None:
    checker, _ = read(OLD, range(3))
    leave(checker)
    assert settled(checker) == []


def test_what_retention_removed_need_not_have_been_read() -> None:
    checker = NoSilentLoss(before)
    checker.on_sought("R", 1)
    _, broken = read(NEW, range(1, 3), checker)
    assert broken == settled(checker, start=1) == []


def test_readers_are_kept_apart() -> None:
    checker, _ = read(OLD, range(3))
    assert list(checker.on_given("S", 0, NEW[0])) == []
    assert list(checker.on_given("S", 1, NEW[1])) == []
