"""PLAIN and OAUTHBEARER as a broker speaks them, to our clients and to whoever sends something else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import SaslAuthenticationError
from tidelog.security.sasl import OAuthBearerExchange, PlainExchange
from tidelog.security.sasl_server import Identity, OAuthBearerServerExchange, PlainServerExchange

PASSWORDS = {"alice": "secret", "bob": "pässword", "nobody": ""}


def test_plain_lets_in_who_knows_the_password() -> None:
    for name in ("alice", "bob"):
        step = PlainServerExchange(PASSWORDS).on_message(PlainExchange(name, PASSWORDS[name]).first_message())
        assert step.identity == Identity(name)
        assert step.answer == b""
    assert PlainServerExchange(PASSWORDS).on_message(b"alice\0alice\0secret").identity == Identity("alice")


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0carol\0secret",
        b"\0carol\0",
        b"\0nobody\0",  # a user without a password is none
        b"bob\0alice\0secret",
        b"\0\0",
        b"",
        b"\0alice\0secret\0",
        b"\0\xff\0secret",
    ],
)
def test_plain_says_the_same_of_whatever_is_wrong(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError, match="invalid credentials with SASL mechanism PLAIN") as refusal:
        PlainServerExchange(PASSWORDS).on_message(message)
    assert "alice" not in str(refusal.value)
    assert "secret" not in str(refusal.value)


@given(st.binary(max_size=200))
def test_plain_and_oauthbearer_refuse_garbage(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError):
        PlainServerExchange(PASSWORDS).on_message(message)
    with pytest.raises(SaslAuthenticationError):
        OAuthBearerServerExchange().on_message(message)


def test_a_token_is_checked_before_there_is_an_answer() -> None:
    server = OAuthBearerServerExchange()
    step = server.on_message(OAuthBearerExchange("a.b.c", {"traceId": "7"}).first_message())
    assert step.token == "a.b.c"
    assert step.identity is None
    assert server.on_checked(Identity("alice", 5)).identity == Identity("alice", 5)


def test_a_bad_token_is_told_of_in_two_steps() -> None:
    client, server = OAuthBearerExchange("a.b.c"), OAuthBearerServerExchange()
    server.on_message(client.first_message())
    with pytest.raises(SaslAuthenticationError, match="OAUTHBEARER"):
        server.on_message(client.first_message())
    step = server.on_refused(SaslAuthenticationError("it expired"))
    assert step.answer == b'{"status":"invalid_token"}'
    last = client.on_answer(step.answer)
    assert last == b"\x01"
    with pytest.raises(SaslAuthenticationError, match="invalid_token") as refusal:
        server.on_message(last)
    assert str(refusal.value.__cause__) == "it expired"


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01host=b\x01\x01",
        b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a",
    ],
)
def test_what_shows_no_token_is_refused(message: bytes) -> None:
    with pytest.raises(SaslAuthenticationError, match="OAUTHBEARER"):
        OAuthBearerServerExchange().on_message(message)


def test_a_token_is_for_nobody_else() -> None:
    server = OAuthBearerServerExchange()
    server.on_message(b"n,a=bob,\x01auth=Bearer a\x01\x01")
    with pytest.raises(SaslAuthenticationError):
        server.on_checked(Identity("alice"))
