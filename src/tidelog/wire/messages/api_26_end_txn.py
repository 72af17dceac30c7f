"""EndTxn (key 26): commit a transaction, or abort it.

Version 2 may answer PRODUCER_FENCED, 3 is flexible, 4 may answer TRANSACTION_ABORTABLE, 5 raises the producer's epoch
and tells it (both KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import boolean, field, int16, int32, int64, message, string


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """End the open transaction of a producer."""

    transactional_id: str = field(string, doc="Of the producer.")
    producer_id: int = field(int64, doc="The producer's id.")
    producer_epoch: int = field(int16, doc="The producer's epoch.")
    committed: bool = field(boolean, doc="Whether to commit it: else it is aborted.")


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """Whether its end is decided. The markers may still be on their way."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is decided.")
    producer_id: int = field(
        int64, versions="5+", default=-1, ignorable=True, doc="The id for the next transaction, or -1."
    )
    producer_epoch: int = field(
        int16, versions="5+", default=-1, ignorable=True, doc="The epoch for the next transaction, or -1."
    )
