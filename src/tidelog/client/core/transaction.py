"""The transactions of a producer: which state they are in, which request is due, and what each answer means.

```
 UNINITIALIZED ─init► INITIALIZING ─► READY ─begin► IN_TRANSACTION ─commit──► COMMITTING ─────► READY
                                                     │     │  ▲                ▲    │ refused
                                                     │     └prepare► PREPARED ─┘    ▼
                                                     └ a send failed ───────► ABORTABLE_ERROR ─abort► ABORTING ─► READY
 any ── fenced, or refused for good ──► FATAL_ERROR
```

A machine: `init`, `begin` and so on say what the user wants; `take_request` says what the coordinator is to be asked,
one request at a time; `on_done`, `on_refused` and `on_lost` tell it what came of that. Batches are the sender's: it
asks `may_send`, and says what failed. The two protocols:

| | 1 (KIP-98) | 2 (KIP-890) |
|---|---|---|
| a partition joins by | AddPartitionsToTxn | Produce |
| a group's offsets join by | AddOffsetsToTxn | TxnOffsetCommit |
| the next epoch comes | from InitProducerId, after a failure or a lost answer (KIP-360) | with each answer to EndTxn |

Kafka: `TransactionManager`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from tidelog.base.errors import (
    Code,
    ProducerFencedError,
    TidelogError,
    TransactionAbortableError,
    TransactionAbortedError,
    refusal,
)
from tidelog.base.ids import Position, TopicPartition
from tidelog.client.core.group_metadata import GroupMetadata

CONCURRENT_BACKOFF_MS = 20
"""Before that is repeated which found the transaction before still being ended: it takes moments."""

IMPLICIT_VERSION = 2
"""Of transactions: partitions join by being written to, and each end brings a new epoch."""


class ProducerTransactionState(Enum):
    """See the module."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


S = ProducerTransactionState


class Call(Enum):
    """What a user asks for; the value is what they called."""

    INIT = "init_transactions"
    BEGIN = "begin_transaction"
    SEND = "send"
    SEND_OFFSETS = "send_offsets_to_transaction"
    PREPARE = "prepare_transaction"
    COMMIT = "commit_transaction"
    ABORT = "abort_transaction"


TRANSITIONS: dict[tuple[ProducerTransactionState, Call], ProducerTransactionState] = {
    (S.UNINITIALIZED, Call.INIT): S.INITIALIZING,
    (S.INITIALIZING, Call.INIT): S.INITIALIZING,
    (S.READY, Call.INIT): S.READY,
    (S.READY, Call.BEGIN): S.IN_TRANSACTION,
    (S.IN_TRANSACTION, Call.SEND): S.IN_TRANSACTION,
    (S.IN_TRANSACTION, Call.SEND_OFFSETS): S.IN_TRANSACTION,
    (S.IN_TRANSACTION, Call.PREPARE): S.PREPARED,
    (S.PREPARED, Call.PREPARE): S.PREPARED,
    (S.IN_TRANSACTION, Call.COMMIT): S.COMMITTING,
    (S.PREPARED, Call.COMMIT): S.COMMITTING,
    (S.COMMITTING, Call.COMMIT): S.COMMITTING,
    (S.IN_TRANSACTION, Call.ABORT): S.ABORTING,
    (S.PREPARED, Call.ABORT): S.ABORTING,
    (S.ABORTABLE_ERROR, Call.ABORT): S.ABORTING,
    (S.ABORTING, Call.ABORT): S.ABORTING,
}
"""What a call leads to. What is absent is refused: in the error states with the error, else with `ADVICE`. An abort
also ends a commit that nobody was asked for yet."""

ADVICE: dict[ProducerTransactionState, str] = {
    S.UNINITIALIZED: "the producer has not taken over its transactional id: call init_transactions first"
    " (`with producer.transaction()` does)",
    S.INITIALIZING: "init_transactions is not done: call it again, and wait for it",
    S.READY: "no transaction is open: call begin_transaction first, or write `with producer.transaction()`",
    S.IN_TRANSACTION: "a transaction is open: commit or abort it first",
    S.PREPARED: "the transaction is prepared: commit_transaction and abort_transaction are all that may follow",
    S.COMMITTING: "the commit is not done: call commit_transaction again, and wait for it",
    S.ABORTING: "the abort is not done: call abort_transaction again, and wait for it",
}
COMMIT_IN_DOUBT = (
    "the coordinator was asked to commit, and may have done it: call commit_transaction again, and wait for its answer"
)

