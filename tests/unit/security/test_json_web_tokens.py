"""Whose a JSON Web Token is, and which are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import SaslAuthenticationError
from tidelog.security.json_web_tokens import TOKEN_SIZE_BYTES_MAX, TokenKeys, TokenRules, UnknownKeyError
from tidelog.security.sasl_server import Identity

pytest.importorskip("joserfc")
from support.fixtures.json_web_tokens import Signer, unsigned

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
SIGNER = Signer("one")
ANY = TokenRules()
CLAIMS: dict[str, Any] = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60}
KEYS = TokenKeys(SIGNER.key_set())


def identity(token: str, rules: TokenRules = ANY, keys: TokenKeys = KEYS) -> Identity:
    return keys.identity(token, rules, NOW_MS)


def test_a_token_is_whose_it_says_until_it_expires() -> None:
    assert identity(SIGNER.token(CLAIMS)) == Identity("alice", NOW_MS + 60_000)


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"])
def test_every_algorithm_with_public_keys_counts(algorithm: str) -> None:
    signer = Signer("two", algorithm)
    assert identity(signer.token(CLAIMS), keys=TokenKeys(signer.key_set())).name == "alice"


def test_a_token_that_names_no_key_is_checked_with_the_only_one() -> None:
    assert identity(SIGNER.token(CLAIMS, {"kid": None})).name == "alice"
    keys = TokenKeys(json.dumps({"keys": [SIGNER.public(), Signer("other").public()]}).encode())
    with pytest.raises(UnknownKeyError, match="names no key, and 2 keys fit"):
        identity(SIGNER.token(CLAIMS, {"kid": None}), keys=keys)


def test_the_settings_say_which_claims_count() -> None:
    rules = TokenRules("https://issuer", ("orders", "billing"), 30, "preferred_username", "scp")
    claims = CLAIMS | {"iss": "https://issuer", "aud": ["x", "billing"], "preferred_username": "al", "scp": ["a", "b"]}
    assert identity(SIGNER.token(claims), rules).name == "al"
    assert identity(SIGNER.token(claims | {"aud": "orders", "exp": NOW_S - 29}), rules).name == "al"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"exp": NOW_S}, "expired 0 s ago"),
        ({"exp": NOW_S - 60}, "expired 60 s ago"),
        ({"exp": None}, "claim exp is no time"),
        ({"exp": "soon"}, "claim exp is no time"),
        ({"exp": True}, "claim exp is no time"),
        ({"exp": 1e300}, "claim exp is no time"),
        ({"iat": None}, "claim iat is no time"),
        ({"iat": NOW_S + 5}, "good in 5 s"),
        ({"nbf": NOW_S + 7}, "good in 7 s"),
        ({"sub": None}, "claim sub names no user"),
        ({"sub": " "}, "claim sub names no user"),
        ({"sub": ["alice"]}, "claim sub names no user"),
        ({"iss": "https://other"}, "its issuer is 'https://other'"),
        ({"iss": None}, "its issuer is 'None'"),
        ({"aud": "payroll"}, "made for 'payroll', and not for orders"),
        ({"aud": None}, "made for"),
        ({"aud": 7}, "claim aud is neither"),
        ({"scope": 7}, "claim scope is neither"),
    ],
)
def test_what_a_token_says_has_to_be_good(change: dict[str, Any], says: str) -> None:
    claims = CLAIMS | {"iss": "https://issuer", "aud": "orders"} | change
    token = SIGNER.token({name: value for name, value in claims.items() if value is not None})
    with pytest.raises(SaslAuthenticationError, match=says):
        identity(token, TokenRules("https://issuer", ("orders",)))


def test_a_token_without_a_signature_is_refused() -> None:
    with pytest.raises(SaslAuthenticationError, match="its algorithm is 'none'"):
        identity(unsigned(CLAIMS))
    with pytest.raises(SaslAuthenticationError, match="its algorithm is 'NONE'"):
        identity(unsigned(CLAIMS, "NONE"))


def test_the_public_key_signs_nothing() -> None:
    with pytest.raises(SaslAuthenticationError, match="its algorithm is 'HS256'"):
        identity(SIGNER.by_public_key(CLAIMS))


def test_keys_that_a_token_brings_along_count_for_nothing() -> None:
    forger = Signer("one")
    for header in ({"jwk": forger.public()}, {"jku": "http://127.0.0.1:1/"}, {"x5u": "http://127.0.0.1:1/"}):
        with pytest.raises(SaslAuthenticationError, match="its signature is not good"):
            identity(forger.token(CLAIMS, header))
    with pytest.raises(UnknownKeyError, match="names the key 'strange', and 0 keys fit"):
        identity(Signer("strange").token(CLAIMS))


def test_more_in_the_header_is_passed_over_unless_it_has_to_be_understood() -> None:
    assert identity(SIGNER.token(CLAIMS, {"nonce": "x", "x5c": ["A" * 2_000]})).name == "alice"
    with pytest.raises(SaslAuthenticationError, match="refused"):
        identity(SIGNER.token(CLAIMS, {"crit": ["nonce"], "nonce": "x"}))


def test_a_key_is_for_its_algorithm() -> None:
    public = SIGNER.public() | {"alg": "RS256"}
    keys = TokenKeys(json.dumps({"keys": [public]}).encode())
    assert identity(SIGNER.token(CLAIMS), keys=keys).name == "alice"
    with pytest.raises(UnknownKeyError):
        identity(SIGNER.token(CLAIMS, {"alg": "PS256"}), keys=keys)


def test_what_a_token_must_not_be() -> None:
    good = SIGNER.token(CLAIMS)
    head, claims, signature = good.split(".")
    for token in (
        "",
        "a.b.c",
        f"{head}.{claims}.",
        f"{head}.{claims}",
        f"{head}.{claims}.{signature[:-4]}",
        f"{good}.x",
    ):
        with pytest.raises(SaslAuthenticationError):
            identity(token)
    with pytest.raises(SaslAuthenticationError, match="at most"):
        identity("a" * (TOKEN_SIZE_BYTES_MAX + 1))
    with pytest.raises(SaslAuthenticationError, match="signature is not good"):
        identity(SIGNER.token_of(b"[" * 20_000))
    with pytest.raises(SaslAuthenticationError, match="no JSON object"):
        identity(SIGNER.token_of(b"[]"))


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=300))
def test_garbage_is_no_token(text: str) -> None:
    with pytest.raises(SaslAuthenticationError):
        identity(text)


@pytest.mark.parametrize(
    "document",
    [b"", b"\xff", b"[]", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1, {"kty": "oct", "k": "AA"}]}', b"[" * 99_999],
)
def test_what_is_no_key_set(document: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JSON Web Key Set|no public key"):
        TokenKeys(document)


def test_keys_of_strange_kinds_are_left_out() -> None:
    strange = [{"kty": "EC", "crv": "P-999"}, {"kty": "RSA", "use": "enc"}, {"kty": "oct", "k": "c2VjcmV0"}]
    keys = TokenKeys(json.dumps({"keys": [*strange, SIGNER.public()]}).encode())
    assert identity(SIGNER.token(CLAIMS), keys=keys).name == "alice"
