"""What the settings of a listener with SASL say, and what is said of those that cannot be."""

from __future__ import annotations

import pytest

from tidelog.base.errors import ConfigError
from tidelog.security.json_web_tokens import TokenRules
from tidelog.security.oauth_listener import OAuthListener
from tidelog.security.sasl_listener import NodeCredentials, check_login_modules, node_credentials, sasl_listener

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
PLAIN = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.out.plain.sasl.jaas.config": f'{MODULE} username="n" password="s" user_alice="a" user_n="s";',
}


def test_who_is_known_and_for_how_long() -> None:
    listener = sasl_listener(PLAIN, "OUT")
    assert listener.mechanisms == ("PLAIN",)
    assert listener.passwords == {"alice": "a", "n": "s"}
    assert (listener.session_ms_max, listener.request_size_bytes_max) == ({"PLAIN": None}, 524_288)
    assert "'a'" not in repr(listener)
    assert node_credentials(PLAIN, "OUT", "PLAIN") == NodeCredentials("n", "s")
    assert repr(node_credentials(PLAIN, "OUT", "PLAIN")) == "NodeCredentials('n')"


def test_the_most_special_setting_counts() -> None:
    own = PLAIN | {"connections.max.reauth.ms": "1", "listener.name.out.connections.max.reauth.ms": "2"}
    assert sasl_listener(own, "OUT").session_ms_max == {"PLAIN": 2}
    own |= {"listener.name.out.plain.connections.max.reauth.ms": "3"}
    assert sasl_listener(own, "OUT").session_ms_max == {"PLAIN": 3}
    own |= {"listener.name.out.sasl.enabled.mechanisms": "PLAIN,PLAIN", "sasl.enabled.mechanisms": "GSSAPI"}
    assert sasl_listener(own, "OUT").mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, r"listener\.name\.out\.sasl\.enabled\.mechanisms: GSSAPI .Kerberos."),
        ({"sasl.enabled.mechanisms": ""}, "allowed: any of PLAIN"),
        ({"listener.name.out.plain.sasl.jaas.config": f"{MODULE};"}, "offers PLAIN, and knows no user"),
        ({"listener.name.out.plain.sasl.jaas.config": f'{MODULE} user_="secret";'}, "no name or no password"),
        ({"listener.name.out.plain.sasl.jaas.config": f'{MODULE} user_a="";'}, "no name or no password"),
        ({"listener.name.out.plain.sasl.jaas.config": f'{MODULE} user_a="secret"'}, "semicolon"),
        ({"listener.name.out.plain.sasl.jaas.config": 'a.b.Other required user_a="secret";'}, "Other is not the login"),
    ],
)
def test_what_cannot_be_is_told_without_secrets(change: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        sasl_listener(PLAIN | change, "OUT")
    assert "secret" not in str(error.value)


OAUTH = {"sasl.enabled.mechanisms": "OAUTHBEARER", "sasl.oauthbearer.jwks.endpoint.url": "https://issuer/keys"}


def test_how_tokens_are_checked() -> None:
    own = OAUTH | {
        "sasl.oauthbearer.expected.issuer": "i",
        "listener.name.out.sasl.oauthbearer.expected.issuer": "j",
        "listener.name.out.oauthbearer.sasl.oauthbearer.expected.audience": "a, b",
    }
    oauth = sasl_listener(own, "OUT").oauth
    assert oauth is not None
    assert oauth == OAuthListener("https://issuer/keys", TokenRules("j", ("a", "b"), 30), 3_600_000, 100, 10_000)
    assert sasl_listener(PLAIN, "OUT").oauth is None


def test_tokens_need_keys_and_controllers_take_none() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.sasl\.oauthbearer\.jwks\.endpoint\.url: .* no keys"):
        sasl_listener({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "OUT")
    for url in ("issuer/keys", "ftp://issuer/keys", "file:keys", "https://"):
        with pytest.raises(ConfigError, match="allowed: https"):
            sasl_listener(OAUTH | {"sasl.oauthbearer.jwks.endpoint.url": url}, "OUT")
    with pytest.raises(ConfigError, match=r"controllers cannot offer OAUTHBEARER .* fetch no token"):
        sasl_listener(OAUTH, "OUT", of_controllers=True)
    with pytest.raises(ConfigError, match=r"controllers cannot offer SCRAM-SHA-256 .* each other's votes"):
        sasl_listener({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, "OUT", of_controllers=True)


def test_a_node_needs_a_user_and_a_password_to_log_in() -> None:
    for options in ("", 'username="n"', 'password="secret"'):
        with pytest.raises(ConfigError, match="no username and password for this node") as error:
            node_credentials({"listener.name.out.plain.sasl.jaas.config": f"{MODULE} {options};"}, "OUT", "PLAIN")
        assert "secret" not in str(error.value)


def test_login_modules_are_checked_without_their_listeners() -> None:
    check_login_modules(PLAIN)
    with pytest.raises(ConfigError, match="required"):
        check_login_modules({"listener.name.out.plain.sasl.jaas.config": "secret"})
    with pytest.raises(ConfigError, match="which is ScramLoginModule"):
        check_login_modules({"listener.name.out.scram-sha-256.sasl.jaas.config": f"{MODULE};"})
