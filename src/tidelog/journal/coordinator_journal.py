"""Where a coordinator writes, answers and sends: the journal, behind the names of requests.

A coordinator keeps objects of its own beside the recorded state, and changes them when it is asked; so the journal
keeps one state only, every answer waits for all that was written before it, and a coordinator that resigns is spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar, cast

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.journal.coordinator_machine import Answer, CoordinatorReady, KeyValue, RequestId, Send
from tidelog.journal.decision import Decision
from tidelog.journal.runtime import Batch, Journal, ReplayedState, Ticket
from tidelog.journal.transaction_part import TransactionEnd, TransactionPart, TransactionRecord
from tidelog.records.control import ControlType, EndTransactionMarker, control_key, control_value

S = TypeVar("S", bound=ReplayedState)

BATCH_SIZE_BYTES_MAX_DEFAULT = 1_048_588
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 24
"""More than the varints around a key and a value ever take."""


class CoordinatorJournal(Generic[S]):
    """The journal of one coordinator. Its records are keys and values as bytes.

    What waits is bounded by the driver: one request per connection.

    Args:
        state: empty.

    Attributes:
        batch_size_bytes_max: of the log behind it (`max.message.bytes`, `segment.bytes`).
    """

    def __init__(self, state: S) -> None:
        self.state = state
        self.batch_size_bytes_max = BATCH_SIZE_BYTES_MAX_DEFAULT
        self._journal = Journal(state, not_active=Code.NOT_COORDINATOR, keeps_committed=False)
        self._owed: dict[Ticket, RequestId | Send] = {}
        self._answers: list[Answer] = []
        self._has_resigned = False

    @property
    def is_active(self) -> bool:
        return self._journal.is_active

    @property
    def committed_end_offset(self) -> Offset:
        return self._journal.committed_end_offset

    @property
    def next_offset(self) -> Offset:
        """Where what is written next will lie."""
        return self._journal.next_offset

    @property
    def why_inactive(self) -> KafkaError:
        """What is answered while it is not active."""
        if self._has_resigned:
            return refusal(Code.NOT_COORDINATOR)
        return refusal(Code.COORDINATOR_LOAD_IN_PROGRESS)

    # What happened.

    def replay(self, record: KeyValue, offset: Offset, *, transaction_of: int | None = None) -> None:
        """A committed record was read from the log.

        Args:
            transaction_of: the producer whose transaction it is part of: the state takes in a `TransactionRecord`.
        """
        if transaction_of is None:
            self._journal.replay(record, offset)
        else:
            self._journal.replay(TransactionRecord(transaction_of, record), offset)

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        """The marker that ends a producer's transaction was read from the log: the state takes in that end."""
        self.state.apply(TransactionEnd(producer_id, is_committed))

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset) -> None:
        """See `Journal`."""
        self._journal.become_active(leader_epoch, next_offset)

    def on_committed(self, end_offset: Offset) -> None:
        """See `Journal`."""
        if self._journal.is_active:
            self._journal.on_committed(end_offset)

    def resign(self, error: KafkaError | None) -> None:
        """See `Journal`; from now on nothing is written or sent, and answers are errors."""
        self._journal.resign(error)
        self._has_resigned = True

    # What coordinators do.

    def answer(self, request_id: RequestId, outcome: object) -> None:
        """Answer, once all that was written until now is committed."""
        self.write_and_answer((), request_id, outcome)

    def answer_at_once(self, request_id: RequestId, error: KafkaError) -> None:
        """Answer what depends on nothing."""
        self._answers.append(Answer(request_id, error))

    def send(self, send: Send) -> None:
        """Ask another broker, once all that was written until now is committed."""
        self._owed[self._journal.submit(Decision((), None))] = send

    def write(self, records: tuple[KeyValue, ...]) -> None:
        """Write records as one batch."""
        self._journal.submit(Decision(records, None))

    def write_and_answer(
        self,
        records: tuple[KeyValue, ...],
        request_id: RequestId,
        outcome: object,
        *,
        transaction: TransactionPart | None = None,
    ) -> None:
        """Write records as one batch, and answer once it is committed.

        Args:
            transaction: that they are part of: the state takes in each as a `TransactionRecord`.
        """
        self._owed[self._journal.submit(Decision(records, outcome, transaction))] = request_id

    def end_transaction_and_answer(
        self,
        producer_id: int,
        producer_epoch: int,
        request_id: RequestId,
        outcome: object,
        *,
        is_committed: bool,
        coordinator_epoch: int,
    ) -> None:
        """Write the marker that ends a producer's transaction on this log, and answer once it is committed."""
        control_type = ControlType.COMMIT if is_committed else ControlType.ABORT
        marker = (control_key(control_type), control_value(EndTransactionMarker(coordinator_epoch=coordinator_epoch)))
        end = TransactionEnd(producer_id, is_committed)
        part = TransactionPart(producer_id, producer_epoch, end)
        self.write_and_answer((marker,), request_id, outcome, transaction=part)

    def write_in_parts(self, records: Iterable[KeyValue]) -> None:
        """Write records of which each stands for itself, in as many batches as they need."""
        for part in self._parts(records):
            self.write(part)

    def fits(self, records: Sequence[KeyValue]) -> bool:
        """Whether the log would take them as one batch."""
        return BATCH_OVERHEAD_BYTES + sum(_size_bytes(one) for one in records) <= self.batch_size_bytes_max

    def take_ready(self) -> CoordinatorReady:
        """All that is owed since the last call."""
        ready = self._journal.take_ready()
        answers, sends = self._answers, []
        for reply in ready.replies:
            owed = self._owed.pop(reply.ticket, None)
            if isinstance(owed, Send):
                if not self._has_resigned:
                    sends.append(owed)
            elif owed is not None:
                answers.append(Answer(owed, reply.outcome))
        self._answers = []
        return CoordinatorReady(cast("tuple[Batch[KeyValue], ...]", ready.batches), tuple(answers), tuple(sends))

    def _parts(self, records: Iterable[KeyValue]) -> Iterator[tuple[KeyValue, ...]]:
        part: list[KeyValue] = []
        left = self.batch_size_bytes_max - BATCH_OVERHEAD_BYTES
        for record in records:
            size = _size_bytes(record)
            if part and size > left:
                yield tuple(part)
                part = []
                left = self.batch_size_bytes_max - BATCH_OVERHEAD_BYTES
            part.append(record)
            left -= size
        if part:
            yield tuple(part)


def _size_bytes(record: KeyValue) -> int:
    key, value = record
    return RECORD_OVERHEAD_BYTES + len(key) + (len(value) if value is not None else 0)
