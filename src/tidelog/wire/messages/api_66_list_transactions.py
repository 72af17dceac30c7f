"""ListTransactions (key 66): the transactional ids that a broker coordinates (KIP-664).

Version 1 can leave out those that are not open for long (KIP-994), 2 those whose id does not match a pattern
(KIP-1152).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsRequest:
    """Ask for those that pass every filter."""

    state_filters: list[str] = field(array(string), default_factory=list, doc="In one of these states; none for all.")
    producer_id_filters: list[int] = field(
        array(int64), default_factory=list, doc="Of one of these producers; none for all."
    )
    duration_filter: int = field(
        int64, versions="1+", default=-1, doc="Open for longer than so many ms; negative for all."
    )
    transactional_id_pattern: str | None = field(
        string, versions="2+", nullable="2+", default=None, doc="An RE2 pattern of the id; None or empty for all."
    )


@struct
class ListedTransaction:
    """One transactional id."""

    transactional_id: str = field(string, doc="The id.")
    producer_id: int = field(int64, doc="The producer's id.")
    transaction_state: str = field(string, doc='As Kafka spells it, "Ongoing".')


@message(api_key=66, versions="0-2", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if they are listed.")
    unknown_state_filters: list[str] = field(
        array(string), default_factory=list, doc="States of the request that there are not."
    )
    transaction_states: list[ListedTransaction] = field(
        array(ListedTransaction), default_factory=list, doc="The transactions."
    )
