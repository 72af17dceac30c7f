"""What a journal decided: the records that make it true, and the reply that tells of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidelog.base.errors import KafkaError
from tidelog.journal.transaction_part import TransactionPart

S = TypeVar("S")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Decision(Generic[R_co]):
    """The outcome of a `decide_*`: nothing has changed yet.

    Attributes:
        records: what to append, as one batch, all or nothing. Empty for a read, a no-op or a refusal.
        reply: what to answer once the records, and all that the decision was based on, are committed.
        transaction: whose the records are part of, or end; None for those that stand for themselves.
    """

    records: tuple[object, ...]
    reply: R_co
    transaction: TransactionPart | None = None

    @staticmethod
    def over(state: S, decide: Callable[[S], Decision[object]]) -> Decision[object]:
        """Decide over a state, which `decide` must not change. A refusal is a decision as well, without records."""
        try:
            return decide(state)
        except KafkaError as error:
            return Decision((), error)


@dataclass(frozen=True, slots=True)
class LongDecision(Generic[R_co]):
    """A decision that is worked out, and appended, in portions. All of them count or none.

    Attributes:
        portions: of its records; each is asked for when those before it are applied, or none of them is. Nothing else
            is decided in between. Some may be empty.
        reply: what to answer once all of it is committed.
        is_divisible: whether it may be several batches: a transaction of the log (`log_transaction.py`).
    """

    portions: Iterator[tuple[object, ...]]
    reply: R_co
    is_divisible: bool = True

    def at_once(self) -> Decision[R_co]:
        """The same as one batch."""
        return Decision(tuple(record for portion in self.portions for record in portion), self.reply)
