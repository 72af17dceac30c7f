"""One connection to one broker: the handshake, requests in flight, answers in order, deadlines.

A broker answers in the order of the requests, so an answer with another correlation id, like any bytes that are no
answer, ends the connection, as does a request whose time is over: what follows could not be told apart. Whatever was in
flight then fails with a `NetworkError` that says why; whether it was carried out, nobody knows.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidelog.base.errors import (
    KafkaError,
    MalformedMessageError,
    NetworkError,
    SslAuthenticationError,
    TidelogError,
    UnsupportedVersionError,
)
from tidelog.base.ports import Buffer, Link, Network
from tidelog.net.address import Address
from tidelog.net.receiver import ResponseReceiver
from tidelog.net.versions import PeerVersions
from tidelog.wire import APIS, ApiKey, ConsistencyState, decode, decode_response_header, encode_request
from tidelog.wire.schema import layout_of

if TYPE_CHECKING:
    from tidelog.net.security import ConnectionSecurity

R = TypeVar("R")

RESPONSE_SIZE_BYTES_MAX = 256 * 1024 * 1024
"""The largest response accepted unless the caller says otherwise."""

_CORRELATION_ID_END = 1 << 31
_UNSUPPORTED_VERSION = 35
_TLS_ALERT = b"\x15\x03"
"""How the answer of a peer begins that speaks TLS to a request that came without."""


class ConsistencyStore(Protocol):
    """What the client knows of the recency of metadata, shared between its connections (KIP-1243)."""

    def state(self) -> ConsistencyState | None:
        """What to send with requests; None for nothing."""
        ...

    def on_state(self, state: ConsistencyState) -> None:
        """An answer carried this. Raises a `TidelogError` if it is of another cluster."""
        ...


OF_NODES = "listener.security.protocol.map"


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How to connect; times in ms."""

    client_id: str
    connect_timeout_ms: int = 10_000
    response_size_bytes_max: int = RESPONSE_SIZE_BYTES_MAX
    consistency: ConsistencyStore | None = None
    security: ConnectionSecurity | None = None
    protocol_setting: str = "security_protocol"
    """For errors: what says what these connections speak. With nodes it is OF_NODES."""


@dataclass(slots=True)
class _InFlight:
    """A request that waits for its answer."""

    correlation_id: int
    api_key: int
    version: int
    response: type[Any]
    future: asyncio.Future[Any]
    timeout_ms: int
    deadline: float  # in the loop's time
    on_state: Callable[[ConsistencyState | None], None] | None = None


