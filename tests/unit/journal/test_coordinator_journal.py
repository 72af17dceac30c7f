"""The journal of a coordinator: answers and sends that wait, batches that fit, transactions that are replayed."""

from __future__ import annotations

from support.fixtures.registers import RecordedRegisters
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.journal import Answer, CoordinatorJournal, RequestId, Send, SendId

SEND = Send(SendId(1), TopicPartition("flights", PartitionIndex(0)), "request")


def active() -> CoordinatorJournal[RecordedRegisters]:
    journal = CoordinatorJournal(RecordedRegisters())
    assert journal.why_inactive.code is Code.COORDINATOR_LOAD_IN_PROGRESS
    journal.become_active(LeaderEpoch(1), Offset(1))
    return journal


def test_answers_and_sends_wait_for_all_that_was_written_before_them() -> None:
    journal = active()
    journal.write(((b"a", b"1"),))
    journal.send(SEND)
    journal.answer(RequestId(1), "done")
    ready = journal.take_ready()
    assert [batch.records for batch in ready.batches] == [((b"a", b"1"),)]
    assert (ready.answers, ready.sends) == ((), ())
    journal.on_committed(ready.batches[0].end_offset)
    ready = journal.take_ready()
    assert ready.answers == (Answer(RequestId(1), "done"),)
    assert ready.sends == (SEND,)
    assert not journal.take_ready()


def test_what_depends_on_nothing_leaves_at_once() -> None:
    journal = active()
    journal.send(SEND)
    assert journal.take_ready().sends == (SEND,)


def test_whoever_resigns_sends_nothing_and_tells_all_that_waited() -> None:
    for error in (None, refusal(Code.COORDINATOR_NOT_AVAILABLE)):
        journal = active()
        journal.write_and_answer(((b"a", b"1"),), RequestId(1), "done")
        journal.send(SEND)
        journal.resign(error)
        ready = journal.take_ready()
        assert (ready.batches, ready.sends) == ((), ())
        (answer,) = ready.answers
        assert isinstance(answer.outcome, KafkaError)
        assert answer.outcome.code is (Code.NOT_COORDINATOR if error is None else error.code)
        assert journal.why_inactive.code is Code.NOT_COORDINATOR


def test_records_that_stand_for_themselves_go_in_batches_that_fit() -> None:
    journal = active()
    journal.batch_size_bytes_max = 200
    records = [(bytes([number]), b"v" * 20) for number in range(10)]
    assert not journal.fits(records)
    journal.write_in_parts(records)
    batches = journal.take_ready().batches
    assert len(batches) > 1
    assert all(journal.fits(batch.records) for batch in batches)
    assert [record for batch in batches for record in batch.records] == records


def test_a_transaction_counts_once_it_is_committed_unless_something_newer_was_said() -> None:
    journal = CoordinatorJournal(RecordedRegisters())
    journal.replay((b"a", b"aborted"), Offset(0), transaction_of=7)
    journal.replay((b"b", b"committed"), Offset(1), transaction_of=8)
    journal.replay((b"c", b"older"), Offset(2), transaction_of=8)
    journal.replay((b"c", b"newer"), Offset(3))
    journal.replay_end(7, is_committed=False)
    journal.replay_end(8, is_committed=True)
    journal.replay((b"d", b"open"), Offset(6), transaction_of=9)
    journal.become_active(LeaderEpoch(1), Offset(7))
    assert journal.state.values == {b"b": b"committed", b"c": b"newer"}
