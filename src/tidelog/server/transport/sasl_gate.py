"""Who gets past a listener with SASL: nobody is served before it is known who they are.

A peer that has not authenticated may send little, has limited time, and is told of a refusal late: so guesses are slow.

Kafka: `SaslServerAuthenticator`, `SaslChannelBuilder`, `KafkaChannel`.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidelog.base.errors import Code, MalformedMessageError, SaslAuthenticationError
from tidelog.base.ports import Clock
from tidelog.base.principals import USER, Principal
from tidelog.metadata.configs.sasl import OAUTHBEARER
from tidelog.security.sasl_listener import SaslListener
from tidelog.security.sasl_server import Identity, ServerExchange, Step
from tidelog.security.sasl_session import SHORT_SIZE_BYTES_MAX, SaslSession
from tidelog.server.quotas.failed_logins import SHARED, FailedLogins, claimed_user
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateResponse

if TYPE_CHECKING:
    from tidelog.server.transport.gathered import Gathered
    from tidelog.server.transport.server_connection import Answer, OnFrame, ServerConnection

R = TypeVar("R")

LOGIN_SECONDS_MAX = 20.0
"""How long somebody who connected may take to say who they are."""

_TOO_MANY = "too many authentications from this address failed (max.failed.authentications.per.ip); ask again later"

_START = struct.Struct(">h")
_SIZE = struct.Struct(">i")


class ListensWithSasl(Protocol):
    """What a gate asks of its listener."""

    def settings(self) -> SaslListener:
        """As they are in force."""
        ...

    def start_exchange(self, mechanism: str) -> ServerExchange | None:
        """Begin one; None for a mechanism that is not offered."""
        ...

    async def whose_token(self, token: str) -> Identity:
        """Whose a token of OAUTHBEARER is. Raises SaslAuthenticationError: it is not good; says why."""
        ...

    def failure_delay_seconds(self) -> float:
        """How long a refusal waits."""
        ...


class SaslGate:
    """Of one connection.

    Args:
        listener: what it goes by.
        on_frame: answers the requests of who is known.
        frame_size_bytes_max: of those.
        failed: who guesses too much.
    """

    __slots__ = (
        "_claimed",
        "_clock",
        "_connection",
        "_failed",
        "_frame_size_bytes_max",
        "_listener",
        "_on_frame",
        "_session",
        "_timer",
    )

    def __init__(
        self,
        listener: ListensWithSasl,
        on_frame: OnFrame,
        frame_size_bytes_max: int,
        clock: Clock,
        failed: FailedLogins,
    ) -> None:
        self._listener = listener
        self._on_frame = on_frame
        self._frame_size_bytes_max = frame_size_bytes_max
        self._clock = clock
        self._failed = failed
        self._claimed: str | None = None  # who the exchange is said to be from; None before its first message
        self._session = SaslSession(listener.start_exchange)
        self._connection: ServerConnection | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def request_size_bytes_max(self) -> int:
        """Of requests that come before it is known whose they are."""
        return min(self._listener.settings().request_size_bytes_max, self._frame_size_bytes_max)

    # What the connection tells.
    def on_connected(self, connection: ServerConnection) -> None:
        """There is somebody."""
        self._connection = connection
        self._await_login()

    def on_closed(self) -> None:
        """It is gone."""
        self._stop_waiting()
        self._connection = None

    def on_frame(self, frame: memoryview, connection: ServerConnection) -> Answer | Gathered | Awaitable[Answer]:
        """See `Dispatcher.on_frame`.

        Raises:
            SaslAuthenticationError: the request cannot be served now: the connection is to be closed.
            MalformedMessageError: it is no request.
        """
        if self._session.takes_raw_messages:
            return self._on_raw_message(bytes(frame))
        if len(frame) < _START.size:
            raise MalformedMessageError(f"a request of {len(frame)} bytes")
        why = self._session.why_refused(_START.unpack_from(frame)[0], self._clock.now_ms())
        if why is not None:
            raise SaslAuthenticationError(why)
        return self._on_frame(frame, connection)

    # What the handlers of SaslHandshake and SaslAuthenticate ask.
    def on_handshake(self, mechanism: str, *, is_raw: bool) -> SaslHandshakeResponse | Awaitable[SaslHandshakeResponse]:
        """The answer to SaslHandshake. Who asks for a mechanism that is not offered is told which are, and hung up on.

        Args:
            is_raw: whether the messages that follow have no header.
        """
        code = self._session.on_handshake(mechanism, is_raw=is_raw, now_ms=self._clock.now_ms())
        offered = self._listener.settings().mechanisms
        response = SaslHandshakeResponse(error_code=code, mechanisms=list(offered))
        if code == Code.UNSUPPORTED_SASL_MECHANISM:
            return self._refuse(response, f"it asks for the mechanism {mechanism[:64]!r}, and offered are {offered}")
        if code == Code.NONE and self._connection is not None:
            self._connection.serve_by(self.on_frame)
            self._await_login()
        return response

    def on_authenticate(self, message: bytes) -> SaslAuthenticateResponse | Awaitable[SaslAuthenticateResponse]:
        """The answer to SaslAuthenticate."""
        if self._session.exchange is None:
            return SaslAuthenticateResponse(
                error_code=Code.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate comes after SaslHandshake, and this connection has authenticated",
            )
        if not self._may_try(message):
            return self._refuse(
                SaslAuthenticateResponse(error_code=Code.THROTTLING_QUOTA_EXCEEDED, error_message=_TOO_MANY), _TOO_MANY
            )
        try:
            step = self._session.on_message(message)
            if step.token is not None:
                return self._on_token(step.token)
            return self._answer(step)
        except SaslAuthenticationError as error:
            return self._refuse_message(error)

    async def _on_token(self, token: str) -> SaslAuthenticateResponse:
        try:
            return self._answer(await self._check(token))
        except SaslAuthenticationError as error:
            return await self._refuse_message(error)

    def _answer(self, step: Step) -> SaslAuthenticateResponse:
        lifetime_ms = self._on_step(step)
        return SaslAuthenticateResponse(auth_bytes=step.answer, session_lifetime_ms=lifetime_ms)

    def _refuse_message(self, error: SaslAuthenticationError) -> Awaitable[SaslAuthenticateResponse]:
        self._on_failed()
        response = SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message=str(error))
        return self._refuse(response, _reason(error))

    async def _check(self, token: str) -> Step:
        """What is owed for a token. Raises SaslAuthenticationError: it is not that of who sends it."""
        found: Identity | SaslAuthenticationError
        try:
            found = await self._listener.whose_token(token)
        except SaslAuthenticationError as error:
            found = error
        return self._session.on_token_checked(found)

    def _on_raw_message(self, message: bytes) -> Answer | Awaitable[Answer]:
        """As `on_authenticate`, without headers: a refusal is told by the end of the connection alone."""
        if not self._may_try(message):
            return self._refuse(None, _TOO_MANY)
        try:
            step = self._session.on_message(message)
            if step.token is not None:
                return self._on_raw_token(step.token)
            return self._raw_answer(step)
        except SaslAuthenticationError as error:
            self._on_failed()
            return self._refuse(None, _reason(error))

    async def _on_raw_token(self, token: str) -> Answer:
        try:
            return self._raw_answer(await self._check(token))
        except SaslAuthenticationError as error:
            self._on_failed()
            return await self._refuse(None, _reason(error))

    def _raw_answer(self, step: Step) -> Answer:
        self._on_step(step)
        return [_SIZE.pack(len(step.answer)), step.answer] if step.answer else [_SIZE.pack(0)]

    def _on_step(self, step: Step) -> int:
        """Returns how long the session lasts, in ms; 0 for no end, or as long as it has not begun."""
        if step.identity is None or self._connection is None:
            return 0
        lifetime_ms = self._session.on_authenticated(
            step.identity,
            self._listener.settings().session_ms_max,
            now_ms=self._clock.now_ms(),
            wall_ms=self._clock.wall_ms(),
        )
        self._stop_waiting()
        connection, identity = self._connection, step.identity
        self._failed.on_succeeded(connection.requester.host, self._claimed or SHARED)
        self._claimed = None
        connection.on_authenticated(
            Principal(USER, identity.name), self._frame_size_bytes_max, by_token=identity.by_token
        )
        connection.serve_by(self._on_frame if self._session.ends_at_ms is None else self.on_frame)
        return lifetime_ms

    def _may_try(self, message: bytes) -> bool:
        """Whether a message of the mechanism is looked at: at each of them, since others fail meanwhile."""
        if self._shows_token:
            return True  # nobody guesses a signature, and whose token it is nobody knows before
        if self._claimed is None:
            self._claimed = claimed_user(message[:SHORT_SIZE_BYTES_MAX])
        return self._connection is None or self._failed.admits(self._connection.requester.host, self._claimed)

    @property
    def _shows_token(self) -> bool:
        return self._session.exchange is not None and self._session.exchange.mechanism == OAUTHBEARER

    def _on_failed(self) -> None:
        if self._connection is not None and not self._shows_token:
            self._failed.on_failed(self._connection.requester.host, self._claimed or SHARED)

    async def _refuse(self, response: R, reason: str) -> R:
        """Answer late, and hang up."""
        if self._connection is not None:
            self._connection.close_unauthenticated_when_answered(SaslAuthenticationError(reason))
        await asyncio.sleep(self._listener.failure_delay_seconds())
        return response

    # The time that there is.
    def _await_login(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOGIN_SECONDS_MAX, self._on_no_login)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_no_login(self) -> None:
        self._timer = None
        if self._connection is not None:
            self._connection.hang_up(SaslAuthenticationError(f"no authentication in {LOGIN_SECONDS_MAX:.0f} s"))


def _reason(error: SaslAuthenticationError) -> str:
    """For the log: what the peer is not told."""
    return str(error.__cause__ or error)


NewGate = Callable[["OnFrame", int], SaslGate]
"""Makes the gate of a connection, of what answers its requests and of their largest size."""
