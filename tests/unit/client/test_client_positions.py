"""Where two logs part, found through leader epochs alone (KIP-320)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.client.core.positions import (
    Divergence,
    EpochEndNeeded,
    Intact,
    PositionStatus,
    Truncated,
    Undefined,
    Verdict,
    judge,
    validate,
)
from tidelog.records.lineage import LeaderEpochLineage


def lineage(*entries: tuple[int, int]) -> LeaderEpochLineage:
    return LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def standing(offset: int, epoch: int, *entries: tuple[int, int], was_read: bool = True) -> PositionStatus:
    return PositionStatus(Offset(offset), LeaderEpoch(epoch), was_read, lineage(*entries))


def answer(epoch: int, end_offset: int) -> tuple[LeaderEpoch, Offset]:
    return LeaderEpoch(epoch), Offset(end_offset)


def truncated(divergent_offset: int, epoch: int) -> Truncated:
    return Truncated(Divergence(Offset(divergent_offset), LeaderEpoch(epoch)))


def ask(reader: PositionStatus, leader: LeaderEpochLineage, log_end_offset: int, leader_epoch: int = 99) -> Verdict:
    """Put the question to a leader, as often as needed."""
    questions = validate(reader, LeaderEpoch(leader_epoch))
    asked = next(questions)
    while True:
        try:
            older = questions.send(leader.end_offset_for(asked, Offset(log_end_offset)))
        except StopIteration as stop:
            verdict: Verdict = stop.value
            return verdict
        assert older < asked, "each question must be about an older epoch"
        asked = older


def test_a_log_that_has_all_that_was_read_is_intact() -> None:
    reader = standing(5, 2, (1, 0), (2, 3))
    assert judge(reader, LeaderEpoch(2), answer(2, 5)) == Intact()
    assert judge(reader, LeaderEpoch(2), answer(2, 9)) == Intact()


def test_an_epoch_that_ends_below_the_position_shows_a_truncation() -> None:
    assert judge(standing(5, 2, (2, 0)), LeaderEpoch(2), answer(2, 4)) == truncated(4, 2)


def test_a_log_that_grew_past_the_position_without_our_epoch_was_truncated_all_the_same() -> None:
    # Comparing the end with the position alone finds nothing here: 6 lies above 3.
    reader = standing(3, 2, (0, 0), (2, 1))
    leader = lineage((1, 0), (3, 6))
    assert leader.end_offset_for(LeaderEpoch(2), Offset(9)) == (1, 6)
    assert ask(reader, leader, 9) == truncated(0, 0)


def test_an_epoch_that_was_only_looked_up_need_not_be_known_to_the_leader() -> None:
    # The end of the log was looked up under a leader of epoch 2, which wrote nothing and failed.
    reader = standing(6, 2, was_read=False)
    assert judge(reader, LeaderEpoch(2), answer(1, 6)) == Intact()
    assert judge(reader, LeaderEpoch(2), answer(1, 5)) == Truncated(None)
    assert judge(reader, LeaderEpoch(2), answer(2, 5)) == truncated(5, 2)


def test_without_a_lineage_that_reaches_down_the_divergence_is_unknown() -> None:
    # A stored position: nobody remembers which epochs lay between 1 and 4.
    assert judge(standing(100, 4, (4, 99)), LeaderEpoch(4), answer(1, 60)) == Truncated(None)


def test_the_question_goes_down_the_lineage_until_both_know_an_epoch() -> None:
    reader = standing(30, 7, (1, 0), (3, 10), (7, 20))
    assert judge(reader, LeaderEpoch(7), answer(5, 25)) == EpochEndNeeded(LeaderEpoch(3))
    assert judge(reader, LeaderEpoch(3), answer(2, 12)) == EpochEndNeeded(LeaderEpoch(1))
    assert judge(reader, LeaderEpoch(1), answer(1, 8)) == truncated(8, 1)
    assert judge(reader, LeaderEpoch(1), answer(1, 15)) == truncated(10, 1)


@pytest.mark.parametrize("told", [None, answer(3, 9)])
def test_what_a_leader_cannot_tell_is_never_a_truncation(told: tuple[LeaderEpoch, Offset] | None) -> None:
    assert judge(standing(5, 2, (2, 0)), LeaderEpoch(2), told) == Undefined()


STEP = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("elect"), st.integers(0, 12)),  # losing so many records at the end
    st.tuples(st.just("read"), st.integers(1, 6)),
)


@given(st.integers(0, 6), st.lists(STEP, max_size=25), st.integers(0, 12))
def test_the_verdict_is_what_comparing_the_logs_record_by_record_shows(
    start: int, steps: list[tuple[str, int]], lost_at_last: int
) -> None:
    """A log is written, loses its end, is written again; a reader reads on without ever looking back."""
    log: list[tuple[int, int]] = []  # (leader epoch, a number of its own)
    leader = lineage((0, 0))
    epoch = made = 0
    read: list[tuple[int, int]] = []  # from `start` on
    known = lineage()

    def lose(count: int) -> None:
        nonlocal epoch
        if count:
            del log[max(0, len(log) - count) :]
            leader.truncate_from_end(Offset(len(log)))
        epoch += 1
        leader.assign(LeaderEpoch(epoch), Offset(len(log)))

    for what, count in [*steps, ("elect", lost_at_last)]:
        if what == "append":
            log += [(epoch, made := made + 1) for _ in range(count)]
        elif what == "elect":
            lose(count)
        else:
            # A reader that asked at every election would not have come so far: what it stands on must be intact.
            if log[start : start + len(read)] != read:
                break
            for record in log[start + len(read) :][:count]:
                known.assign(LeaderEpoch(record[0]), Offset(start + len(read)))
                read.append(record)
    if not read:
        return
    reader = PositionStatus(Offset(start + len(read)), LeaderEpoch(read[-1][0]), True, known)
    same = 0
    while same < len(read) and start + same < len(log) and log[start + same] == read[same]:
        same += 1
    verdict = ask(reader, leader, len(log))
    if same == len(read):
        assert verdict == Intact()
    elif same:
        assert isinstance(verdict, Truncated)
        assert verdict.divergent_offset == start + same
    else:  # nothing that was read is left
        assert isinstance(verdict, Truncated)
        assert verdict.divergent_offset is None or verdict.divergent_offset <= start


def test_below_a_stored_position_the_epoch_that_came_with_it_is_known() -> None:
    """Read on in a later epoch, of which the leader has nothing: the logs part in the one that was stored."""
    standing = PositionStatus.stored(Offset(50), LeaderEpoch(6))
    standing.on_read([(LeaderEpoch(7), 50)], 52)
    verdict = judge(standing, LeaderEpoch(7), (LeaderEpoch(6), Offset(45)))
    assert verdict == Truncated(Divergence(Offset(45), LeaderEpoch(6)))
