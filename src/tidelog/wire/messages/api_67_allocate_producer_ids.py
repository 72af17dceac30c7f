"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730)."""

from __future__ import annotations

from tidelog.wire.schema import field, int16, int32, int64, message


@message(api_key=67, versions="0", flexible="0+")
class AllocateProducerIdsRequest:
    """Ask for a block."""

    broker_id: int = field(int32, doc="Who asks.")
    broker_epoch: int = field(int64, default=-1, doc="Its incarnation.")


@message(api_key=67, versions="0", flexible="0+")
class AllocateProducerIdsResponse:
    """A block of ids that nobody else is ever given."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if there is a block.")
    producer_id_start: int = field(int64, default=0, doc="The first id.")
    producer_id_len: int = field(int32, default=0, doc="How many there are.")
