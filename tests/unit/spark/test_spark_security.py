"""`kafka.security.*`, `kafka.ssl.*` and `kafka.sasl.*` as arguments of our clients."""

from __future__ import annotations

import base64
import io
import json
import pickle
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from tidelog.base.errors import ConfigError, SaslAuthenticationError
from tidelog.client import oauth
from tidelog.client.kafka_settings import admin_settings, client_arguments
from tidelog.client.options import AdminConfig, ConsumerConfig, ProducerConfig, parse_options
from tidelog.security.jaas import LoginModule, parse_jaas
from tidelog.spark.options import sink_options, source_options

SECRET = 'pass;"word='
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="pass;\\"word=";'
SCRAM = PLAIN.replace("plain.Plain", "scram.Scram")
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
MINIMAL = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "topic": "t"}


def options(**given: str) -> dict[str, str]:
    return {**MINIMAL, **{f"kafka.{name.replace('_', '.')}": value for name, value in given.items()}}


def arguments(**given: str) -> dict[str, Any]:
    source = source_options(options(**given), streaming=True).client
    sink = sink_options(options(**given)).client
    assert {**source, "client_id": 0} == {**sink, "client_id": 0}
    found = {name: value for name, value in source.items() if name not in {"client_id", "bootstrap_servers"}}
    for config in (ConsumerConfig, ProducerConfig):  # the clients take it, and agree
        parse_options(config, "client", client_arguments(found))
    parse_options(AdminConfig, "client", admin_settings(found))
    return found


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"security_protocol": "PLAINTEXT", "ssl_endpoint_identification_algorithm": "https"}, {}),
        (
            {"security_protocol": "ssl", "ssl_truststore_location": "/a/ca.pem"},
            {"security_protocol": "SSL", "ssl_truststore_location": "/a/ca.pem"},
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_truststore_type": "PEM",
                "ssl_truststore_certificates": "-----BEGIN",
                "ssl_keystore_type": "pem",
                "ssl_keystore_location": "/a/store",
                "ssl_key_password": " sesame ",
                "ssl_enabled_protocols": "TLSv1.3, TLSv1.2",
                "ssl_endpoint_identification_algorithm": "",
            },
            {
                "security_protocol": "SSL",
                "ssl_truststore_certificates": "-----BEGIN",
                "ssl_keystore_location": "/a/store",
                "ssl_key_password": " sesame ",
                "ssl_endpoint_identification_algorithm": "",
            },
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN},
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "alice",
                "sasl_password": SECRET,
            },
        ),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_jaas_config": f"kafkashaded.{SCRAM}",
                "sasl_login_refresh_window_factor": "0.8",
                "sasl_kerberos_service_name": "kafka",
            },
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_username": "alice",
                "sasl_password": SECRET,
            },
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_jaas_config": f'{BEARER} unsecuredLoginStringClaim_sub="alice" extension_pool="p1";',
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth": {"claims": {"sub": "alice"}, "extensions": {"pool": "p1"}},
            },
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_login_callback_handler_class": HANDLER,
                "sasl_oauthbearer_token_endpoint_url": "https://login.example/token",
                "sasl_jaas_config": f"{BEARER} clientId='me' clientSecret='x' scope='all';",
            },
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauth": {
                    "url": "https://login.example/token",
                    "client_id": "me",
                    "client_secret": "x",
                    "scope": "all",
                    "is_encoded": False,
                    "extensions": {},
                },
            },
        ),
    ],
)
def test_what_is_said_reaches_the_clients(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert arguments(**given) == expected


SASL = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security_protocol": "TLS"}, "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl_truststore_location": "a.pem"}, "no effect without TLS: set kafka.security.protocol=SSL"),
        ({"sasl_jaas_config": PLAIN}, "no effect without SASL"),
        ({"security_protocol": "SSL", "sasl_mechanism": "PLAIN"}, "set kafka.security.protocol=SASL_SSL"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "a.jks"}, "JKS, which is the default .*keytool"),
        ({"security_protocol": "SSL", "ssl_keystore_location": "a.pem", "ssl_keystore_type": "JKS"}, "keytool"),
        (
            {
                "security_protocol": "SSL",
                "ssl_keystore_certificate_chain": "a",
                "ssl_keystore_key": SECRET,
                "ssl_keystore_type": "PKCS12",
            },
            "a text is PEM",
        ),
        (
            {"security_protocol": "SSL", "ssl_truststore_location": "a.pem", "ssl_truststore_password": SECRET},
            "a PEM store has no password",
        ),
        ({"security_protocol": "SSL", "ssl_cipher_suites": "X"}, "ssl.cipher.suites is not supported"),
        ({"security_protocol": "SSL", "ssl_enabled_protocols": "TLSv1.1"}, "only tlsv1.2,tlsv1.3"),
        ({"security_protocol": "SSL", "ssl_engine_factory_class": "X"}, "ssl.engine.factory.class is not supported"),
        ({"security_protocol": "SSL", "ssl_key_password": SECRET}, "there is no key to decrypt"),
        ({"security_protocol": "SSL", "ssl_keystore_key": SECRET}, "go together"),
        ({"security_protocol": "SASL_SSL"}, "GSSAPI, the default of Kafka: Kerberos is not supported"),
        ({**SASL, "sasl_mechanism": "NTLM"}, "sasl.mechanism=NTLM: it is unknown"),
        ({**SASL}, "sasl.jaas.config is missing"),
        ({**SASL, "sasl_jaas_config": PLAIN[:-1]}, "the semicolon at its end is missing"),
        ({**SASL, "sasl_jaas_config": PLAIN.replace(" required", "")}, "`required` is missing"),
        ({**SASL, "sasl_jaas_config": PLAIN + PLAIN}, "more than one login module"),
        ({**SASL, "sasl_jaas_config": PLAIN.replace("username=", "")}, "option 1 is not of the form name=value"),
        ({**SASL, "sasl_jaas_config": PLAIN.replace('";', ";")}, "a quotation mark in it has no counterpart"),
        ({**SASL, "sasl_jaas_config": PLAIN.replace("username", "user")}, "username is missing"),
        ({**SASL, "sasl_jaas_config": f"{BEARER};"}, "not OAuthBearerLoginModule"),
        ({**SASL, "sasl_jaas_config": PLAIN, "sasl_login_class": "X"}, "Java classes cannot be loaded"),
        ({**SASL, "sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": f"{BEARER};"}, "unsecuredLoginStringClaim_sub"),
    ],
)
def test_what_cannot_be_is_refused_and_no_secret_shown(given: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as error:
        source_options(options(**given), streaming=True)
    assert SECRET not in str(error.value)
    assert "pass;" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("jwt_retriever_class", "org.apache.kafka.JwtBearerJwtRetriever", "ClientCredentialsJwtRetriever does is"),
        ("assertion_file", "/a", "a client secret is"),
        ("token_endpoint_url", "ftp:///a", "no http"),
        ("client_credentials_client_id", "", "clientId and clientSecret are missing"),
    ],
)
def test_tokens_come_by_a_client_secret_or_of_a_file(key: str, value: str, says: str) -> None:
    given = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_login_callback_handler_class": HANDLER,
        "sasl_oauthbearer_token_endpoint_url": "https://login.example/token",
        "sasl_jaas_config": f"{BEARER} clientSecret='x';",
    }
    with pytest.raises(ConfigError, match=says):
        arguments(**{**given, f"sasl_oauthbearer_{key}": value})


