"""SaslAuthenticate (key 36): one message of a SASL mechanism, and the answer to it (KIP-152).

Version 1 tells how long the session lasts (KIP-368), 2 is flexible.
"""

from __future__ import annotations

from tidelog.wire.schema import bytes_, field, int16, int64, message, string


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    """What the client's side of the mechanism says."""

    auth_bytes: bytes = field(bytes_, doc="The mechanism's own bytes.")

    def __repr__(self) -> str:
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


@message(api_key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    """What the broker's side answers."""

    error_code: int = field(int16, default=0, doc="SASL_AUTHENTICATION_FAILED if it was in vain.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why.")
    auth_bytes: bytes = field(bytes_, default=b"", doc="The mechanism's own bytes.")
    session_lifetime_ms: int = field(
        int64, versions="1+", default=0, ignorable=True, doc="Authenticate again before; 0 for no end."
    )
