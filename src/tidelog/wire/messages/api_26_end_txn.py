"""EndTxn (key 26): commit or abort a transaction.

Version 2 may answer PRODUCER_FENCED, 3 is flexible, 4 may answer TRANSACTION_ABORTABLE, 5 answers with the producer's
next id and epoch (KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import boolean, field, int16, int32, int64, message, string


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    """End the transaction."""

    transactional_id: str = field(string, doc="The id.")
    producer_id: int = field(int64, doc="Its producer.")
    producer_epoch: int = field(int16, doc="Its producer's epoch.")
    committed: bool = field(boolean, doc="True to commit, False to abort.")


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    """The end is decided."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is decided as asked.")
    producer_id: int = field(int64, versions="5+", default=-1, ignorable=True, doc="For the next transaction.")
    producer_epoch: int = field(int16, versions="5+", default=-1, ignorable=True, doc="For the next transaction.")
