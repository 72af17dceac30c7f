"""SCRAM as a broker speaks it: the example of RFC 7677, our client, and clients that cheat."""

from __future__ import annotations

import base64
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import SaslAuthenticationError
from tidelog.metadata.scram_credentials import ScramCredential
from tidelog.security.sasl_server import Identity
from tidelog.security.scram import HASHES, ScramExchange, ScramSecret
from tidelog.security.scram_server import ScramServerExchange, credential_of
from tidelog.security.scram_stand_ins import ScramStandIns

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
USERS = {(mechanism, "user"): credential_of(mechanism, "pencil", SALT, 4096) for mechanism in HASHES}
RFC_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def server(mechanism: str = "SCRAM-SHA-256", nonce: str = RFC_NONCE) -> ScramServerExchange:
    def find(name: str, by_token: bool) -> ScramCredential | None:
        return None if by_token else USERS.get((mechanism, name))

    stand_ins = ScramStandIns(mechanism, [USERS[mechanism, "user"]], b"key")
    return ScramServerExchange(mechanism, find, nonce, stand_ins.of)


def test_the_example_of_rfc_7677() -> None:
    one = server()
    first = one.on_message(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first.answer == (b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    final = one.on_message(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final.answer == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert final.identity == Identity("user")


@pytest.mark.parametrize("mechanism", HASHES)
def test_our_client_is_let_in(mechanism: str) -> None:
    client, one = ScramExchange(ScramSecret(mechanism, "user", "pencil"), "mine"), server(mechanism)
    final = client.on_answer(one.on_message(client.first_message()).answer)
    assert final is not None
    last = one.on_message(final)
    assert last.identity == Identity("user")
    assert client.on_answer(last.answer) is None


def refused(one: ScramServerExchange, message: bytes) -> str:
    with pytest.raises(SaslAuthenticationError) as refusal:
        one.on_message(message)
    return str(refusal.value)


def test_an_unknown_user_is_refused_as_a_wrong_password_is() -> None:
    told = []
    for name, password in (("user", "wrong"), ("nobody", "pencil")):
        client, one = ScramExchange(ScramSecret("SCRAM-SHA-256", name, password), "mine"), server()
        asked = one.on_message(client.first_message()).answer
        again = server().on_message(client.first_message()).answer
        assert asked == again  # the salt of a user that is not there stays theirs
        final = client.on_answer(asked)
        assert final is not None
        told.append(refused(one, final))
    assert told[0] == told[1]


def test_no_password_leads_to_what_an_unknown_user_is_asked_with() -> None:
    credential = ScramStandIns("SCRAM-SHA-256", (), b"key").of("nobody")
    assert credential != ScramStandIns("SCRAM-SHA-256", (), b"other").of("nobody")
    assert len({credential.salt, credential.stored_key, credential.server_key}) == 3


def test_an_unknown_user_looks_like_one_of_those_that_are_known() -> None:
    ours = ScramCredential(b"\xff" * 24, b"s", b"k", 4_096)
    of_kafka = ScramCredential(b"1nlfn9r0z1ys8ldbk0agppjg9a", b"s", b"k", 8_192)
    stand_ins = ScramStandIns("SCRAM-SHA-512", [ours, of_kafka, of_kafka, of_kafka], b"key")
    found = [stand_ins.of(f"user-{number}") for number in range(400)]
    kinds = Counter((len(one.salt), one.salt.isalnum(), one.iterations) for one in found)
    assert set(kinds) == {(24, False, 4_096), (26, True, 8_192)}
    assert 220 < kinds[26, True, 8_192] < 320
    assert len({one.salt for one in found}) == 400
    assert {(len(one.stored_key), len(one.server_key)) for one in found} == {(64, 64)}
    fewer = ScramStandIns("SCRAM-SHA-512", [ours, *[of_kafka] * 2], b"key")
    assert [fewer.of(f"user-{number}") for number in range(400)] == found
    more = ScramStandIns("SCRAM-SHA-512", [ours, *[of_kafka] * 4], b"key")
    assert sum(more.of(f"user-{number}") != one for number, one in enumerate(found)) < 60


def test_what_was_recorded_cannot_be_sent_again() -> None:
    client, one = ScramExchange(ScramSecret("SCRAM-SHA-256", "user", "pencil"), "mine"), server()
    first = client.first_message()
    final = client.on_answer(one.on_message(first).answer)
    assert final is not None
    one.on_message(final)
    refused(one, final)
    another = server(nonce="another")
    another.on_message(first)
    refused(another, final)


@pytest.mark.parametrize(
    "message",
    [
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=user",
        b"n,,r=abc,n=user",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=user,r=a c",
        b"",
        b"\xff",
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    one = server()
    refused(one, message)
    refused(one, b"n,,n=user,r=abc")  # nor is there a second try


@given(st.binary(max_size=100))
def test_garbage_is_refused_at_either_step(message: bytes) -> None:
    refused(server(), message)
    one = server()
    one.on_message(b"n,,n=user,r=abc")
    refused(one, message)


def test_a_wrong_channel_binding_is_refused() -> None:
    client, one = ScramExchange(ScramSecret("SCRAM-SHA-256", "user", "pencil"), "mine"), server()
    final = client.on_answer(one.on_message(client.first_message()).answer)
    assert final is not None
    refused(one, final.replace(b"c=biws", b"c=eSws"))


def test_what_is_kept_is_not_shown() -> None:
    assert repr(USERS["SCRAM-SHA-256", "user"]) == "ScramCredential(iterations=4096)"
