"""The way past a listener with SASL, on a real socket: who is let in, and who is kept waiting or hung up on."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.fixtures.waiting import until
from tidelog.base.errors import Code, SaslAuthenticationError
from tidelog.base.ids import ClusterId
from tidelog.base.principals import ANONYMOUS, Principal
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.metadata import MetadataImage
from tidelog.metadata.configs import BrokerSettings
from tidelog.security.authorizer import AllowEverything
from tidelog.security.sasl_server import Identity
from tidelog.security.scram import ScramExchange, ScramSecret
from tidelog.security.scram_server import credential_of
from tidelog.server.api.dispatch import Dispatcher
from tidelog.server.api.ports import ServerApi
from tidelog.server.quotas.peer_limits import PeerLimits
from tidelog.server.settings.in_force import SettingsInForce
from tidelog.server.transport import sasl_gate
from tidelog.server.transport.authentication import Authentication
from tidelog.server.transport.closed import Closed
from tidelog.server.transport.connection_memory import ConnectionMemory
from tidelog.server.transport.listener_roles import BROKER
from tidelog.server.transport.oauth_keys import OAuthKeys
from tidelog.server.transport.server_connection import ServerConnection
from tidelog.wire import decode, decode_response_header, encode_request
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

JAAS_KEY = "listener.name.in.plain.sasl.jaas.config"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "connection.failed.authentication.delay.ms": "1",
    JAAS_KEY: 'PlainLoginModule required user_alice="a";',
}
ALICE = b"\0alice\0a"
SCRAM = "SCRAM-SHA-256"
FAILED_MAX = 5
SECRET = ScramSecret(SCRAM, "alice", "of alice")
KEPT = credential_of(SCRAM, "of alice", b"salt", 4_096)


class Peer:
    """Somebody connected, and the connection as the server has it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, key: int, version: int, message: Any, response: type[Any]) -> Any:
        pieces: list[Any] = encode_request(key, version, 7, "peer", message)
        self.writer.write(b"".join(bytes(piece) for piece in pieces))
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        frame = await self.reader.readexactly(size)
        return decode(response, frame, version, decode_response_header(frame, key, version)[2])

    async def handshake(self, mechanism: str = "PLAIN") -> SaslHandshakeResponse:
        return cast(
            SaslHandshakeResponse,
            await self.ask(17, 1, SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse),
        )

    async def authenticate(self, message: bytes = ALICE) -> SaslAuthenticateResponse:
        return cast(
            SaslAuthenticateResponse,
            await self.ask(36, 2, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse),
        )

    async def is_closed(self) -> bool:
        try:
            return not await self.reader.read(1)
        except ConnectionResetError:
            return True


