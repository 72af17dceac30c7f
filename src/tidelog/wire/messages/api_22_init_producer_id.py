"""InitProducerId (key 22): a producer's id and epoch, for idempotence and transactions.

Version 2 is flexible, 3 lets a producer go on after an error by naming its id and epoch (KIP-360), 4 may answer
PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import field, int16, int32, int64, message, string


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    """Ask for an id, or for the next epoch of one."""

    transactional_id: str | None = field(string, nullable="0+", default=None, doc="None: idempotent only.")
    transaction_timeout_ms: int = field(int32, default=0, doc="After which a transaction left open is aborted.")
    producer_id: int = field(int64, versions="3+", default=-1, doc="The id it has, or -1.")
    producer_epoch: int = field(int16, versions="3+", default=-1, doc="The epoch it has, or -1.")


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    """The id and epoch to produce with."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if there is an id.")
    producer_id: int = field(int64, default=-1, doc="The id, or -1.")
    producer_epoch: int = field(int16, default=-1, doc="The epoch, or -1.")
