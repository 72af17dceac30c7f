"""A replica's lineage by questions alone, and where two histories part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.client.admin.cluster_descriptions import EpochSpan, epoch_spans, first_difference
from tidelog.client.core.lineage_search import LineageSearch
from tidelog.records.lineage import LeaderEpochLineage


def learnt(lineage: LeaderEpochLineage, log_end_offset: int, leader_epoch: int) -> tuple[tuple[int, int, int], ...]:
    """What a search learns that is answered from a lineage."""
    search = LineageSearch(LeaderEpoch(leader_epoch))
    for _ in range(10_000):
        question = search.question
        if question is None:
            return search.spans
        search.on_answer(lineage.end_offset_for(question, Offset(log_end_offset)))
    raise AssertionError("the search does not end")


entries_lists = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 200)), max_size=12)


@given(entries_lists, st.integers(0, 50), st.integers(0, 1_000))
def test_whatever_a_replica_holds_is_learnt(entries: list[tuple[int, int]], more: int, ahead: int) -> None:
    lineage = LeaderEpochLineage()
    for leader_epoch, start_offset in sorted(entries):
        lineage.assign(LeaderEpoch(leader_epoch), Offset(start_offset))
    starts = [entry.start_offset for entry in lineage.entries]
    latest = lineage.latest_leader_epoch or 0
    found = learnt(lineage, max(starts, default=0) + more, latest + ahead)
    expected: tuple[tuple[int, int, int], ...] = epoch_spans(lineage.entries, max(starts, default=0) + more)
    if expected and expected[0][0] == 0:  # nothing is older than epoch 0: whoever asks cannot know where it starts
        expected = ((0, 0, expected[0][2]), *expected[1:])
    assert found == expected


def test_a_replica_without_records_has_no_lineage() -> None:
    assert learnt(LeaderEpochLineage(), 0, 1_000_000) == ()


def test_a_replica_far_behind_is_found_by_halves() -> None:
    lineage = LeaderEpochLineage([(LeaderEpoch(3), Offset(0))])
    search, asked = LineageSearch(LeaderEpoch(1_000_000)), 0
    while (question := search.question) is not None:
        asked += 1
        search.on_answer(lineage.end_offset_for(question, Offset(9)))
    assert search.spans == ((3, 0, 9),)
    assert asked < 30


def test_a_log_that_is_truncated_meanwhile_is_learnt_as_it_is_then() -> None:
    before = LeaderEpochLineage([(LeaderEpoch(1), Offset(0)), (LeaderEpoch(4), Offset(5)), (LeaderEpoch(6), Offset(8))])
    after = LeaderEpochLineage([(LeaderEpoch(1), Offset(0))])
    search, asked = LineageSearch(LeaderEpoch(6)), 0
    while (question := search.question) is not None:
        asked += 1
        lineage, end = (before, 11) if asked == 1 else (after, 3)
        search.on_answer(lineage.end_offset_for(question, Offset(end)))
    assert search.spans == ((1, 0, 3),)


def spans(*rows: tuple[int, int, int]) -> tuple[EpochSpan, ...]:
    return tuple(EpochSpan(*row) for row in rows)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (spans((0, 0, 5)), spans((0, 0, 9)), None),
        (spans((0, 0, 5), (1, 5, 7)), spans((0, 0, 5)), None),
        (spans((0, 0, 5), (1, 5, 7)), spans((0, 0, 7)), 5),
        (spans((0, 0, 5), (2, 5, 7)), spans((0, 0, 4), (1, 4, 9)), 4),
        (spans((0, 0, 5), (2, 5, 7)), spans((0, 0, 5), (1, 5, 9)), 5),
        (spans((1, 3, 5), (2, 5, 7)), spans((0, 0, 3), (1, 3, 5), (3, 5, 6)), 5),
        ((), spans((0, 0, 3)), None),
        (spans((5, 10, 20)), spans((0, 0, 3)), None),
    ],
)
def test_histories_part_where_epochs_differ(
    one: tuple[EpochSpan, ...], other: tuple[EpochSpan, ...], expected: int | None
) -> None:
    assert first_difference(one, other) == expected
    assert first_difference(other, one) == expected


@given(entries_lists, entries_lists, st.integers(0, 50), st.integers(0, 50))
def test_the_first_difference_is_that_of_the_records(
    one: list[tuple[int, int]], other: list[tuple[int, int]], more: int, more_of_other: int
) -> None:
    def as_spans(entries: list[tuple[int, int]], beyond: int) -> tuple[EpochSpan, ...]:
        lineage = LeaderEpochLineage()
        for leader_epoch, start_offset in sorted(entries):
            lineage.assign(LeaderEpoch(leader_epoch), Offset(start_offset))
        end = max((entry.start_offset for entry in lineage.entries), default=0) + beyond
        return epoch_spans(lineage.entries, end)

    def as_records(found: tuple[EpochSpan, ...]) -> dict[int, int]:
        return {offset: span.leader_epoch for span in found for offset in range(span.start_offset, span.end_offset)}

    left, right = as_spans(one, more), as_spans(other, more_of_other)
    a, b = as_records(left), as_records(right)
    differing = [offset for offset in a if offset in b and a[offset] != b[offset]]
    assert first_difference(left, right) == min(differing, default=None)
