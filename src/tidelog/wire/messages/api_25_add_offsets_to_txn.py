"""AddOffsetsToTxn (key 25): a consumer group's offsets are to be committed by a transaction.

Version 2 may answer PRODUCER_FENCED, 3 is flexible, 4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import field, int16, int32, int64, message, string


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    """Add the group's partition of `__consumer_offsets` to the transaction."""

    transactional_id: str = field(string, doc="The id.")
    producer_id: int = field(int64, doc="Its producer.")
    producer_epoch: int = field(int16, doc="Its producer's epoch.")
    group_id: str = field(string, doc="The group.")


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    """Whether it is in."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is in.")
