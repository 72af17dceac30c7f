"""Connections with SASL against a peer that answers as a test says; and peers that speak another protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from support.fixtures.scripted_broker import HANG_UP, SILENT, ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.errors import AuthenticationError, Code, NetworkError, SaslAuthenticationError, SslAuthenticationError
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.net.address import Address
from tidelog.net.backoff import Backoff
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.net.pool import ConnectionPool
from tidelog.net.security import ConnectionSecurity, SaslConnection
from tidelog.security.sasl import PlainExchange, SaslExchange
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateResponse

EXCHANGE = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02P"


class Login:
    """Says who it is by PLAIN."""

    mechanism = "PLAIN"

    def __init__(self) -> None:
        self.started = 0
        self.error: Exception | None = None

    async def start(self) -> SaslExchange:
        self.started += 1
        if self.error is not None:
            raise self.error
        return PlainExchange("alice", "secret")


class SaslBroker(ScriptedBroker):
    """Accepts whoever comes, for a session of `lifetime_ms`."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        super().__init__()
        self.on(ApiKey.SASL_HANDSHAKE, lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"]))
        answer = SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)
        self.on(ApiKey.SASL_AUTHENTICATE, lambda request, version: answer)
        self.on(ApiKey.METADATA, lambda request, version: MetadataResponse(cluster_id=request.topics[0].name))

    def keys(self) -> list[int]:
        return [key for key, _, _ in self.requests]


def settings(login: Login | None) -> ConnectionSettings:
    security = None if login is None else ConnectionSecurity(None, login, SystemRng())
    return ConnectionSettings(client_id="test", connect_timeout_ms=5_000, security=security)


async def connect(broker: ScriptedBroker, login: Login | None = None) -> Connection:
    return await open_connection(RealNetwork(), Address("127.0.0.1", broker.port), settings(login))


def make_pool(login: Login | None = None) -> ConnectionPool:
    return ConnectionPool(RealNetwork(), settings(login), Backoff(1, 1, SystemRng()))


def ask(connection: Connection, name: str) -> asyncio.Future[MetadataResponse]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    return connection.send(request, MetadataResponse, timeout_ms=5_000)


def run(broker: SaslBroker, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def do() -> None:
        async with broker:
            await work()

    asyncio.run(do())


def test_a_client_says_who_it_is_before_it_asks_anything() -> None:
    broker = SaslBroker()

    async def work() -> None:
        connection = await connect(broker, Login())
        assert (await ask(connection, "a")).cluster_id == "a"
        assert broker.keys() == [ApiKey.API_VERSIONS, *EXCHANGE, ApiKey.METADATA]
        [handshake] = broker.messages(ApiKey.SASL_HANDSHAKE)
        [message] = broker.messages(ApiKey.SASL_AUTHENTICATE)
        assert (handshake.mechanism, message.auth_bytes) == ("PLAIN", b"\0alice\0secret")
        assert "secret" not in repr(message)
        connection.close()

    run(broker, work)


@pytest.mark.parametrize(
    ("handshake", "answer", "expected"),
    [
        (
            SaslHandshakeResponse(error_code=Code.UNSUPPORTED_SASL_MECHANISM, mechanisms=["SCRAM-SHA-256", "GSSAPI"]),
            None,
            r"SASL PLAIN is not offered by the broker: set sasl_mechanism to what is: SCRAM-SHA-256, GSSAPI",
        ),
        (
            SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE),
            None,
            r"does not ask for SASL: set security_protocol='PLAINTEXT'",
        ),
        (
            SaslHandshakeResponse(),
            SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message="go away"),
            r"SASL PLAIN failed, as user 'alice': .* The broker says: go away \(SASL_AUTHENTICATION_FAILED\)",
        ),
        (SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"more"), "SASL PLAIN: the broker asks for more"),
    ],
)
def test_a_refusal_says_what_to_set_and_is_not_tried_again(
    handshake: SaslHandshakeResponse, answer: SaslAuthenticateResponse | None, expected: str
) -> None:
    broker = SaslBroker()
    broker.on(ApiKey.SASL_HANDSHAKE, lambda request, version: handshake)
    broker.on(ApiKey.SASL_AUTHENTICATE, lambda request, version: answer)

    async def work() -> None:
        pool = make_pool(Login())
        for _ in range(3):
            with pytest.raises(SaslAuthenticationError, match=rf"^127\.0\.0\.1:{broker.port}: .*{expected}") as error:
                await pool.connection(Address("127.0.0.1", broker.port))
            assert "secret" not in str(error.value)
        assert broker.connections == 1
        await pool.close()

    run(broker, work)


