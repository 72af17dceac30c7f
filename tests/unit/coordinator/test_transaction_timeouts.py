"""Transactions that are open for too long are aborted; ids that nobody uses are forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fixtures.coordinated_transactions import (
    TIMEOUT_MS,
    WALL_START_MS,
    A,
    B,
    CoordinatedTransactions,
    identity,
    recorded,
)
from tidelog.base.errors import Code
from tidelog.coordinator.transactions import TransactionSettings, TransactionState
from tidelog.coordinator.transactions.expiry import EXPIRY_STEP_MAX
from tidelog.coordinator.transactions.transaction import EPOCH_MAX
from tidelog.journal import RequestId

DAY_MS = 24 * 60 * 60_000


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, version=version)
    world.pass_ms(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    world.pass_ms(1)
    assert world.state() is TransactionState.PREPARE_ABORT
    assert world.markers[A].producer_epoch == 1
    assert world.markers[A].transaction_version == version
    world.mark()
    assert world.state() is TransactionState.COMPLETE_ABORT
    assert world.refused(world.add(producer, A, version=version)) is Code.PRODUCER_FENCED
    assert world.coordinator.facts.timed_out == 1
    assert world.begun() == (producer.producer_id, 2)


def test_further_partitions_do_not_lengthen_its_time() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.pass_ms(TIMEOUT_MS - 1)
    world.added(producer, B)
    world.pass_ms(1)
    assert world.state() is TransactionState.PREPARE_ABORT
    assert world.markers.keys() == {A, B}


def test_each_transaction_has_the_whole_time() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.pass_ms(TIMEOUT_MS - 1)
    following = world.completed(producer)
    world.added(following)
    world.pass_ms(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    world.pass_ms(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_an_end_that_is_prepared_has_all_the_time_in_the_world() -> None:
    world = CoordinatedTransactions()
    world.ended(world.opened(A))
    world.pass_ms(10 * TIMEOUT_MS)
    assert world.state() is TransactionState.PREPARE_COMMIT
    assert world.coordinator.facts.timed_out == 0


def test_a_producer_of_version_2_may_abort_what_timed_out_and_goes_on() -> None:
    """As in Kafka: its abort looks like one that is repeated; its commit is refused."""
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.pass_ms(TIMEOUT_MS)
    world.mark()
    assert world.refused(world.end(producer)) is Code.INVALID_TXN_STATE
    following = world.ended(producer, commits=False)
    assert following == (producer.producer_id, 1)
    world.added(following)


def test_a_producer_with_the_last_epoch_whose_transaction_timed_out_is_not_given_the_epoch_of_markers() -> None:
    """Nothing could fence what it began with that."""
    world = CoordinatedTransactions()
    last = identity(7, EPOCH_MAX - 1)
    world.seed(recorded(TransactionState.ONGOING, *last, partitions=(A,)))
    world.pass_ms(TIMEOUT_MS)
    early = world.end(last, commits=False)
    world.mark()
    assert world.transaction.producer_epoch == EPOCH_MAX
    for request in (early, world.end(last, commits=False), world.end(last)):
        assert world.refused(request) is Code.PRODUCER_FENCED
    assert world.begun() == (world.last_producer_id, 0)


def test_what_is_open_has_the_rest_of_its_time_after_a_failover() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.pass_ms(TIMEOUT_MS - 10)
    world.fail_over()
    world.added(producer, B)
    world.pass_ms(9)
    assert world.state() is TransactionState.ONGOING
    world.pass_ms(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_what_began_at_a_time_that_nobody_noted_has_the_whole_time() -> None:
    world = CoordinatedTransactions()
    world.seed(replace(recorded(TransactionState.ONGOING, partitions=(A,)), started_ms=None))
    world.pass_ms(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    world.pass_ms(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_what_ran_out_of_time_while_nobody_coordinated_is_aborted_at_once() -> None:
    world = CoordinatedTransactions()
    world.opened(A)
    world.now_ms += 2 * TIMEOUT_MS
    world.fail_over()
    assert world.coordinator.next_deadline_ms() == world.now_ms
    world.pass_ms(0)
    assert world.state() is TransactionState.PREPARE_ABORT


# Ids that nobody uses.


def test_the_settings_are_kafkas() -> None:
    assert TransactionSettings() == TransactionSettings(
        timeout_ms_max=900_000, expiration_ms=604_800_000, expiry_check_interval_ms=3_600_000
    )


def settings(days: int = 7) -> TransactionSettings:
    return TransactionSettings(expiration_ms=days * DAY_MS, expiry_check_interval_ms=DAY_MS)


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_an_id_that_nobody_used_is_forgotten(state: TransactionState) -> None:
    world = CoordinatedTransactions(settings(), gives_fresh_ids=False)
    world.seed(recorded(state))
    world.pass_ms(7 * DAY_MS - 1)
    assert world.state() is state
    world.pass_ms(1)
    assert world.coordinator.transactions == {}
    assert world.log[-1][1] == (b"\0\0\0\1t", None)
    world.fail_over()
    assert world.coordinator.transactions == {}


def test_an_id_that_was_used_is_kept() -> None:
    world = CoordinatedTransactions(settings())
    producer = world.begun()
    world.pass_ms(DAY_MS)
    world.init(producer)
    world.pass_ms(7 * DAY_MS - 1)
    assert "t" in world.coordinator.transactions
    world.pass_ms(1)
    assert "t" not in world.coordinator.transactions


def test_an_id_whose_transaction_is_not_over_is_kept() -> None:
    world = CoordinatedTransactions(settings())
    for name, state in enumerate((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)):
        world.seed(recorded(state, transactional_id=str(name), partitions=(A, B)))
    world.pass_ms(30 * DAY_MS)
    assert len(world.coordinator.transactions) == 2
    world = CoordinatedTransactions(settings())
    world.seed(recorded(TransactionState.ONGOING, partitions=(A,)))
    world.pass_ms(30 * DAY_MS)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_an_id_that_was_forgotten_begins_anew() -> None:
    world = CoordinatedTransactions(settings())
    first = world.begun()
    second = world.begun(first)
    world.pass_ms(8 * DAY_MS)
    assert world.refused(world.add(second)) is Code.INVALID_PRODUCER_ID_MAPPING
    fresh = world.begun(second)
    assert fresh == (world.last_producer_id, 0)
    assert world.refused(world.init(first)) is Code.PRODUCER_FENCED


def test_nothing_is_kept_of_an_id_that_was_forgotten() -> None:
    world = CoordinatedTransactions(settings())
    producer = world.begun(world.begun())
    world.added(producer)
    world.init(producer)
    world.disconnect(RequestId(world.last_request))
    world.mark()
    coordinator = world.coordinator
    assert coordinator._initializations._last_epochs
    assert coordinator._initializations._resuming
    world.pass_ms(8 * DAY_MS)
    assert not coordinator.transactions
    assert not coordinator._initializations._last_epochs
    assert not coordinator._initializations._resuming


def test_ids_are_looked_at_in_steps() -> None:
    world = CoordinatedTransactions(settings(), gives_fresh_ids=False)
    count = EXPIRY_STEP_MAX + 1
    world.seed(*(recorded(TransactionState.EMPTY, transactional_id=str(number)) for number in range(count)))
    world.now_ms = 7 * DAY_MS
    world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
    assert len(world.coordinator.transactions) == 1
    assert world.coordinator.next_deadline_ms() == world.now_ms
    world.coordinator.on_time(now_ms=world.now_ms, wall_ms=world.wall_ms)
    assert world.coordinator.transactions == {}
    assert world.coordinator.next_deadline_ms() == world.now_ms + DAY_MS


def test_what_is_forgotten_is_written_in_batches_that_the_log_takes() -> None:
    world = CoordinatedTransactions(settings(), gives_fresh_ids=False)
    world.seed(*(recorded(TransactionState.EMPTY, transactional_id=f"id {number}") for number in range(100)))
    world.coordinator.batch_size_bytes_max = 1_000
    world.pass_ms(7 * DAY_MS)
    assert world.coordinator.transactions == {}
    assert len(world.batches) > 1


def test_nothing_is_looked_at_before_it_is_time() -> None:
    world = CoordinatedTransactions(settings(), gives_fresh_ids=False)
    world.seed(recorded(TransactionState.EMPTY, updated_ms=WALL_START_MS - 100 * DAY_MS))
    assert world.coordinator.next_deadline_ms() == DAY_MS
    world.coordinator.on_time(now_ms=DAY_MS - 1, wall_ms=world.wall_ms)
    assert len(world.coordinator.transactions) == 1
    world.pass_ms(DAY_MS)
    assert world.coordinator.transactions == {}
