"""Which state may follow which, and epochs: what is asked of a transaction is possible, or a bug of the coordinator."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_transactions import WALL_START_MS, A, recorded
from tidelog.base.errors import InvariantBrokenError
from tidelog.coordinator.transactions import Transaction, TransactionState
from tidelog.coordinator.transactions.transaction import EPOCH_MAX, TRANSITIONS

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = list(TransactionState)[:6]
IDLE = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}


def test_the_numbers_of_states_are_kafkas() -> None:
    assert [state.value for state in TransactionState] == list(range(8))


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("before", TransactionState)
def test_states_follow_each_other_in_order_only(before: TransactionState, state: TransactionState) -> None:
    allowed = {
        ONGOING: {ONGOING, PREPARE_COMMIT, PREPARE_ABORT},
        PREPARE_COMMIT: {COMPLETE_COMMIT},
        PREPARE_ABORT: {COMPLETE_ABORT},
        **{one: {EMPTY, ONGOING, COMPLETE_ABORT} for one in IDLE},
    }
    assert allowed == TRANSITIONS
    transaction = recorded(before)
    if state in allowed.get(before, set()):
        assert transaction.went(state, WALL_START_MS + 1) == recorded(state, updated_ms=WALL_START_MS + 1)
    else:
        with pytest.raises(InvariantBrokenError, match=f"{state.name} after {before.name}"):
            transaction.went(state, WALL_START_MS)


def fenced(transaction: Transaction) -> Transaction:
    return transaction.prepared(
        commits=False, bumps_epoch=True, client_version=2, next_producer_id=None, wall_ms=WALL_START_MS
    )


def test_there_is_no_epoch_after_the_last() -> None:
    assert fenced(recorded(ONGOING, 7, EPOCH_MAX - 1, partitions=(A,))).producer_epoch == EPOCH_MAX
    with pytest.raises(InvariantBrokenError, match="no epoch after"):
        fenced(recorded(ONGOING, 7, EPOCH_MAX, partitions=(A,)))


def test_what_has_no_epoch_has_none_to_bump() -> None:
    assert fenced(recorded(ONGOING, 7, None, partitions=(A,))).producer_epoch is None
