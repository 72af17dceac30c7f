"""What an Admin tells of delegation tokens: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """A delegation token (KIP-48). Principals are spelt `User:NAME`; times are in ms since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    """A secret: in base64 it is the password to `token_id`, the user, with the extension `tokenauth=true` of SCRAM."""
    owner: str
    """As whom it authenticates."""
    requester: str | None
    """Who had it created; None at brokers that do not tell (before 3.3)."""
    renewers: tuple[str, ...]
    """Who may renew it and end it beside the owner, sorted."""
    issued_ms: int
    expires_ms: int
    """It counts until then, unless it is renewed."""
    max_ms: int
    """It cannot be renewed beyond."""
