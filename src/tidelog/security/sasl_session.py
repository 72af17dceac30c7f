"""What one connection has shown of who sends on it, and what it may ask meanwhile: a pure machine.

    ApiVersions  ->  SaslHandshake(mechanism)  ->  SaslAuthenticate …  ->  any request
                                                                             ... SaslHandshake: again (KIP-368)

After a handshake of version 0 the mechanism's messages come without a header: `takes_raw_messages`. A connection that
authenticates again does so as before: by the same mechanism, as the same user.

Kafka: `SaslServerAuthenticator`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.base.errors import Code, SaslAuthenticationError
from tidelog.security.sasl_server import Identity, OAuthBearerServerExchange, ServerExchange, Step, refused
from tidelog.wire.api import APIS, ApiKey

REAUTHENTICATED_MS_MIN = 1_000
"""So long after it authenticated a connection may do so again, as at Kafka."""

SHORT_SIZE_BYTES_MAX = 8 * 1024
MESSAGE_SIZE_BYTES_MAX = {OAuthBearerServerExchange.mechanism: 40 * 1024}
"""Of a message, by mechanism; others are short. Longer ones are refused unread: they are parsed in a step of a loop."""

_FIRST = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)

StartExchange = Callable[[str], "ServerExchange | None"]
"""A new exchange by a mechanism; None for one that the listener does not offer."""


class SaslSession:
    """See the module.

    Args:
        start_exchange: begins one.

    Attributes:
        identity: who sends, once that is known.
        exchange: the one that is under way.
        takes_raw_messages: whether what comes next is a message of the mechanism alone.
        ends_at_ms: when the session is over, by the monotonic clock; None for never.
    """

    __slots__ = (
        "_authenticated_at_ms",
        "_mechanism",
        "_start_exchange",
        "ends_at_ms",
        "exchange",
        "identity",
        "takes_raw_messages",
    )

    def __init__(self, start_exchange: StartExchange) -> None:
        self.identity: Identity | None = None
        self.exchange: ServerExchange | None = None
        self.takes_raw_messages = False
        self.ends_at_ms: int | None = None
        self._start_exchange = start_exchange
        self._mechanism: str | None = None
        self._authenticated_at_ms = 0

    def why_refused(self, api_key: int, now_ms: int) -> str | None:
        """Why a request cannot be served now; None if it can."""
        if self.exchange is not None:
            if api_key == ApiKey.SASL_AUTHENTICATE:
                return None
            return f"{_name(api_key)} came in the middle of an authentication by {self.exchange.mechanism}"
        if self.identity is None:
            return None if api_key in _FIRST else f"{_name(api_key)} came before any authentication"
        if self.is_over(now_ms) and api_key != ApiKey.SASL_HANDSHAKE:
            return f"{_name(api_key)} came after the end of the session of {self.identity.name!r}"
        return None

    def is_over(self, now_ms: int) -> bool:
        """Whether it must authenticate again before anything else."""
        return self.ends_at_ms is not None and now_ms > self.ends_at_ms

    def on_handshake(self, mechanism: str, *, is_raw: bool, now_ms: int) -> Code:
        """SaslHandshake: begin an exchange. What is no code of success leaves all as it was."""
        if self.identity is not None and (is_raw or now_ms - self._authenticated_at_ms < REAUTHENTICATED_MS_MIN):
            return Code.ILLEGAL_SASL_STATE
        exchange = self._start_exchange(mechanism)
        if exchange is None:
            return Code.UNSUPPORTED_SASL_MECHANISM
        self.exchange = exchange if self._mechanism in (None, mechanism) else _OtherMechanism(mechanism)
        self.takes_raw_messages = is_raw
        return Code.NONE

    def on_message(self, message: bytes) -> Step:
        """What is owed for a message of the mechanism. See `ServerExchange`; there is one under way."""
        assert self.exchange is not None
        if len(message) > MESSAGE_SIZE_BYTES_MAX.get(self.exchange.mechanism, SHORT_SIZE_BYTES_MAX):
            raise refused(self.exchange.mechanism)
        step = self.exchange.on_message(message)
        if step.identity is not None:
            self._check_same(step.identity)
        return step

    def on_token_checked(self, found: Identity | SaslAuthenticationError) -> Step:
        """What is owed after `Step.token` was checked.

        Args:
            found: whose it is, or why it is not good.

        Raises:
            SaslAuthenticationError: it is somebody else's than the client says, or than before.
        """
        assert isinstance(self.exchange, OAuthBearerServerExchange)
        if isinstance(found, SaslAuthenticationError):
            return self.exchange.on_refused(found)
        self._check_same(found)
        return self.exchange.on_checked(found)

    def on_authenticated(
        self, identity: Identity, session_ms_max: Mapping[str, int | None], *, now_ms: int, wall_ms: int
    ) -> int:
        """The exchange came to its end.

        Args:
            session_ms_max: how long sessions last, by mechanism; None for no end.

        Returns:
            How long this one lasts, in ms; 0 for no end.

        Raises:
            SaslAuthenticationError: what was shown is over already, or somebody else's than before.
        """
        assert self.exchange is not None
        self._check_same(identity)
        mechanism = self.exchange.mechanism
        lifetime_ms = session_ms_max.get(mechanism)
        if identity.expires_at_ms is not None:
            left_ms = identity.expires_at_ms - wall_ms
            lifetime_ms = left_ms if lifetime_ms is None else min(left_ms, lifetime_ms)
        if lifetime_ms is not None and lifetime_ms <= 0:
            raise refused(mechanism)
        self.identity, self._mechanism = identity, mechanism
        self._authenticated_at_ms = now_ms
        self.ends_at_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        self.exchange, self.takes_raw_messages = None, False
        return lifetime_ms or 0

    def _check_same(self, identity: Identity) -> None:
        before = self.identity
        if before is not None and (identity.name, identity.by_token) != (before.name, before.by_token):
            raise SaslAuthenticationError(
                f"a connection that authenticates again stays that of the same user, which is {before.name!r}: "
                "connect anew to be another"
            )


class _OtherMechanism:
    """Of a connection that authenticated by another mechanism before. Kafka takes the handshake, and refuses this."""

    def __init__(self, mechanism: str) -> None:
        self.mechanism = mechanism

    def on_message(self, message: bytes) -> Step:
        raise SaslAuthenticationError(
            f"a connection that authenticates again does so by the same mechanism, and not by {self.mechanism}"
        )


def _name(api_key: int) -> str:
    return APIS[api_key].name if api_key in APIS else f"API {api_key}"
