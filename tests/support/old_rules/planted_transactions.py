"""Bugs for the transaction coordinator, each in one function of production's: the small worlds have to find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from support.exhaustive.small_transactions import TransactionBounds
from tidelog.base.ids import LeaderEpoch, Offset, ProducerEpoch, TopicPartition
from tidelog.coordinator.transactions import (
    EndTransaction,
    ProducerIdentity,
    Transaction,
    TransactionCoordinator,
    TransactionState,
    checks,
)
from tidelog.coordinator.transactions.markers import Markers
from tidelog.coordinator.transactions.transaction import EPOCH_MAX
from tidelog.journal import CoordinatorJournal, KeyValue, Reply, RequestId, Send, Ticket

ALONE = TransactionBounds(leaders=1, late_markers=0, transactions=(1, 0))
FAILOVER = TransactionBounds(late_markers=0, transactions=(1, 0))
TWO = TransactionBounds(leaders=1, late_markers=0)


class Planted(NamedTuple):
    """What is put in the place of what, and the invariant that has to be broken in which world."""

    owner: object
    name: str
    bug: Callable[..., Any]
    bounds: TransactionBounds
    invariant: str


def _of_any_epoch(self: TransactionCoordinator, transactional_id: str, producer: ProducerIdentity) -> Transaction:
    return self._known(transactional_id)


def _answer_at_once(
    self: CoordinatorJournal[Any], records: tuple[KeyValue, ...], request_id: RequestId, outcome: object
) -> None:
    self.write(records)
    self.answer_at_once(request_id, outcome)  # type: ignore[arg-type]


def _send_at_once(self: CoordinatorJournal[Any], send: Send) -> None:
    self._journal._last_ticket += 1
    ticket = Ticket(self._journal._last_ticket)
    self._owed[ticket] = send
    self._journal._released.append(Reply(ticket, None, Offset(0)))


def _load_and_wait(
    self: TransactionCoordinator, leader_epoch: LeaderEpoch, next_offset: Offset, *, now_ms: int, wall_ms: int
) -> None:
    self._journal.become_active(leader_epoch, next_offset)
    self._coordinator_epoch = leader_epoch
    for transaction in self.transactions.values():
        if transaction.state is TransactionState.ONGOING:
            self._time(transaction, now_ms, wall_ms)


def _bump_nothing(self: Transaction, bumps_epoch: bool) -> ProducerEpoch | None:
    return self.producer_epoch


def _complete_with_the_first_marker(self: Markers, transactional_id: str, partition: TopicPartition) -> bool:
    return bool(self._unmarked.pop(transactional_id, None))


def _forget_earlier_partitions(
    self: Transaction, partitions: frozenset[Any], *, client_version: int, wall_ms: int
) -> Transaction:
    added = _with_partitions(self, partitions, client_version=client_version, wall_ms=wall_ms)
    return replace(added, partitions=partitions)


def _commit_what_was_to_be_aborted(self: Transaction, **arguments: Any) -> Transaction:
    return _prepared(self, **{**arguments, "commits": True})


def _end_again(
    self: TransactionCoordinator,
    request_id: RequestId,
    request: EndTransaction,
    transaction: Transaction,
    wall_ms: int,
    *,
    is_repeated: bool,
) -> None:
    """A repeated abort of what was committed, say, is answered as if it were done."""
    self._journal.answer(request_id, request.producer)


def _let_the_open_one_be(self: TransactionCoordinator, transaction: Transaction, wall_ms: int) -> None:
    """A newer instance begins without an abort."""
    self._write(replace(transaction, state=TransactionState.EMPTY, partitions=frozenset()))


_with_partitions = Transaction.with_partitions
_prepared = Transaction.prepared

PLANTED: dict[str, Planted] = {
    "no epoch is checked": Planted(TransactionCoordinator, "_of", _of_any_epoch, TWO, "AllOrNothing"),
    "answers leave before they are committed": Planted(
        CoordinatorJournal, "write_and_answer", _answer_at_once, FAILOVER, "NobodyIsRefusedForNothing"
    ),
    "markers leave before Prepare is committed": Planted(
        CoordinatorJournal, "send", _send_at_once, FAILOVER, "AnsweredCommitsAreCommitted"
    ),
    "nothing is sent again after a failover": Planted(
        TransactionCoordinator, "become_active", _load_and_wait, FAILOVER, "EveryEndCompletes"
    ),
    "no epoch is bumped with Prepare": Planted(Transaction, "_bumped", _bump_nothing, ALONE, "NothingStaysOpen"),
    "the first marker completes": Planted(
        Markers, "on_written", _complete_with_the_first_marker, ALONE, "FencedNeverCommits"
    ),
    "a further partition replaces the first": Planted(
        Transaction, "with_partitions", _forget_earlier_partitions, ALONE, "NothingStaysOpen"
    ),
    "a time-out commits": Planted(
        Transaction, "prepared", _commit_what_was_to_be_aborted, TWO, "AnsweredAbortsAreAborted"
    ),
    "whatever is repeated is answered": Planted(
        TransactionCoordinator, "_end_nothing", _end_again, ALONE, "AnsweredCommitsAreCommitted"
    ),
    "a newer instance aborts nothing": Planted(
        TransactionCoordinator, "_fence", _let_the_open_one_be, TWO, "NothingStaysOpen"
    ),
    "nobody goes on under the next producer id": Planted(
        checks,
        "_is_next",
        lambda *_: False,
        TransactionBounds(leaders=1, late_markers=0, transactions=(2, 0), epoch=EPOCH_MAX - 1),
        "NobodyIsRefusedForNothing",
    ),
}
