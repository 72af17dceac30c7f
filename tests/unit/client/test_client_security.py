"""The options of security: what contradicts what, what is never shown, and where tokens come from."""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

import pytest

from support.fixtures.certificates import Authority, missing_openssl
from support.fixtures.model_cluster import ModelCluster
from support.fixtures.scripted_broker import ScriptedBroker
from tidelog import Admin, AuthenticationError, Code, Consumer, Factory, Producer, TopicPartition, aio
from tidelog.base.errors import ConfigError, MissingExtraError, NetworkError, SaslAuthenticationError
from tidelog.client.options import AdminConfig, parse_options
from tidelog.client.security import ADVICE, OAuthBearerLogin, connection_security
from tidelog.io.clock import SystemClock
from tidelog.io.rng import SystemRng
from tidelog.io.tls import TlsNetwork
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateResponse

SECRET = "hunter2-hunter2"
SCRAM: dict[str, Any] = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": SECRET}


def parse(options: dict[str, Any]) -> AdminConfig:
    return parse_options(AdminConfig, "Admin", options)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"security_protocol": "TLS"}, "one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL' is expected"),
        ({"security_protocol": "ssl"}, "one of 'PLAINTEXT'"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is missing"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "one of 'PLAIN', 'SCRAM-SHA-256'"),
        (SCRAM, "no effect without SASL: set security_protocol='SASL_PLAINTEXT'"),
        (SCRAM | {"security_protocol": "SSL"}, "no effect without SASL: set security_protocol='SASL_SSL'"),
        ({"ssl_truststore_location": "ca.pem"}, "has no effect without TLS: set security_protocol='SSL'"),
        (
            SCRAM | {"security_protocol": "SASL_PLAINTEXT", "ssl_truststore_location": "ca.pem"},
            "ssl_truststore_location has no effect without TLS: set security_protocol='SASL_SSL'",
        ),
        (SCRAM | {"security_protocol": "SASL_SSL", "sasl_password": None}, "sasl_password is missing"),
        (SCRAM | {"security_protocol": "SASL_SSL", "sasl_username": None}, "sasl_username is missing"),
        (
            SCRAM | {"security_protocol": "SASL_SSL", "sasl_oauth_token_callback": str},
            "sasl_oauth_token_callback has no effect",
        ),
        (
            SCRAM | {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_tokenauth": True},
            "sasl_tokenauth has no effect: a delegation token is shown by SCRAM",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "sasl_oauth_token_callback is missing"),
        (
            SCRAM
            | {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_callback": str},
            "the token says who it is",
        ),
        ({"security_protocol": "SASL_SSL", "sasl_oauth_token_callback": "token"}, "something to call is expected"),
        ({"security_protocol": "SSL", "ssl_context": "tls"}, "an ssl.SSLContext, or None, is expected"),
        (
            {
                "security_protocol": "SSL",
                "ssl_context": ssl.create_default_context(),
                "ssl_truststore_location": "ca.pem",
            },
            "ssl_context takes its place",
        ),
        (
            {"security_protocol": "SSL", "ssl_truststore_location": "a", "ssl_truststore_certificates": "b"},
            "two ways to say the same",
        ),
        ({"security_protocol": "SSL", "ssl_keystore_location": "a", "ssl_keystore_key": "b"}, "two ways"),
        ({"security_protocol": "SSL", "ssl_keystore_key": "b"}, "go together: give both"),
        ({"security_protocol": "SSL", "ssl_key_password": "b"}, "there is no key to decrypt"),
        ({"security_protocol": "SSL", "ssl_keystore_type": "JKS"}, "keytool -importkeystore"),
        ({"security_protocol": "SSL", "ssl_truststore_type": "PKCS12"}, "ssl_truststore_location is missing"),
        (
            {"security_protocol": "SSL", "ssl_keystore_location": "a", "ssl_keystore_password": "b"},
            "Is it a store for ssl_keystore_type='PKCS12'?",
        ),
        ({"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": "none"}, "one of 'https', ''"),
        (SCRAM | {"security_protocol": "SASL_SSL", "sasl_password": "a\0b"}, "a NUL character"),
    ],
)
def test_options_that_contradict_each_other_say_what_to_set(given: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=r"^Admin\(?.*") as error:
        parse(given)
    assert expected in str(error.value)


@pytest.mark.parametrize("client", [Admin, Consumer, Producer, aio.Admin, aio.Consumer, aio.Producer])
def test_every_client_checks_them_when_it_is_made(client: Any) -> None:
    with pytest.raises(ConfigError, match="sasl_mechanism is missing"):
        client("127.0.0.1:1", security_protocol="SASL_PLAINTEXT")
    with pytest.raises(ConfigError, match=r"ssl_truststore_location='/no/such\.pem': it cannot be read: No such file"):
        client("127.0.0.1:1", security_protocol="SSL", ssl_truststore_location="/no/such.pem")


@pytest.mark.parametrize("name", ADVICE)
@pytest.mark.parametrize("spelling", [str, lambda name: name.replace("_", ".")])
def test_what_other_clients_call_it_is_answered_with_advice(name: str, spelling: Any) -> None:
    with pytest.raises(TypeError, match="has no argument") as error:
        parse({spelling(name): "x"})
    assert str(error.value).endswith(ADVICE[name])


def test_kafkas_own_spelling_names_the_option() -> None:
    with pytest.raises(TypeError, match="did you mean 'ssl_truststore_location'"):
        parse({"ssl.truststore.location": "ca.pem"})


@pytest.mark.parametrize("name", ["sasl_password", "ssl_key_password", "ssl_keystore_key"])
def test_a_secret_is_shown_neither_by_the_options_nor_by_an_error(name: str) -> None:
    given: dict[str, Any] = {name: SECRET}
    assert SECRET not in repr(AdminConfig(**given))
    with pytest.raises(ConfigError, match="…") as error:
        parse({"security_protocol": "SASL_SSL", name: [SECRET]})
    assert SECRET not in str(error.value)


def test_what_secures_a_connection_shows_no_secret() -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        config = parse(SCRAM | {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism})
        assert SECRET not in repr(connection_security(config, SystemClock(), SystemRng()))


def test_a_factory_gives_its_options_to_its_clients() -> None:
    with pytest.raises(ConfigError, match=r"Factory\(security_protocol='SASL_SSL'\): sasl_mechanism is missing"):
        Factory("127.0.0.1:1", security_protocol="SASL_SSL")
    with pytest.raises(ConfigError, match="sasl_mechanism is missing"):
        aio.Factory("127.0.0.1:1", security_protocol="SASL_SSL")
    factory = Factory("127.0.0.1:1", client_id="ours", security_protocol="SASL_PLAINTEXT", **SCRAM)
    with factory.admin() as admin, factory.consumer(client_id="other") as consumer:
        assert admin._async._config.sasl_username == consumer._async._config.sasl_username == "alice"
        assert (admin._async._config.client_id, consumer._async._config.client_id) == ("ours", "other")


# Files.
@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    if (reason := missing_openssl()) is not None:
        pytest.skip(reason)
    return Authority(tmp_path_factory.mktemp("authority"))


def tls(options: dict[str, Any]) -> ssl.SSLContext:
    config = parse({"security_protocol": "SSL"} | options)
    network = connection_security(config, SystemClock(), SystemRng()).tls
    assert isinstance(network, TlsNetwork)
    return network.context


def test_names_are_checked_unless_it_is_said_otherwise(authority: Authority) -> None:
    path = str(authority.certificate)
    assert tls({"ssl_truststore_location": path}).check_hostname
    context = tls({"ssl_truststore_location": path, "ssl_endpoint_identification_algorithm": ""})
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    own = ssl.create_default_context()
    assert tls({"ssl_context": own}) is own


def test_certificates_are_files_or_text(authority: Authority) -> None:
    trusted = [authority.certificate.read_text()]
    assert [len(tls({"ssl_truststore_certificates": text}).get_ca_certs()) for text in trusted] == [1]
    client = authority.sign("alice", password="sesame")
    tls({"ssl_keystore_location": str(client.both), "ssl_key_password": "sesame"})
    text = {
        "ssl_keystore_certificate_chain": client.certificate.read_text(),
        "ssl_keystore_key": client.key.read_text(),
    }
    tls(text | {"ssl_key_password": "sesame"})
    with pytest.raises(ConfigError, match=r"ssl_keystore_certificate_chain: the key cannot be decrypted: .* missing"):
        tls(text)


def test_a_file_that_cannot_be_used_says_why(authority: Authority, tmp_path: Path) -> None:
    client, other = authority.sign("bob", password="sesame"), authority.sign("carol")
    swapped = tmp_path / "swapped.pem"
    swapped.write_text(client.certificate.read_text() + other.key.read_text())
    store = tmp_path / "store.p12"
    store.write_bytes(b"0\x82\x01\x00binary")
    for options, expected in (
        ({"ssl_truststore_location": str(store)}, r"ssl_truststore_location='.*p12': no certificate in PEM"),
        ({"ssl_truststore_certificates": "none"}, "ssl_truststore_certificates: no certificate in PEM"),
        ({"ssl_keystore_location": str(store)}, "is read with the type PKCS12"),
        ({"ssl_keystore_location": str(tmp_path / "none")}, "it cannot be read: No such file"),
        ({"ssl_keystore_location": str(client.certificate)}, "a certificate and its private key are expected"),
        ({"ssl_keystore_location": str(swapped)}, "the key is not that of the first certificate"),
        ({"ssl_keystore_location": str(client.both)}, "ssl_key_password is missing"),
        ({"ssl_keystore_location": str(client.both), "ssl_key_password": SECRET}, "ssl_key_password is wrong"),
    ):
        with pytest.raises(ConfigError, match=expected) as error:
            tls(options)
        assert SECRET not in str(error.value)


def test_stores_of_java_are_read(authority: Authority) -> None:
    pytest.importorskip("cryptography")
    dave = authority.sign("dave")
    store, trusted = str(authority.store(dave, "sesame")), str(authority.trust_store("open"))
    own = {"ssl_keystore_location": store, "ssl_keystore_type": "PKCS12", "ssl_keystore_password": "sesame"}
    trust = {"ssl_truststore_location": trusted, "ssl_truststore_type": "PKCS12", "ssl_truststore_password": "open"}
    (known,) = tls(own | trust).get_ca_certs()
    assert known["subject"] == ((("commonName", "authority"),),)
    for options, expected in (
        (own | {"ssl_keystore_password": SECRET}, "it cannot be decrypted: ssl_keystore_password is wrong"),
        (own | {"ssl_keystore_password": None}, "it cannot be decrypted: ssl_keystore_password is missing"),
        (own | {"ssl_keystore_location": str(dave.both)}, "it is no PKCS#12 store"),
        (own | {"ssl_keystore_location": "/no/such.p12"}, "it cannot be read: No such file"),
        (own | {"ssl_keystore_location": trusted, "ssl_keystore_password": "open"}, "it holds no private key"),
        (trust | {"ssl_truststore_password": SECRET}, "it cannot be decrypted: ssl_truststore_password is wrong"),
    ):
        with pytest.raises(ConfigError) as error:
            tls(options)
        assert expected in str(error.value)
        assert SECRET not in str(error.value)


def test_without_the_library_a_store_says_what_to_install(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tidelog\[security\]'"):
        tls({"ssl_truststore_location": str(authority.certificate), "ssl_truststore_type": "PKCS12"})


# Tokens.
class Clock(SystemClock):
    """A clock that a test sets."""

    now_s = 1_000.0

    def wall_ms(self) -> int:
        return round(self.now_s * 1000)


def login(callback: Any) -> tuple[OAuthBearerLogin, Clock]:
    clock = Clock()
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_callback": callback}
    return OAuthBearerLogin(parse(options), clock), clock


def first(made: OAuthBearerLogin) -> bytes:
    async def start() -> bytes:
        return (await made.start()).first_message()

    return asyncio.run(start())


def test_a_token_serves_for_four_fifths_of_its_time() -> None:
    tokens = iter("abc")
    made, clock = login(lambda: (next(tokens), 1_100.0))
    assert [first(made), first(made)] == [b"n,,\x01auth=Bearer a\x01\x01"] * 2
    clock.now_s = 1_079.0
    assert b"Bearer a" in first(made)
    clock.now_s = 1_080.0
    assert b"Bearer b" in first(made)


def test_a_token_without_an_end_is_asked_for_each_time_and_callbacks_may_be_async() -> None:
    tokens = iter("abc")

    async def token() -> str:
        return next(tokens)

    made, _ = login(token)
    assert [b"Bearer a" in first(made), b"Bearer b" in first(made)] == [True, True]
    made, _ = login(lambda: ("x", None, {"traceId": "7"}))
    assert first(made) == b"n,,\x01auth=Bearer x\x01traceId=7\x01\x01"


@pytest.mark.parametrize("answer", [None, 7, (), (7,), ("a", "soon"), ("a", None, 7), ("a", None, {}, 1), b"a"])
def test_what_is_no_token_is_told_by_its_type(answer: object) -> None:
    with pytest.raises(SaslAuthenticationError, match="sasl_oauth_token_callback returned"):
        first(login(lambda: answer)[0])


def test_a_token_that_is_over_already_is_told() -> None:
    with pytest.raises(SaslAuthenticationError, match="was good until 10 s ago"):
        first(login(lambda: ("a", 990.0))[0])


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [(ConnectionError("away"), NetworkError), (TimeoutError(), NetworkError), (KeyError("x"), AuthenticationError)],
)
def test_what_the_callback_raises_is_the_cause_and_only_the_network_is_tried_again(
    raised: Exception, becomes: type[Exception]
) -> None:
    def token() -> str:
        raise raised

    with pytest.raises(becomes, match="sasl_oauth_token_callback") as error:
        first(login(token)[0])
    assert type(error.value.__cause__) is type(raised)


# What every client does with a refusal.
async def _admin(bootstrap: str, options: dict[str, Any]) -> None:
    async with aio.Admin(bootstrap, **options) as admin:
        await admin.list_topics()


async def _producer(bootstrap: str, options: dict[str, Any]) -> None:
    async with aio.Producer(bootstrap, **options) as producer:
        await producer.send("t", b"hello")


async def _consumer(bootstrap: str, options: dict[str, Any]) -> None:
    async with aio.Consumer(bootstrap, **options) as consumer:
        consumer.assign([TopicPartition("t", 0)], start="earliest")
        await consumer.poll(timeout_ms=100_000)


async def _member(bootstrap: str, options: dict[str, Any]) -> None:
    async with aio.Consumer(bootstrap, group_id="g", **options) as consumer:
        consumer.subscribe(["t"])
        await consumer.poll(timeout_ms=100_000)


@pytest.mark.parametrize("use", [_admin, _producer, _consumer, _member])
def test_a_refusal_is_raised_at_once_and_no_broker_is_asked_again(use: Any) -> None:
    refused = SaslAuthenticateResponse(error_code=Code.SASL_AUTHENTICATION_FAILED, error_message="no such user")

    async def work() -> None:
        async with ScriptedBroker() as broker:
            broker.on(ApiKey.SASL_HANDSHAKE, lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"]))
            broker.on(ApiKey.SASL_AUTHENTICATE, lambda request, version: refused)
            options = SCRAM | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
            with pytest.raises(SaslAuthenticationError, match=r"as user 'alice': .* no such user") as error:
                await use(broker.address, options)
            assert broker.connections == 1
            assert SECRET not in str(error.value)

    asyncio.run(work())


class Guarded(ModelCluster):
    """Accepts everybody until it is told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.create("t")
        self.code = Code.NONE
        self.on(ApiKey.SASL_HANDSHAKE, lambda request, version: SaslHandshakeResponse(mechanisms=["PLAIN"]))
        self.on(ApiKey.SASL_AUTHENTICATE, lambda request, version: SaslAuthenticateResponse(error_code=self.code))

    def revoke(self) -> None:
        """Accept nobody any more, and close all connections."""
        self.code = Code.SASL_AUTHENTICATION_FAILED
        self.hang_up()


GUARDED: dict[str, Any] = SCRAM | {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


def test_a_producer_whose_user_is_revoked_fails_its_records_with_the_reason() -> None:
    async def work() -> None:
        async with Guarded() as cluster, aio.Producer(cluster.address, **GUARDED) as producer:
            await (await producer.send("t", b"before", partition=0))
            cluster.revoke()
            future = await producer.send("t", b"after", partition=0)
            with pytest.raises(SaslAuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
                await future
            with pytest.raises(SaslAuthenticationError):
                await producer.send("t", b"later", partition=0)

    asyncio.run(work())


def test_a_consumer_whose_user_is_revoked_raises_the_reason_from_every_poll() -> None:
    async def work() -> None:
        async with Guarded() as cluster, aio.Consumer(cluster.address, **GUARDED) as consumer:
            cluster.topics["t"].partitions[0].append(b"a")
            consumer.assign([TopicPartition("t", 0)], start="earliest")
            assert [record.value for record in await consumer.poll(timeout_ms=100_000)] == [b"a"]
            cluster.revoke()
            for _ in range(3):
                with pytest.raises(SaslAuthenticationError, match="SASL_AUTHENTICATION_FAILED"):
                    await consumer.poll(timeout_ms=100_000)

    asyncio.run(work())
