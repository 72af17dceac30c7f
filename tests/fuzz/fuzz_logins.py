"""Try to get into a node without a password, and around its rules: `python tests/fuzz/fuzz_logins.py SECONDS [SEED]`.

Listeners with SASL get requests before, within and in place of a login, damaged messages of SCRAM and PLAIN, the raw
messages of old clients, and half of all that with silence behind; those with TLS get garbage, parts of a handshake, and
versions that are too old. Nobody of them is served. Who logs in and has no right asks for rules, users, quotas and
tokens: nothing changes. Who has every right asks for the same: the node bears it. It stays up, reports no bug of its
own, shows no password in its log, and keeps no file or memory for those who left.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.fuzz_node import Line, Thrower, check_log, open_files, resident_bytes
from fuzz.fuzz_requests import damaged
from support.fixtures.certificates import Authority
from support.fixtures.waiting import wait_until
from support.nodes.server_process import ServerProcess
from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.errors import TidelogError
from tidelog.cli.ports import free_ports
from tidelog.client.admin.acl_descriptions import AclBindingFilter
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.descriptions import NewTopic
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion
from tidelog.security.scram import ScramExchange, ScramSecret
from tidelog.server.transport.listener_roles import BROKER, CONTROLLER
from tidelog.wire import decode, decode_response_header, encode_request
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.api_03_metadata import MetadataRequest
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

HOST = "127.0.0.1"
PASSWORDS = ("sesame-of-node", "sesame-of-admin", "sesame-of-alice")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = "OPEN:SASL_PLAINTEXT,CLIENTS:SASL_SSL,SHOWN:SSL,CONTROLLER:SASL_PLAINTEXT"
MARK = 0x5EAF00D
"""The correlation id of a request that nobody is to be answered before a login."""
SILENT_MAX = 40
ANSWER_SECONDS_MAX = 5.0
FILES_GROWN_MAX = 150
MEMORY_GROWN_BYTES_MAX = 200 << 20
BEFORE_A_LOGIN = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
OF_OPERATORS = (
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)
WORDS = ("User:alice", "User:bob", "User:*", "alice", "bob", "User", "Group", "*", "ip", "user", "client-id",
         "consumer_byte_rate", "producer_byte_rate", "request_percentage", "127.0.0.1")  # fmt: skip
Attack = Callable[["Target"], None]


class Node(ServerProcess):
    """Its listeners: PLAIN and SCRAM in plain text, the same over TLS, certificates alone, and controllers'."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, home / "data")
        authority = Authority(home)
        self.ports = dict(zip(("OPEN", "CLIENTS", "SHOWN", "CONTROLLER"), free_ports(HOST, [None] * 4), strict=True))
        module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        node, admin, alice = PASSWORDS
        users = f'user_node="{node}" user_admin="{admin}" user_alice="{alice}"'
        plain = f'{module} username="node" password="{node}" {users};'
        self.settings |= {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items()),
            "listener.security.protocol.map": PROTOCOLS,
            "inter.broker.listener.name": "OPEN",
            "controller.quorum.voters": f"1@{HOST}:{self.ports['CONTROLLER']}",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            **{f"listener.name.{name}.plain.sasl.jaas.config": plain for name in ("open", "clients", "controller")},
            "connection.failed.authentication.delay.ms": "5",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.sign("node", hosts=f"IP:{HOST}").both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.shown.ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:node;User:admin",
            "delegation.token.secret.key": "a key of the cluster",
            "group.initial.rebalance.delay.ms": "0",
        }

    def admin(self) -> Admin:
        """Who may do everything."""
        return Admin(
            f"{HOST}:{self.ports['OPEN']}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="admin",
            sasl_password=PASSWORDS[1],
        )


