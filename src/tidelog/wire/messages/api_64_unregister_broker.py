"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-631)."""

from __future__ import annotations

from tidelog.wire.schema import field, int16, int32, message, string


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    """Forget a broker."""

    broker_id: int = field(int32, doc="The broker.")


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    """Whether it is forgotten."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="0 if it is.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why it is not.")
