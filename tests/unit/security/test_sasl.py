"""PLAIN and OAUTHBEARER: what is said, and what becomes of the answer."""

from __future__ import annotations

import pytest

from tidelog.base.errors import ConfigError, SaslAuthenticationError
from tidelog.security.sasl import OAuthBearerExchange, PlainExchange, check_credentials


def test_plain_says_user_and_password_and_that_is_all() -> None:
    exchange = PlainExchange("tim", "tanstaaftänstaaf")  # the example of RFC 4616, and an umlaut
    assert exchange.first_message() == b"\0tim\0tanstaaft\xc3\xa4nstaaf"
    assert exchange.on_answer(b"") is None
    with pytest.raises(SaslAuthenticationError, match="asks for more than PLAIN has to say"):
        exchange.on_answer(b"more")


def test_plain_shows_the_user_and_not_the_password() -> None:
    exchange = PlainExchange("tim", "tanstaaf")
    assert "'tim'" in exchange.hint
    assert "tanstaaf" not in f"{exchange!r} {exchange.hint}"


@pytest.mark.parametrize(("username", "password"), [("a\0b", "c"), ("a", "b\0c"), ("a", "\ud800")])
def test_what_sasl_cannot_carry_is_refused_without_showing_it(username: str, password: str) -> None:
    with pytest.raises(ConfigError, match=r"Producer\(sasl_(username|password)=…\): it holds a") as error:
        check_credentials("Producer", username, password)
    assert password not in str(error.value) or len(password) == 1


def test_a_bearer_token_is_sent_with_its_extensions() -> None:
    exchange = OAuthBearerExchange("abc.DEF-1_~+/==", {"logicalCluster": "lkc-1", "traceId": "7"})
    assert (
        exchange.first_message() == b"n,,\x01auth=Bearer abc.DEF-1_~+/==\x01logicalCluster=lkc-1\x01traceId=7\x01\x01"
    )
    assert exchange.on_answer(b"") is None


def test_a_refused_token_is_told_with_what_the_broker_says_of_it() -> None:
    exchange = OAuthBearerExchange("abc")
    answer = b'{"status":"invalid_token","scope":"kafka","openid-configuration":"https://idp.example/"}'
    assert exchange.on_answer(answer) == b"\x01"  # the broker fails the exchange once it has this
    assert exchange.hint is not None
    for told in ("'invalid_token'", "scope 'kafka'", "'https://idp.example/'", "sasl_oauth_token_callback"):
        assert told in exchange.hint
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):  # a broker that accepts it all the same
        exchange.on_answer(b"")


@pytest.mark.parametrize("answer", [b"no", b"[]", b"{}", b"\xff\xfe", b"null"])
def test_a_refusal_that_is_no_json_is_told_as_it_is(answer: bytes) -> None:
    exchange = OAuthBearerExchange("abc")
    assert exchange.on_answer(answer) == b"\x01"
    assert exchange.hint is not None
    assert "the broker says" in exchange.hint


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b", "tökén", "a=b"])
def test_what_is_no_token_is_not_sent_and_not_shown(token: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=rf"the token of {len(token)} characters is none") as error:
        OAuthBearerExchange(token)
    assert not token or token not in str(error.value).replace("a JWT", "")


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "\x01"}])
def test_an_extension_that_cannot_be_sent_is_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(SaslAuthenticationError, match="cannot be sent"):
        OAuthBearerExchange("abc", extensions)
