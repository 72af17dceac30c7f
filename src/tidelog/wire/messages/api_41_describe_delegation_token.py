"""DescribeDelegationToken (key 41): the tokens that somebody may see (KIP-48).

Version 2 is the first flexible one, 3 tells the requester.
"""

from __future__ import annotations

from tidelog.wire.schema import array, bytes_, field, int16, int32, int64, message, string, struct


@struct
class DescribeDelegationTokenOwner:
    """Whose tokens are asked for."""

    principal_type: str = field(string, doc="User.")
    principal_name: str = field(string, doc="The user's name.")


@message(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenRequest:
    """Ask any broker for tokens."""

    owners: list[DescribeDelegationTokenOwner] | None = field(
        array(DescribeDelegationTokenOwner),
        nullable="1+",
        default=None,
        doc="Who owns, created or may renew them; None for whoever it is.",
    )


@struct
class DescribedDelegationTokenRenewer:
    """Who may renew a token."""

    principal_type: str = field(string, doc="User.")
    principal_name: str = field(string, doc="The user's name.")


@struct(kw_only=True)
class DescribedDelegationToken:
    """One token. Its HMAC is a secret: whoever has it is its owner."""

    principal_type: str = field(string, doc="User.")
    principal_name: str = field(string, doc="As whom it authenticates.")
    token_requester_principal_type: str = field(string, versions="3+", default="User", ignorable=True, doc="User.")
    token_requester_principal_name: str = field(
        string, versions="3+", default="", ignorable=True, doc="Who had it created."
    )
    issue_timestamp: int = field(int64, doc="When it came, in ms since 1970.")
    expiry_timestamp: int = field(int64, doc="Until when it counts unless it is renewed.")
    max_timestamp: int = field(int64, doc="Until when it can be renewed.")
    token_id: str = field(string, doc="Its id.")
    hmac: bytes = field(bytes_, doc="What it is used by, and asked about by.")
    renewers: list[DescribedDelegationTokenRenewer] = field(
        array(DescribedDelegationTokenRenewer), default_factory=list, doc="Who may renew it beside the owner."
    )

    def __repr__(self) -> str:
        return f"DescribedDelegationToken(token_id={self.token_id!r}, principal_name={self.principal_name!r})"


@message(api_key=41, versions="1-3", flexible="2+")
class DescribeDelegationTokenResponse:
    """The tokens."""

    error_code: int = field(int16, default=0, doc="Of the answer as a whole.")
    tokens: list[DescribedDelegationToken] = field(
        array(DescribedDelegationToken), default_factory=list, doc="Those that whoever asks may see."
    )
    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
