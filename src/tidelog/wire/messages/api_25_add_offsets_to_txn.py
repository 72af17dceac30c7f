"""AddOffsetsToTxn (key 25): a transaction is about to commit offsets of a group.

Version 2 may answer PRODUCER_FENCED, 3 is flexible, 4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import field, int16, int32, int64, message, string


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Add the partition of `__consumer_offsets` that holds a group's offsets."""

    transactional_id: str = field(string, doc="Of the producer.")
    producer_id: int = field(int64, doc="The producer's id.")
    producer_epoch: int = field(int16, doc="The producer's epoch.")
    group_id: str = field(string, doc="The group.")


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether TxnOffsetCommit may follow."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it may.")
