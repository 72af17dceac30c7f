"""The coordinator of the transactional ids of one partition of `__transaction_state`.

```
 InitProducerId, AddPartitionsToTxn, EndTxn ──► decide ──► journal ──► take_ready: append, answer, send markers
 a time-out, a lost record ─────────────────────┘             ▲
 markers written (on_sent) ──► Complete ──────────────────────┘
```

An answer to EndTxn leaves once Prepare is committed; markers are sent from then on, and the next transaction of the id
begins once all are written. A request that comes before that waits here, one for each id; its client would only ask
again.

Pure: a shell appends the batches, says what is committed, sends the answers and the markers, and keeps the clocks.

Kafka: `TransactionCoordinator`, `TransactionStateManager`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

from tidelog.base.errors import Code, CorruptLogError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset, ProducerEpoch, TopicPartition
from tidelog.coordinator.deadlines import Deadlines
from tidelog.coordinator.memory import CoordinatorMemory
from tidelog.coordinator.transactions.checks import (
    check_producer,
    fenced,
    identity_of,
    is_ended_by,
    is_known,
    wrong_state,
)
from tidelog.coordinator.transactions.expiry import Expiry
from tidelog.coordinator.transactions.initializations import Initializations
from tidelog.coordinator.transactions.markers import Markers
from tidelog.coordinator.transactions.records import (
    FLEXIBLE_VALUE_VERSION,
    encode_transaction,
    transaction_key,
)
from tidelog.coordinator.transactions.settings import TransactionSettings
from tidelog.coordinator.transactions.state import PARTITION_BYTES, RecordedTransactions, size_bytes
from tidelog.coordinator.transactions.transaction import (
    COMPLETE,
    PREPARED,
    Transaction,
    TransactionState,
)
from tidelog.coordinator.transactions.values import (
    EndTransaction,
    InitProducer,
    ProducerIdentity,
    ProducerIdNeededError,
    needed,
)
from tidelog.coordinator.transactions.waiting import WaitingRequest, WaitingRequests
from tidelog.journal import CoordinatorJournal, CoordinatorReady, KeyValue, RequestId, SendId

TRANSACTIONAL_ID_LENGTH_MAX = 8_191
"""In characters: a key holds 32,767 bytes at most."""


class TransactionFacts(NamedTuple):
    """What became of transactions here since the coordinator began, for whoever counts."""

    timed_out: int = 0
    fenced: int = 0
    lost: int = 0
    refused_markers: int = 0


class TransactionCoordinator:
    """Replays, becomes active, answers, resigns; then it is spent, and another leadership takes a new one.

    Every request gets one answer, unless `on_disconnected` says that nobody waits for it.

    Args:
        partition: of `__transaction_state`, for messages.
        value_version: of the layout in which it writes: 0, or 1 from transaction.version 1 on.
        memory: of the ids of all coordinators of a node; None for no bound.
        marker_numbers: rising, of all that the coordinators of a node prepare; None for its own.

    Attributes:
        value_version: may be set at any time, as the feature changes.
        facts: what became of transactions.
    """

    def __init__(
        self,
        partition: int,
        settings: TransactionSettings,
        *,
        value_version: int,
        memory: CoordinatorMemory | None = None,
        marker_numbers: Iterator[int] | None = None,
    ) -> None:
        self.partition = partition
        self.value_version = value_version
        self.facts = TransactionFacts()
        self._settings = settings
        self._memory = CoordinatorMemory(sys.maxsize) if memory is None else memory
        self._journal = CoordinatorJournal(RecordedTransactions())
        self._coordinator_epoch = LeaderEpoch(0)
        self._initializations = Initializations()
        self._timeouts: Deadlines[str] = Deadlines()
        self._waiting = WaitingRequests(self._memory)
        self._markers = Markers(count(1) if marker_numbers is None else marker_numbers)
        self._expiry = Expiry(settings)

    @property
    def batch_size_bytes_max(self) -> int:
        """Of the log behind it, in force from now on, whenever it is set."""
        return self._journal.batch_size_bytes_max

    @batch_size_bytes_max.setter
    def batch_size_bytes_max(self, size_bytes: int) -> None:
        self._journal.batch_size_bytes_max = size_bytes

    @property
    def is_active(self) -> bool:
        """Whether it answers; before that COORDINATOR_LOAD_IN_PROGRESS is all it says, afterwards NOT_COORDINATOR."""
        return self._journal.is_active

    @property
    def markers_waiting(self) -> int:
        """How many markers are not known to be written."""
        return len(self._markers)

    @property
    def transactions(self) -> dict[str, Transaction]:
        """By transactional id. Only to be read."""
        return self._journal.state.transactions

    # Loading.

    def replay(
        self, key: bytes | None, value: bytes | None, offset: Offset, *, transaction_of: int | None = None
    ) -> None:
        """A committed record was read from the log. One of a kind that is not known here is skipped.

        Args:
            transaction_of: nobody writes to this log in a transaction, so what says so is skipped as well.

        Raises:
            CorruptLogError: it is not what it claims; names the offset. The partition is not to be led.
        """
        if key is None or transaction_of is not None:
            return
        try:
            self._journal.replay((key, value), offset)
        except CorruptLogError as error:
            raise CorruptLogError(f"__transaction_state-{self.partition}, offset {offset}: {error}") from error

    def replay_end(self, producer_id: int, *, is_committed: bool) -> None:
        """See `replay`: there was none."""

    def restore(self) -> None:
        """There is nothing to make of what was replayed."""

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int) -> None:
        """All was replayed. Ends that are prepared are completed; what is open has the rest of its time."""
        self._journal.state.charge(self._memory)
        self._journal.become_active(leader_epoch, next_offset)
        self._coordinator_epoch = leader_epoch
        self._expiry.begin(now_ms)
        for transaction in list(self.transactions.values()):
            if transaction.state in PREPARED:
                self._send_markers(transaction, wall_ms)
            elif transaction.state is TransactionState.ONGOING:
                self._time(transaction, now_ms, wall_ms)

    def resign(self, error: KafkaError | None = None) -> None:
        """Leadership is lost, or the log refused a batch: whoever waits is told NOT_COORDINATOR, or `error`."""
        self._journal.resign(error)
        for waiting in self._waiting.take_all():
            self._journal.answer_at_once(waiting.request_id, error or refusal(Code.NOT_COORDINATOR))
        self._journal.state.charge(CoordinatorMemory(sys.maxsize))
        self._markers.forget()

    # What producers ask.

    def on_init_producer_id(self, request_id: RequestId, request: InitProducer, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `ProducerIdentity`, or a `ProducerIdNeededError`."""
        transactional_id, expected = request.transactional_id, request.expected

        def init(now_ms: int, wall_ms: int) -> None:
            if not 0 < request.timeout_ms <= self._settings.timeout_ms_max:
                raise refusal(
                    Code.INVALID_TRANSACTION_TIMEOUT,
                    f"transactional id {transactional_id!r}: transaction.timeout.ms={request.timeout_ms} is not from 1 "
                    f"to {self._settings.timeout_ms_max} (transaction.max.timeout.ms)",
                )
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                begun = Transaction(
                    transactional_id=transactional_id,
                    producer_id=needed(request.fresh_producer_id),
                    producer_epoch=ProducerEpoch(0),
                    timeout_ms=request.timeout_ms,
                    updated_ms=wall_ms,
                )
                self._check_room(transactional_id, size_bytes(begun))
                self._write(begun, request_id, identity_of(begun))
                return
            if expected is not None and not is_known(transaction, expected):
                raise fenced(transaction, expected)
            if transaction.state is TransactionState.ONGOING:  # of a producer that is no more, or begins again
                if expected is not None:
                    if expected != identity_of(transaction):  # Kafka lets a fenced producer abort that of the newer one
                        raise fenced(transaction, expected)
                    self._initializations.on_own_abort(transactional_id, expected)
                self._fence(transaction, wall_ms)
                transaction = self.transactions[transactional_id]
            if transaction.state in PREPARED:
                self._wait(transactional_id, request_id, init, now_ms)
                return
            initialized = self._initializations.begun(request, transaction, wall_ms)
            if initialized is None:
                self._journal.answer(request_id, identity_of(transaction))  # its answer was lost
            else:
                self._write(initialized, request_id, identity_of(initialized))

        self._run(request_id, transactional_id, init, now_ms, wall_ms)

    def on_add_partitions(
        self,
        request_id: RequestId,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
        may_wait: bool = True,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with `Code.NONE` once records may be written to the partitions. No partitions begin no transaction.

        Args:
            client_version: of transactions: 2 where the leader of a partition asks, for a producer of that version.
            may_wait: for the end of the transaction before. A broker asks for many producers on one connection, where
                one that waits would hold up the others.
        """

        added = frozenset(partitions)

        def add(now_ms: int, wall_ms: int) -> None:
            transaction = self._of(transactional_id, producer)
            if not added:  # Kafka begins a transaction of no partitions
                self._journal.answer(request_id, Code.NONE)
                return
            if transaction.state in PREPARED:
                if not may_wait:
                    raise self._not_complete(transaction)
                self._wait(transactional_id, request_id, add, now_ms, PARTITION_BYTES * len(added))
                return
            is_ongoing = transaction.state is TransactionState.ONGOING
            if is_ongoing and added <= transaction.partitions and transaction.client_version == client_version:
                self._journal.answer(request_id, Code.NONE)
                return
            ongoing = transaction.with_partitions(added, client_version=client_version, wall_ms=wall_ms)
            if not self._journal.fits([self._record(ongoing)]):
                raise refusal(
                    Code.INVALID_REQUEST,
                    f"transactional id {transactional_id!r}: {len(ongoing.partitions)} partitions are more than a "
                    f"batch of {self.batch_size_bytes_max} bytes holds: end the transaction sooner",
                )
            self._check_room(transactional_id, size_bytes(ongoing) - size_bytes(transaction))
            self._write(ongoing, request_id, Code.NONE)
            if not is_ongoing:
                self._time(ongoing, now_ms, wall_ms)

        self._run(request_id, transactional_id, add, now_ms, wall_ms)

    def on_verify_partitions(
        self,
        request_id: RequestId,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Answered with the frozenset of the partitions that the producer's transaction is open on."""

        def verify(now_ms: int, wall_ms: int) -> None:
            transaction = self._of(transactional_id, producer)
            if transaction.state in PREPARED:
                raise self._not_complete(transaction)
            self._journal.answer(request_id, transaction.partitions)

        self._run(request_id, transactional_id, verify, now_ms, wall_ms)

    def on_end(self, request_id: RequestId, request: EndTransaction, *, now_ms: int, wall_ms: int) -> None:
        """Answered with the `ProducerIdentity` of the next transaction, or a `ProducerIdNeededError`."""
        transactional_id, producer = request.transactional_id, request.producer

        def end(now_ms: int, wall_ms: int) -> None:
            transaction = self._known(transactional_id)
            is_repeated = request.bumps_epoch and is_ended_by(transaction, producer)
            if not is_repeated:
                self._of(transactional_id, producer)
            if transaction.state in PREPARED:  # judged once that is complete: it may be of the transaction after it
                self._wait(transactional_id, request_id, end, now_ms)
            elif is_repeated and transaction.state not in COMPLETE:
                raise fenced(transaction, producer)
            elif transaction.state is TransactionState.ONGOING:
                self._end_open(request_id, request, transaction, wall_ms)
            else:
                self._end_nothing(request_id, request, transaction, wall_ms, is_repeated=is_repeated)

        self._run(request_id, transactional_id, end, now_ms, wall_ms)

    def _end_open(self, request_id: RequestId, request: EndTransaction, transaction: Transaction, wall_ms: int) -> None:
        if request.commits and transaction.has_lost_records:
            raise refusal(
                Code.TRANSACTION_ABORTABLE,
                f"transactional id {request.transactional_id!r}: a partition lost records of this transaction in an "
                "unclean election; abort it, and write them again",
            )
        next_id = None
        if request.bumps_epoch and transaction.is_epoch_exhausted:
            next_id = needed(request.fresh_producer_id)
        prepared = transaction.prepared(
            commits=request.commits,
            bumps_epoch=request.bumps_epoch,
            client_version=request.client_version,
            next_producer_id=next_id,
            wall_ms=wall_ms,
        )
        outcome = identity_of(prepared) if next_id is None else ProducerIdentity(next_id, ProducerEpoch(0))
        self._write(prepared, request_id, outcome)
        self._send_markers(prepared, wall_ms)

    def _end_nothing(
        self,
        request_id: RequestId,
        request: EndTransaction,
        transaction: Transaction,
        wall_ms: int,
        *,
        is_repeated: bool,
    ) -> None:
        """Nothing is open. The request is repeated, or it ends a transaction that wrote nothing, or it is wrong."""
        wanted = TransactionState.COMPLETE_COMMIT if request.commits else TransactionState.COMPLETE_ABORT
        if transaction.state is wanted and (is_repeated or not request.bumps_epoch):
            self._journal.answer(request_id, identity_of(transaction))
            return
        if request.commits or is_repeated or not request.bumps_epoch:
            raise wrong_state(transaction, request.commits)
        next_id = needed(request.fresh_producer_id) if transaction.is_epoch_exhausted else None
        aborted = transaction.aborted_empty(
            client_version=request.client_version, next_producer_id=next_id, wall_ms=wall_ms
        )
        self._write(aborted, request_id, identity_of(aborted))

    # What tools ask.

    def on_describe(self, request_id: RequestId, transactional_id: str, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a `Transaction`, or TRANSACTIONAL_ID_NOT_FOUND."""

        def describe(now_ms: int, wall_ms: int) -> None:
            transaction = self.transactions.get(transactional_id)
            if transaction is None:
                raise refusal(Code.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {transactional_id!r}")
            self._journal.answer(request_id, transaction)

        self._run(request_id, transactional_id, describe, now_ms, wall_ms)

    def on_list(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None:
        """Answered with a tuple of all `Transaction`s; whoever asks filters them."""
        self._run(
            request_id,
            None,
            lambda now_ms, wall_ms: self._journal.answer(request_id, tuple(self.transactions.values())),
            now_ms,
            wall_ms,
        )

    # What else happens.

    def on_records_lost(self, partitions: Collection[TopicPartition], *, now_ms: int, wall_ms: int) -> None:
        """A replica that may lack committed records leads these now: an unclean election.

        What is open there can no longer be committed whole: it waits for its producer to abort it, or is aborted at
        once where the layout has no room to note that. What is prepared ends as it was decided.
        """
        lost = frozenset(partitions)
        self._lose(lambda transaction: not lost.isdisjoint(transaction.partitions), wall_ms)

    def on_records_lost_before(self, lost_ms: Mapping[TopicPartition, int], *, now_ms: int, wall_ms: int) -> None:
        """As `on_records_lost`, for elections that came while another led this partition, or nobody.

        Args:
            lost_ms: by partition, when its last unclean election was heard of, by the wall clock. A transaction that
                began later lost nothing by it.
        """

        def is_lost(transaction: Transaction) -> bool:
            started_ms = transaction.started_ms
            return any(
                one in lost_ms and (started_ms is None or started_ms <= lost_ms[one]) for one in transaction.partitions
            )

        self._lose(is_lost, wall_ms)

    def _lose(self, is_lost: Callable[[Transaction], bool], wall_ms: int) -> None:
        if not self._journal.is_active:
            return
        for transaction in list(self.transactions.values()):
            is_open = transaction.state is TransactionState.ONGOING and not transaction.has_lost_records
            if is_open and is_lost(transaction):
                self.facts = self.facts._replace(lost=self.facts.lost + 1)
                if self.value_version >= FLEXIBLE_VALUE_VERSION:
                    self._write(transaction.that_lost_records(wall_ms))
                else:
                    self._fence(transaction, wall_ms)

    def on_disconnected(self, request_id: RequestId, *, now_ms: int, wall_ms: int) -> None:
        """Nobody waits for that answer any more, which may come all the same."""
        self._waiting.forget(request_id)

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` (exclusive) is there to stay."""
        self._journal.on_committed(end_offset)

    def on_sent(self, send_id: SendId, outcome: object, *, now_ms: int, wall_ms: int) -> None:
        """A partition has its marker; or it refuses one for good: a newer coordinator, or a newer producer, was there.

        A partition that knows a newer epoch of the producer has no transaction of this one. One that knows a newer
        coordinator tells that this one is deposed, and what it prepared is the newer one's to complete.
        """
        sent = self._markers.take(send_id)
        if sent is None or not self._journal.is_active:
            return
        transactional_id, partition = sent
        if isinstance(outcome, KafkaError):
            self.facts = self.facts._replace(refused_markers=self.facts.refused_markers + 1)
            if outcome.code == Code.TRANSACTION_COORDINATOR_FENCED:
                return
        if self._markers.on_written(transactional_id, partition):
            self._write(self.transactions[transactional_id].completed(wall_ms))
            waiting = self._waiting.take(transactional_id)
            if waiting is not None:
                self._run(waiting.request_id, transactional_id, waiting.run, now_ms, wall_ms)

    def on_time(self, *, now_ms: int, wall_ms: int) -> None:
        """Abort what has been open too long, send away who waited too long, forget what nobody used."""
        if not self._journal.is_active:
            return
        while (transactional_id := self._timeouts.pop_due(now_ms)) is not None:
            transaction = self.transactions.get(transactional_id)
            if transaction is not None and transaction.state is TransactionState.ONGOING:
                self.facts = self.facts._replace(timed_out=self.facts.timed_out + 1)
                self._fence(transaction, wall_ms)
        for waiting in self._waiting.take_due(now_ms):
            self._journal.answer_at_once(waiting.request_id, waiting.refusal)
        if self._expiry.is_due(now_ms):
            expired = self._expiry.take_expired(self.transactions, now_ms, wall_ms)
            self._journal.write_in_parts(self._tombstones(expired))

    def next_deadline_ms(self) -> int | None:
        """When to call `on_time`, by the clock of `now_ms`; None while there is nothing to wait for."""
        if not self._journal.is_active:
            return None
        due = (self._timeouts.next_ms(), self._waiting.next_deadline_ms(), self._expiry.due_ms)
        return min((one for one in due if one is not None), default=None)

    def take_ready(self) -> CoordinatorReady:
        """All that is owed since the last call."""
        return self._journal.take_ready()

    # How.

    def _run(
        self,
        request_id: RequestId,
        transactional_id: str | None,
        request: Callable[[int, int], None],
        now_ms: int,
        wall_ms: int,
    ) -> None:
        journal = self._journal
        if not journal.is_active:
            journal.answer_at_once(request_id, journal.why_inactive)
            return
        try:
            if transactional_id is not None and not 0 < len(transactional_id) <= TRANSACTIONAL_ID_LENGTH_MAX:
                raise refusal(
                    Code.INVALID_REQUEST,
                    f"a transactional id has 1 to {TRANSACTIONAL_ID_LENGTH_MAX} characters, "
                    f"not {len(transactional_id)}",
                )
            request(now_ms, wall_ms)
        except ProducerIdNeededError as needed:
            journal.answer(request_id, needed)
        except KafkaError as error:
            journal.answer(request_id, error)

    def _known(self, transactional_id: str) -> Transaction:
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise refusal(
                Code.INVALID_PRODUCER_ID_MAPPING,
                f"there is no transactional id {transactional_id!r}: call InitProducerId first",
            )
        return transaction

    def _of(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        """The transaction of a producer that is neither another's nor fenced; it may be the next one's already."""
        transaction = self._known(transactional_id)
        check_producer(transaction, producer)
        return transaction

    def _write(
        self, transaction: Transaction, request_id: RequestId | None = None, outcome: object | None = None
    ) -> None:
        """Write where an id stands, and answer once that is committed."""
        records = (self._record(transaction),)
        if request_id is None:
            self._journal.write(records)
        else:
            self._journal.write_and_answer(records, request_id, outcome)

    def _record(self, transaction: Transaction) -> KeyValue:
        return transaction_key(transaction.transactional_id), encode_transaction(transaction, self.value_version)

    def _fence(self, transaction: Transaction, wall_ms: int) -> None:
        """Abort, and let nothing more come of the producer that began it."""
        self.facts = self.facts._replace(fenced=self.facts.fenced + 1)
        prepared = transaction.prepared(
            commits=False,
            bumps_epoch=True,
            client_version=transaction.client_version,
            next_producer_id=None,
            wall_ms=wall_ms,
        )
        self._write(prepared)
        self._send_markers(prepared, wall_ms)

    def _send_markers(self, transaction: Transaction, wall_ms: int) -> None:
        """Send the markers of a prepared end, once it is committed."""
        self._timeouts.cancel(transaction.transactional_id)
        if not transaction.partitions:
            self._write(transaction.completed(wall_ms))
            return
        for send in self._markers.begin(transaction, self._coordinator_epoch):
            self._journal.send(send)

    def _time(self, transaction: Transaction, now_ms: int, wall_ms: int) -> None:
        started_ms = wall_ms if transaction.started_ms is None else transaction.started_ms
        self._timeouts.set(transaction.transactional_id, now_ms + max(started_ms + transaction.timeout_ms - wall_ms, 0))

    def _wait(
        self,
        transactional_id: str,
        request_id: RequestId,
        run: Callable[[int, int], None],
        now_ms: int,
        partition_bytes: int = 0,
    ) -> None:
        """Wait for the end that is prepared. One request of an id waits; another takes its place.

        Raises:
            KafkaError: CONCURRENT_TRANSACTIONS: there is no room to wait; its client asks again.
        """
        before = self._waiting.take(transactional_id)
        if before is not None:
            self._journal.answer_at_once(before.request_id, before.refusal)
        refused = self._not_complete(self.transactions[transactional_id])
        self._waiting.add(transactional_id, WaitingRequest(request_id, run, refused, partition_bytes), now_ms)

    def _check_room(self, transactional_id: str, more_bytes: int) -> None:
        """What takes no more than it did goes on, whatever others have taken."""
        if more_bytes > 0 and not self._memory.has_room(more_bytes):
            raise refusal(
                Code.THROTTLING_QUOTA_EXCEEDED,
                f"transactional id {transactional_id!r}: {more_bytes} bytes find no room beside the "
                f"{self._memory.used_bytes} bytes of all transactional ids of this node "
                f"(transaction.coordinator.memory.bytes is {self._memory.limit_bytes})",
            )

    def _not_complete(self, transaction: Transaction) -> KafkaError:
        return refusal(
            Code.CONCURRENT_TRANSACTIONS,
            f"transactional id {transaction.transactional_id!r}: the transaction before is being ended "
            f"({transaction.state.label}); try again",
        )

    def _tombstones(self, transactional_ids: Iterable[str]) -> Iterable[KeyValue]:
        for one in transactional_ids:
            self._initializations.forget(one)
            yield transaction_key(one), None
