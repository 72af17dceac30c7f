"""What a delegation token authenticates by, and as whom: as Apache Kafka derives it, so that its clients log in."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

import pytest

from tidelog.base.errors import SaslAuthenticationError
from tidelog.base.principals import ANONYMOUS, Principal, Requester
from tidelog.metadata import MetadataImage
from tidelog.metadata.delegation_tokens import DelegationToken
from tidelog.metadata.scram_credentials import ScramCredential
from tidelog.security.delegation_tokens import (
    TokensByHmac,
    may_ask_for_tokens,
    token_credentials,
    token_hmac,
    token_identity,
)
from tidelog.security.sasl_server import Identity
from tidelog.security.scram import HASHES, ScramExchange, ScramSecret
from tidelog.security.scram_server import ScramServerExchange
from tidelog.security.scram_stand_ins import ScramStandIns

SECRET = "what all nodes share"
ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
TOKEN = DelegationToken("an-id", ALICE, BOB, (), 100, 900, 500)
IMAGE = MetadataImage(delegation_tokens={"an-id": TOKEN})


def test_the_hmac_is_kafkas() -> None:
    expected = hmac.new(SECRET.encode(), b"an-id", hashlib.sha512).digest()
    assert token_hmac(SECRET, "an-id") == expected


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_client_that_knows_the_hmac_logs_in(mechanism: str) -> None:
    """The id is the user, the HMAC in base64 the password, and an extension says which."""

    def find(name: str, by_token: bool) -> ScramCredential | None:
        return token_credentials(IMAGE, SECRET, mechanism, name, 200) if by_token else None

    def identify(name: str, by_token: bool) -> Identity | None:
        return token_identity(IMAGE, name, 200) if by_token else Identity(name)

    def logs_in(hmac: bytes, *, by_token: bool = True) -> Identity | None:
        server = ScramServerExchange(
            mechanism, find, "theirs", ScramStandIns(mechanism, (), b"key").of, identify=identify
        )
        secret = ScramSecret(mechanism, "an-id", b64encode(hmac).decode(), by_token=by_token)
        client = ScramExchange(secret, "mine")
        proof = client.on_answer(server.on_message(client.first_message()).answer)
        assert proof is not None
        last = server.on_message(proof)
        assert client.on_answer(last.answer) is None
        return last.identity

    assert logs_in(token_hmac(SECRET, "an-id")) == Identity("alice", expires_at_ms=500, by_token=True)
    with pytest.raises(SaslAuthenticationError):
        logs_in(token_hmac("another secret", "an-id"))
    with pytest.raises(SaslAuthenticationError):  # it is no user
        logs_in(token_hmac(SECRET, "an-id"), by_token=False)


def test_all_nodes_ask_with_the_same_salt() -> None:
    credential = token_credentials(IMAGE, SECRET, "SCRAM-SHA-256", "an-id", 200)
    assert credential is not None
    assert credential == token_credentials(IMAGE, SECRET, "SCRAM-SHA-256", "an-id", 300)
    assert credential.salt != token_credentials(IMAGE, SECRET, "SCRAM-SHA-512", "an-id", 200).salt  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("secret", "token_id", "now_ms"),
    [(SECRET, "another", 200), (SECRET, "an-id", 501), ("", "an-id", 200), (None, "an-id", 200)],
    ids=["unknown", "expired", "without a secret", "without any"],
)
def test_what_counts_no_more_has_no_credential(secret: str | None, token_id: str, now_ms: int) -> None:
    assert token_credentials(IMAGE, secret, "SCRAM-SHA-256", token_id, now_ms) is None


def test_a_token_is_its_owner_until_it_expires() -> None:
    assert token_identity(IMAGE, "an-id", 500) == Identity("alice", expires_at_ms=500, by_token=True)
    assert token_identity(IMAGE, "an-id", 501) is None
    assert token_identity(IMAGE, "another", 500) is None


def test_a_token_is_found_by_its_hmac_alone() -> None:
    tokens = TokensByHmac(SECRET)
    tokens.add("an-id")
    tokens.add("an-id")  # it was renewed
    shown = token_hmac(SECRET, "an-id")
    assert tokens.find(shown) == "an-id"
    assert tokens.find(shown[:-1]) is None
    assert tokens.find(b"") is None
    assert tokens.find(token_hmac(SECRET, "another")) is None
    copy = tokens.clone()
    tokens.remove("an-id")
    assert tokens.find(shown) is None
    assert copy.find(shown) == "an-id"


def test_without_a_secret_nothing_is_found() -> None:
    tokens = TokensByHmac(None)
    tokens.add("an-id")
    tokens.remove("an-id")
    assert tokens.find(token_hmac("", "an-id")) is None


def test_whoever_is_nobody_or_came_by_a_token_asks_for_none() -> None:
    assert may_ask_for_tokens(Requester(ALICE, "host"))
    assert not may_ask_for_tokens(Requester(ALICE, "host", by_token=True))
    assert not may_ask_for_tokens(Requester(ANONYMOUS, "host"))
