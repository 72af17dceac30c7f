"""What a journal decided: the records that make it true, and the reply that tells of it."""

from __future__ import annotations

from collections.abc import Callable
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
