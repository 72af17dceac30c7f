"""The runtime of a replayed state: speculate at append, apply at commit, reply when nothing can take it back.

```
            committed_end_offset            next_offset
 log:  ──────────────┤ ░░░░░░░ pending ░░░░░░░├──▶
                     │                        │
 committed state ────┘                        │      images and tokens come from here
 speculative state ───────────────────────────┘      decisions are made here
```

Active: `submit` takes in what was decided over the speculative state, applies the records to it at once and reserves
their offsets; `take_ready` hands out what to append, and, as `on_committed` moves, what was applied and which replies
may leave.
A reply waits for everything that was pending when it was made, since any of it may have been its reason; so a
refusal ("the topic exists") never leaves before the topic is there to stay.

Standing by: `replay` applies what is committed already. `resign` throws speculation away: the committed state is
the only one left, and every reply that still waited becomes an error.

With transactions (`log_transaction.py`) the committed state stands still from a begin to its end, and with it images,
tokens and replies: a reply waits for the end of whatever it came after.

A journal that does not keep the committed state apart (`keeps_committed=False`) has one state only: half the memory,
for those whose replies all wait anyway, and who load anew whenever they lead again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, NewType, Protocol, Self, TypeVar

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.invariant import invariant
from tidelog.journal.decision import Decision
from tidelog.journal.log_transaction import Boundary, LogTransactions, OpenTransaction
from tidelog.journal.transaction_part import TransactionPart

Ticket = NewType("Ticket", int)
"""Names a reply that is to come. Grows; never reused by one journal."""

START = Offset(0)


class ReplayedState(Protocol):
    """What the runtime asks of a state: it is a function of the records applied so far, and of nothing else."""

    def apply(self, record: object) -> None:
        """Take a record in. Never refuses: whatever is in the log was decided by someone who could."""
        ...

    def clone(self) -> Self:
        """A copy that can be applied to without changing this one. Called once per leadership: may share parts."""
        ...


S = TypeVar("S", bound=ReplayedState)
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Batch(Generic[R_co]):
    """Records to append as one batch, so that a crash keeps all or none of them.

    Attributes:
        transaction: under whose producer id and epoch; None for the usual batch, of no producer.
    """

    base_offset: Offset
    leader_epoch: LeaderEpoch
    records: tuple[R_co, ...]
    transaction: TransactionPart | None = None

    @property
    def end_offset(self) -> Offset:
        """Exclusive."""
        return Offset(self.base_offset + len(self.records))


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply that may leave now.

    Attributes:
        ticket: which decision it answers.
        outcome: the decision's reply, or the `KafkaError` that refused it.
        end_offset: exclusive end of what the reply reflects; one less is its consistency token (KIP-1243).
    """

    ticket: Ticket
    outcome: object
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class Ready:
    """What the driver owes the world, in field order: append, publish, reply.

    Attributes:
        batches: to be appended in this order, each as one batch at its base offset, then synced; afterwards (and
            with a quorum of several voters: once a majority has them) the driver calls `on_committed`.
        committed: records that the committed state took in since the last `take_ready`, for subscribers.
        replies: in the order in which they were submitted.
    """

    batches: tuple[Batch[object], ...]
    committed: tuple[object, ...]
    replies: tuple[Reply, ...]

    def __bool__(self) -> bool:
        return bool(self.batches or self.committed or self.replies)


