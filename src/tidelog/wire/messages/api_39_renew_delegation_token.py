"""RenewDelegationToken (key 39): have a token count for longer (KIP-48). Version 2 is flexible."""

from __future__ import annotations

from tidelog.wire.schema import bytes_, field, int16, int32, int64, message


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenRequest:
    """Have a token count for longer."""

    hmac: bytes = field(bytes_, doc="Of the token: a secret.")
    renew_period_ms: int = field(
        int64, default=-1, doc="For how long it counts from now on; -1 for as long as is allowed."
    )

    def __repr__(self) -> str:
        return f"RenewDelegationTokenRequest(hmac=<{len(self.hmac)} bytes>)"


@message(api_key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    """Until when it counts."""

    error_code: int = field(int16, default=0, doc="0 if that is so.")
    expiry_timestamp_ms: int = field(int64, default=-1, doc="Since 1970.")
    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
