"""A delegation token, as the metadata knows it: whose it is, who may renew it, and for how long it counts (KIP-48).

What a client shows, its HMAC, is not in the metadata: `security.delegation_tokens` has it of the token's id and the
secret that all nodes share. Kafka: `TokenInformation`, `DelegationTokenData`.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog.base.principals import Principal


class DelegationToken(NamedTuple):
    """One token. Times are in ms since 1970.

    Attributes:
        owner: as whom it authenticates.
        requester: who had it created, for itself or for another one.
        renewers: who may renew it and end it beside the owner.
        max_timestamp_ms: it can be renewed until then, and counts no longer.
        expiry_timestamp_ms: it counts until then, inclusive, unless it is renewed.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiry_timestamp_ms: int

    def may_renew(self, principal: Principal) -> bool:
        """Whether somebody may renew it, or end it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether it is somebody's: who owns it, had it created, or may renew it."""
        return principal == self.requester or self.may_renew(principal)

    def is_expired(self, now_ms: int) -> bool:
        """Whether it counts no more."""
        return min(self.max_timestamp_ms, self.expiry_timestamp_ms) < now_ms
