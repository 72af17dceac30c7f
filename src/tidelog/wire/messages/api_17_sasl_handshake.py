"""SaslHandshake (key 17): a client says by which SASL mechanism it authenticates.

After version 1 the mechanism's messages travel in SaslAuthenticate (KIP-152), after version 0 without any header.
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, message, string


@message(api_key=17, versions="0-1")
class SaslHandshakeRequest:
    """Comes after ApiVersions on a listener with SASL, and once more whenever the session is renewed (KIP-368)."""

    mechanism: str = field(string, doc="As SCRAM-SHA-256.")


@message(api_key=17, versions="0-1")
class SaslHandshakeResponse:
    """Whether the broker offers it."""

    error_code: int = field(int16, default=0, doc="UNSUPPORTED_SASL_MECHANISM, or ILLEGAL_SASL_STATE without SASL.")
    mechanisms: list[str] = field(array(string), default_factory=list, doc="What the broker offers.")
