"""Another coordinator takes over, at every step; partitions refuse markers; records of a transaction are lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.fixtures.coordinated_transactions import (
    TIMEOUT_MS,
    A,
    B,
    CoordinatedTransactions,
    identity,
    recorded,
)
from tidelog.base.errors import Code, refusal
from tidelog.base.ids import LeaderEpoch
from tidelog.coordinator.transactions import TransactionState
from tidelog.coordinator.transactions.transaction import EPOCH_MAX
from tidelog.journal import SendId

either = pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
versions = pytest.mark.parametrize("version", [0, 1, 2])
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}


@versions
def test_a_producer_goes_on_with_another_coordinator(version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.begun()
    world.fail_over()
    world.added(producer, A, version=version)
    world.fail_over()
    world.added(producer, B, version=version)
    world.fail_over()
    following = world.completed(producer, version=version)
    world.fail_over()
    world.added(following, A, version=version)
    assert world.transaction.partitions == {A}


@either
@versions
def test_a_prepared_end_is_resumed_with_the_new_coordinators_epoch(commits: bool, version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, B, version=version)
    following = world.ended(producer, commits=commits, version=version)
    before = world.markers
    world.mark(A)
    world.fail_over()
    assert world.transaction.partitions == {A, B}
    assert world.markers == {one: replace(marker, coordinator_epoch=LeaderEpoch(2)) for one, marker in before.items()}
    waiting = world.add(following, A, version=version)
    world.mark()
    assert world.answers[waiting] == Code.NONE


@either
def test_an_end_whose_complete_was_lost_is_marked_again(commits: bool) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    following = world.ended(producer, commits=commits)
    world.commits_at_once = False
    world.mark()
    assert world.state() is COMPLETE[commits]
    world.fail_over()
    assert world.state() is not COMPLETE[commits]
    assert world.markers.keys() == {A}
    world.commits_at_once = True
    world.mark()
    assert world.state() is COMPLETE[commits]
    assert world.ended(producer, commits=commits) == following


@either
def test_a_prepare_that_was_not_committed_is_lost_with_its_answer_and_its_markers(commits: bool) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.commits_at_once = False
    request = world.end(producer, commits=commits)
    world.fail_over()
    assert world.refused(request) is Code.NOT_COORDINATOR
    assert not world.sends
    assert world.state() is TransactionState.ONGOING
    assert world.transaction.producer_epoch == producer.producer_epoch
    world.commits_at_once = True
    world.completed(producer, commits=not commits)
    assert world.state() is COMPLETE[not commits]


def test_an_abort_of_a_newer_instance_that_was_not_committed_is_lost() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.commits_at_once = False
    request = world.init()
    world.fail_over()
    assert world.refused(request) is Code.NOT_COORDINATOR
    world.commits_at_once = True
    world.completed(producer)
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_nothing_comes_of_a_marker_that_was_written_for_the_old_coordinator() -> None:
    world = CoordinatedTransactions()
    world.ended(world.opened(A, B))
    (first, second) = world.sends
    old = world.fail_over()
    for send_id in (first, second):
        old.on_sent(send_id, None, now_ms=world.now_ms, wall_ms=world.wall_ms)
    assert not old.take_ready()
    assert world.state() is TransactionState.PREPARE_COMMIT


def test_an_answer_to_a_send_that_was_never_made_says_nothing() -> None:
    world = CoordinatedTransactions()
    world.ended(world.opened(A))
    world.coordinator.on_sent(SendId(99), None, now_ms=0, wall_ms=0)
    assert not world.coordinator.take_ready()
    (send_id,) = world.sends
    world.mark()
    batches = len(world.batches)
    world.coordinator.on_sent(send_id, None, now_ms=0, wall_ms=0)
    world.drive()
    assert len(world.batches) == batches


@either
def test_a_prepared_end_without_partitions_is_complete_at_once(commits: bool) -> None:
    """Apache Kafka writes one for the abort of an empty transaction."""
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT))
    assert not world.sends
    assert world.state() is COMPLETE[commits]


@either
def test_a_prepared_end_with_a_next_producer_id_goes_over_to_it(commits: bool) -> None:
    world = CoordinatedTransactions()
    prepared = TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT
    world.seed(recorded(prepared, 7, EPOCH_MAX, partitions=(A,), following=9))
    again = world.end(identity(7, EPOCH_MAX - 1), commits=commits)
    world.mark()
    assert world.answers[again] == (9, 0)
    assert world.transaction == recorded(COMPLETE[commits], 9, 0, previous=7)


def test_a_failover_while_epochs_run_out_loses_no_id() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.ONGOING, 7, EPOCH_MAX - 1, partitions=(A,)))
    following = world.ended(identity(7, EPOCH_MAX - 1))
    world.fail_over()
    request = world.add(following, B)
    world.mark()
    assert world.answers[request] == Code.NONE


def test_an_init_that_is_repeated_after_a_failover_is_fenced() -> None:
    """As in Kafka: what the last epoch was is not in the log."""
    world = CoordinatedTransactions()
    first = world.begun()
    world.begun(first)
    world.fail_over()
    assert world.refused(world.init(first)) is Code.PRODUCER_FENCED


# Markers that a partition refuses.


def test_a_partition_that_knows_a_newer_epoch_has_nothing_of_this_transaction() -> None:
    world = CoordinatedTransactions()
    following = world.ended(world.opened(A, B))
    world.mark(A)
    world.mark(B, outcome=refusal(Code.INVALID_PRODUCER_EPOCH, "newer"))
    assert world.state() is TransactionState.COMPLETE_COMMIT
    assert world.coordinator.facts.refused_markers == 1
    world.added(following)


def test_a_coordinator_that_another_has_replaced_completes_nothing() -> None:
    world = CoordinatedTransactions()
    following = world.ended(world.opened(A, B))
    world.mark(A, outcome=refusal(Code.TRANSACTION_COORDINATOR_FENCED, "replaced"))
    world.mark(B)
    assert world.state() is TransactionState.PREPARE_COMMIT
    assert world.coordinator.facts.refused_markers == 1
    request = world.add(following)
    world.fail_over()
    assert world.refused(request) is Code.NOT_COORDINATOR
    world.mark()
    assert world.state() is TransactionState.COMPLETE_COMMIT


# Unclean elections.


@pytest.mark.parametrize("value_version", [0, 1])
def test_what_lost_records_is_never_committed(value_version: int) -> None:
    world = CoordinatedTransactions(value_version=value_version)
    version = 2 if value_version else 1
    producer = world.opened(A, version=version)
    world.lose_records(B)
    assert world.state() is TransactionState.ONGOING
    assert not world.transaction.has_lost_records
    world.lose_records(B, A)
    assert world.coordinator.facts.lost == 1
    world.fail_over()
    code = world.refused(world.end(producer, version=version))
    assert code is (Code.TRANSACTION_ABORTABLE if value_version else Code.PRODUCER_FENCED)
    world.mark()
    assert world.state() is not TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("heard_after_ms", [-1, 0, 1])
def test_what_lost_records_while_nobody_coordinated_is_not_committed(heard_after_ms: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    started_ms = world.wall_ms
    world.pass_ms(500)
    world.fail_over()
    world.lose_records_before({A: started_ms + heard_after_ms, B: started_ms + 400})
    assert world.transaction.has_lost_records is (heard_after_ms >= 0)
    assert world.coordinator.facts.lost == (heard_after_ms >= 0)
    world.added(producer, B)
    if heard_after_ms >= 0:
        assert world.refused(world.end(producer)) is Code.TRANSACTION_ABORTABLE
    else:
        world.completed(producer)


def test_what_lost_records_while_nobody_coordinated_and_what_began_later() -> None:
    """What is prepared ends as it was decided; of what is open the transactions on those partitions are touched."""
    world = CoordinatedTransactions()
    world.ended(world.opened(A))
    world.add(world.begun(transactional_id="u"), B, transactional_id="u")
    world.begun(transactional_id="v")
    world.fail_over()
    world.lose_records_before({A: world.wall_ms})
    assert world.coordinator.facts.lost == 0
    world.lose_records_before({B: world.wall_ms})
    assert world.coordinator.transactions["u"].has_lost_records
    world.mark()
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_what_lost_records_is_aborted_and_the_next_one_is_whole() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.lose_records(A)
    batches = len(world.batches)
    world.lose_records(A)
    assert len(world.batches) == batches
    world.added(producer, B)
    assert world.refused(world.end(producer)) is Code.TRANSACTION_ABORTABLE
    following = world.completed(producer, commits=False)
    assert not world.transaction.has_lost_records
    world.added(following)
    world.completed(following)
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_what_lost_records_is_forgotten_with_its_producer() -> None:
    world = CoordinatedTransactions()
    world.opened(A)
    world.lose_records(A)
    request = world.init()
    world.mark()
    assert request in world.answers
    assert not world.transaction.has_lost_records


def test_what_lost_records_still_times_out() -> None:
    world = CoordinatedTransactions()
    world.opened(A)
    world.pass_ms(TIMEOUT_MS - 1)
    world.lose_records(A)
    world.pass_ms(1)
    assert world.state() is TransactionState.PREPARE_ABORT


@either
def test_what_is_prepared_ends_as_it_was_decided_whatever_is_lost(commits: bool) -> None:
    world = CoordinatedTransactions()
    world.ended(world.opened(A), commits=commits)
    world.lose_records(A)
    world.mark()
    assert world.state() is COMPLETE[commits]


def test_nothing_has_happened_yet_where_a_coordinator_begins() -> None:
    assert CoordinatedTransactions().coordinator.facts == (0, 0, 0, 0)


def test_only_transactions_on_the_partition_are_touched() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    other = world.begun(transactional_id="u")
    world.add(other, B, transactional_id="u")
    world.begun(transactional_id="v")
    world.lose_records(B)
    assert not world.transaction.has_lost_records
    assert world.coordinator.transactions["u"].has_lost_records
    assert world.coordinator.facts.lost == 1
    world.completed(producer)
