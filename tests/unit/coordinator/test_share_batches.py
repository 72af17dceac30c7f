"""Batches of a share group's state: the newer wins at each offset, and no record is taken for another of its offset."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fixtures.coordinated_share import ACKNOWLEDGED, ARCHIVED, AVAILABLE, batch, change
from tidelog.base.ids import Offset
from tidelog.coordinator.share.batches import combine
from tidelog.coordinator.share.records import (
    ShareSnapshotValue,
    ShareStateBatch,
    ShareUpdateValue,
    encode_snapshot,
    encode_update,
)
from tidelog.journal.versioned_records import encode_value
from tidelog.share.state import StateBatch

OFFSET_MAX = 30

batches = st.builds(
    lambda first, length, state, count, epoch: batch(first, first + length, state, count, epoch=epoch),
    st.integers(0, OFFSET_MAX),
    st.integers(0, 8),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
    st.integers(1, 2),
    st.sampled_from([-1, 3, 4]),
)


def combined(kept: Iterable[StateBatch], *newer: StateBatch, start: int | None = None) -> list[StateBatch]:
    found = list(kept)
    combine(found, newer, None if start is None else Offset(start))
    return found


def by_offset(found: Iterable[StateBatch]) -> dict[int, tuple[object, ...]]:
    """What is said of each record; the last word counts."""
    return {
        offset: (one.state, one.delivery_count, one.leader_epoch)
        for one in found
        for offset in range(one.first, one.last + 1)
    }


@given(st.lists(batches, max_size=12), st.lists(batches, max_size=6), st.none() | st.integers(0, OFFSET_MAX + 10))
def test_combining_is_what_an_offset_by_offset_record_says(
    older: list[StateBatch], newer: list[StateBatch], start: int | None
) -> None:
    kept = combined([], *older)
    found = combined(kept, *newer, start=start)
    expected = {
        offset: said for offset, said in by_offset([*older, *newer]).items() if start is None or offset >= start
    }
    assert by_offset(found) == expected
    for one, following in pairwise(found):
        assert one.last < following.first
        if one.last + 1 == following.first:  # as few as there can be
            assert by_offset([one])[one.first] != by_offset([following])[following.first]


def test_neighbours_that_say_the_same_become_one_and_others_stay_two() -> None:
    middle = batch(4, 6, ARCHIVED, 2, epoch=3)
    for alike in (batch(2, 3, ARCHIVED, 2, epoch=3), batch(2, 4, ARCHIVED, 2, epoch=3)):
        assert combined([alike], middle) == [batch(2, 6, ARCHIVED, 2, epoch=3)]
    for alike in (batch(7, 8, ARCHIVED, 2, epoch=3), batch(6, 8, ARCHIVED, 2, epoch=3)):
        assert combined([alike], middle) == [batch(4, 8, ARCHIVED, 2, epoch=3)]
    for other in (
        batch(2, 3, ACKNOWLEDGED, 2, epoch=3),
        batch(2, 3, ARCHIVED, 1, epoch=3),
        batch(2, 3, ARCHIVED, 2, epoch=4),
        batch(2, 2, ARCHIVED, 2, epoch=3),
        batch(7, 8, ACKNOWLEDGED, 2, epoch=3),
        batch(8, 8, ARCHIVED, 2, epoch=3),
    ):
        assert combined([other], middle) == sorted([other, middle], key=lambda one: one.first)


def test_what_is_new_lies_over_what_was_there() -> None:
    old = batch(2, 9, ACKNOWLEDGED, 1, epoch=3)
    assert combined([old], batch(4, 6, ARCHIVED)) == [
        batch(2, 3, ACKNOWLEDGED, 1, epoch=3),
        batch(4, 6, ARCHIVED),
        batch(7, 9, ACKNOWLEDGED, 1, epoch=3),
    ]
    for first, last in ((2, 9), (1, 10)):
        assert combined([old], batch(first, last, ARCHIVED)) == [batch(first, last, ARCHIVED)]
    several = [batch(1, 2), batch(4, 5, ARCHIVED), batch(7, 8), batch(11, 12)]
    assert combined(several, batch(2, 7, AVAILABLE, 2)) == [
        batch(1, 1),
        batch(2, 7, AVAILABLE, 2),
        batch(8, 8),
        batch(11, 12),
    ]


@pytest.mark.parametrize(
    ("start", "left"),
    [(4, [(4, 6), (8, 9)]), (5, [(5, 6), (8, 9)]), (6, [(6, 6), (8, 9)]), (7, [(8, 9)]), (9, [(9, 9)]), (10, [])],
)
def test_what_lies_before_the_start_goes(start: int, left: list[tuple[int, int]]) -> None:
    kept = combined([batch(1, 2), batch(4, 6), batch(8, 9)], start=start)
    assert [(one.first, one.last) for one in kept] == left


def test_an_old_acknowledgement_does_not_grow_over_the_record_that_has_its_offset_now() -> None:
    """Offsets 5 to 9 were truncated and used again, in leader epoch 4."""
    kept = combined([], batch(0, 9, epoch=3))
    assert combined(kept, batch(5, 6, epoch=4)) == [batch(0, 4, epoch=3), batch(5, 6, epoch=4), batch(7, 9, epoch=3)]
    assert combined([], batch(0, 4, epoch=3), batch(5, 9, epoch=4)) == [batch(0, 4, epoch=3), batch(5, 9, epoch=4)]


@given(st.lists(batches, max_size=6), st.integers(-1, 9), st.integers(-1, 9))
def test_what_is_packed_by_hand_is_what_the_messages_say(found: list[StateBatch], start: int, start_epoch: int) -> None:
    written = [
        ShareStateBatch(
            first_offset=one.first,
            last_offset=one.last,
            delivery_state=one.state,
            delivery_count=one.delivery_count,
            leader_epoch=one.leader_epoch,
        )
        for one in found
    ]

    def snapshot(state_batches: list[ShareStateBatch]) -> ShareSnapshotValue:
        return ShareSnapshotValue(
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=start,
            delivery_complete_count=4,
            create_timestamp=5,
            write_timestamp=6,
            state_batches=state_batches,
            start_leader_epoch=start_epoch,
        )

    assert encode_snapshot(snapshot([]), found) == encode_value(snapshot(written), 0)
    update = ShareUpdateValue(
        snapshot_epoch=1,
        leader_epoch=3,
        start_offset=start,
        delivery_complete_count=4,
        state_batches=written,
        start_leader_epoch=-1 if start == -1 else start_epoch,
    )
    told = change(*found, leader_epoch=3, start=None if start == -1 else start, start_epoch=start_epoch, complete=4)
    assert encode_update(told, 1) == encode_value(update, 0)
