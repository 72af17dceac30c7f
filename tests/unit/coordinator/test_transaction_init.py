"""InitProducerId: who produces under an id, from which epoch on, and who does no more (KIP-98, KIP-360)."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_transactions import (
    FIRST_PRODUCER_ID,
    A,
    B,
    CoordinatedTransactions,
    identity,
    recorded,
)
from tidelog.base.errors import Code, KafkaError
from tidelog.coordinator.transactions import (
    ProducerIdentity,
    ProducerIdNeededError,
    TransactionSettings,
    TransactionState,
)
from tidelog.coordinator.transactions.coordinator import TRANSACTIONAL_ID_LENGTH_MAX
from tidelog.coordinator.transactions.transaction import EPOCH_MAX

LAST_EPOCH = EPOCH_MAX - 1


def test_a_new_id_begins_with_epoch_0_of_a_fresh_producer_id() -> None:
    world = CoordinatedTransactions()
    assert world.begun() == (FIRST_PRODUCER_ID, 0)
    assert world.transaction == recorded(TransactionState.EMPTY, client_version=0)
    other = world.begun(transactional_id="u")
    assert other == (FIRST_PRODUCER_ID + 1, 0)


def test_a_new_id_needs_a_fresh_producer_id() -> None:
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.taken(world.init(), ProducerIdNeededError)
    assert world.coordinator.transactions == {}
    world.gives_fresh_ids = True
    assert world.begun() == (FIRST_PRODUCER_ID, 0)


def test_the_answer_waits_until_it_is_committed() -> None:
    world = CoordinatedTransactions(commits_at_once=False)
    request = world.init()
    assert request not in world.answers
    world.commit_log()
    assert world.answers[request] == (FIRST_PRODUCER_ID, 0)


def test_each_instance_fences_the_one_before() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    second = world.begun()
    assert second == (first.producer_id, 1)
    for request in (world.add(first), world.end(first), world.init(first), world.verify(first)):
        assert world.refused(request) is Code.PRODUCER_FENCED
    world.added(second)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 101])
def test_a_time_out_that_is_out_of_range_is_refused(timeout_ms: int) -> None:
    world = CoordinatedTransactions(TransactionSettings(timeout_ms_max=100))
    assert world.refused(world.init(timeout_ms=timeout_ms)) is Code.INVALID_TRANSACTION_TIMEOUT
    assert world.coordinator.transactions == {}


@pytest.mark.parametrize("timeout_ms", [1, 100])
def test_a_time_out_may_be_as_long_as_the_setting(timeout_ms: int) -> None:
    world = CoordinatedTransactions(TransactionSettings(timeout_ms_max=100))
    world.taken(world.init(timeout_ms=timeout_ms), ProducerIdentity)
    assert world.transaction.timeout_ms == timeout_ms


def test_a_later_instance_brings_its_own_time_out() -> None:
    world = CoordinatedTransactions()
    world.begun()
    world.init(timeout_ms=7)
    assert world.transaction.timeout_ms == 7


@pytest.mark.parametrize("transactional_id", ["", "x" * (TRANSACTIONAL_ID_LENGTH_MAX + 1)], ids=["empty", "too long"])
def test_an_id_that_is_no_id_is_refused_by_every_request(transactional_id: str) -> None:
    world = CoordinatedTransactions()
    producer = identity(1, 0)
    requests = (
        world.init(transactional_id=transactional_id),
        world.add(producer, transactional_id=transactional_id),
        world.verify(producer, transactional_id=transactional_id),
        world.end(producer, transactional_id=transactional_id),
        world.describe(transactional_id),
    )
    assert {world.refused(request) for request in requests} == {Code.INVALID_REQUEST}
    assert world.coordinator.transactions == {}


def test_the_longest_id_of_the_widest_characters_fits_into_its_key() -> None:
    world = CoordinatedTransactions()
    longest = "\U0001f600" * TRANSACTIONAL_ID_LENGTH_MAX
    world.begun(transactional_id=longest)
    world.fail_over()
    assert list(world.coordinator.transactions) == [longest]


# KIP-360: a producer goes on after an error, with the next epoch.


def test_a_producer_that_goes_on_gets_the_next_epoch() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    assert world.begun(first) == (first.producer_id, 1)


def test_a_producer_whose_answer_was_lost_asks_again_and_gets_the_same() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    second = world.begun(first)
    batches = len(world.batches)
    assert world.begun(first) == second
    assert len(world.batches) == batches
    assert world.begun(second) == (first.producer_id, 2)
    assert world.refused(world.init(first)) is Code.PRODUCER_FENCED


def test_a_repeated_request_is_answered_no_sooner_than_the_first() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    world.commits_at_once = False
    once, again = world.init(first), world.init(first)
    assert once not in world.answers
    assert again not in world.answers
    world.commit_log()
    assert world.answers[once] == world.answers[again] == (first.producer_id, 1)


def test_a_producer_that_a_newer_instance_fenced_does_not_go_on() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    world.begun(first)
    newest = world.begun()
    for stale in (first, identity(first.producer_id, 1), identity(first.producer_id, newest.producer_epoch + 1)):
        assert world.refused(world.init(stale)) is Code.PRODUCER_FENCED
    assert world.transaction.producer_epoch == newest.producer_epoch


def test_a_producer_of_another_id_does_not_go_on() -> None:
    world = CoordinatedTransactions()
    world.begun()
    assert world.refused(world.init(identity(77, 0))) is Code.PRODUCER_FENCED


def test_a_producer_that_is_recovering_is_taken_in_where_nothing_is_known_of_the_id() -> None:
    """The id has expired meanwhile, say."""
    world = CoordinatedTransactions()
    assert world.begun(identity(77, 5)) == (FIRST_PRODUCER_ID, 0)


def test_any_producer_may_begin_where_the_log_knows_of_no_epoch() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.EMPTY, 7, None))
    assert world.begun(identity(7, 3)) == (7, 0)
    assert world.refused(world.init(identity(7, 3))) is Code.PRODUCER_FENCED
    world.seed(recorded(TransactionState.EMPTY, 7, None))
    assert world.begun(identity(99, 3)) == (7, 0)


# A transaction that is open when its producer begins anew.


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_before_the_newer_instance_begins(version: int) -> None:
    world = CoordinatedTransactions()
    first = world.opened(A, B, version=version)
    request = world.init()
    assert world.state() is TransactionState.PREPARE_ABORT
    assert {marker.is_commit for marker in world.markers.values()} == {False}
    assert {marker.producer_epoch for marker in world.markers.values()} == {1}
    assert {marker.transaction_version for marker in world.markers.values()} == {version}
    assert world.refused(world.add(first)) is Code.PRODUCER_FENCED
    world.mark(A)
    assert request not in world.answers
    world.mark(B)
    assert world.answers[request] == (first.producer_id, 2)
    assert world.state() is TransactionState.EMPTY
    assert world.coordinator.facts.fenced == 1


def test_a_producer_that_goes_on_aborts_what_it_has_open() -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    request = world.init(first)
    assert world.state() is TransactionState.PREPARE_ABORT
    world.mark()
    second = world.taken(request, ProducerIdentity)
    marker_epoch = 1
    assert second == (first.producer_id, marker_epoch + 1)
    assert not world.coordinator._initializations._resuming
    assert world.begun(first) == second


def test_a_producer_that_goes_on_may_ask_again_once_its_transaction_is_aborted() -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    impatient = world.init(first)
    world.pass_ms(1_000)
    assert world.refused(impatient) is Code.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.begun(first) == (first.producer_id, 2)


def test_a_zombie_neither_bumps_nor_aborts_what_the_newer_instance_has_open() -> None:
    """Apache Kafka lets it abort that."""
    world = CoordinatedTransactions()
    first = world.begun()
    second = world.begun()
    world.added(second, A)
    batches = len(world.batches)
    assert world.refused(world.init(first)) is Code.PRODUCER_FENCED
    assert world.refused(world.init(identity(second.producer_id, 9))) is Code.PRODUCER_FENCED
    assert len(world.batches) == batches
    assert world.state() is TransactionState.ONGOING
    assert world.completed(second) == (second.producer_id, 2)


def test_a_repeated_request_that_comes_late_does_not_abort_either() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    second = world.begun(first)
    world.added(second, A)
    assert world.refused(world.init(first)) is Code.PRODUCER_FENCED
    assert world.state() is TransactionState.ONGOING


# Epochs run out.


def test_after_the_last_epoch_a_fresh_producer_id_takes_over() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.COMPLETE_COMMIT, 7, LAST_EPOCH - 1))
    assert world.begun() == (7, LAST_EPOCH)
    assert world.begun() == (world.last_producer_id, 0)
    assert world.transaction.previous_producer_id == 7
    assert world.refused(world.add(identity(7, LAST_EPOCH))) is Code.INVALID_PRODUCER_ID_MAPPING


def test_after_the_last_epoch_a_fresh_producer_id_is_needed() -> None:
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.seed(recorded(TransactionState.COMPLETE_COMMIT, 7, LAST_EPOCH))
    world.taken(world.init(), ProducerIdNeededError)
    assert world.transaction.producer_id == 7
    assert world.transaction.producer_epoch == LAST_EPOCH


@pytest.mark.parametrize("value_version", [0, 1])
def test_a_producer_with_the_last_epoch_goes_on_under_a_fresh_id_and_may_ask_again(value_version: int) -> None:
    world = CoordinatedTransactions(value_version=value_version)
    world.seed(recorded(TransactionState.COMPLETE_COMMIT, 7, LAST_EPOCH))
    fresh = world.begun(identity(7, LAST_EPOCH))
    assert fresh == (world.last_producer_id, 0)
    if value_version == 1:
        assert world.begun(identity(7, LAST_EPOCH)) == fresh
    for stale in (identity(7, LAST_EPOCH - 1), identity(7, 0)):
        assert world.refused(world.init(stale)) is Code.PRODUCER_FENCED
    assert world.begun(fresh) == (fresh.producer_id, 1)
    assert world.refused(world.init(identity(7, LAST_EPOCH))) is Code.PRODUCER_FENCED
    assert world.transaction.previous_producer_id == (7 if value_version == 1 else None)


def test_a_fenced_producer_of_the_last_epoch_does_not_go_on_under_the_fresh_id() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.COMPLETE_COMMIT, 7, LAST_EPOCH))
    world.begun()
    assert world.refused(world.init(identity(7, LAST_EPOCH))) is Code.PRODUCER_FENCED


def test_an_abort_with_the_last_epoch_uses_the_one_beyond_for_its_markers() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,)))
    request = world.init()
    assert world.markers[A].producer_epoch == EPOCH_MAX
    world.mark()
    assert world.answers[request] == (world.last_producer_id, 0)


def test_a_producer_that_goes_on_is_never_given_the_epoch_of_markers_alone() -> None:
    """It could begin a transaction with it, which nothing could fence."""
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,)))
    request = world.init(identity(7, LAST_EPOCH))
    world.mark()
    world.taken(request, ProducerIdNeededError)
    world.gives_fresh_ids = True
    fresh = world.begun(identity(7, LAST_EPOCH))
    assert fresh == (world.last_producer_id, 0)
    assert world.begun(identity(7, LAST_EPOCH)) == fresh
    world.added(fresh)


def test_a_refusal_tells_what_is_in_force() -> None:
    world = CoordinatedTransactions()
    first = world.begun()
    world.begun()
    text = str(world.taken(world.add(first), KafkaError))
    assert "transactional id 't'" in text
    assert "sent epoch 0" in text
    assert "in force is 1" in text
