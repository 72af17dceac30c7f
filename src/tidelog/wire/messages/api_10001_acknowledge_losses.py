"""AcknowledgeLosses (key 10001, ours): an operator has dealt with entries of the account of losses."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uuid


@struct
class LossToAcknowledge:
    """One entry."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partition_index: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="The epoch.")


@message(api_key=10001, versions="0", flexible="0+")
class AcknowledgeLossesRequest:
    """Note that they are dealt with."""

    losses: list[LossToAcknowledge] = field(array(LossToAcknowledge), default_factory=list, doc="The entries.")
    note: str = field(string, default="", doc="What was done about them.")
    timeout_ms: int = field(int32, default=30_000, doc="How long to wait for it.")


@struct
class AcknowledgedLoss:
    """What became of one entry."""

    error_code: int = field(int16, default=0, doc="0 if it is noted.")


@message(api_key=10001, versions="0", flexible="0+")
class AcknowledgeLossesResponse:
    """One answer for each entry, unless all were refused."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why all were refused.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="The same in words.")
    results: list[AcknowledgedLoss] = field(
        array(AcknowledgedLoss), default_factory=list, doc="In the order of the request."
    )
