"""AddPartitionsToTxn: how a transaction begins and grows; and which partitions are part of it (KIP-890)."""

from __future__ import annotations

import pytest

from support.fixtures.coordinated_transactions import WALL_START_MS, A, B, CoordinatedTransactions, identity, recorded
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.coordinator.transactions import TransactionState
from tidelog.coordinator.transactions.transaction import EPOCH_MAX


@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_first_partition_begins_a_transaction(version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.begun()
    world.pass_ms(5)
    world.added(producer, A, version=version)
    assert world.transaction == recorded(
        TransactionState.ONGOING, partitions=(A,), updated_ms=WALL_START_MS + 5, client_version=version
    )


def test_further_partitions_join_it() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    world.pass_ms(5)
    world.added(producer, A, B)
    assert world.transaction.partitions == {A, B}
    assert world.transaction.started_ms == WALL_START_MS
    assert world.transaction.updated_ms == WALL_START_MS + 5


def test_a_partition_that_is_there_already_is_not_written_again() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, B)
    batches = len(world.batches)
    world.added(producer, A)
    world.added(producer, B, A)
    assert len(world.batches) == batches


def test_a_partition_that_is_there_already_is_answered_no_sooner_than_the_first_time() -> None:
    world = CoordinatedTransactions()
    producer = world.begun()
    world.commits_at_once = False
    once, again = world.add(producer), world.add(producer)
    assert not {once, again} & world.answers.keys()
    world.commit_log()
    assert world.answers[once] == world.answers[again] == Code.NONE


def test_another_version_of_the_client_is_written() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, version=0)
    world.added(producer, A, version=2)
    assert world.transaction.client_version == 2


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_the_next_transaction_has_partitions_of_its_own(commits: bool, version: int) -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A, B, version=version)
    world.pass_ms(5)
    following = world.completed(producer, commits=commits, version=version)
    world.added(following, B, version=version)
    assert world.transaction.partitions == {B}
    assert world.transaction.started_ms == WALL_START_MS + 5


def test_only_the_producer_in_force_adds_and_verifies() -> None:
    world = CoordinatedTransactions()
    assert world.refused(world.add(identity(7, 0))) is Code.INVALID_PRODUCER_ID_MAPPING
    assert world.refused(world.verify(identity(7, 0))) is Code.INVALID_PRODUCER_ID_MAPPING
    producer = world.begun()
    for stranger, code in (
        (identity(7, 0), Code.INVALID_PRODUCER_ID_MAPPING),
        (identity(producer.producer_id, 1), Code.PRODUCER_FENCED),
    ):
        assert world.refused(world.add(stranger)) is code
        assert world.refused(world.verify(stranger)) is code
    assert world.state() is TransactionState.EMPTY


def test_a_transaction_of_more_partitions_than_a_batch_holds_is_refused_and_goes_on() -> None:
    world = CoordinatedTransactions()
    world.coordinator.batch_size_bytes_max = 500
    assert world.coordinator.batch_size_bytes_max == 500
    producer = world.opened(A)
    many = [TopicPartition("data", PartitionIndex(index)) for index in range(200)]
    assert world.refused(world.add(producer, *many)) is Code.INVALID_REQUEST
    assert world.transaction.partitions == {A}
    world.completed(producer)
    assert world.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("version", [0, 2])
def test_no_partitions_begin_no_transaction(version: int) -> None:
    """Kafka begins one, which times out unless somebody ends it."""
    world = CoordinatedTransactions()
    producer = world.begun()
    batches = len(world.batches)
    assert world.taken(world.add(producer, adds_nothing=True, version=version), Code) is Code.NONE
    assert (world.state(), len(world.batches)) == (TransactionState.EMPTY, batches)
    assert world.refused(world.add(identity(7, 0), adds_nothing=True)) is Code.INVALID_PRODUCER_ID_MAPPING
    following = world.ended(world.opened(A, version=version), version=version)
    assert world.taken(world.add(following, adds_nothing=True, version=version), Code) is Code.NONE, (
        "nothing to wait for"
    )


def test_a_partition_is_verified_while_the_transaction_is_open_there() -> None:
    world = CoordinatedTransactions()
    producer = world.opened(A)
    batches = len(world.batches)
    assert world.answers[world.verify(producer)] == {A}
    assert len(world.batches) == batches


@pytest.mark.parametrize("state", [TransactionState.EMPTY, TransactionState.COMPLETE_ABORT])
def test_nothing_is_verified_where_nothing_is_open(state: TransactionState) -> None:
    world = CoordinatedTransactions()
    world.seed(recorded(state))
    assert world.answers[world.verify(identity(1_000, 0))] == frozenset()


def test_the_next_transaction_is_not_verified_while_the_one_before_is_marked() -> None:
    world = CoordinatedTransactions()
    following = world.ended(world.opened(A))
    assert world.refused(world.verify(following)) is Code.CONCURRENT_TRANSACTIONS


def test_a_producer_whose_epochs_ran_out_may_ask_under_its_next_id_before_all_is_marked() -> None:
    """The answer to EndTxn named that id: "no such producer" would end the client for good."""
    world = CoordinatedTransactions()
    world.seed(recorded(TransactionState.ONGOING, 7, EPOCH_MAX - 1, partitions=(A,)))
    following = world.ended(identity(7, EPOCH_MAX - 1))
    assert following == (world.last_producer_id, 0)
    assert world.refused(world.verify(following)) is Code.CONCURRENT_TRANSACTIONS
    request = world.add(following, A)
    assert request not in world.answers
    assert world.refused(world.verify(identity(following.producer_id, 1))) is Code.INVALID_PRODUCER_ID_MAPPING
    world.mark()
    assert world.answers[request] == Code.NONE
    assert world.transaction.producer_id == following.producer_id
    assert world.state() is TransactionState.ONGOING