class Peer:
    """A connection of a stranger."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS_MAX)
        self.received = b""
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def frame(self) -> bytes | None:
        """The next answer; None where the connection ended, or nothing came."""
        while len(self.received) < 4 or len(self.received) < 4 + self._size:
            try:
                piece = self.socket.recv(1 << 16)
            except (TimeoutError, ConnectionError):
                return None
            if not piece:
                return None
            self.received += piece
        frame, self.received = self.received[4 : 4 + self._size], self.received[4 + self._size :]
        return frame

    @property
    def _size(self) -> int:
        return int.from_bytes(self.received[:4], "big")

    def check_not_served(self) -> None:
        """Ask for metadata: the connection ends without an answer to that, whatever came before."""
        self.send(request(ApiKey.METADATA, 9, MetadataRequest(topics=[]), MARK))
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        while (frame := self.frame()) is not None:
            assert frame[:4] != MARK.to_bytes(4, "big"), (
                f"served without a login, after {[one.hex() for one in self.sent]}"
            )
        self.close()

    def close(self) -> None:
        self.socket.close()


def request(key: ApiKey, version: int, message: Any, correlation_id: int = 7) -> bytes:
    pieces: list[Any] = encode_request(key, version, correlation_id, "fuzz", message)
    return b"".join(bytes(piece) for piece in pieces)


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Target:
    """What attacks work with."""

    def __init__(self, node: Node, rng: random.Random) -> None:
        self.node = node
        self.rng = rng
        self.thrower = Thrower(rng)
        self.thrower.words += WORDS
        self.silent: list[socket.socket] = []

    def peer(self) -> Peer:
        return Peer(self.node.ports[self.rng.choice(("OPEN", "OPEN", "CONTROLLER"))])

    def handshaken(self, mechanism: str, version: int) -> Peer:
        peer = Peer(self.node.ports["OPEN"])
        peer.send(request(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=mechanism)))
        peer.frame()
        return peer

    def any_request(self, *, but: frozenset[ApiKey] = frozenset()) -> bytes:
        while True:
            key, _, frame = self.thrower.request(self.rng.choice((BROKER, CONTROLLER)))
            if key not in but:
                return frame

    def damaged(self, message: bytes) -> bytes:
        return damaged(self.rng, [message])

    def keep_silent(self, stream: socket.socket) -> None:
        """It stays open, until too many are."""
        self.silent.append(stream)
        if len(self.silent) > SILENT_MAX:
            self.silent.pop(self.rng.randrange(len(self.silent))).close()


# What strangers try.


def ask_at_once(target: Target) -> None:
    peer = target.peer()
    frame = target.any_request(but=BEFORE_A_LOGIN)
    peer.send(frame)
    assert peer.frame() is None, f"answered before a login: {frame.hex()}"
    peer.close()


def ask_what_is_damaged(target: Target) -> None:
    peer = target.peer()
    peer.send(framed(target.damaged(target.any_request()[4:])))
    peer.check_not_served()


def ask_within_a_login(target: Target) -> None:
    peer = target.handshaken(target.rng.choice(MECHANISMS), 1)
    if target.rng.random() < 0.5:
        secret = ScramSecret("SCRAM-SHA-256", "alice", "wrong")
        peer.send(authenticate(ScramExchange(secret, "nonce").first_message()))
        peer.frame()
    peer.send(target.any_request(but=BEFORE_A_LOGIN))
    peer.check_not_served()


def log_in_by_plain(target: Target) -> None:
    peer = target.handshaken("PLAIN", target.rng.randrange(2))
    user = target.rng.choice((b"admin", b"node", b"alice", b"", b"x" * 5_000))
    message = (
        target.rng.choice((b"", b"admin"))
        + b"\0"
        + user
        + b"\0"
        + target.rng.choice((b"", b"wrong", b"\0", b"y" * 9_000))
    )
    if target.rng.random() < 0.5:
        message = target.damaged(message)
    peer.send(authenticate(message) if target.rng.random() < 0.7 else framed(message))
    peer.check_not_served()


def log_in_by_scram(target: Target) -> None:
    """With a wrong password, and a damage in the first message, in the second, or in none."""
    rng = target.rng
    mechanism = rng.choice(MECHANISMS[1:])
    version = rng.randrange(2)
    peer = target.handshaken(mechanism, version)
    user = rng.choice(("alice", "admin", "nobody", "a,b=c", ""))
    exchange = ScramExchange(ScramSecret(mechanism, user, "wrong"), rng.choice(("nonce", "", "x" * 3_000)))
    first = exchange.first_message()
    is_damaged_at = rng.randrange(3)
    _say(peer, target.damaged(first) if is_damaged_at == 0 else first, version)
    answer = auth_bytes(peer.frame(), version)
    if answer:
        with suppress(TidelogError):
            final = exchange.on_answer(answer)
            if final is not None:
                for _ in range(rng.randrange(1, 3)):  # the same again is a replay
                    _say(peer, target.damaged(final) if is_damaged_at == 1 else final, version)
    peer.check_not_served()


def speak_no_frames(target: Target) -> None:
    peer = target.handshaken(target.rng.choice(MECHANISMS), 0)
    peer.send(
        target.rng.choice((framed(target.rng.randbytes(40)), b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", framed(b"")))
    )
    peer.check_not_served()


def leave_half(target: Target) -> None:
    """Half of a login, or of a frame, and silence."""
    peer = target.peer()
    frame = request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    whole = frame + target.rng.choice((authenticate(b"\0alice\0wrong"), struct.pack(">i", 400_000)))
    peer.send(whole[: target.rng.randrange(len(whole))])
    target.keep_silent(peer.socket)


def speak_no_tls(target: Target) -> None:
    rng = target.rng
    peer = Peer(target.node.ports[rng.choice(("CLIENTS", "SHOWN"))])
    hello = _client_hello()
    data = rng.choice((target.any_request(), rng.randbytes(300), target.damaged(hello), hello * 3, hello[:5]))
    peer.send(data)
    if rng.random() < 0.3:
        target.keep_silent(peer.socket)
        return
    with suppress(OSError):
        peer.socket.shutdown(socket.SHUT_WR)
    while True:
        try:
            if not peer.socket.recv(1 << 16):
                break
        except (TimeoutError, ConnectionError):
            break
    peer.close()


def speak_old_tls(target: Target) -> None:
    context = _context()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = target.rng.choice((ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1))
    context.set_ciphers("ALL:@SECLEVEL=0")
    _check_no_tls(target, "CLIENTS", context)


def show_no_certificate(target: Target) -> None:
    _check_no_tls(target, "SHOWN", _context())


def speak_tls_and_ask(target: Target) -> None:
    with (
        socket.create_connection((HOST, target.node.ports["CLIENTS"]), timeout=ANSWER_SECONDS_MAX) as stream,
        suppress(ssl.SSLError, ConnectionError),
        _context().wrap_socket(stream) as secured,
    ):
        secured.sendall(target.any_request(but=BEFORE_A_LOGIN))
        assert not secured.recv(1), "answered before a login"


def _check_no_tls(target: Target, listener: str, context: ssl.SSLContext) -> None:
    """In TLS 1.3 who shows no certificate learns of it when it reads."""
    with socket.create_connection((HOST, target.node.ports[listener]), timeout=ANSWER_SECONDS_MAX) as stream:
        try:
            with context.wrap_socket(stream) as secured:
                secured.sendall(request(ApiKey.METADATA, 9, MetadataRequest(topics=[]), MARK))
                assert not secured.recv(1), "served"
        except (ssl.SSLError, ConnectionError):
            pass


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


def authenticate(message: bytes) -> bytes:
    return request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=message))


def _say(peer: Peer, message: bytes, version: int) -> None:
    peer.send(authenticate(message) if version else framed(message))


def auth_bytes(frame: bytes | None, version: int) -> bytes:
    if not frame or not version:
        return frame or b""
    _, _, position = decode_response_header(frame, ApiKey.SASL_AUTHENTICATE, 2)
    answer: SaslAuthenticateResponse = decode(SaslAuthenticateResponse, frame, 2, position)
    return b"" if answer.error_code else answer.auth_bytes


ATTACKS: tuple[Attack, ...] = (
    ask_at_once, ask_what_is_damaged, ask_within_a_login, log_in_by_plain, log_in_by_scram, log_in_by_scram,
    speak_no_frames, leave_half, speak_no_tls, speak_old_tls, show_no_certificate, speak_tls_and_ask,
)  # fmt: skip


# Who has logged in.


class KnownLine(Line):
    """A connection of a user, made anew, and logged in, whenever the node has closed it."""

    def __init__(self, port: int, user: str, password: str) -> None:
        super().__init__(port)
        self._greeting = (
            request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
            authenticate(f"\0{user}\0{password}".encode()),
        )

    def throw(self, frame: bytes, seconds_max: float) -> bytes | None:
        if not self.is_open:
            for greeting in self._greeting:
                super().throw(greeting, ANSWER_SECONDS_MAX)
        return super().throw(frame, seconds_max)


def _ask_as_a_user(target: Target, line: Line) -> None:
    _, _, frame = target.thrower.request_of(target.rng.choice(OF_OPERATORS))
    if target.rng.random() < 0.15:
        frame = framed(target.damaged(frame[4:]))
    line.throw(frame, 0.2)


def _state(admin: Admin) -> tuple[Any, ...]:
    """What operators have decided, but for what everybody may: tokens of one's own."""
    return (
        frozenset(map(repr, admin.describe_acls(AclBindingFilter()))),
        repr(admin.describe_user_scram_credentials()),
        repr(admin.describe_client_quotas()),
    )