FENCED = frozenset({Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH})
"""How a coordinator, or a leader, tells a producer that its epoch is over."""

FATAL = frozenset(
    {
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.CLUSTER_AUTHORIZATION_FAILED,
        Code.INVALID_PRODUCER_ID_MAPPING,
        Code.TRANSACTION_COORDINATOR_FENCED,
        Code.UNSUPPORTED_VERSION,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
"""Codes after which a transactional producer can do nothing more, whatever it was that asked."""

ABORTABLE_ENDS = frozenset({Code.TRANSACTION_ABORTABLE, Code.UNKNOWN_PRODUCER_ID})
"""Codes of EndTxn that refuse a commit for certain, and let an abort follow."""

CERTAINLY_UNDONE = frozenset(
    {
        Code.CONCURRENT_TRANSACTIONS,
        Code.NOT_COORDINATOR,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Codes that pass, of requests that changed nothing. Behind the others the request may be done, even later."""

_REMEDIES: dict[Code, str] = {
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "have the principal allowed to write to the transactional id",
    Code.INVALID_PRODUCER_ID_MAPPING: "the id was unused for transactional.id.expiration.ms, or is another producer's:"
    " close this producer and make a new one",
    Code.INVALID_TXN_STATE: "the transaction is not open any more",
    Code.INVALID_TRANSACTION_TIMEOUT: "lower transaction_timeout_ms, or raise the brokers' transaction.max.timeout.ms",
}


class ProducerIdAndEpoch(NamedTuple):
    """What a transactional producer writes as."""

    producer_id: int
    producer_epoch: int


class PreparedTransaction(NamedTuple):
    """A transaction that is written and not ended: what `resume_transaction` of another producer takes."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class InitDue:
    """InitProducerId is due; `producer` is the present one, if the next epoch of it is wanted (KIP-360)."""

    producer: ProducerIdAndEpoch | None


@dataclass(frozen=True, slots=True)
class AddPartitionsDue:
    """AddPartitionsToTxn is due."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsetsDue:
    """AddOffsetsToTxn is due."""

    group_id: str


@dataclass(frozen=True, slots=True)
class CommitOffsetsDue:
    """TxnOffsetCommit is due, at the group's coordinator."""

    ticket: int
    group: GroupMetadata
    offsets: Mapping[TopicPartition, Position]


@dataclass(frozen=True, slots=True)
class EndDue:
    """EndTxn is due."""

    commits: bool


Due = InitDue | AddPartitionsDue | AddOffsetsDue | CommitOffsetsDue | EndDue


class ProducerTransactions:
    """See the module.

    Args:
        transactional_id: of the producer.

    Attributes:
        state: where it stands.
        producer: id and epoch; None before the first `init` is answered.
        version: of the protocol that the open transaction speaks, 1 or 2.
        error: why it is in an error state.
        number: of the transaction, counted from 1.
        partitions: that take part in it.
        is_end_requested: its EndTxn was handed out: nothing but its answer tells how it ends.
        is_handed_over: somebody else was told how to end it.
    """

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.state = S.UNINITIALIZED
        self.producer: ProducerIdAndEpoch | None = None
        self.version = 1
        self.error: TidelogError | None = None
        self.number = 0
        self.partitions: set[TopicPartition] = set()
        self.is_end_requested = False
        self.is_handed_over = False
        self._feature_level = 0
        self._is_resumed = False
        self._wanted: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._offsets: deque[CommitOffsetsDue] = deque()
        self._next_ticket = self._last_ticket_sent = 0
        self._requested: Due | None = None
        self._may_be_open = False  # for the coordinator
        self._is_open = False  # for certain
        self._is_drained = False
        self._is_ended = False
        self._is_in_doubt = False  # an EndTxn may have been carried out though it was not answered
        self._has_lost_count = False  # leaders may expect other sequences
        self._may_come_late = False  # a request of the transaction, though another like it was answered
        self._unclaimed: bool | None = None  # the end (commits?) whose caller has not seen it

    @classmethod
    def resumed(cls, prepared: PreparedTransaction) -> ProducerTransactions:
        """One whose transaction another producer has prepared: it is to be committed or aborted, and nothing else."""
        made = cls(prepared.transactional_id)
        made.producer = ProducerIdAndEpoch(prepared.producer_id, prepared.producer_epoch)
        made.state = S.PREPARED
        made.number = 1
        made._is_resumed = made._may_be_open = made._is_open = made._is_drained = True
        return made

    # What the user asks.
    def check(self, call: Call) -> ProducerTransactionState:
        """The state that a call leads to.

        Raises:
            KafkaError: it may not be made now: says what to do instead. TRANSACTION_ABORTABLE, PRODUCER_FENCED and
                others that ended the producer are raised as they are.
        """
        state = TRANSITIONS.get((self.state, call))
        if state is not None:
            return state
        if self.state is S.FATAL_ERROR:
            assert self.error is not None
            raise self.error.with_traceback(None)
        if self.state is S.ABORTABLE_ERROR:
            raise TransactionAbortableError(
                f"transactional id {self.transactional_id!r}: the transaction cannot be committed: {self.error}."
                " Abort it, and do its work again"
            ) from self.error
        advice = ADVICE[self.state]
        if self.state is S.COMMITTING and call is Call.ABORT:
            if not self.is_end_requested:
                return S.ABORTING
            advice = COMMIT_IN_DOUBT
        raise refusal(Code.INVALID_TXN_STATE, f"transactional id {self.transactional_id!r}: {call.value}: {advice}")

    def init(self) -> None:
        """Take over the transactional id: what an earlier producer left open is aborted, and it is fenced."""
        self.state = self.check(Call.INIT)

    def begin(self) -> None:
        """Open a transaction. Nobody is asked."""
        self.state = self.check(Call.BEGIN)
        self.version = self._spoken_version()
        self.number += 1
        self._unclaimed = None
        self.error = None

    def add_offsets(self, group: GroupMetadata, offsets: Mapping[TopicPartition, Position]) -> int:
        """Have offsets committed with the transaction; returns a ticket for `is_pending`."""
        self.state = self.check(Call.SEND_OFFSETS)
        self._next_ticket += 1
        self._offsets.append(CommitOffsetsDue(self._next_ticket, group, dict(offsets)))
        return self._next_ticket

    def is_sent(self, ticket: int) -> bool:
        """Whether the group's coordinator has these offsets. Raises why it never will."""
        if ticket <= self._last_ticket_sent:
            return True
        if not any(due.ticket == ticket for due in self._offsets):
            self.check(Call.SEND_OFFSETS)
            raise TransactionAbortedError(
                f"transactional id {self.transactional_id!r}: the transaction was aborted before it had the offsets"
            )
        return False

    def prepare(self) -> None:
        """Nothing more comes in; the transaction stays open, for whoever is told of it."""
        self.state = self.check(Call.PREPARE)

    def is_prepared(self) -> bool:
        """Whether all that belongs to the prepared transaction is written. Raises why it never will be."""
        self.check(Call.PREPARE)
        return self._is_drained and not self._offsets

    def hand_over(self) -> PreparedTransaction | None:
        """What another producer ends the transaction with; None if nothing was written: then it is over."""
        if not self._may_be_open:
            self._complete()
            return None
        self.is_handed_over = True
        assert self.producer is not None
        return PreparedTransaction(self.transactional_id, *self.producer)

    def commit(self) -> bool:
        """Commit, once all is delivered. Returns whether a commit that was asked for before is done meanwhile."""
        if self.state is S.READY and self._unclaimed is True:
            return True
        self.state = self.check(Call.COMMIT)
        self._unclaimed = True
        return False

    def abort(self) -> bool:
        """Abort. Returns whether an abort that was asked for before is done meanwhile."""
        if self.state is S.READY and self._unclaimed is not None:
            if self._unclaimed:
                raise refusal(
                    Code.INVALID_TXN_STATE,
                    f"transactional id {self.transactional_id!r}: abort_transaction: the transaction is committed",
                )
            return True
        self.state = self.check(Call.ABORT)
        self._unclaimed = False
        self._give_up_pending()
        return False

    def is_over(self, number: int) -> bool:
        """Whether the transaction of that number has ended, and its caller knows."""
        return self.number != number or (self.state is S.READY and self._unclaimed is None)

    def claim(self) -> None:
        """The caller of `commit` or `abort` has seen the end."""
        self._unclaimed = None

    @property
    def is_committed(self) -> bool:
        """Whether the commit that is under way is done, but for the producer's next epoch."""
        return self.state is S.COMMITTING and self._is_ended

    # What the sender asks and says.
    @property
    def takes_batches(self) -> bool:
        """Whether batches are to be sent."""
        return self.state in (S.IN_TRANSACTION, S.PREPARED, S.COMMITTING)

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether a batch for the partition may be sent now; if not, the coordinator is asked to add it."""
        if partition in self.partitions:
            return True
        if self.version >= IMPLICIT_VERSION:
            self.partitions.add(partition)
            self._may_be_open = True
            return True
        self._wanted.add(partition)
        return False

    def on_send_failed(self, error: TidelogError, *, is_counted: bool) -> None:
        """A record, or offsets, of the open transaction will not be written.

        Args:
            is_counted: a batch with a sequence failed, so the leaders may count otherwise from now on.
        """
        self._has_lost_count = self._has_lost_count or is_counted
        if self.state in (S.IN_TRANSACTION, S.PREPARED, S.COMMITTING):
            self.state = S.ABORTABLE_ERROR
            self.error = error
            self._give_up_pending()

    def on_drained(self) -> None:
        """No batch of the transaction is left without an outcome."""
        self._is_drained = True
        self._settle()

    # What the coordinators are asked.
    def on_feature_level(self, level: int) -> None:
        """The level of `transaction.version` that a broker says the cluster has finalized; 0 if it has none."""
        self._feature_level = level
        if self._is_resumed:
            self.version = self._spoken_version()

    @property
    def has_due(self) -> bool:
        """Whether `take_request` has something to ask now."""
        return self._requested is None and self._due() is not None

    def take_request(self) -> Due | None:
        """What is to be asked now. One of `on_done`, `on_refused` and `on_lost` must follow before the next."""
        self._requested = due = self._due()
        if isinstance(due, EndDue):
            self.is_end_requested = True
        elif isinstance(due, AddOffsetsDue | CommitOffsetsDue) and self.version >= IMPLICIT_VERSION:
            self._may_be_open = True
        return due

    def _due(self) -> Due | None:
        if self.state is S.INITIALIZING:
            return InitDue(None)
        if self.takes_batches:
            if self._wanted:
                return AddPartitionsDue(tuple(sorted(self._wanted)))
            if self._offsets:
                offsets = self._offsets[0]
                if self.version < IMPLICIT_VERSION and offsets.group.group_id not in self._groups:
                    return AddOffsetsDue(offsets.group.group_id)
                return offsets
        if self.state in (S.COMMITTING, S.ABORTING) and self._is_drained:
            return InitDue(self.producer) if self._is_ended else EndDue(self.state is S.COMMITTING)
        return None

    def on_done(self, due: Due, producer: ProducerIdAndEpoch | None = None) -> None:
        """The coordinator did it; `producer` is what it told, of InitProducerId and of EndTxn 5."""
        self._requested = None
        if self.state is S.FATAL_ERROR:
            return
        if isinstance(due, InitDue):
            self.producer = producer
            if self.state is S.INITIALIZING:
                self.state = S.READY
            else:
                self._complete()
        elif isinstance(due, AddPartitionsDue):
            self.partitions.update(due.partitions)
            self._wanted.difference_update(due.partitions)
            self._may_be_open = self._is_open = True
        elif isinstance(due, AddOffsetsDue):
            self._groups.add(due.group_id)
            self._may_be_open = self._is_open = True
        elif isinstance(due, CommitOffsetsDue):
            if self._offsets and self._offsets[0] is due:
                self._offsets.popleft()
                self._last_ticket_sent = due.ticket
        else:
            self._on_ended(producer)
        self._settle()

    def on_refused(self, due: Due, code: Code, message: str | None = None) -> bool:
        """The coordinator, or nobody's coordinator, refused it. Returns whether the same is to be asked again."""
        self._requested = None
        if self.state is S.FATAL_ERROR:
            return False
        if code in FENCED:
            self.on_fenced()
            return False
        if code.retriable:
            if code not in CERTAINLY_UNDONE:
                self._on_doubt(due)
            self._settle()
            return True
        what = message or f"{code.meaning.rstrip('.')} ({code.name})"
        if code in _REMEDIES:
            what = f"{what}: {_REMEDIES[code]}"
        error = refusal(code, f"transactional id {self.transactional_id!r}: {_name_of(due)}: {what}")
        if due == EndDue(True) and (self._is_in_doubt or code is Code.UNKNOWN_SERVER_ERROR):
            error.add_note("Whether the transaction is committed is not known.")
        if self.is_committed:
            error.add_note("The transaction is committed.")
        if code in FATAL or isinstance(due, InitDue):
            self.fail(error)
        elif not isinstance(due, EndDue):
            self.on_send_failed(error, is_counted=False)
            self._settle()
        elif due.commits and code in ABORTABLE_ENDS:
            self.is_end_requested = False
            self.on_send_failed(error, is_counted=False)
        elif due == EndDue(False) and code is Code.INVALID_TXN_STATE and self._may_be_unknown():
            self._on_ended(None)
        elif due.commits and code is Code.INVALID_TXN_STATE:
            self.on_fenced()  # it is not open any more: its time was over, or somebody else ended it
        else:
            self.fail(error)
        return False

    def on_lost(self, due: Due) -> None:
        """No answer comes: it may be done, even later. It is asked again."""
        self._requested = None
        self._on_doubt(due)
        self._settle()

    def on_unsupported(self, due: Due, error: TidelogError) -> None:
        """The broker is too old to be asked that. One that knows no KIP-360 has no remedy for late requests."""
        self._requested = None
        if isinstance(due, InitDue) and self._is_ended and not self._has_lost_count:
            self._complete()
        else:
            self.fail(error)

    def on_fenced(self) -> None:
        """A coordinator or a leader says that the epoch is over."""
        producer_id, producer_epoch = self.producer or (-1, -1)
        if self.is_committed:
            what = "its last transaction is committed"
        elif self.state is S.COMMITTING and self._is_in_doubt:
            what = "whether its last transaction was committed is not known"
        elif self._is_resumed:
            what = "unless somebody has ended it before, the transaction is aborted"
        else:
            what = "what it had not committed is not committed"
        self.fail(
            ProducerFencedError(
                self.transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, what_of_it=what
            )
        )

    def fail(self, error: TidelogError) -> None:
        """The producer can do nothing more."""
        if self.state is not S.FATAL_ERROR:
            self.state = S.FATAL_ERROR
            self.error = error
            self._give_up_pending()

    # How.
    def _spoken_version(self) -> int:
        return IMPLICIT_VERSION if self._feature_level >= IMPLICIT_VERSION else 1

    def _may_be_unknown(self) -> bool:
        """Whether what may have begun the transaction may never have arrived. From version 2 on that is no refusal."""
        return self.version < IMPLICIT_VERSION and not self._is_open

    def _give_up_pending(self) -> None:
        self._wanted.clear()
        self._offsets.clear()

    def _on_doubt(self, due: Due) -> None:
        if isinstance(due, EndDue):
            self._is_in_doubt = True
        elif isinstance(due, AddPartitionsDue | AddOffsetsDue):
            self._may_be_open = True
        self._may_come_late = True

    def _on_ended(self, producer: ProducerIdAndEpoch | None) -> None:
        """EndTxn is done.

        Below version 2 the next transaction has the same epoch, so a request of this one that comes late could add to
        it, or end it in the middle: where one may, the next epoch is asked for, which fences it. Kafka's producers do
        so after failures alone.
        """
        needs_epoch = self.version >= IMPLICIT_VERSION or self._has_lost_count or self._may_come_late
        if producer is not None:
            self.producer = producer
        elif needs_epoch and not self._is_resumed:
            self._is_ended = True
            return
        self._complete()

    def _settle(self) -> None:
        """A transaction of which the coordinator knows nothing ends without it."""
        is_ending = self.state in (S.COMMITTING, S.ABORTING) and self._is_drained and self._requested is None
        if is_ending and not self._may_be_open and not self._offsets:
            self._complete()

    def _complete(self) -> None:
        self.state = S.READY
        self.error = None
        self.partitions.clear()
        self._groups.clear()
        self._give_up_pending()
        self.is_end_requested = self.is_handed_over = False
        self._may_be_open = self._is_open = self._is_drained = self._is_ended = False
        self._is_in_doubt = self._has_lost_count = self._may_come_late = False


_NAMES: dict[type, str] = {
    InitDue: "InitProducerId",
    AddPartitionsDue: "AddPartitionsToTxn",
    AddOffsetsDue: "AddOffsetsToTxn",
    CommitOffsetsDue: "TxnOffsetCommit",
    EndDue: "EndTxn",
}


def _name_of(due: Due) -> str:
    return _NAMES[type(due)]
