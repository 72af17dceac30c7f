"""TLS against servers on loopback: who is accepted, who is not, and who speaks none."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

import pytest

from support.fixtures.certificates import OVER, Authority, Certificate, missing_openssl
from support.fixtures.scripted_broker import ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.certificates import Certificates
from tidelog.base.errors import NetworkError, SslAuthenticationError
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.io.tls import TlsNetwork, client_context
from tidelog.net.address import Address
from tidelog.net.connection import Connection, ConnectionSettings, open_connection
from tidelog.net.security import ConnectionSecurity
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse

HOSTS = "DNS:localhost,IP:127.0.0.1"
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if (reason := missing_openssl()) is not None:
        pytest.skip(reason)
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker_certificate(authority: Authority) -> Certificate:
    return authority.sign("broker", hosts=HOSTS)


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    if request.param == "asyncio":
        return asyncio.run
    uvloop = pytest.importorskip("uvloop")

    def run_on_uvloop(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(work)

    return run_on_uvloop


def server_context(
    certificate: Certificate, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, clients: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.both)
    context.minimum_version = context.maximum_version = version
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def settings(certificates: Certificates, timeout_ms: int = 10_000) -> ConnectionSettings:
    tls = TlsNetwork(client_context(certificates), certificates)
    return ConnectionSettings(
        "test", connect_timeout_ms=timeout_ms, security=ConnectionSecurity(tls, None, SystemRng())
    )


def trusting(authority: Authority, **others: Any) -> Certificates:
    return Certificates(authorities_path=str(authority.certificate), **others)


async def connect(port: int, used: ConnectionSettings, host: str = "localhost") -> Connection:
    return await open_connection(RealNetwork(), Address(host, port), used)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_is_trusted_is_talked_to(
    run: Any, authority: Authority, broker_certificate: Certificate, version: ssl.TLSVersion, host: str
) -> None:
    long = "x" * 30_000 + "é" * 40_000  # the answer is larger than a record of TLS, and than a buffer of ours

    async def work() -> None:
        async with ScriptedBroker(tls=server_context(broker_certificate, version)) as broker:
            broker.on(ApiKey.METADATA, lambda request, version: MetadataResponse(cluster_id=long[:32_000]))
            connection = await connect(broker.port, settings(trusting(authority)), host)
            for _ in range(5):
                answers = [
                    connection.send(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=10_000) for _ in range(9)
                ]
                assert {answer.cluster_id for answer in await asyncio.gather(*answers)} == {long[:32_000]}
            connection.close()
            with pytest.raises(NetworkError, match="was closed here"):
                connection.send(MetadataRequest(topics=[]), MetadataResponse, timeout_ms=1)

    run(work())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_with_a_certificate_is_accepted(
    run: Any, authority: Authority, broker_certificate: Certificate, version: ssl.TLSVersion
) -> None:
    client = authority.sign("alice", password="sesame")

    async def work() -> None:
        context = server_context(broker_certificate, version, authority.certificate)
        async with ScriptedBroker(tls=context) as broker:
            used = trusting(authority, certificate_path=str(client.both), key_password="sesame")
            (await connect(broker.port, settings(used))).close()

    run(work())


class StrictServer:
    """Wants a certificate that `clients` has signed. Unlike asyncio's, its refusal reaches the client."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._context = context
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> StrictServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                accepted, _ = self._listening.accept()
                secured = self._context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
                with secured, pytest.raises(ssl.SSLError):
                    secured.do_handshake()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("shows", "expected"),
    [
        (False, "this client shows no certificate: .* set ssl_keystore_location"),
        (True, "may not trust the authority of this client's certificate"),
    ],
)
def test_a_client_that_is_not_accepted_is_told_what_is_missing(
    run: Any, authority: Authority, tmp_path: Path, *, version: ssl.TLSVersion, shows: bool, expected: str
) -> None:
    stranger = Authority(tmp_path, "stranger").sign("mallory")
    context = server_context(authority.sign(f"strict-{version}", hosts=HOSTS), version, authority.certificate)

    async def work() -> None:
        with StrictServer(context) as server:
            used = trusting(authority, certificate_path=str(stranger.both) if shows else None)
            with pytest.raises(SslAuthenticationError, match=f"^localhost:{server.port}: .*{expected}"):
                await connect(server.port, settings(used))

    run(work())


def test_a_broker_that_hangs_up_without_an_alert_is_tried_again(
    run: Any, authority: Authority, broker_certificate: Certificate
) -> None:
    async def work() -> None:
        context = server_context(broker_certificate, clients=authority.certificate)
        async with ScriptedBroker(tls=context) as broker:  # asyncio's servers drop their alerts
            with pytest.raises(NetworkError, match="closed the connection with 1 requests unanswered"):
                await connect(broker.port, settings(trusting(authority)))

    run(work())


