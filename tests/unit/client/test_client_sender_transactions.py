"""The producer's machine in transactions: which batches go, how they count, and what a failure does to the rest."""

from __future__ import annotations

import pytest

from tidelog.base.errors import (
    Code,
    KafkaError,
    NetworkError,
    ProducerFencedError,
    RecordsLostError,
    TimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from tidelog.base.ids import TopicPartition
from tidelog.client.core.accumulator import PendingBatch
from tidelog.client.core.sender import BatchAnswer
from tidelog.client.core.transaction import (
    AddPartitionsDue,
    Call,
    Due,
    EndDue,
    ProducerIdAndEpoch,
    ProducerTransactions,
    ProducerTransactionState,
)
from unit.client.test_client_sender import Bench, metadata

S = ProducerTransactionState


class TransactionalBench(Bench):
    """A sender whose producer has an open transaction."""

    def __init__(self, version: int = 2) -> None:
        super().__init__()
        self.transactions = self.sender.transactions = ProducerTransactions("id")
        self.epoch = 0
        self.transactions.init()
        self.transactions.on_feature_level(version)
        self.done()
        self.transactions.begin()

    def done(self) -> Due:
        """The coordinator does what is due."""
        due = self.transactions.take_request()
        assert due is not None
        is_next = not isinstance(due, EndDue) or self.transactions.version == 2
        self.transactions.on_done(due, ProducerIdAndEpoch(100, self.epoch) if is_next else None)
        if is_next and not isinstance(due, AddPartitionsDue):
            self.epoch += 1
        return due

    def commit(self) -> None:
        self.transactions.commit()
        self.transactions.on_drained()
        while self.transactions.state is not S.READY:
            self.done()
        self.transactions.claim()

    def abort(self) -> None:
        self.transactions.abort()
        self.sender.drop_waiting(TransactionAbortedError("aborted"))
        self.transactions.on_drained()
        while self.transactions.state is not S.READY:
            self.done()
        self.transactions.claim()


def counted(batch: PendingBatch) -> tuple[int, int | None]:
    return batch.producer_epoch, batch.sequence


def test_before_kip_890_a_batch_waits_until_its_partition_takes_part() -> None:
    bench = TransactionalBench(1)
    bench.add(1)
    bench.add(2, partition=1)
    assert bench.sends() == []
    assert bench.done() == AddPartitionsDue((TopicPartition("t", 0), TopicPartition("t", 1)))
    [send] = bench.sends()
    for batch in send.batches:
        assert counted(batch) == (0, 0)
    bench.sender.on_request_ended(send.broker_id)
    for batch in send.batches:
        bench.sender.on_answer(batch, BatchAnswer(Code.NONE, None, 0), bench.now_ms)
    bench.commit()
    bench.transactions.begin()
    bench.add(3)
    bench.sends()
    bench.done()
    assert counted(bench.send_one()) == (0, 1)  # the count goes on


def test_with_kip_890_each_transaction_counts_from_0_in_an_epoch_of_its_own() -> None:
    bench = TransactionalBench(2)
    for epoch in range(3):
        bench.add(1, 2)
        batch = bench.send_one()
        assert counted(batch) == (epoch, 0)
        bench.answer(batch, base_offset=2 * epoch)
        bench.commit()
        bench.transactions.begin()


def test_outside_of_a_transaction_nothing_is_sent() -> None:
    bench = TransactionalBench()
    bench.transactions.commit()
    bench.transactions.on_drained()
    assert bench.transactions.state is S.READY
    bench.add(1)
    assert bench.sends() == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_failure_drops_what_waits_and_what_comes_back(version: int) -> None:
    bench = TransactionalBench(version)
    for number in range(7):
        bench.add(number)
    bench.sends()
    if version == 1:
        bench.done()
        bench.sends()
    flying = list(bench.sender.queue(TopicPartition("t", 0)).in_flight)
    assert len(flying) == 5
    bench.answer(flying[0], Code.INVALID_RECORD)
    assert bench.transactions.state is S.ABORTABLE_ERROR
    dropped = [batch for batch in bench.sender.take_done() if batch is not flying[0]]
    assert [type(batch.outcome) for batch in dropped] == [TransactionAbortedError] * 2
    bench.lose(flying[1])
    bench.answer(flying[2], Code.NOT_LEADER_OR_FOLLOWER)
    bench.answer(flying[3], Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    bench.answer(flying[4], base_offset=9)
    kinds = [type(batch.outcome).__name__ for batch in bench.sender.take_done()]
    assert kinds == ["TransactionAbortedError"] * 3 + ["Delivered"]
    assert bench.sender.take_losses() == []
    assert bench.sends() == []
    with pytest.raises(TransactionAbortableError, match="INVALID_RECORD"):
        bench.transactions.check(Call.SEND)
    bench.abort()
    bench.transactions.begin()
    bench.add(8)
    bench.sends()
    if version == 1:
        bench.done()
        bench.sends()
    [batch] = bench.sender.queue(TopicPartition("t", 0)).in_flight
    assert counted(batch) == (1, 0)  # in either protocol the next epoch forgets what was lost


def test_a_batch_whose_time_is_over_aborts() -> None:
    bench = TransactionalBench()
    bench.add(1)
    bench.lose(bench.send_one())
    bench.add(2)
    bench.wait(5_000)
    assert bench.sends() == []
    outcomes = [batch.outcome for batch in bench.sender.take_done()]
    assert [type(one) for one in outcomes] == [TimedOutError, TransactionAbortedError]
    assert bench.transactions.state is S.ABORTABLE_ERROR


@pytest.mark.parametrize("code", [Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH])
def test_fencing_ends_it_all(code: Code) -> None:
    bench = TransactionalBench()
    bench.add(1)
    first = bench.send_one()
    bench.add(2)
    second = bench.send_one()
    bench.add(3)
    bench.answer(first, code)
    bench.lose(second)
    done = bench.sender.take_done()
    assert len(done) == 3
    assert all(isinstance(batch.outcome, ProducerFencedError) for batch in done)
    assert bench.transactions.state is S.FATAL_ERROR
    assert isinstance(bench.sender.fatal, ProducerFencedError)


def test_a_loss_that_shows_aborts_and_is_told() -> None:
    bench = TransactionalBench()
    bench.add(1)
    bench.answer(bench.send_one(), base_offset=5)
    bench.add(2)
    bench.answer(bench.send_one(), Code.OUT_OF_ORDER_SEQUENCE_NUMBER)
    [loss] = bench.sender.take_losses()
    assert (loss.first_offset, loss.last_offset) == (None, 5)
    assert bench.transactions.error is loss
    assert bench.sender.fatal is None  # the next transaction may succeed
    bench.abort()
    bench.transactions.begin()
    bench.add(3)
    bench.answer(bench.send_one(), base_offset=4)  # below what was acknowledged
    [loss] = bench.sender.take_losses()
    assert (loss.first_offset, loss.last_offset) == (4, 5)
    with pytest.raises(TransactionAbortableError) as raised:
        bench.transactions.commit()
    assert isinstance(raised.value.__cause__, RecordsLostError)


def test_a_leader_that_forgot_the_producer_is_met_in_the_next_epoch() -> None:
    bench = TransactionalBench()
    bench.add(1)
    bench.answer(bench.send_one(), Code.UNKNOWN_PRODUCER_ID)
    assert bench.sender.take_losses() == []
    assert bench.transactions.state is S.ABORTABLE_ERROR
    bench.abort()
    bench.transactions.begin()
    bench.add(2)
    assert counted(bench.send_one()) == (1, 0)


@pytest.mark.parametrize("writes", [True, False])
def test_a_topic_that_is_recreated_aborts_what_was_written_to_it(writes: bool) -> None:
    bench = TransactionalBench()
    bench.add(1)
    bench.answer(bench.send_one(), base_offset=0)
    if not writes:
        bench.commit()
        bench.transactions.begin()
    bench.cache.on_metadata(metadata(topic_id=2), requested=["t"])
    bench.sender.on_topics_changed({"t"})
    assert bench.transactions.state is (S.ABORTABLE_ERROR if writes else S.IN_TRANSACTION)
    if writes:
        assert isinstance(bench.transactions.error, KafkaError)
        bench.abort()
        bench.transactions.begin()
    bench.add(2)
    assert counted(bench.send_one()) == (1, 0)


def test_without_an_answer_a_batch_is_sent_again_with_its_sequence() -> None:
    bench = TransactionalBench()
    bench.add(1)
    batch = bench.send_one()
    bench.sender.on_request_ended(bench._broker())
    bench.sender.on_lost(batch, NetworkError("broke"), bench.now_ms, sent=True)
    bench.wait()
    assert bench.send_one() is batch
    assert counted(batch) == (0, 0)