def test_a_refusal_for_the_moment_is_tried_again() -> None:
    broker = SaslBroker()
    codes = iter((Code.NETWORK_EXCEPTION, Code.NONE))
    broker.on(ApiKey.SASL_AUTHENTICATE, lambda request, version: SaslAuthenticateResponse(error_code=next(codes)))

    async def work() -> None:
        pool = make_pool(Login())
        with pytest.raises(NetworkError, match="NETWORK_EXCEPTION"):
            await pool.connection(Address("127.0.0.1", broker.port))
        await pool.connection(Address("127.0.0.1", broker.port))
        await pool.close()

    run(broker, work)


def test_a_broker_that_knows_no_sasl_is_told_from_one_that_refuses() -> None:
    broker = SaslBroker()
    del broker.versions[ApiKey.SASL_HANDSHAKE]

    async def work() -> None:
        with pytest.raises(SaslAuthenticationError, match="does not ask for SASL"):
            await connect(broker, Login())

    run(broker, work)


# Sessions that end.
def test_a_session_is_renewed_between_requests_again_and_again() -> None:
    broker, login = SaslBroker(lifetime_ms=10), Login()

    async def work() -> None:
        connection = await connect(broker, login)
        names = iter(range(1_000_000))

        async def keep_asking() -> None:
            while login.started < 4:
                batch = [str(next(names)) for _ in range(3)]
                answers = await asyncio.gather(*(ask(connection, name) for name in batch))
                assert [answer.cluster_id for answer in answers] == batch

        await asyncio.wait_for(keep_asking(), 60)
        keys = broker.keys()
        for index in (index for index, key in enumerate(keys[:-1]) if key == ApiKey.SASL_HANDSHAKE):
            assert keys[index + 1] == ApiKey.SASL_AUTHENTICATE  # nothing stands between the two
        asked = [message.topics[0].name for message in broker.messages(ApiKey.METADATA)]
        assert asked == [str(number) for number in range(len(asked))]
        assert broker.connections == 1
        connection.close()

    run(broker, work)


def test_what_is_under_way_is_answered_first_and_what_comes_meanwhile_is_kept_back() -> None:
    broker, login = SaslBroker(lifetime_ms=3_600_000), Login()
    may_answer, is_asked = asyncio.Event(), asyncio.Event()

    async def answer(request: MetadataRequest, version: int) -> MetadataResponse:
        assert request.topics is not None
        is_asked.set()
        await may_answer.wait()
        return MetadataResponse(cluster_id=request.topics[0].name)

    broker.on(ApiKey.METADATA, answer)

    async def work() -> None:
        connection = await connect(broker, login)
        assert isinstance(connection, SaslConnection)
        before = ask(connection, "before")
        await is_asked.wait()
        connection._start_renewal()
        await until(lambda: login.started == 2)
        meanwhile = [ask(connection, str(number)) for number in range(3)]
        meanwhile[1].cancel()  # nobody waits for it any more; it is sent all the same
        draining = asyncio.ensure_future(connection.drain())
        assert (connection.in_flight, draining.done()) == (4, False)
        assert broker.keys() == [ApiKey.API_VERSIONS, *EXCHANGE, ApiKey.METADATA]
        may_answer.set()
        assert (await before).cluster_id == "before"
        assert [(await meanwhile[index]).cluster_id for index in (0, 2)] == ["0", "2"]
        await draining
        assert broker.keys()[4:] == [*EXCHANGE, *[ApiKey.METADATA] * 3]
        connection.close()

    run(broker, work)


def test_a_session_that_cannot_be_renewed_ends_the_connection_and_the_next_one_says_why() -> None:
    broker, login = SaslBroker(lifetime_ms=3_600_000), Login()

    async def work() -> None:
        pool = make_pool(login)
        target = Address("127.0.0.1", broker.port)
        connection = await pool.connection(target)
        assert isinstance(connection, SaslConnection)
        refused = SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message="revoked")
        broker.on(ApiKey.SASL_AUTHENTICATE, lambda request, version: refused)
        connection._start_renewal()
        await until(lambda: login.started == 2)
        with pytest.raises(NetworkError, match=r"the session could not be renewed: .* revoked"):
            await ask(connection, "kept back")
        with pytest.raises(SaslAuthenticationError, match="revoked"):
            await pool.connection(target)
        await pool.close()

    run(broker, work)