def test_a_token_of_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    source = oauth.token_source(
        arguments(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_login_callback_handler_class=HANDLER,
            sasl_oauthbearer_token_endpoint_url=file.as_uri(),
            sasl_jaas_config=f"{BEARER};",
        )["sasl_oauth"]
    )
    for expires in (1_800_000_000, 1_900_000_000):
        claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
        file.write_text(f"a.{claims}.b\n")
        assert source() == (f"a.{claims}.b", float(expires), {})
    for text in ("", "a.b", "a.e30.b", "a.****.b"):
        file.write_text(text)
        with pytest.raises(SaslAuthenticationError, match="holds no JSON Web Token"):
            source()


def test_a_delegation_token_is_one_by_the_modules_own_word() -> None:
    for written, by_token in (("true", True), ("TRUE", True), ("false", None)):
        config = f'{SCRAM[:-1]} tokenauth="{written}";'
        given = arguments(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=config)
        assert given.get("sasl_tokenauth") is by_token


def test_nothing_shows_a_secret() -> None:
    found = source_options(options(**SASL, sasl_jaas_config=PLAIN), streaming=True)
    assert SECRET not in repr(found)
    assert repr(pickle.loads(pickle.dumps(found))) == repr(found)
    assert SECRET not in repr(parse_jaas(PLAIN))


