"""CreateDelegationToken (key 38): have a token made, for oneself or for another user (KIP-48, KIP-373).

Version 2 is the first flexible one, 3 names the owner and the requester.
"""

from __future__ import annotations

from tidelog.wire.schema import array, bytes_, field, int16, int32, int64, message, string, struct


@struct
class CreatableRenewers:
    """Who may renew the token beside its owner."""

    principal_type: str = field(string, doc="User.")
    principal_name: str = field(string, doc="The user's name.")


@message(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenRequest:
    """Ask for a token."""

    owner_principal_type: str | None = field(
        string, versions="3+", nullable="3+", default=None, doc="User, or None beside no name."
    )
    owner_principal_name: str | None = field(
        string, versions="3+", nullable="3+", default=None, doc="As whom it authenticates; None for who asks."
    )
    renewers: list[CreatableRenewers] = field(
        array(CreatableRenewers), default_factory=list, doc="Who may renew it and end it beside the owner."
    )
    max_lifetime_ms: int = field(int64, default=-1, doc="How long it may last at most; -1 for as long as is allowed.")


@message(api_key=38, versions="1-3", flexible="2+")
class CreateDelegationTokenResponse:
    """The token. Its HMAC is a secret: whoever has it is its owner."""

    error_code: int = field(int16, default=0, doc="0 if there is a token.")
    principal_type: str = field(string, default="User", doc="User.")
    principal_name: str = field(string, default="", doc="As whom it authenticates.")
    token_requester_principal_type: str = field(string, versions="3+", default="User", ignorable=True, doc="User.")
    token_requester_principal_name: str = field(
        string, versions="3+", default="", ignorable=True, doc="Who had it created."
    )
    issue_timestamp_ms: int = field(int64, default=-1, doc="When it came, since 1970.")
    expiry_timestamp_ms: int = field(int64, default=-1, doc="Until when it counts unless it is renewed.")
    max_timestamp_ms: int = field(int64, default=-1, doc="Until when it can be renewed.")
    token_id: str = field(string, default="", doc="Its id.")
    hmac: bytes = field(bytes_, default=b"", doc="What it is used by, and asked about by.")
    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")

    def __repr__(self) -> str:
        return f"CreateDelegationTokenResponse(error_code={self.error_code}, token_id={self.token_id!r})"
