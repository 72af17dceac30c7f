"""What the admin client for event loops asks about delegation tokens."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.admin.token_administration import TokenAdministration
from tidelog.client.admin.token_descriptions import TokenDescription
from tidelog.client.cluster import Cluster
from tidelog.client.options import AdminConfig


class AsyncTokenAdmin:
    """The part of `AsyncAdmin` that is about delegation tokens."""

    _cluster: Cluster
    _config: AdminConfig

    async def create_delegation_token(
        self, *, owner: str | None = None, renewers: Iterable[str] = (), max_lifetime_ms: int | None = None
    ) -> TokenDescription:
        """Have a delegation token created (KIP-48), on a connection that SASL or TLS authenticated.

        Args:
            owner: as whom it authenticates, `User:NAME`; None for whoever asks. For another one it takes the right to
                CREATE_TOKENS of that user.
            renewers: who may renew it and end it beside the owner, `User:NAME`.
            max_lifetime_ms: how long it may last at most; None for as long as the brokers allow.

        Raises:
            KafkaError: DELEGATION_TOKEN_AUTH_DISABLED: the brokers have no delegation.token.secret.key;
                DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: the connection was authenticated by a token, or not at all;
                DELEGATION_TOKEN_AUTHORIZATION_FAILED; INVALID_PRINCIPAL_TYPE.
            UnsupportedVersionError: a broker is too old to create one for another owner (before 3.3).
            ValueError: `max_lifetime_ms` is not above 0.
        """
        return await self._tokens().create(owner, renewers, max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Have a delegation token count for longer, as its owner or one of its renewers.

        Args:
            hmac: of the token.
            period_ms: for how long from now on; None for as long as the brokers allow, which is the most too.

        Returns:
            Until when it counts, in ms since 1970.

        Raises:
            KafkaError: DELEGATION_TOKEN_NOT_FOUND; DELEGATION_TOKEN_EXPIRED; DELEGATION_TOKEN_OWNER_MISMATCH; and as
                `create_delegation_token`.
            ValueError: `period_ms` is not above 0.
        """
        return await self._tokens().renew(hmac, period_ms)

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Have a delegation token end, as its owner or one of its renewers. Sessions last until it would have ended.

        Args:
            hmac: of the token.
            period_ms: in how long; None at once.

        Returns:
            Until when it counts, in ms since 1970.

        Raises:
            KafkaError: as `renew_delegation_token`.
            ValueError: `period_ms` is below 0.
        """
        return await self._tokens().expire(hmac, period_ms)

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None) -> list[TokenDescription]:
        """Delegation tokens, the oldest first: one's own, those that one may renew, and those that one may describe.

        Args:
            owners: only tokens that one of these (`User:NAME`) owns, had created or may renew; None for all.

        Raises:
            KafkaError: DELEGATION_TOKEN_AUTH_DISABLED; DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
        """
        return await self._tokens().describe(owners)

    def _tokens(self) -> TokenAdministration:
        return TokenAdministration(self._cluster, request_timeout_ms=self._config.request_timeout_ms)