def test_jaas_is_read_as_java_reads_it() -> None:
    text = "// who\n a.b.C  REQUIRED\n x=y /* two\nlines */ p='it''s' ;"
    with pytest.raises(ValueError, match="option 3"):
        parse_jaas(text)
    assert parse_jaas(text.replace("''", "\\'")) == LoginModule("C", {"x": "y", "p": "it's"})
    with pytest.raises(ValueError, match="it is empty"):
        parse_jaas(" ")


def test_strict_options_name_security_settings_without_effect() -> None:
    with pytest.raises(ConfigError, match=r"option kafka\.ssl\.truststore\.type: there is no TLS"):
        source_options({**options(ssl_truststore_type="PEM"), "strictOptions": "true"}, streaming=True)


def test_a_token_without_a_signature() -> None:
    token, until, extensions = oauth.token_source({"claims": {"sub": "alice"}, "extensions": {"a": "b"}})()
    header, claims, signature = (json.loads(base64.urlsafe_b64decode(part + "==") or "0") for part in token.split("."))
    assert (header, claims["sub"], claims["exp"], signature) == ({"alg": "none"}, "alice", until, 0)
    assert extensions == {"a": "b"}


CREDENTIALS = {
    "url": "https://h/t?key=s:x",
    "client_id": "m e",
    "client_secret": "s:x",
    "scope": "all",
    "is_encoded": True,
    "extensions": {},
}


class Server:
    """Answers as a token server."""

    def __init__(self, answer: bytes | Exception) -> None:
        self.answer = answer
        self.requests: list[Request] = []

    def __call__(self, request: Request, timeout: float) -> io.BytesIO:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return io.BytesIO(self.answer)


def test_a_token_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(b'{"access_token": "abc", "expires_in": 60}')
    monkeypatch.setattr(oauth, "urlopen", server)
    token, until, _ = oauth.token_source(CREDENTIALS)()
    assert token == "abc"
    assert until is not None
    request = server.requests[0]
    assert request.data == b"grant_type=client_credentials&scope=all"
    assert base64.b64decode(request.headers["Authorization"].split()[1]) == b"m+e:s%3Ax"
    oauth.token_source({**CREDENTIALS, "is_encoded": False})()
    assert base64.b64decode(server.requests[1].headers["Authorization"].split()[1]) == b"m e:s:x"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (HTTPError("https://h/t", 401, "Unauthorized", None, None), "HTTP 401 Unauthorized; check clientId"),  # type: ignore[arg-type]
        (b"<html>", "no access_token"),
        (b"[]", "no access_token"),
    ],
)
def test_a_server_that_gives_no_token(answer: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "urlopen", Server(answer))
    with pytest.raises(SaslAuthenticationError, match=says) as error:
        oauth.token_source(CREDENTIALS)()
    assert "s:x" not in str(error.value)
    monkeypatch.setattr(oauth, "urlopen", Server(HTTPError("https://h/t", 503, "busy", None, None)))  # type: ignore[arg-type]
    with pytest.raises(OSError, match="503"):
        oauth.token_source(CREDENTIALS)()
