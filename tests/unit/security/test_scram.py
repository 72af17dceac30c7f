"""SCRAM: the example of RFC 7677, a server written from RFC 5802, and servers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from tidelog.base.errors import SaslAuthenticationError
from tidelog.security.scram import HASHES, ScramExchange, ScramSecret

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def exchange(username: str = "user", password: str = "pencil", mechanism: str = "SCRAM-SHA-256") -> ScramExchange:
    return ScramExchange(ScramSecret(mechanism, username, password), NONCE)


def test_the_example_of_rfc_7677() -> None:
    client = exchange()
    assert client.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.on_answer(SERVER_FIRST) == CLIENT_FINAL
    assert client.on_answer(SERVER_FINAL) is None
    with pytest.raises(SaslAuthenticationError, match="goes on after the end"):
        client.on_answer(b"")


def test_a_delegation_token_says_what_it_is() -> None:
    """In what is signed, as Java's client writes it."""
    client = ScramExchange(ScramSecret("SCRAM-SHA-256", "an-id", "secret", by_token=True), NONCE)
    assert client.first_message() == b"n,,n=an-id,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true"
    assert client.hint == "as delegation token 'an-id': check sasl_username and sasl_password"


class Server:
    """A server that stores what RFC 5802 says, and nothing else of a password."""

    def __init__(self, mechanism: str, password: str, *, iterations: int = 4096) -> None:
        self.hash = HASHES[mechanism]
        self.salt, self.iterations = b"salt of this user", iterations
        salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), self.salt, iterations)
        self.stored_key = hashlib.new(self.hash, self.mac(salted, b"Client Key")).digest()
        self.server_key = self.mac(salted, b"Server Key")

    def mac(self, key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, self.hash).digest()

    def answer_first(self, message: bytes) -> bytes:
        assert message.startswith(b"n,,")
        self.client_first = message[3:].decode()
        nonce = self.client_first.split(",r=")[1] + "server's"
        salt = base64.b64encode(self.salt).decode()
        self.server_first = f"r={nonce},s={salt},i={self.iterations}"
        return self.server_first.encode()

    def answer_final(self, message: bytes | None) -> bytes | None:
        """None if the proof is wrong."""
        assert message is not None
        without_proof, _, proof = message.decode().rpartition(",p=")
        signed = ",".join((self.client_first, self.server_first, without_proof)).encode()
        signature = self.mac(self.stored_key, signed)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, key).digest() != self.stored_key:
            return None
        return b"v=" + base64.b64encode(self.mac(self.server_key, signed))


@pytest.mark.parametrize("mechanism", HASHES)
@settings(max_examples=examples(10), deadline=None)
@given(username=st.text(min_size=1).filter(lambda text: text.isprintable()), password=st.text(min_size=1))
def test_a_server_and_a_client_that_share_a_password_believe_each_other(
    mechanism: str, username: str, password: str
) -> None:
    server, client = Server(mechanism, password), exchange(username, password, mechanism)
    final = server.answer_final(client.on_answer(server.answer_first(client.first_message())))
    assert final is not None
    assert client.on_answer(final) is None
    name = server.client_first.removeprefix("n=").split(",r=")[0]
    assert name.replace("=2C", ",").replace("=3D", "=") == username


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_wrong_password_is_no_proof_and_no_signature(mechanism: str) -> None:
    server, client = Server(mechanism, "right"), exchange("user", "wrong", mechanism)
    assert server.answer_final(client.on_answer(server.answer_first(client.first_message()))) is None
    with pytest.raises(SaslAuthenticationError, match="signature is wrong"):
        client.on_answer(b"v=" + base64.b64encode(bytes(32)))


def test_the_keys_of_one_salt_are_derived_once() -> None:
    secret = ScramSecret("SCRAM-SHA-256", "user", "pencil")
    assert secret.keys(b"salt", 4096) is secret.keys(b"salt", 4096)
    assert secret.keys(b"salt", 4096) != secret.keys(b"other", 4096)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "no message of SCRAM"),
        (b"\xff", "no message of SCRAM"),
        (b"r", "no message of SCRAM"),
        (b"m=new," + SERVER_FIRST, "an extension of SCRAM that is unknown: new"),
        (SERVER_FIRST.replace(b"r=rOpr", b"r=xOpr"), "nonce does not begin with the client's"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "adds nothing to it"),
        (SERVER_FIRST.replace(b"s=W22Z", b"s=*22Z"), "not base64"),
        (SERVER_FIRST.replace(b"s=W22ZaJ0SNY7soEsUEjb6gQ==", b"s="), "lacks the salt or the iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4o96"), "lacks the salt or the iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "asks for 4095 iterations.*4096 to 1000000.*user 'user'"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), "asks for 1000001 iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=99999999999999999999"), "lacks the salt or the iterations"),
    ],
)
def test_a_first_answer_that_cannot_be_is_told(answer: bytes, expected: str) -> None:
    client = exchange()
    client.first_message()
    with pytest.raises(SaslAuthenticationError, match=expected):
        client.on_answer(answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"e=invalid-proof", "the broker says 'invalid-proof', as user 'user'"),
        (b"", "no message of SCRAM"),
        (b"x=1", "signature is wrong"),
        (b"v=", "signature is wrong"),
        (b"v=***", "not base64"),
        (SERVER_FINAL.replace(b"6rri", b"6rrj"), "does not know the password"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_not_believed(answer: bytes, expected: str) -> None:
    client = exchange()
    client.on_answer(SERVER_FIRST)
    with pytest.raises(SaslAuthenticationError, match=expected):
        client.on_answer(answer)


def test_a_password_is_shown_nowhere() -> None:
    secret = ScramSecret("SCRAM-SHA-256", "user", "pencil")
    client = ScramExchange(secret, NONCE)
    assert "pencil" not in f"{secret!r} {client!r} {client.hint}"
