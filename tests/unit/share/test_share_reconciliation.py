"""What was kept of a partition, against the lineage of the log that its leader has."""

from __future__ import annotations

import pytest

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.share import NO_LEADER_EPOCH, Bounds, DeliveryState, ForgottenRecords, ShareState, StateBatch, reconciled

DONE, FREE = DeliveryState.ACKNOWLEDGED, DeliveryState.AVAILABLE


def lineage(*entries: tuple[int, int]) -> LeaderEpochLineage:
    return LeaderEpochLineage((LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def batch(first: int, last: int, epoch: int, state: DeliveryState = DONE, count: int = 1) -> StateBatch:
    return StateBatch(Offset(first), Offset(last), state, count, LeaderEpoch(epoch))


def state(start: int, epoch: int, *batches: StateBatch) -> ShareState:
    return ShareState(3, Offset(start), LeaderEpoch(epoch), batches)


def forgotten(first: int, last: int, epoch: int, here: int | None) -> ForgottenRecords:
    return ForgottenRecords(
        Offset(first), Offset(last), LeaderEpoch(epoch), None if here is None else LeaderEpoch(here)
    )


def test_a_state_of_this_log_stays_as_it_is() -> None:
    kept = state(5, 1, batch(6, 7, 1), batch(8, 9, 2, FREE, 3))
    assert reconciled(kept, lineage((1, 0), (2, 8), (3, 12)), Bounds(Offset(0), Offset(12))) == (kept, ())


def test_a_group_that_has_not_begun_has_nothing_to_forget() -> None:
    kept = ShareState(3)
    assert reconciled(kept, lineage((4, 0)), Bounds(Offset(0), Offset(0))) == (kept, ())


def test_what_was_done_with_records_that_are_gone_is_forgotten() -> None:
    """Offsets 4 to 6 were of epoch 1; the next leader lacked them, and wrote others."""
    kept = state(2, 1, batch(3, 6, 1))
    after, gone = reconciled(kept, lineage((1, 0), (2, 4)), Bounds(Offset(0), Offset(6)))
    assert after == state(2, 1, batch(3, 3, 1), batch(4, 5, 2, FREE, 0))
    assert gone == (forgotten(4, 5, 1, 2), forgotten(6, 6, 1, None))


def test_the_start_goes_back_to_where_the_logs_part() -> None:
    kept = state(8, 1, batch(9, 9, 1))
    after, gone = reconciled(kept, lineage((1, 0), (2, 5)), Bounds(Offset(0), Offset(12)))
    assert after == state(5, 1, batch(9, 9, 2, FREE, 0))
    assert gone == (forgotten(5, 7, 1, 2), forgotten(9, 9, 1, 2))


def test_the_start_goes_back_where_nothing_of_its_epoch_is_left() -> None:
    kept = state(8, 3)
    after, gone = reconciled(kept, lineage((1, 0), (4, 6)), Bounds(Offset(0), Offset(7)))
    assert after == state(6, 1)
    assert gone == (forgotten(6, 6, 3, 4), forgotten(7, 7, 3, None))


def test_the_start_is_never_beyond_the_log_nor_before_it() -> None:
    assert reconciled(state(8, -1), lineage((1, 0)), Bounds(Offset(0), Offset(5))).state == state(5, 1)
    assert reconciled(state(8, 1), lineage((1, 9)), Bounds(Offset(9), Offset(12))) == (state(9, 1), ())
    after, gone = reconciled(state(8, 1), lineage((2, 6)), Bounds(Offset(6), Offset(9)))
    assert after == state(6, 2)
    assert gone == (forgotten(6, 7, 1, 2),)


def test_what_retention_has_deleted_is_not_told_of() -> None:
    kept = state(2, 1, batch(3, 4, 1), batch(6, 9, 1))
    assert reconciled(kept, lineage((1, 7)), Bounds(Offset(7), Offset(12))) == (state(7, 1, batch(7, 9, 1)), ())


def test_who_did_not_know_of_epochs_is_believed_up_to_the_log_end() -> None:
    kept = state(2, NO_LEADER_EPOCH, batch(3, 8, NO_LEADER_EPOCH))
    after, gone = reconciled(kept, lineage((1, 0), (2, 5)), Bounds(Offset(0), Offset(7)))
    assert after == state(2, 1, batch(3, 4, 1), batch(5, 6, 2))
    assert gone == (forgotten(7, 8, NO_LEADER_EPOCH, None),)


def test_what_was_kept_beyond_the_log_end_is_forgotten_and_nothing_else() -> None:
    kept = state(5, 1, batch(6, 6, 1), batch(9, 10, 1))
    after, gone = reconciled(kept, lineage((1, 0)), Bounds(Offset(0), Offset(8)))
    assert after == state(5, 1, batch(6, 6, 1))
    assert gone == (forgotten(9, 10, 1, None),)
    assert reconciled(kept, lineage((1, 0)), Bounds(Offset(0), Offset(9))).state == state(5, 1, batch(6, 6, 1))


def test_records_before_the_first_epoch_that_is_known_are_of_none() -> None:
    kept = state(2, NO_LEADER_EPOCH, batch(3, 8, NO_LEADER_EPOCH))
    after, gone = reconciled(kept, lineage((1, 5)), Bounds(Offset(0), Offset(10)))
    assert after == state(2, NO_LEADER_EPOCH, batch(3, 4, NO_LEADER_EPOCH), batch(5, 8, 1))
    assert gone == ()


@pytest.mark.parametrize("start", range(7))
def test_a_second_reconciliation_with_the_same_log_changes_nothing(start: int) -> None:
    here, bounds = lineage((1, 0), (3, 2), (4, 5)), Bounds(Offset(1), Offset(6))
    once = reconciled(state(start, 2, batch(start, 6, 2)), here, bounds).state
    assert reconciled(once, here, bounds) == (once, ())
