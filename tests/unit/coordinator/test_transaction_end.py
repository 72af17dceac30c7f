"""EndTxn: Prepare, markers, Complete; and what comes of one that is repeated, for each version of transactions."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_transactions import (
    WALL_START_MS,
    A,
    B,
    CoordinatedTransactions,
    identity,
    recorded,
)
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, ProducerEpoch
from tidelog.coordinator.transactions import (
    ProducerIdNeededError,
    TransactionState,
)
from tidelog.coordinator.transactions.transaction import EPOCH_MAX
from tidelog.records.transaction_marker import TransactionMarker

LAST_EPOCH = EPOCH_MAX - 1
PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
either = pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])


@either
@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_end_is_prepared_answered_marked_and_complete(commits: bool, version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, B, version=version)
    world.commits_at_once = False
    world.now_ms += 5
    request = world.end(producer, commits=commits, version=version)
    epoch = 1 if version == 2 else 0  # KIP-890: bumped with Prepare
    assert world.transaction == recorded(
        PREPARED[commits],
        producer_epoch=epoch,
        partitions=(A, B),
        started_ms=WALL_START_MS,
        updated_ms=WALL_START_MS + 5,
        client_version=version,
    )
    assert request not in world.answers
    assert not world.sends
    world.commit_log()
    assert world.answers[request] == (producer.producer_id, epoch)
    marker = TransactionMarker(producer.producer_id, ProducerEpoch(epoch), commits, LeaderEpoch(1), version, 1)
    assert world.markers == {A: marker, B: marker}
    world.mark(B)
    assert world.state() is PREPARED[commits]
    world.now_ms += 5
    world.mark(A)
    assert world.transaction == recorded(
        COMPLETE[commits], producer_epoch=epoch, updated_ms=WALL_START_MS + 10, client_version=version
    )


@either
def test_transactions_follow_each_other_for_versions_0_and_1_in_one_epoch(commits: bool) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, version=1)
    assert world.completed(producer, commits=commits, version=1) == producer
    world.added(producer, A, version=1)
    assert world.completed(producer, commits=commits, version=1) == producer


@either
def test_transactions_follow_each_other_for_version_2_in_epochs_of_their_own(commits: bool) -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    second = world.completed(first, commits=commits)
    assert second == (first.producer_id, 1)
    assert world.refused(world.add(first)) is Code.PRODUCER_FENCED
    world.added(second)
    assert world.completed(second, commits=commits) == (first.producer_id, 2)


@either
def test_a_transaction_that_began_in_an_older_version_ends_in_the_version_of_its_end(commits: bool) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, version=0)
    assert world.ended(producer, commits=commits, version=2) == (producer.producer_id, 1)
    assert world.markers[A].transaction_version == 2
    world.mark()
    following = identity(producer.producer_id, 1)
    world.added(following, version=2)
    assert world.ended(following, commits=commits, version=1) == following
    assert world.markers[A].transaction_version == 1


def test_only_the_producer_in_force_ends_it() -> None:
    world = CoordinatedTransactions()
    assert world.refused(world.end(identity(7, 0))) is Code.INVALID_PRODUCER_ID_MAPPING
    producer = world.opened(A)
    for version in (0, 1, 2):
        for stranger, code in (
            (identity(7, 0), Code.INVALID_PRODUCER_ID_MAPPING),
            (identity(producer.producer_id, 1), Code.PRODUCER_FENCED),
            (identity(producer.producer_id, 5), Code.PRODUCER_FENCED),
        ):
            assert world.refused(world.end(stranger, version=version)) is code
    assert world.state() is TransactionState.ONGOING


# Nothing is open.


@pytest.mark.parametrize("state", [TransactionState.EMPTY, TransactionState.COMPLETE_ABORT])
def test_a_commit_of_nothing_is_refused(state: TransactionState) -> None:
    for version in (0, 1, 2):
        world = CoordinatedTransactions()
        world.seed(recorded(state, producer_epoch=3))
        assert world.refused(world.end(identity(1_000, 3), version=version)) is Code.INVALID_TXN_STATE


@either
def test_a_refusal_tells_what_there_is_none_of(commits: bool) -> None:
    world = CoordinatedTransactions()
    refused = world.taken(world.end(world.begun(), commits=commits, version=1), KafkaError)
    what = "committed" if commits else "aborted"
    assert f"transactional id 't' is Empty: nothing is to be {what}" in str(refused)


def test_version_2_does_not_commit_nothing_after_a_commit() -> None:
    world = CoordinatedTransactions()
    following = world.completed(world.opened(A))
    assert world.refused(world.end(following)) is Code.INVALID_TXN_STATE


@pytest.mark.parametrize("version", [0, 1])
def test_versions_0_and_1_do_not_abort_nothing(version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.begun()
    assert world.refused(world.end(producer, commits=False, version=version)) is Code.INVALID_TXN_STATE
    world.added(producer, version=version)
    world.completed(producer, version=version)
    assert world.refused(world.end(producer, commits=False, version=version)) is Code.INVALID_TXN_STATE


@pytest.mark.parametrize(
    "state", [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT]
)
def test_version_2_may_abort_nothing_and_its_epoch_is_bumped(state: TransactionState) -> None:
    """It cannot know whether a partition was added for it."""
    world = CoordinatedTransactions()
    world.seed(recorded(state, producer_epoch=3, client_version=0))
    world.now_ms += 5
    following = world.ended(identity(1_000, 3), commits=False)
    assert following == (1_000, 4)
    assert not world.sends
    assert world.transaction == recorded(
        TransactionState.COMPLETE_ABORT, producer_epoch=4, updated_ms=WALL_START_MS + 5
    )
    assert world.ended(identity(1_000, 3), commits=False) == following
    world.added(following)


def test_an_abort_of_nothing_is_answered_once_it_is_committed() -> None:
    world = CoordinatedTransactions()
    producer = world.begun()
    world.commits_at_once = False
    request = world.end(producer, commits=False)
    assert request not in world.answers
    world.commit_log()
    assert world.answers[request] == (producer.producer_id, 1)


def test_an_abort_of_nothing_with_the_last_epoch_goes_on_under_a_fresh_id() -> None:
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.seed(recorded(TransactionState.EMPTY, 7, LAST_EPOCH))
    last = identity(7, LAST_EPOCH)
    world.taken(world.end(last, commits=False), ProducerIdNeededError)
    assert world.state() is TransactionState.EMPTY
    world.gives_fresh_ids = True
    following = world.ended(last, commits=False)
    assert following == (world.last_producer_id, 0)
    assert world.transaction.previous_producer_id == 7
    assert world.ended(last, commits=False) == following


# The answer was lost, and the client asks again.


@either
@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_end_that_is_repeated_is_answered_the_same_once_all_is_marked(commits: bool, version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, version=version)
    following = world.ended(producer, commits=commits, version=version)
    again = world.end(producer, commits=commits, version=version)
    assert again not in world.answers
    world.mark()
    assert world.answers[again] == following
    batches = len(world.batches)
    assert world.ended(producer, commits=commits, version=version) == following
    assert len(world.batches) == batches


@either
@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_end_that_is_repeated_as_its_opposite_is_refused(commits: bool, version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, version=version)
    world.ended(producer, commits=commits, version=version)
    early = world.end(producer, commits=not commits, version=version)
    world.mark()
    late = world.end(producer, commits=not commits, version=version)
    assert world.refused(early) is Code.INVALID_TXN_STATE
    assert world.refused(late) is Code.INVALID_TXN_STATE
    assert world.state() is COMPLETE[commits]


@either
def test_an_end_that_is_repeated_does_not_end_the_next_transaction(commits: bool) -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    world.added(world.completed(first, commits=commits), B)
    for again in (True, False):
        assert world.refused(world.end(first, commits=again)) is Code.PRODUCER_FENCED
    assert world.state() is TransactionState.ONGOING


@either
def test_an_end_that_is_repeated_after_a_newer_instance_began_is_fenced(commits: bool) -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    second = world.completed(first, commits=commits)
    world.begun()
    for stale in (first, second):
        for again in (True, False):
            assert world.refused(world.end(stale, commits=again)) is Code.PRODUCER_FENCED
    assert world.state() is TransactionState.EMPTY


@either
def test_an_end_of_long_ago_is_fenced(commits: bool) -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    second = world.completed(first, commits=commits)
    world.added(second)
    world.completed(second, commits=commits)
    assert world.refused(world.end(first, commits=commits)) is Code.PRODUCER_FENCED


def test_versions_0_and_1_know_of_no_end_across_a_bump() -> None:
    world = CoordinatedTransactions()
    first = world.opened(A)
    world.completed(first)
    for version in (0, 1):
        assert world.refused(world.end(first, version=version)) is Code.PRODUCER_FENCED
    world = CoordinatedTransactions()
    first = world.opened(A, version=1)
    world.pass_ms(world.transaction.timeout_ms)
    world.mark()
    assert world.refused(world.end(first, commits=False, version=2)) is Code.PRODUCER_FENCED


# The epochs run out with the end.


@either
def test_an_end_with_the_last_epoch_names_the_next_producer_id_with_prepare(commits: bool) -> None:
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,)))
    last = identity(7, LAST_EPOCH)
    world.taken(world.end(last, commits=commits), ProducerIdNeededError)
    assert world.state() is TransactionState.ONGOING
    world.gives_fresh_ids = True
    following = world.ended(last, commits=commits)
    assert following == (world.last_producer_id, 0)
    assert world.state() is PREPARED[commits]
    assert world.transaction.producer_id == 7
    assert world.transaction.next_producer_id == following.producer_id
    assert (world.markers[A].producer_id, world.markers[A].producer_epoch) == (7, EPOCH_MAX)
    again = world.end(last, commits=commits)
    assert again not in world.answers
    world.mark()
    assert world.answers[again] == following
    assert world.ended(last, commits=commits) == following
    assert world.refused(world.end(last, commits=not commits)) is Code.INVALID_TXN_STATE
    assert world.transaction == recorded(
        COMPLETE[commits], following.producer_id, 0, previous=7, updated_ms=world.wall_ms
    )


@either
def test_an_end_before_the_last_epoch_needs_no_further_id(commits: bool) -> None:
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH - 1, partitions=(A,)))
    assert world.completed(identity(7, LAST_EPOCH - 1), commits=commits) == (7, LAST_EPOCH)


@either
def test_an_end_that_is_repeated_across_producer_ids_is_no_end_of_the_next_transaction(commits: bool) -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,)))
    last = identity(7, LAST_EPOCH)
    following = world.completed(last, commits=commits)
    for stranger in (identity(7, LAST_EPOCH - 1), identity(7, EPOCH_MAX), identity(8, LAST_EPOCH)):
        assert world.refused(world.end(stranger, commits=commits)) is Code.INVALID_PRODUCER_ID_MAPPING
    world.added(following)
    assert world.refused(world.end(last, commits=commits)) is Code.PRODUCER_FENCED
    world.completed(following)
    assert world.refused(world.end(last, commits=commits)) is Code.INVALID_PRODUCER_ID_MAPPING


def test_an_end_with_an_id_that_init_replaced_is_fenced() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.COMPLETE_COMMIT, 7, LAST_EPOCH))
    world.begun()
    assert world.refused(world.end(identity(7, LAST_EPOCH))) is Code.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1])
@either
def test_versions_0_and_1_keep_the_last_epoch(commits: bool, version: int) -> None:
    world = CoordinatedTransactions(gives_fresh_ids=False)
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,), client_version=version))
    last = identity(7, LAST_EPOCH)
    assert world.completed(last, commits=commits, version=version) == last


# While the end before is being marked, the next transaction may end already, if it is empty.


@either
def test_the_end_of_the_next_transaction_waits_for_the_end_before(commits: bool) -> None:
    world = CoordinatedTransactions()
    following = world.ended(world.opened(A), commits=commits)
    request = world.end(following, commits=False)
    assert request not in world.answers
    world.mark()
    assert world.answers[request] == (following.producer_id, 2)
    assert world.state() is TransactionState.COMPLETE_ABORT


def test_the_end_of_the_next_transaction_waits_under_the_next_producer_id() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,)))
    following = world.ended(identity(7, LAST_EPOCH))
    request = world.end(following, commits=False)
    assert request not in world.answers
    world.mark()
    assert world.answers[request] == (following.producer_id, 1)


def test_a_producer_goes_on_under_the_next_producer_id_before_all_is_marked() -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.ONGOING, 7, LAST_EPOCH, partitions=(A,)))
    following = world.ended(identity(7, LAST_EPOCH))
    request = world.init(following)
    assert request not in world.answers
    world.mark()
    assert world.answers[request] == (following.producer_id, 1)


# What tools ask.


def test_a_transaction_is_described_and_listed() -> None:
    world = CoordinatedTransactions()
    assert world.refused(world.describe()) is Code.TRANSACTIONAL_ID_NOT_FOUND
    assert world.listed() == ()
    world.opened(A)
    world.begun(transactional_id="u")
    assert world.answers[world.describe()] == world.transaction
    assert {one.transactional_id for one in world.listed()} == {"t", "u"}


def test_markers_are_counted_until_they_are_written() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, B)
    assert world.coordinator.markers_waiting == 0
    world.ended(producer)
    assert world.coordinator.markers_waiting == 2
    world.mark(A)
    assert world.coordinator.markers_waiting == 1
    world.mark()
    assert world.coordinator.markers_waiting == 0
