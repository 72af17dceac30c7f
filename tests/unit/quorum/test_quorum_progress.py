"""What a leader knows of another replica, and what it has still to ask whom."""

from __future__ import annotations

import pytest

from tidelog.base.ids import BrokerId, Offset
from tidelog.quorum import ReplicaProgress
from tidelog.quorum.outstanding_requests import OutstandingRequests

TWO, THREE, FOUR = BrokerId(2), BrokerId(3), BrokerId(4)


def fetched(*fetches: tuple[int, int, int]) -> ReplicaProgress:
    """After fetches from an offset, while the leader's log ended at another, at a time."""
    progress = ReplicaProgress(0)
    for offset, leader_end, at_ms in fetches:
        progress.on_fetch(Offset(offset), Offset(leader_end), at_ms)
    return progress


@pytest.mark.parametrize(
    ("fetches", "caught_up_ms"),
    [
        ([(5, 9, 10)], None),  # it is behind
        ([(9, 9, 10)], 10),
        ([(10, 9, 10)], 10),  # it has what the leader has not synced yet
        ([(5, 9, 10), (8, 12, 20)], None),
        ([(5, 9, 10), (9, 12, 20)], 10),  # it has what there was at its fetch before
        ([(5, 9, 10), (10, 12, 20)], 10),
        ([(9, 9, 10), (9, 12, 20)], 10),
        ([(9, 9, 10), (10, 12, 20), (12, 15, 30)], 20),
        ([(9, 9, 10), (9, 12, 20), (9, 15, 30)], 10),  # it falls behind
        ([(0, 0, 10), (0, 4, 20)], 10),
        ([(0, 1, 10), (1, 4, 20)], 10),
        ([(9, 9, 0), (9, 12, 20), (9, 15, 30)], 0),
    ],
)
def test_who_has_now_what_there_was_at_its_fetch_before_was_caught_up_then(
    fetches: list[tuple[int, int, int]], caught_up_ms: int | None
) -> None:
    progress = fetched(*fetches)
    assert progress.last_caught_up_ms == caught_up_ms
    assert (progress.log_end_offset, progress.last_fetch_ms) == (fetches[-1][0], fetches[-1][2])


def requests(*targets: BrokerId, now_ms: int = 0) -> OutstandingRequests:
    return OutstandingRequests(targets, now_ms, backoff_ms=10, backoff_ms_max=70)


def test_each_is_asked_one_thing_at_a_time() -> None:
    asking = requests(TWO, THREE)
    assert asking.due(0) == [TWO, THREE]
    asking.on_sent(1, TWO)
    assert asking.due(0) == [THREE]
    assert asking.on_answered(1) == TWO
    assert asking.on_answered(1) is None, "it came twice"
    assert asking.next_deadline_ms() == 0
    asking.on_sent(2, THREE)
    assert asking.next_deadline_ms() is None


def test_the_back_off_doubles_for_each_on_its_own_and_has_an_end() -> None:
    asking = requests(TWO, THREE)
    now_ms, waits = 0, []
    for number in range(5):
        asking.on_sent(number, TWO)
        asking.on_failed(number, now_ms)
        assert asking.due(now_ms) == [THREE]
        waits.append(next(wait_ms for wait_ms in range(100) if TWO in asking.due(now_ms + wait_ms)))
        now_ms += waits[-1]
    assert waits == [10, 20, 40, 70, 70]
    asking.on_sent(9, THREE)
    asking.on_failed(9, now_ms)
    assert asking.next_deadline_ms() == now_ms, "that of 2 is due first"
    asking.on_sent(10, TWO)
    assert asking.next_deadline_ms() == now_ms + 10


def test_a_failure_that_comes_after_the_answer_sends_nothing_again() -> None:
    asking = requests(TWO)
    asking.on_sent(1, TWO)
    asking.on_answered(1)
    asking.on_failed(1, 5)
    assert asking.next_deadline_ms() is None


def test_who_is_done_with_is_asked_no_more_and_its_answer_tells_nothing() -> None:
    asking = requests(TWO, THREE)
    asking.on_sent(1, TWO)
    for target in (TWO, THREE):
        asking.finish(target)
    assert asking.next_deadline_ms() is None
    assert asking.on_answered(1) is None


def test_targets_that_are_none_any_more_are_dropped_and_new_ones_asked_at_once() -> None:
    asking = requests(TWO, THREE)
    asking.on_sent(1, TWO)
    asking.keep([THREE, FOUR], [FOUR], 5)
    assert asking.on_answered(1) is None
    assert asking.due(5) == [THREE, FOUR]
    asking.on_sent(2, FOUR)
    asking.keep([FOUR], [FOUR], 6)
    assert asking.due(6) == [], "it was asked already"
    assert asking.on_answered(2) == FOUR