def main(seconds: float, seed: int, *, attacks_min: int = 0) -> int:
    """Attack for that long, and at least so often; return how often.

    Raises:
        AssertionError: a finding; it says the seed.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        node = Node(Path(directory))
        node.start()
        try:
            return _attack(Target(node, rng), seconds, attacks_min)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        finally:
            node.close()


def _attack(target: Target, seconds: float, attacks_min: int) -> int:
    node, rng, count = target.node, target.rng, 0
    with node.admin() as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", PASSWORDS[2])])
        before = _state(admin)
    files, memory_bytes = open_files(node.pid), resident_bytes(node.pid)
    deadline = time.monotonic() + seconds
    alice = KnownLine(node.ports["OPEN"], "alice", PASSWORDS[2])
    while count < attacks_min or time.monotonic() < deadline:
        attack = rng.choice(ATTACKS)
        attack(target)
        _ask_as_a_user(target, alice)
        count += 1
        if count % 50 == 0:
            check_log(node, attack.__name__)
    alice.close()
    with node.admin() as admin:
        after = _state(admin)
    assert after == before, f"who may not changed something: {before} became {after}"
    operator = KnownLine(node.ports["OPEN"], "admin", PASSWORDS[1])
    for _ in range(max(count // 2, 1)):
        _ask_as_a_user(target, operator)
    operator.close()
    for stream in target.silent:
        stream.close()
    with node.admin() as admin:
        assert [one.name for one in admin.list_topics()] == ["orders"]
    check_log(node, "all attacks")
    leaked = [password for password in PASSWORDS if password in node.log]
    assert not leaked, f"the log has {leaked}"
    wait_until(
        lambda: open_files(node.pid) <= files + FILES_GROWN_MAX,
        lambda: f"files are closed: {open_files(node.pid)} are open, {files} were before",
    )
    grown = resident_bytes(node.pid) - memory_bytes
    assert grown < MEMORY_GROWN_BYTES_MAX, f"{grown} bytes of memory were kept"
    return count


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    run_seconds = given[0] if given else 10.0
    run_seed = int(given[1]) if len(given) > 1 else random.SystemRandom().randrange(1 << 32)
    print(f"{main(run_seconds, run_seed)} attacks, seed {run_seed}: nothing found")
