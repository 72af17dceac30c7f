"""How much a follower keeps, and what it asks next; and how a newcomer learns the leader's lineage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.old_rules.replica_rules import first_epoch_end, high_watermark_alone, joins_at_the_high_watermark
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import EpochEntry, LeaderEpochLineage
from tidelog.replica import EpochEndOffset, OwnLog, TruncationStep, join_point, truncation_point
from tidelog.replica.lineage_walk import LineageWalk

OWN = ((1, 0), (2, 4), (4, 6))  # and the log ends at 9
Answer = tuple[int, int, int] | None  # asked, epoch, its end


def own_log(entries: tuple[tuple[int, int], ...] = OWN, *, start: int = 0, end: int = 9) -> OwnLog:
    lineage = LeaderEpochLineage((LeaderEpoch(epoch), Offset(offset)) for epoch, offset in entries)
    return OwnLog(Offset(start), Offset(end), Offset(5), lineage)


def step(end_offset: int, *, agreed: int | None = None, ask: int | None = None) -> TruncationStep:
    return TruncationStep(
        Offset(end_offset),
        None if agreed is None else LeaderEpoch(agreed),
        None if ask is None else LeaderEpoch(ask),
    )


def epoch_end(answer: Answer) -> EpochEndOffset | None:
    return None if answer is None else EpochEndOffset(LeaderEpoch(answer[0]), LeaderEpoch(answer[1]), Offset(answer[2]))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, step(9, ask=4)),
        ((4, 4, 9), step(9, agreed=4)),
        ((4, 4, 20), step(9, agreed=4)),
        ((4, 4, 7), step(7, agreed=4)),
        ((4, 2, 5), step(5, agreed=2)),
        ((4, 2, 8), step(6, agreed=2)),
        ((4, 3, 8), step(6, ask=2)),
        ((4, 3, 5), step(5, ask=2)),
        ((4, 3, 3), step(3, ask=1)),  # 2 went as well, so it is no use to ask for it
        ((4, 1, 2), step(2, agreed=1)),
        ((4, 0, 3), step(0, agreed=0)),
        ((4, 4, 0), step(0, agreed=4)),
    ],
)
def test_what_is_kept(answer: Answer, expected: TruncationStep) -> None:
    assert truncation_point(own_log(), epoch_end(answer)) == expected


def test_a_log_without_records_asks_for_what_retention_left_of_its_lineage() -> None:
    assert truncation_point(own_log(((3, 9),), start=9), None) == step(9, ask=3)
    assert truncation_point(own_log((), start=9), None) == step(9)


@pytest.mark.parametrize(
    ("log", "answer"),
    [
        (own_log((), end=9), None),
        (own_log(((4, 9),), end=9), None),
        (own_log(((4, 6),)), (4, 3, 6)),
        (own_log(((4, 6),)), (4, 3, 2)),
        (own_log(((4, 6),), start=1), (4, 3, 2)),
    ],
)
def test_records_of_no_known_epoch_are_not_taken_for_the_leaders(log: OwnLog, answer: Answer) -> None:
    assert truncation_point(log, epoch_end(answer)) == step(log.log_start_offset - 1), "nothing is to be kept"


def test_records_of_no_known_epoch_stay_below_one_that_the_leader_has_too() -> None:
    assert truncation_point(own_log(((4, 6),)), epoch_end((4, 4, 20))) == step(9, agreed=4)
    assert truncation_point(own_log(((4, 6),), start=6), epoch_end((4, 3, 7))) == step(6, agreed=3)


def test_an_epoch_that_a_batch_took_along_is_asked_for_no_more() -> None:
    assert truncation_point(own_log(((1, 0),), end=6), epoch_end((3, 2, 9))) == step(6, ask=1)


def test_an_epoch_that_was_led_without_a_record_is_not_asked_for() -> None:
    assert truncation_point(own_log(((1, 0), (5, 9))), None) == step(9, ask=1)


LINEAGES = st.lists(st.sampled_from((0, 0, 0, 1, 1, 2)), max_size=10)


@given(ours=LINEAGES, theirs=LINEAGES, shared=LINEAGES)
def test_what_is_left_is_the_longest_common_prefix(ours: list[int], theirs: list[int], shared: list[int]) -> None:
    """Epochs grow from record to record, or stay. Ours and theirs are never the same beyond what is shared."""
    common = epochs_of(shared, first=0, step=1)
    first = common[-1] if common else 0
    own = common + epochs_of(ours, first=first + first % 2 + 1, step=2)
    leader = common + epochs_of(theirs, first=first + first % 2 + 2, step=2)
    lineage, leaders = lineage_of(own), lineage_of(leader)
    leaders.assign(LeaderEpoch(99), Offset(len(leader)))

    end, answer, rounds = len(own), None, 0
    while True:
        log = OwnLog(Offset(0), Offset(end), Offset(0), lineage)
        found = truncation_point(log, answer)
        end = found.end_offset
        lineage.truncate_from_end(found.end_offset)
        if found.next_epoch_to_request is None:
            break
        told = leaders.end_offset_for(found.next_epoch_to_request, Offset(len(leader)))
        assert told is not None
        answer = EpochEndOffset(found.next_epoch_to_request, *told)
        rounds += 1
        assert rounds <= len(own) + 1
    longest = 0
    while longest < min(len(own), len(leader)) and own[longest] == leader[longest]:
        longest += 1
    assert end == longest


def epochs_of(growth: list[int], *, first: int, step: int) -> list[int]:
    epochs = []
    for more in growth:
        first += more * step
        epochs.append(first)
    return epochs


def lineage_of(epochs: list[int]) -> LeaderEpochLineage:
    lineage = LeaderEpochLineage()
    for offset, epoch in enumerate(epochs):
        lineage.assign(LeaderEpoch(epoch), Offset(offset))
    return lineage


def test_the_rules_that_were_replaced_keep_too_little_or_too_much() -> None:
    assert high_watermark_alone(own_log(), None) == step(5)
    assert first_epoch_end(own_log(), None) == step(9, ask=4)
    assert first_epoch_end(own_log(), epoch_end((4, 3, 8))) == step(8), "6 and 7 are not the leader's"
    assert joins_at_the_high_watermark(Offset(3), Offset(7)) == 3
    assert join_point(Offset(3), Offset(7)) == 7
    assert join_point(Offset(8), Offset(7)) == 8


def walked(leader: LeaderEpochLineage, leader_epoch: int, *, log_start: int = 0, leader_end: int = 100) -> LineageWalk:
    walk = LineageWalk(LeaderEpoch(leader_epoch), Offset(log_start))
    while walk.question is not None:
        assert walk.question >= 0, "no epoch is older than 0"
        told = leader.end_offset_for(walk.question, Offset(leader_end))
        assert told is not None, "asked for less than the leader's epoch"
        copy = walk.clone()
        assert copy.canonical_key() == walk.canonical_key()
        copy.on_answer(LeaderEpoch(0), Offset(0))
        walk.on_answer(*told)
    return walk


@pytest.mark.parametrize(
    ("entries", "log_start", "learnt"),
    [
        (((0, 0),), 0, ((0, 0),)),
        (((3, 0),), 0, ((3, 0),)),
        (((1, 0), (2, 6), (5, 9)), 0, ((1, 0), (2, 6), (5, 9))),
        (((0, 0), (1, 6), (2, 9)), 0, ((0, 0), (1, 6), (2, 9))),
        (((1, 4), (3, 6), (5, 9)), 0, ((0, 0), (1, 4), (3, 6), (5, 9))),
        (((1, 0), (3, 6), (5, 9)), 7, ((3, 7), (5, 9))),
        (((1, 0), (3, 6), (5, 9)), 6, ((3, 6), (5, 9))),
        (((1, 0), (3, 6), (5, 9)), 20, ((5, 20),)),
    ],
)
def test_a_newcomer_learns_what_lies_above_its_log_start(
    entries: tuple[tuple[int, int], ...], log_start: int, learnt: tuple[tuple[int, int], ...]
) -> None:
    leader = LeaderEpochLineage((LeaderEpoch(epoch), Offset(offset)) for epoch, offset in entries)
    walk = walked(leader, entries[-1][0], log_start=log_start)
    assert walk.entries == tuple(EpochEntry(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in learnt)


def test_a_walk_that_is_done_learns_no_more() -> None:
    walk = walked(LeaderEpochLineage([(LeaderEpoch(1), Offset(0)), (LeaderEpoch(3), Offset(6))]), 3, log_start=7)
    before = walk.canonical_key()
    walk.on_answer(LeaderEpoch(0), Offset(0))
    assert (walk.canonical_key(), walk.question) == (before, None)


@given(
    growth=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=8),
    log_start=st.integers(0, 9),
)
def test_who_learnt_answers_as_the_leader_does(growth: list[tuple[int, int]], log_start: int) -> None:
    leader = LeaderEpochLineage()
    epoch, offset = -1, 0
    for number, (more, records) in enumerate(growth):
        epoch, offset = epoch + more, offset + (records if number else 0)
        leader.assign(LeaderEpoch(epoch), Offset(offset))
    own = LeaderEpochLineage(walked(leader, epoch, log_start=log_start).entries)
    for asked in range(epoch + 1):
        theirs = leader.end_offset_for(LeaderEpoch(asked), Offset(100))
        ours = own.end_offset_for(LeaderEpoch(asked), Offset(100))
        assert theirs is not None
        assert ours is not None
        assert ours == theirs or max(ours[1], theirs[1]) <= log_start, "only below the log start may they differ"
