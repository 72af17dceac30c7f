"""How the metadata log holds a decision that is too large for one batch, and counts as a whole (KIP-868).

Kafka: `OffsetControlManager`.
"""

from __future__ import annotations

from tidelog.controller.state import ControllerState
from tidelog.journal import Boundary, LogTransactions
from tidelog.metadata.records import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord

_BOUNDARIES: dict[type, Boundary] = {
    BeginTransactionRecord: Boundary.BEGIN,
    EndTransactionRecord: Boundary.END,
    AbortTransactionRecord: Boundary.ABORT,
}


def boundary_of(record: object) -> Boundary | None:
    """What a record of the metadata log says of a transaction."""
    return _BOUNDARIES.get(type(record))


LOG_TRANSACTIONS: LogTransactions[ControllerState] = LogTransactions(
    boundary_of, ControllerState.fork, ControllerState.adopt
)
