"""The journal of a coordinator: answers and sends that wait, batches that fit, transactions that are replayed."""

from __future__ import annotations

from support.fixtures.registers import RecordedRegisters
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.journal import (
    Answer,
    CoordinatorJournal,
    RequestId,
    Send,
    SendId,
    TransactionEnd,
    TransactionPart,
    TransactionRecord,
)
from tidelog.records import ControlType, Record
from tidelog.records.control import read_control_type, read_end_transaction_marker

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


class HeardRecords:
    """A state that keeps all that it takes in."""

    def __init__(self, heard: tuple[object, ...] = ()) -> None:
        self.heard = list(heard)

    def apply(self, record: object) -> None:
        self.heard.append(record)

    def clone(self) -> HeardRecords:
        return HeardRecords(tuple(self.heard))


def test_a_state_takes_the_same_in_whether_a_transaction_is_written_or_read() -> None:
    record, other = (b"a", b"1"), (b"b", b"2")
    written = CoordinatorJournal(HeardRecords())
    written.become_active(LeaderEpoch(1), Offset(1))
    part = TransactionPart(7, 3)
    written.write_and_answer((record, other), RequestId(1), "pending", transaction=part)
    written.end_transaction_and_answer(7, 3, RequestId(2), "over", is_committed=True, coordinator_epoch=5)
    written.write((record,))
    read = CoordinatorJournal(HeardRecords())
    read.replay(record, Offset(1), transaction_of=7)
    read.replay(other, Offset(2), transaction_of=7)
    read.replay_end(7, is_committed=True)
    read.replay(record, Offset(4))
    expected = [TransactionRecord(7, record), TransactionRecord(7, other), TransactionEnd(7, True), record]
    assert written.state.heard == read.state.heard == expected

    ready = written.take_ready()
    assert not ready.answers
    records, end, plain = ready.batches
    assert (records.records, records.transaction, records.base_offset) == ((record, other), part, 1)
    assert end.transaction == TransactionPart(7, 3, TransactionEnd(7, True))
    ((key, value),) = end.records
    marker = read_end_transaction_marker(Record(0, 0, key, value, (), -1))
    assert marker is not None
    assert (read_control_type(key), marker.coordinator_epoch) == (ControlType.COMMIT, 5)
    assert (plain.transaction, plain.end_offset) == (None, 5)
    written.on_committed(Offset(3))
    assert written.take_ready().answers == (Answer(RequestId(1), "pending"),)
    written.on_committed(Offset(5))
    assert written.take_ready().answers == (Answer(RequestId(2), "over"),)