def test_a_token_that_cannot_be_had_at_the_moment_is_asked_for_again() -> None:
    broker, login = SaslBroker(lifetime_ms=200), Login()

    async def work() -> None:
        connection = await connect(broker, login)
        login.error = NetworkError("nobody issues tokens at the moment")
        await until(lambda: login.started > 3)
        assert (await ask(connection, "meanwhile")).cluster_id == "meanwhile"
        login.error = None
        await until(lambda: len(broker.messages(ApiKey.SASL_AUTHENTICATE)) == 2)
        assert connection.closed is None
        connection.close()

    run(broker, work)


def test_a_connection_may_be_closed_while_its_session_is_renewed() -> None:
    broker, login = SaslBroker(lifetime_ms=3_600_000), Login()

    async def work() -> None:
        connection = await connect(broker, login)
        assert isinstance(connection, SaslConnection)
        broker.on(ApiKey.SASL_HANDSHAKE, lambda request, version: SILENT)
        connection._start_renewal()
        await until(lambda: login.started == 2)
        kept = ask(connection, "kept back")
        draining = asyncio.ensure_future(connection.drain())
        connection.close()
        with pytest.raises(NetworkError, match="was closed here"):
            await kept
        await draining

    run(broker, work)


# Other protocols.
@pytest.mark.parametrize("size_max", [1_000, 2**31 - 1])
@pytest.mark.parametrize(("login", "wanted"), [(None, "'SSL', or 'SASL_SSL'"), (Login(), "'SASL_SSL'")])
def test_the_alert_of_a_listener_with_tls_is_understood(size_max: int, login: Login | None, wanted: str) -> None:
    broker = SaslBroker()

    async def answer(request: object, version: int) -> object:
        asyncio.get_running_loop().call_later(0.01, broker.hang_up)
        return TLS_ALERT

    broker.on(ApiKey.API_VERSIONS, answer)

    async def work() -> None:
        used = settings(login)
        used = ConnectionSettings(
            client_id="test", connect_timeout_ms=5_000, response_size_bytes_max=size_max, security=used.security
        )
        with pytest.raises(SslAuthenticationError, match=f"speaks TLS, .* set security_protocol={wanted}"):
            await open_connection(RealNetwork(), Address("127.0.0.1", broker.port), used)

    run(broker, work)


def test_a_listener_that_hangs_up_on_the_first_request_is_asked_whether_it_waits_for_sasl() -> None:
    broker = SaslBroker()
    offered = SaslHandshakeResponse(error_code=Code.UNSUPPORTED_SASL_MECHANISM, mechanisms=["PLAIN", "OAUTHBEARER"])
    broker.on(ApiKey.SASL_HANDSHAKE, lambda request, version: offered)
    broker.on(ApiKey.METADATA, lambda request, version: HANG_UP)

    async def work() -> None:
        pool = make_pool()
        target = Address("127.0.0.1", broker.port)
        with pytest.raises(NetworkError, match="closed the connection with 1 requests unanswered"):
            await ask(await pool.connection(target), "a")
        with pytest.raises(AuthenticationError, match=r"'SASL_PLAINTEXT', and sasl_mechanism to one of PLAIN, OAUTH"):
            await pool.connection(target)
        opened = broker.connections
        with pytest.raises(AuthenticationError):
            await pool.connection(target)
        assert broker.connections == opened
        await pool.close()

    run(broker, work)


@pytest.mark.parametrize("serves", [True, False])
def test_a_listener_without_sasl_may_hang_up_as_it_likes(serves: bool) -> None:
    broker = SaslBroker()
    if serves:
        illegal = SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE)
        broker.on(ApiKey.SASL_HANDSHAKE, lambda request, version: illegal)
    else:
        del broker.versions[ApiKey.SASL_HANDSHAKE]
    broker.on(ApiKey.METADATA, lambda request, version: HANG_UP)

    async def work() -> None:
        pool = make_pool()
        target = Address("127.0.0.1", broker.port)
        for _ in range(2):
            with pytest.raises(NetworkError, match="requests unanswered"):
                await ask(await pool.connection(target), "a")
        assert len(broker.messages(ApiKey.SASL_HANDSHAKE)) == int(serves)
        await pool.close()

    run(broker, work)
