"""Records of delegation tokens."""

from __future__ import annotations

from tidelog.base.principals import Principal
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.wire.schema import array, field, int64, message, string


@message(api_key=10, versions="0", flexible="0+", kind="record")
class DelegationTokenRecord:
    """A delegation token came, or counts until another time from now on."""

    owner: str = field(string, doc="As whom it authenticates: User:NAME.")
    requester: str = field(string, doc="Who had it created.")
    renewers: list[str] = field(array(string), doc="Who may renew it beside the owner.")
    issue_timestamp: int = field(int64, doc="When it came, in ms since 1970.")
    max_timestamp: int = field(int64, doc="Until when it can be renewed.")
    expiration_timestamp: int = field(int64, doc="Until when it counts unless it is renewed.")
    token_id: str = field(string, doc="Its id.")


@message(api_key=26, versions="0", flexible="0+", kind="record")
class RemoveDelegationTokenRecord:
    """A delegation token went."""

    token_id: str = field(string, doc="Its id.")


def token_of(record: DelegationTokenRecord) -> DelegationToken:
    """The token that a record brings."""
    return DelegationToken(
        record.token_id,
        _principal(record.owner),
        _principal(record.requester),
        tuple(map(_principal, record.renewers)),
        record.issue_timestamp,
        record.max_timestamp,
        record.expiration_timestamp,
    )


def record_of_token(token: DelegationToken) -> DelegationTokenRecord:
    """The inverse of `token_of`."""
    return DelegationTokenRecord(
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(one) for one in token.renewers],
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=token.expiry_timestamp_ms,
        token_id=token.token_id,
    )


def _principal(text: str) -> Principal:
    """As it was written: a name may begin or end with a space, and what is in the log is not refused."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
