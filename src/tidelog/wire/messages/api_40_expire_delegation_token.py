"""ExpireDelegationToken (key 40): have a token end sooner, or at once (KIP-48). Version 2 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import bytes_, field, int16, int32, int64, message


@message(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenRequest:
    """Have a token end."""

    hmac: bytes = field(bytes_, doc="Of the token: a secret.")
    expiry_time_period_ms: int = field(
        int64, default=-1, doc="For how long it counts from now on; -1 to end it at once."
    )

    def __repr__(self) -> str:
        return f"ExpireDelegationTokenRequest(hmac=<{len(self.hmac)} bytes>)"


@message(api_key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    """Until when it counts."""

    error_code: int = field(int16, default=0, doc="0 if that is so.")
    expiry_timestamp_ms: int = field(int64, default=-1, doc="Since 1970.")
    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