class Journal(Generic[S]):
    """Runs one replayed state. Pure: the driver owns the log, the clock and the futures behind the tickets.

    What waits here is bounded by the driver, which has at most one request open per connection.
    """

    def __init__(
        self,
        state: S,
        *,
        end_offset: Offset = START,
        not_active: Code,
        keeps_committed: bool = True,
        transactions: LogTransactions[S] | None = None,
    ) -> None:
        """A journal that stands by.

        Args:
            state: empty, or as a snapshot left it.
            end_offset: exclusive end of what `state` reflects already.
            not_active: what is answered while another node is the active one: NOT_CONTROLLER, NOT_COORDINATOR.
            keeps_committed: False makes do with `state` alone: it becomes the speculative one, never cloned;
                `Ready.committed` stays empty; and once resigned, this journal is spent.
            transactions: how its log holds some; None if it holds none.
        """
        invariant(transactions is None or keeps_committed, "transactions, and no committed state that stands still")
        self.committed: S = state
        self.committed_end_offset = end_offset
        """Exclusive: how far the committed state is. What follows is not committed, or in an open transaction."""
        self._durable_end_offset = end_offset
        self._transactions = transactions
        self._open: OpenTransaction[S] | None = None
        self.next_offset = end_offset
        self._not_active = not_active
        self._keeps_committed = keeps_committed
        self._is_spent = False
        self._leadership: tuple[LeaderEpoch, S] | None = None
        self._pending: deque[Batch[object]] = deque()
        self._unappended: list[Batch[object]] = []
        self._waiting: deque[Reply] = deque()
        self._applied: list[object] = []
        self._released: list[Reply] = []
        self._last_ticket = 0

    @property
    def is_active(self) -> bool:
        return self._leadership is not None

    @property
    def leader_epoch(self) -> LeaderEpoch | None:
        """The epoch in which this journal is the active one; None while it stands by."""
        return self._leadership[0] if self._leadership else None

    @property
    def is_in_transaction(self) -> bool:
        """Whether what is committed ends in a transaction without an end."""
        return self._open is not None

    @property
    def speculative(self) -> S:
        """The state that decisions see. Only the active one has it.

        Raises:
            KafkaError: NOT_CONTROLLER or its like, from a journal that stands by.
        """
        return self._lead()[1]

    # What happened.

    def replay(self, record: object, offset: Offset) -> None:
        """A committed record was read from the log: recovery, and standing by, are this one path."""
        if self.is_active or self._is_spent or offset < self.next_offset:  # asked a million times, so asked once
            invariant(not self.is_active, "replay at offset {} while active", offset)
            invariant(not self._is_spent, "replay at offset {} into a state that holds speculation", offset)
            invariant(False, "replay of offset {} after {}", offset, self.next_offset)
        if self._keeps_committed:
            self._commit(record, offset)
        else:
            self.committed.apply(record)
        self.next_offset = self._durable_end_offset = Offset(offset + 1)
        self._advance_committed()

    def load(self, records: Iterable[object], end_offset: Offset) -> None:
        """A snapshot of everything below `end_offset` came: `records` lead there from the committed state.

        There is none of an open transaction, so one that was open is not any more.
        """
        invariant(not self.is_active, "a snapshot while active")
        invariant(end_offset >= self.next_offset, "a snapshot up to {}, after {}", end_offset, self.next_offset)
        for record in records:
            self.committed.apply(record)
            if self._keeps_committed:
                self._applied.append(record)
        self._open = None
        self.next_offset = self.committed_end_offset = self._durable_end_offset = end_offset

    def become_active(self, leader_epoch: LeaderEpoch, next_offset: Offset) -> None:
        """This node leads the log in `leader_epoch`, has replayed all of it, and will append at `next_offset`.

        The control batch that opens the epoch lies below `next_offset`; so it, and all before it, is committed. If it
        ends in an open transaction, an abort is to be submitted before anything else.
        """
        invariant(not self.is_active, "active already, in leader epoch {}", self.leader_epoch)
        invariant(not self._is_spent, "the state holds speculation of an earlier leadership: load a new one")
        invariant(next_offset >= self.next_offset, "next offset {} below {}", next_offset, self.next_offset)
        self.next_offset = self._durable_end_offset = next_offset
        self._advance_committed()
        self._leadership = (leader_epoch, self.committed.clone() if self._keeps_committed else self.committed)

    def submit(self, decision: Decision[object]) -> Ticket:
        """Take in a decision that was made over `speculative` just now, with nothing in between: the one way in.

        The records are applied at once. The reply, a refusal included, is held back with all that it may depend on.

        Raises:
            KafkaError: NOT_CONTROLLER or its like when this journal stands by; nothing was taken in.
        """
        leader_epoch, state = self._lead()
        if decision.records:
            transaction = decision.transaction
            batch: Batch[object] = Batch(self.next_offset, leader_epoch, decision.records, transaction)
            if transaction is None:
                for record in decision.records:
                    state.apply(record)
            else:
                invariant(not self._keeps_committed, "a transaction in a journal that keeps what is committed apart")
                for record in transaction.applied(decision.records):
                    state.apply(record)
            self._pending.append(batch)
            self._unappended.append(batch)
            self.next_offset = batch.end_offset
        self._last_ticket += 1
        ticket = Ticket(self._last_ticket)
        self._waiting.append(Reply(ticket, decision.reply, self.next_offset))
        self._release()
        return ticket

    def skip_to(self, end_offset: Offset) -> None:
        """The driver appended something of its own behind all that it was given: decisions go on at `end_offset`."""
        invariant(not self._unappended, "{} batches were not appended yet", len(self._unappended))
        invariant(end_offset >= self.next_offset, "skipped back to {} from {}", end_offset, self.next_offset)
        self.next_offset = end_offset

    def on_committed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` (exclusive) is durable for good, control batches included.

        A batch counts when all of it is below, and in a transaction when that has ended: no image ever shows half a
        decision.
        """
        if end_offset <= self._durable_end_offset:
            return
        while self._pending and self._pending[0].end_offset <= end_offset:
            batch = self._pending.popleft()
            if self._keeps_committed:
                for offset, record in enumerate(batch.records, batch.base_offset):
                    self._commit(record, Offset(offset))
        if self._pending:
            end_offset = min(end_offset, self._pending[0].base_offset)
        self._durable_end_offset = max(self._durable_end_offset, end_offset)
        self._advance_committed()
        self.next_offset = max(self.next_offset, self._durable_end_offset)
        self._release()

    def resign(self, error: KafkaError | None = None) -> None:
        """Leadership is lost: speculation is thrown away, and who still waited is told.

        The outcome of what was pending is unknown, not failed: another leader may yet commit it.

        Args:
            error: the reply to all that waited, unless it is what `not_active` says.
        """
        if not self.is_active:
            return
        outcome = error or refusal(self._not_active)
        self._released.extend(Reply(w.ticket, outcome, self.committed_end_offset) for w in self._waiting)
        self._waiting.clear()
        self._pending.clear()
        self._unappended.clear()
        self._leadership = None
        self._is_spent = not self._keeps_committed
        self.next_offset = self._durable_end_offset

    # What to do about it.

    def take_ready(self) -> Ready:
        """All that is owed since the last call. Batches come out once: the driver appends them or resigns."""
        ready = Ready(tuple(self._unappended), tuple(self._applied), tuple(self._released))
        self._unappended.clear()
        self._applied.clear()
        self._released.clear()
        return ready

    def _commit(self, record: object, offset: Offset) -> None:
        """A record is durable for good: it counts, unless it is in a transaction without an end."""
        transactions, opened = self._transactions, self._open
        boundary = None if transactions is None else transactions.boundary_of(record)
        if transactions is None or (boundary is None and opened is None):
            self.committed.apply(record)
            self._applied.append(record)
        elif opened is None:
            invariant(boundary is Boundary.BEGIN, "offset {}: {} without a transaction", offset, boundary)
            self._open = OpenTransaction(offset, transactions.fork(self.committed))
        elif boundary is None:
            opened.state.apply(record)
            opened.records.append(record)
        else:
            invariant(boundary is not Boundary.BEGIN, "offset {}: a transaction within another", offset)
            self._open = None
            if boundary is Boundary.END:
                transactions.adopt(opened.state, self.committed)
                self.committed = opened.state
                self._applied.extend(opened.records)

    def _advance_committed(self) -> None:
        end_offset = self._durable_end_offset if self._open is None else self._open.begin_offset
        self.committed_end_offset = max(self.committed_end_offset, end_offset)

    def _release(self) -> None:
        while self._waiting and self._waiting[0].end_offset <= self.committed_end_offset:
            self._released.append(self._waiting.popleft())

    def _lead(self) -> tuple[LeaderEpoch, S]:
        if self._leadership is None:
            raise refusal(self._not_active)
        return self._leadership
