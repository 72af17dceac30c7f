"""ListTransactions (key 66): the transactional ids that a broker coordinates.

Version 1 filters by how long a transaction has been open (KIP-994), 2 by a pattern of the id (KIP-1152).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Ask for some, or all."""

    state_filters: list[str] = field(array(string), default_factory=list, doc="Only these states; none: all.")
    producer_id_filters: list[int] = field(array(int64), default_factory=list, doc="Only these; none: all.")
    duration_filter: int = field(int64, versions="1+", default=-1, doc="Open for longer, in ms; -1: all.")
    transactional_id_pattern: str | None = field(
        string, versions="2+", nullable="2+", default=None, doc="A regular expression of the whole id; None: all."
    )


@struct(kw_only=True)
class TransactionState:
    """One id."""

    transactional_id: str = field(string, doc="The id.")
    producer_id: int = field(int64, doc="Its producer.")
    transaction_state: str = field(string, doc="The name of its state.")


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """Those that pass."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 unless some cannot be told of.")
    unknown_state_filters: list[str] = field(array(string), default_factory=list, doc="States that there are not.")
    transaction_states: list[TransactionState] = field(array(TransactionState), default_factory=list, doc="The rows.")