def test_a_broker_that_is_not_accepted_is_told_with_the_remedy(run: Any, authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger")
    good = authority.sign("good", hosts=HOSTS)
    trusted = trusting(authority)
    cases = [
        (good, Certificates(), "no authority that is trusted here .* the system's, since no ssl_truststore_location"),
        (good, Certificates(authorities=stranger.certificate.read_text()), "those in ssl_truststore_certificates"),
        (good, trusting(stranger), r"those in .*stranger\.pem"),
        (authority.sign("other", hosts="DNS:elsewhere.example"), trusted, "is for another name .*'localhost'"),
        (authority.sign("nameless"), trusted, "is for another name"),
        (authority.sign("old", hosts=HOSTS, valid=OVER), trusted, "too old .certificate has expired."),
        (
            authority.sign("young", hosts=HOSTS, valid=("20980101000000Z", "20990101000000Z")),
            trusted,
            "not valid yet .*is the clock right",
        ),
    ]

    async def work() -> None:
        for certificate, used, expected in cases:
            async with ScriptedBroker(tls=server_context(certificate)) as broker:
                with pytest.raises(SslAuthenticationError, match=f"^localhost:{broker.port}: .*{expected}"):
                    await connect(broker.port, settings(used))
                assert broker.requests == []

    run(work())


def test_a_name_need_not_be_checked_but_the_authority_is(run: Any, authority: Authority, tmp_path: Path) -> None:
    other = authority.sign("another", hosts="DNS:elsewhere.example")
    stranger = Authority(tmp_path, "stranger")

    async def work() -> None:
        async with ScriptedBroker(tls=server_context(other)) as broker:
            (await connect(broker.port, settings(trusting(authority, checks_host_name=False)))).close()
            with pytest.raises(SslAuthenticationError, match="no authority that is trusted"):
                await connect(broker.port, settings(trusting(stranger, checks_host_name=False)))

    run(work())


# Who speaks no TLS.
class Peer(asyncio.Protocol):
    """Says something to whoever says anything, hangs up on an empty word, or says nothing at all."""

    def __init__(self, says: bytes | None, connected: set[asyncio.BaseTransport]) -> None:
        self._says = says
        self._connected = connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connected.add(transport)

    def data_received(self, data: bytes) -> None:
        if self._says is not None:
            self._transport.write(self._says)
            if not self._says:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connected.discard(self._transport)


@asynccontextmanager
async def peer(says: bytes | None) -> AsyncIterator[int]:
    connected: set[asyncio.BaseTransport] = set()
    server = await asyncio.get_running_loop().create_server(lambda: Peer(says, connected), "localhost", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
    await until(lambda: not connected)


def test_a_broker_without_tls_is_recognised(run: Any, authority: Authority) -> None:
    async def work() -> None:
        async with ScriptedBroker() as broker:
            with pytest.raises(SslAuthenticationError, match=r"speaks no TLS, .* set security_protocol='PLAINTEXT'"):
                await connect(broker.port, settings(trusting(authority)))

    run(work())


@pytest.mark.parametrize(
    ("said", "kind", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", SslAuthenticationError, "does not speak TLS"),
        (b"", NetworkError, "it hung up during the TLS handshake"),
        (b"\x15\x03\x03\x00\x02\x02\x28", SslAuthenticationError, "handshake failure"),
        (b"\x15\x03\x03\x00\x02\x02\x46", SslAuthenticationError, "protocol version"),
    ],
    ids=["http", "hangs-up", "no-common-cipher", "no-common-version"],
)
def test_what_is_no_broker_is_told_by_what_it_says(
    run: Any, authority: Authority, said: bytes, kind: type[Exception], expected: str
) -> None:
    async def work() -> None:
        async with peer(said) as port:
            with pytest.raises(kind, match=f"localhost:{port}.*{expected}"):
                await connect(port, settings(trusting(authority)))

    run(work())


def test_a_server_that_says_nothing_is_given_up(run: Any, authority: Authority) -> None:
    async def work() -> None:
        async with peer(None) as port:
            with pytest.raises(NetworkError, match="no answer within 50 ms"):
                await connect(port, settings(trusting(authority), timeout_ms=50))

    run(work())


def test_nobody_listening_is_told_as_without_tls(run: Any, authority: Authority) -> None:
    async def work() -> None:
        async with ScriptedBroker() as broker:
            await broker.stop()
            with pytest.raises(NetworkError, match=rf"cannot connect to localhost:{broker.port}: connection refused"):
                await connect(broker.port, settings(trusting(authority)))

    run(work())
