"""What a connection does beside speaking the protocol: TLS below it, SASL before it, and again while it lasts.

    TLS handshake, ApiVersions                                              TlsNetwork, `connect`
    SaslHandshake, SaslAuthenticate until both sides are content (KIP-152)  SaslConnection
    requests … SaslHandshake, SaslAuthenticate … requests (KIP-368)         before the session ends

Whoever is refused is told what to do about it, once: see `AuthenticationError`. A listener that speaks another protocol
than the client hangs up without a word; `listener_probe` finds out which one that is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from tidelog.base.errors import Code, NetworkError, SaslAuthenticationError, SslAuthenticationError, TidelogError
from tidelog.base.ports import Buffer, Link, Network, Rng
from tidelog.net.address import Address
from tidelog.net.connection import Connection, ConnectionSettings, connect
from tidelog.net.listener_probe import alert_after_handshake, speaks_plaintext
from tidelog.security.sasl import SaslExchange
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

R = TypeVar("R")

_HANDSHAKE_VERSION = 1  # the mechanism's messages travel in SaslAuthenticate
_RENEWED_AFTER, _RENEWED_JITTER = 0.85, 0.1
"""Which part of a session is over when it is renewed: 85 to 95 percent, so that not all are at once."""
_RETRIED_AFTER, _RETRIED_MS_MIN = 0.01, 100
"""Which part of it passes before a token is asked for again that could not be had; at least so long."""


class SaslLogin(Protocol):
    """Who a client is. It begins an exchange for every connection, and whenever a session is renewed."""

    @property
    def mechanism(self) -> str: ...

    async def start(self) -> SaslExchange:
        """A new exchange. It may have to ask for a token first.

        Raises:
            NetworkError: there is none at the moment.
            SaslAuthenticationError: there will be none.
        """
        ...


@dataclass(frozen=True, slots=True)
class ConnectionSecurity:
    """How connections are secured.

    Attributes:
        tls: connects in the place of the network without TLS; None for plaintext.
        sasl: who the client is; None where the broker does not ask.
        rng: for when sessions are renewed.
    """

    tls: Network | None
    sasl: SaslLogin | None
    rng: Rng


async def open_secure_connection(
    network: Network, address: Address, settings: ConnectionSettings, security: ConnectionSecurity
) -> Connection:
    """See `open_connection`."""
    login = security.sasl
    connection: Connection | None = None
    try:
        if login is None:
            connection = Connection(address, settings)
            await connect(connection, security.tls or network, settings)
        else:
            exchange = await _exchange(login, settings)
            connection = authenticated = SaslConnection(address, settings, security, login)
            await connect(connection, security.tls or network, settings, lambda: authenticated.authenticate(exchange))
    except NetworkError as error:
        tls = security.tls
        if tls is not None and isinstance(error.__cause__, ConnectionError):
            await _check_tls(network, address, settings)
        elif tls is not None and connection is not None and connection.was_unheard:
            raise await alert_after_handshake(tls, address) or error from None
        raise
    return connection


async def _check_tls(network: Network, address: Address, settings: ConnectionSettings) -> None:
    """Raises SslAuthenticationError: the listener answers without TLS."""
    if await speaks_plaintext(network, address, settings):
        is_sasl = settings.security is not None and settings.security.sasl is not None
        raise SslAuthenticationError(
            f"{address} speaks no TLS, and this client does: set"
            f" {settings.protocol_setting}={'SASL_PLAINTEXT' if is_sasl else 'PLAINTEXT'!r},"
            " or connect to the port of a listener with TLS"
        )


async def _exchange(login: SaslLogin, settings: ConnectionSettings) -> SaslExchange:
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            return await login.start()
    except TimeoutError:
        what = f"there is no token after {settings.connect_timeout_ms} ms (socket_connection_setup_timeout_ms)"
        raise NetworkError(f"SASL {login.mechanism}: {what}") from None


class SaslConnection(Connection):
    """A connection whose broker knows who the client is.

    Before the session ends it is renewed on the same connection: what is sent meanwhile is kept back, what was sent
    before is answered first, and so no request stands between the messages of the exchange. If that fails, the
    connection ends, and the next one shows why.

    Kafka: `SaslClientAuthenticator`.
    """

    def __init__(
        self, address: Address, settings: ConnectionSettings, security: ConnectionSecurity, login: SaslLogin
    ) -> None:
        super().__init__(address, settings)
        self._security = security
        self._login = login
        self._lifetime_ms = 0
        self._unanswered = 0  # of what was sent before the renewal began
        self._is_answered: asyncio.Event | None = None
        self._renewal_timer: asyncio.TimerHandle | None = None
        self._renewal: asyncio.Task[None] | None = None

    async def authenticate(self, exchange: SaslExchange) -> None:
        """Do one exchange. Nothing else may be under way.

        Raises:
            SaslAuthenticationError: one side does not accept the other.
            NetworkError: the connection ended, or the broker cannot say at present.
        """
        lifetime_ms = await self._authenticate(exchange)
        if lifetime_ms > 0:
            self._lifetime_ms = lifetime_ms
            part = _RENEWED_AFTER + _RENEWED_JITTER * self._security.rng.random()
            self._renew_after(lifetime_ms * part)

    def close(self, why: TidelogError | None = None) -> None:
        super().close(why)
        if self._renewal_timer is not None:
            self._renewal_timer.cancel()
            self._renewal_timer = None
        if self._renewal is not None and self._renewal is not asyncio.current_task(self._loop):
            self._renewal.cancel()
        if self._is_answered is not None:
            self._is_answered.set()

    def _on_frame(self, frame: memoryview) -> None:
        super()._on_frame(frame)
        if self._unanswered:
            self._unanswered -= 1
            if not self._unanswered and self._is_answered is not None:
                self._is_answered.set()

    # The exchange.
    async def _authenticate(self, exchange: SaslExchange) -> int:
        """Returns how long the session lasts, in ms; 0 for as long as the connection."""
        what = f"{self.address}: SASL {exchange.mechanism}"
        if not self.versions.serves(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION):
            raise self._no_sasl()
        handshake = await self._ask(
            SaslHandshakeRequest(mechanism=exchange.mechanism), SaslHandshakeResponse, _HANDSHAKE_VERSION
        )
        if handshake.error_code == Code.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise SaslAuthenticationError(
                f"{what} is not offered by the broker: set sasl_mechanism to what is: {offered}"
            )
        if handshake.error_code == Code.ILLEGAL_SASL_STATE:
            raise self._no_sasl()
        _check(what, handshake.error_code, None, None)
        version = self.versions.version(ApiKey.SASL_AUTHENTICATE)
        message: bytes | None = exchange.first_message()
        lifetime_ms = 0
        while message is not None:
            answer = await self._ask(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, version)
            _check(what, answer.error_code, answer.error_message, exchange.hint)
            try:
                message = exchange.on_answer(bytes(answer.auth_bytes))
            except SaslAuthenticationError as error:
                raise SaslAuthenticationError(f"{what}: {error}") from None
            lifetime_ms = answer.session_lifetime_ms
        return lifetime_ms

    def _no_sasl(self) -> SaslAuthenticationError:
        protocol = "PLAINTEXT" if self._security.tls is None else "SSL"
        return SaslAuthenticationError(
            f"{self.address}: the listener does not ask for SASL: set {self._settings.protocol_setting}={protocol!r},"
            " or connect to the port of a listener that does"
        )

    async def _ask(self, message: object, response: type[R], version: int) -> R:
        """As `request`, but ahead of what is kept back."""
        link, kept = self._link, self._in_flight.copy()
        if not isinstance(link, _Holding):
            return await self.request(message, response, timeout_ms=self._settings.connect_timeout_ms, version=version)
        self._link = link.link
        self._in_flight.clear()
        try:
            future = self.send(message, response, timeout_ms=self._settings.connect_timeout_ms, version=version)
        finally:
            self._in_flight.extend(kept)
            self._link = link
        return await future

    # The renewal.
    def _renew_after(self, delay_ms: float) -> None:
        self._renewal_timer = self._loop.call_later(delay_ms / 1000, self._start_renewal)

    def _start_renewal(self) -> None:
        self._renewal_timer = None
        if self.closed is None:
            self._renewal = self._loop.create_task(self._renew())
            self._renewal.add_done_callback(_retrieve)

    async def _renew(self) -> None:
        try:
            try:
                exchange = await _exchange(self._login, self._settings)
            except NetworkError:
                # There is no token at the moment. The session goes on until its end.
                self._renew_after(max(self._lifetime_ms * _RETRIED_AFTER, _RETRIED_MS_MIN))
                return
            if self.closed is not None or self._link is None:
                return
            self._link = holding = _Holding(self._link)
            self._unanswered = len(self._in_flight)
            if self._unanswered:
                self._is_answered = asyncio.Event()
                await self._is_answered.wait()
                self._is_answered = None
            if self.closed is not None:
                return
            await self.authenticate(exchange)
            self._link = holding.link
            holding.release()
        except Exception as error:
            told = str(error) if isinstance(error, TidelogError) else f"{type(error).__name__}: {error}"
            self.close(NetworkError(f"the session could not be renewed: {told}"))


class _Holding(Link):
    """Keeps back what is written, until it is released or closed."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._pieces: list[list[Buffer]] = []
        self._released = asyncio.Event()

    def write(self, pieces: list[Buffer]) -> None:
        self._pieces.append(pieces)

    async def drain(self) -> None:
        await self._released.wait()
        await self.link.drain()

    def release(self) -> None:
        """Write it, in the order in which it came."""
        for pieces in self._pieces:
            self.link.write(pieces)
        self._released.set()

    def close(self) -> None:
        self._released.set()
        self.link.close()


def _check(what: str, error_code: int, message: str | None, hint: str | None) -> None:
    if not error_code:
        return
    code = Code(error_code)
    advice = f", {hint}" if hint and not code.retriable else ""  # who is to come again later sent nothing wrong
    told = f"{what} failed{advice}. The broker says: {message or code.meaning} ({code.name})"
    raise NetworkError(told) if code.retriable else SaslAuthenticationError(told)


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