class Connection:
    """See the module. Made by `open_connection`; belongs to the event loop it was opened in."""

    def __init__(self, address: Address, settings: ConnectionSettings) -> None:
        self.address = address
        self.versions = PeerVersions(str(address), {})
        self.closed: TidelogError | None = None
        self.on_hung_up: Callable[[], None] | None = None
        """Called when the other side ended it, or the network did: not after `close`."""
        self.was_unheard = False
        """Whether the other side ended it instead of answering the first request, of the handshake or after it."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._receiver = ResponseReceiver(settings.response_size_bytes_max)
        self._link: Link | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._next_correlation_id = 0
        self._first_correlation_id = 0  # of the handshake, then of what comes after it
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"Connection({self.address}, {len(self._in_flight)} in flight{', closed' if self.closed else ''})"

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._in_flight)

    # Requests.
    async def request(
        self, message: object, response: type[R], *, timeout_ms: int, min_version: int = 0, version: int | None = None
    ) -> R:
        """Send a request and wait for its answer. See `send`."""
        return await self.send(message, response, timeout_ms=timeout_ms, min_version=min_version, version=version)

    def send(
        self,
        message: object,
        response: type[R],
        *,
        timeout_ms: int,
        min_version: int = 0,
        version: int | None = None,
        on_state: Callable[[ConsistencyState | None], None] | None = None,
        state: ConsistencyState | None = None,
    ) -> asyncio.Future[R]:
        """Send a request now, behind those sent before.

        Args:
            message: a request message; it is encoded before this returns.
            response: the class of its answer.
            timeout_ms: if there is no answer by then, the connection closes.
            min_version: what the message needs at least.
            version: the very version to use; by default the highest that both sides have.
            on_state: called with what the header of the answer says (KIP-1243), before the answer is given.
            state: what the header of the request says, in the place of what the connection's own store has.

        Returns:
            The answer, or `NetworkError`. Cancelling it only makes nobody wait: the request was sent.

        Raises:
            UnsupportedVersionError: the broker does not serve it.
            NetworkError: the connection is closed.
        """
        api_key = layout_of(type(message)).api_key
        if version is None:
            version = self.versions.version(api_key, min_version=min_version)
        correlation_id = self._write(api_key, version, message, state)
        future: asyncio.Future[R] = self._loop.create_future()
        deadline = self._loop.time() + timeout_ms / 1000
        self._in_flight.append(
            _InFlight(correlation_id, api_key, version, response, future, timeout_ms, deadline, on_state)
        )
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)
        return future

    def send_unanswered(self, message: object, *, version: int | None = None) -> None:
        """Send a request that the broker will not answer: Produce with acks=0. Raises as `send` does."""
        api_key = layout_of(type(message)).api_key
        self._write(api_key, self.versions.version(api_key) if version is None else version, message)

    async def drain(self) -> None:
        """Wait until what was sent has left, but for a little."""
        if self._link is not None:
            await self._link.drain()

    def close(self, why: TidelogError | None = None) -> None:
        """Close now. What is in flight fails with `why`; a second call does nothing."""
        if self.closed is not None:
            return
        self.closed = why or NetworkError(f"the connection to {self.address} was closed here")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is not None:
            self._link.close()
        waiting, self._in_flight = self._in_flight, deque()
        for sent in waiting:
            if not sent.future.done():
                sent.future.set_exception(self.closed)
                sent.future.exception()  # looked at: who sent several gives up at the first that fails

    def _write(self, api_key: int, version: int, message: object, state: ConsistencyState | None = None) -> int:
        if self.closed is not None:
            raise self.closed
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) % _CORRELATION_ID_END
        consistency = self._settings.consistency
        if state is None and consistency is not None and api_key != ApiKey.API_VERSIONS:
            state = consistency.state()
        pieces = encode_request(
            api_key, version, correlation_id, self._settings.client_id, message, consistency_state=state
        )
        if self._link is None:
            raise NetworkError(f"{self.address} is not connected yet")
        buffers: list[Buffer] = pieces  # type: ignore[assignment]  # nothing that a client sends lies on disk
        self._link.write(buffers)
        return correlation_id

    # The network's side.
    def get_buffer(self, size_hint: int) -> memoryview:
        return self._receiver.get_buffer(size_hint)

    def on_bytes(self, size_bytes: int) -> None:
        self._receiver.on_bytes(size_bytes)
        try:
            while self.closed is None and (frame := self._receiver.next_frame()) is not None:
                self._on_frame(frame)
        except MalformedMessageError as error:
            self.close(self._tls_expected() or NetworkError(f"{self.address} sent what is no answer: {error}"))
        except TidelogError as error:
            self.close(error)

    def on_closed(self, error: Exception | None) -> None:
        waits = f" with {len(self._in_flight)} requests unanswered" if self._in_flight else ""
        was_open = self.closed is None
        if was_open and self._in_flight:
            self.was_unheard = self._in_flight[0].correlation_id == self._first_correlation_id
        if not isinstance(error, TidelogError):
            what = f"{self.address} closed the connection{waits}{f': {error}' if error else ''}"
            error = self._tls_expected() or NetworkError(what)
        self.close(error)
        if was_open and self.on_hung_up is not None:
            self.on_hung_up()

    def _tls_expected(self) -> SslAuthenticationError | None:
        """Why it ended, if what came last is said by who speaks TLS."""
        if self._first_correlation_id or not self._receiver.start_of_frame().startswith(_TLS_ALERT):
            return None  # after the handshake it is the size of a response
        wanted = "'SSL', or 'SASL_SSL' if the listener asks for a user"
        if self._settings.security is not None and self._settings.security.sasl is not None:
            wanted = "'SASL_SSL'"
        return SslAuthenticationError(
            f"{self.address} speaks TLS, and this client does not: set {self._settings.protocol_setting}={wanted}"
        )

    def _on_frame(self, frame: memoryview) -> None:
        if not self._in_flight:
            raise MalformedMessageError(f"{len(frame)} bytes that answer no request")
        sent = self._in_flight[0]  # stays there until its answer was read: else it fails with the others
        correlation_id, state, position = decode_response_header(frame, sent.api_key, sent.version)
        if correlation_id != sent.correlation_id:
            raise MalformedMessageError(f"correlation id {correlation_id}, where {sent.correlation_id} is due")
        if state is not None and self._settings.consistency is not None:
            try:
                self._settings.consistency.on_state(state)
            except KafkaError as error:
                raise KafkaError(f"{self.address}: {error}", code=error.code) from None
        message = None
        if not sent.future.done():  # else nobody waits for it any more
            version = sent.version
            if sent.api_key == ApiKey.API_VERSIONS and bytes(frame[position : position + 2]) == b"\0\x23":
                version = 0  # UNSUPPORTED_VERSION comes in a body that everybody can read
            message = decode(sent.response, frame, version, position)
            if sent.on_state is not None:
                sent.on_state(state)
        self._in_flight.popleft()
        if message is not None:
            sent.future.set_result(message)

    # Deadlines.
    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        next_due = min(self._in_flight, key=_deadline)
        if next_due.deadline > self._loop.time():
            self._set_timer(next_due.deadline)
            return
        name = APIS[next_due.api_key].name
        self.close(NetworkError(f"{self.address} did not answer {name} within {next_due.timeout_ms} ms"))


def _deadline(sent: _InFlight) -> float:
    return sent.deadline


async def open_connection(network: Network, address: Address, settings: ConnectionSettings) -> Connection:
    """Connect, learn what the broker serves, and authenticate where the settings say so.

    Raises:
        NetworkError: it cannot be reached, hung up, or what answers is no broker. Names the address and the reason.
        UnsupportedVersionError: it serves no version of ApiVersions that we have.
        AuthenticationError: one side does not accept the other, or they speak with and without TLS.
    """
    if settings.security is not None:
        from tidelog.net.security import open_secure_connection

        return await open_secure_connection(network, address, settings, settings.security)
    connection = Connection(address, settings)
    await connect(connection, network, settings)
    return connection


async def connect(
    connection: Connection,
    network: Network,
    settings: ConnectionSettings,
    authenticate: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Connect a new connection. After an error it is closed. Raises as `open_connection`."""
    address = connection.address
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            connection._link = await network.connect(address.host, address.port, connection)
            await _handshake(connection, settings.connect_timeout_ms)
            if authenticate is not None:
                await authenticate()
            connection._first_correlation_id = connection._next_correlation_id
    except TimeoutError:
        error = NetworkError(f"cannot connect to {address}: no answer within {settings.connect_timeout_ms} ms")
        connection.close(error)
        raise error from None
    except BaseException as error:
        connection.close(error if isinstance(error, TidelogError) else None)
        raise


async def _handshake(connection: Connection, timeout_ms: int) -> None:
    from tidelog.base.version import __version__
    from tidelog.wire.messages.api_18_api_versions import (
        ApiVersionsRequest,
        ApiVersionsResponse,
    )

    ours = APIS[ApiKey.API_VERSIONS]
    request = ApiVersionsRequest(client_software_name="tidelog", client_software_version=__version__)
    answer = await connection.send(request, ApiVersionsResponse, timeout_ms=timeout_ms, version=ours.max_version)
    if answer.error_code == _UNSUPPORTED_VERSION:
        # The broker is older. It says what it serves of this very API, if it is not older than that (KIP-511).
        theirs = next((row for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS), None)
        version = 0 if theirs is None else min(theirs.max_version, ours.max_version)
        answer = await connection.send(request, ApiVersionsResponse, timeout_ms=timeout_ms, version=version)
    if answer.error_code:
        raise UnsupportedVersionError(f"{connection.address} refused ApiVersions with error {answer.error_code}")
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    features = {row.name: row.max_version_level for row in answer.finalized_features}
    if answer.finalized_features_epoch < 0:
        features.clear()  # a broker that does not know them yet says nothing by an empty list
    connection.versions = PeerVersions(str(connection.address), rows, features)