class Server:
    """A listener with SASL.

    Attributes:
        connections: that are open.
        ends: of those that are not.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.connections: dict[ServerConnection, None] = {}
        self.ends: list[tuple[Closed, Exception | None]] = []
        self.image = replace(MetadataImage.empty(), scram_credentials={(SCRAM, "alice"): KEPT})
        self.cluster_id = ClusterId("the cluster")
        limits = BrokerSettings.of({"max.failed.authentications.per.ip": str(FAILED_MAX)})
        peers = PeerLimits(limits, SystemClock())
        self.failed_logins = peers.failed_logins
        self.authentication = Authentication(settings, self, peers, clock=SystemClock(), rng=SystemRng())

    @property
    def connection(self) -> ServerConnection:
        (connection,) = self.connections
        return connection


@asynccontextmanager
async def served(settings: Mapping[str, str] = SETTINGS) -> AsyncIterator[tuple[Server, Callable[[], Awaitable[Peer]]]]:
    server, executor = Server(settings), InlineExecutor()
    listener = server.authentication.listener("IN", of_controllers=False)
    dispatcher = Dispatcher(cast(ServerApi, SimpleNamespace(authorizer=AllowEverything())), BROKER)
    listening = await asyncio.get_running_loop().create_server(
        lambda: ServerConnection(
            dispatcher.on_frame,
            listener_name="IN",
            frame_size_bytes_max=1 << 20,
            connections=server.connections,
            executor=executor,
            memory=ConnectionMemory(1 << 30, 1 << 30, SystemClock()),
            on_closed=lambda why, error: server.ends.append((why, error)),
            new_gate=listener.new_gate,
        ),
        "127.0.0.1",
        0,
    )
    peers: list[Peer] = []

    async def connect() -> Peer:
        peers.append(Peer(*await asyncio.open_connection(*listening.sockets[0].getsockname())))
        return peers[-1]

    try:
        yield server, connect
    finally:
        for peer in peers:
            peer.writer.close()
        listening.close()
        for connection in list(server.connections):
            connection.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def test_who_authenticated_is_who_sends() -> None:
    async def scenario() -> None:
        async with served() as (server, connect):
            peer = await connect()
            await peer.handshake()
            assert server.connection.requester.principal == ANONYMOUS
            assert (await peer.authenticate()).error_code == 0
            assert server.connection.requester == (Principal("User", "alice"), "127.0.0.1", False)

    run(scenario)


@pytest.mark.parametrize("has_begun", [False, True])
def test_who_is_silent_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, has_begun: bool) -> None:
    monkeypatch.setattr(sasl_gate, "LOGIN_SECONDS_MAX", 0.05)

    async def scenario() -> None:
        async with served() as (server, connect):
            peer, known = await connect(), await connect()
            if has_begun:
                await peer.handshake()
            await known.handshake()
            await known.authenticate()
            assert await peer.is_closed()
            await until(lambda: server.ends)
            ((why, error),) = server.ends
            assert (why, "no authentication in" in str(error)) == (Closed.AUTHENTICATION, True)
            assert len(server.connections) == 1

    run(scenario)


def test_whoever_trickles_is_hung_up_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_gate, "LOGIN_SECONDS_MAX", 0.05)

    async def scenario() -> None:
        async with served() as (server, connect):
            peer = await connect()
            peer.writer.write(struct.pack(">i", 1_000))
            while not server.ends:
                peer.writer.write(b"x")
                await asyncio.sleep(0.005)
            assert server.ends[0][0] == Closed.AUTHENTICATION

    run(scenario)


def test_what_is_told_to_the_log_says_what_failed_and_not_with_what() -> None:
    async def scenario() -> None:
        async with served() as (server, connect):
            peer = await connect()
            await peer.handshake()
            await peer.authenticate(b"\0alice\0hunter2")
            assert await peer.is_closed()
            ((why, error),) = server.ends
            assert (why, type(error)) == (Closed.AUTHENTICATION, SaslAuthenticationError)
            assert "with SASL mechanism PLAIN" in str(error)
            assert "hunter2" not in str(error)
            assert "alice" not in str(error)

    run(scenario)


def test_a_connection_that_goes_while_a_refusal_waits_leaves_nothing() -> None:
    async def scenario() -> None:
        async with served() as (server, connect):
            server.authentication.texts = SETTINGS | {"connection.failed.authentication.delay.ms": "60000"}
            peer = await connect()
            await peer.handshake()
            pieces: list[Any] = encode_request(36, 2, 7, "peer", SaslAuthenticateRequest(auth_bytes=b""))
            peer.writer.write(b"".join(bytes(piece) for piece in pieces))
            await until(lambda: server.connection.is_waiting)
            peer.writer.close()
            await until(lambda: not server.connections)

    run(scenario)


def test_scram_lets_in_whom_the_metadata_knows() -> None:
    async def scenario() -> None:
        async with served() as (server, connect):
            peer = await connect()
            assert (await peer.handshake(SCRAM)).error_code == 0
            exchange = ScramExchange(SECRET, "nonce")
            first = await peer.authenticate(exchange.first_message())
            final = exchange.on_answer(bytes(first.auth_bytes))
            assert final is not None
            answer = await peer.authenticate(final)
            assert exchange.on_answer(bytes(answer.auth_bytes)) is None
            assert server.connection.requester.principal.name == "alice"

    run(scenario)


def test_what_was_overheard_of_scram_opens_nothing() -> None:
    async def scenario() -> None:
        async with served() as (_, connect):
            honest, replaying = await connect(), await connect()
            exchange = ScramExchange(SECRET, "nonce")
            await honest.handshake(SCRAM)
            first = await honest.authenticate(exchange.first_message())
            final = exchange.on_answer(bytes(first.auth_bytes))
            assert final is not None
            await honest.authenticate(final)
            await replaying.handshake(SCRAM)
            other = await replaying.authenticate(exchange.first_message())
            assert other.auth_bytes != first.auth_bytes
            assert (await replaying.authenticate(final)).error_code == 58
            assert await replaying.is_closed()

    run(scenario)


def test_an_unknown_user_of_scram_is_asked_as_a_known_one_is() -> None:
    async def scenario() -> None:
        async with served() as (_, connect):
            asked, refused = [], []
            for user in ("nobody", "nobody", "alice"):
                peer = await connect()
                exchange = ScramExchange(ScramSecret(SCRAM, user, "wrong"), "nonce")
                await peer.handshake(SCRAM)
                first = await peer.authenticate(exchange.first_message())
                asked.append(bytes(first.auth_bytes).split(b",")[1:])
                final = exchange.on_answer(bytes(first.auth_bytes))
                assert final is not None
                answer = await peer.authenticate(final)
                refused.append((answer.error_code, answer.error_message))
            assert asked[0] == asked[1], "its salt stays"
            assert len(set(refused)) == 1

    run(scenario)


def test_users_come_and_go_while_the_node_runs(caplog: pytest.LogCaptureFixture) -> None:
    def changed(jaas: str) -> SettingsInForce:
        return SettingsInForce(BrokerSettings(SETTINGS, {JAAS_KEY: jaas}, {}), {})

    async def scenario() -> None:
        async with served() as (server, connect):
            stays = await connect()
            await stays.handshake()
            await stays.authenticate()
            server.authentication.on_settings(None, changed('PlainLoginModule required user_bob="b";'))
            gone, come = await connect(), await connect()
            await gone.handshake()
            assert (await gone.authenticate()).error_code == 58
            await come.handshake()
            assert (await come.authenticate(b"\0bob\0b")).error_code == 0
            assert len(server.connections) == 2
            server.authentication.on_settings(None, changed("PlainLoginModule required;"))
            assert "who may log in stays as it was" in caplog.text
            later = await connect()
            await later.handshake()
            assert (await later.authenticate(b"\0bob\0b")).error_code == 0

    run(scenario)


def test_a_token_is_waited_for_and_a_bad_one_is_told_of_in_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "1",
        "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys",
    }
    checked: asyncio.Queue[Identity | SaslAuthenticationError] = asyncio.Queue()

    async def identity(self: OAuthKeys, token: str) -> Identity:
        assert token == "a.b.c"
        found = await checked.get()
        if isinstance(found, SaslAuthenticationError):
            raise found
        return found

    pytest.importorskip("joserfc")
    monkeypatch.setattr(OAuthKeys, "identity", identity)
    shown = b"n,,\x01auth=Bearer a.b.c\x01\x01"

    async def scenario() -> None:
        async with served(settings) as (server, connect):
            peer = await connect()
            await peer.handshake("OAUTHBEARER")
            answer = asyncio.create_task(peer.authenticate(shown))
            await asyncio.sleep(0.01)
            assert not answer.done()
            await checked.put(Identity("alice", SystemClock().wall_ms() + 60_000))
            assert 0 < (await answer).session_lifetime_ms <= 60_000
            assert server.connection.requester.principal == Principal("User", "alice")
            peer = await connect()
            await peer.handshake("OAUTHBEARER")
            await checked.put(SaslAuthenticationError("it expired"))
            told = await peer.authenticate(shown)
            assert (told.error_code, told.auth_bytes) == (0, b'{"status":"invalid_token"}')
            told = await peer.authenticate(b"\x01")
            assert (told.error_code, told.error_message) == (58, '{"status":"invalid_token"}')
            assert await peer.is_closed()
            await until(lambda: server.ends)
            assert [(why, str(error)) for why, error in server.ends] == [(Closed.AUTHENTICATION, "it expired")]

    run(scenario)


def test_who_guesses_too_often_is_refused_before_the_password_is_looked_at() -> None:
    async def scenario() -> None:
        async with served() as (server, connect):
            codes = []
            for number in range(FAILED_MAX + 3):
                peer = await connect()
                await peer.handshake()
                codes.append((await peer.authenticate(b"\0alice\0guess %d" % number)).error_code)
                assert await peer.is_closed()
            throttled = Code.THROTTLING_QUOTA_EXCEEDED
            assert codes == [Code.SASL_AUTHENTICATION_FAILED] * FAILED_MAX + [throttled] * 3
            peer = await connect()
            await peer.handshake()
            answer = await peer.authenticate(ALICE)  # the right one at last, and no word of it
            assert answer.error_code == throttled
            assert "max.failed.authentications.per.ip" in (answer.error_message or "")
            assert server.failed_logins.budgets.refused == 4

    run(scenario)


def test_who_logged_in_before_gets_in_whatever_their_neighbours_guess() -> None:
    async def scenario() -> None:
        async with served() as (server, connect):
            known = await connect()
            await known.handshake()
            assert (await known.authenticate()).error_code == 0
            for number in range(FAILED_MAX + 1):
                peer = await connect()
                await peer.handshake()
                await peer.authenticate(b"\0bob\0guess %d" % number)
            again = await connect()
            await again.handshake()
            assert (await again.authenticate()).error_code == 0
            assert server.failed_logins.budgets.refused == 1

    run(scenario)


def test_guesses_by_scram_that_began_together_are_counted_too() -> None:
    async def scenario() -> None:
        async with served() as (_, connect):
            first = b"n,,n=alice,r=abcdef"
            peers = [await connect() for _ in range(FAILED_MAX + 2)]
            for peer in peers:
                await peer.handshake(SCRAM)
                assert (await peer.authenticate(first)).error_code == 0
            codes = [(await peer.authenticate(b"c=biws,r=abcdef,p=AAAA")).error_code for peer in peers]
            assert codes.count(Code.THROTTLING_QUOTA_EXCEEDED) == 2

    run(scenario)


LONG = "a" * 8_192
MANY_PAIRS = b"".join(b"x%s=\x01" % (b"y" * length) for length in range(200))


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        ("PLAIN", f"\0alice\0{LONG}".encode()),
        (SCRAM, b"n,,n=" + b"a" * 200_000 + b",r=abc"),
        (
            "OAUTHBEARER",
            b"n,,\x01auth=Bearer a\x01" + b"".join(b"x%s=\x01" % (b"y" * one) for one in range(200)) + b"\x01",
        ),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer " + b"a" * 50_000 + b"\x01\x01"),
    ],
    ids=["a password", "a name", "many pairs", "a token"],
)
def test_a_long_message_is_refused_though_it_is_well_formed(mechanism: str, message: bytes) -> None:
    """It would be parsed in a step of the loop, before it is known whose it is."""
    pytest.importorskip("joserfc")
    settings = SETTINGS | {
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM},OAUTHBEARER",
        JAAS_KEY: f'PlainLoginModule required user_alice="{LONG}";',
        "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.invalid/keys",
    }

    async def scenario() -> None:
        async with served(settings) as (_, connect):
            peer = await connect()
            await peer.handshake(mechanism)
            assert (await peer.authenticate(message)).error_code == Code.SASL_AUTHENTICATION_FAILED

    run(scenario)


def test_guesses_keep_nobody_out_of_a_listener_of_nodes() -> None:
    async def scenario() -> None:
        async with served() as (server, _):
            of_nodes = server.authentication.listener("IN", of_controllers=False, of_nodes=True)
            of_clients = server.authentication.listener("IN", of_controllers=False)
            for _ in range(FAILED_MAX + 1):
                for listener in (of_nodes, of_clients):
                    listener._failed.on_failed("10.0.0.7", "node")
            assert of_nodes._failed.admits("10.0.0.7", "node")
            assert not of_clients._failed.admits("10.0.0.7", "node")

    run(scenario)
