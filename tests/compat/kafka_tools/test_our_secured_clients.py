"""Our clients on secured listeners of Apache Kafka: that they work, and what they say if they cannot."""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.clients.kafka_tools import KafkaTools
from support.clients.secured_kafka import KEY_PASSWORD, PASSWORD, TOKEN_SECRET, SecuredKafka, sasl, token
from support.fixtures.certificates import missing_openssl
from support.fixtures.waiting import wait_until
from tidelog import (
    Admin,
    AuthenticationError,
    Consumer,
    Factory,
    KafkaError,
    NewTopic,
    Producer,
    SaslAuthenticationError,
    SslAuthenticationError,
    TopicPartition,
    aio,
)
from tidelog.base.errors import Code
from tidelog.security.delegation_tokens import token_hmac

COUNT = 50
UNPREPARED = "½ﬁ x"
"""A password that SASLprep would change: Kafka's tools and clients do not."""


@pytest.fixture(scope="module")
def kafka(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    if (reason := missing_openssl()) is not None:
        pytest.skip(reason)
    secured = SecuredKafka(tmp_path_factory.mktemp("secured"))
    try:
        secured.peer.start()
        users = [("alice", "SCRAM-SHA-256", PASSWORD), ("alice", "SCRAM-SHA-512", PASSWORD)]
        for user, mechanism, password in [*users, ("bob", "SCRAM-SHA-256", UNPREPARED)]:
            tools.run("kafka-configs", *secured.credentials(user, mechanism, password))
            given = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
            wait_until(lambda given=given: _is_known(secured, given), f"the broker knows {user}")  # type: ignore[misc]
        yield secured
    finally:
        secured.peer.close()


def _is_known(secured: SecuredKafka, given: dict[str, Any]) -> bool:
    try:
        with Admin(secured.bootstrap("SASL_PLAINTEXT"), security_protocol="SASL_PLAINTEXT", **given) as admin:
            admin.list_topics()
    except SaslAuthenticationError:
        return False
    return True


LISTENERS = [
    ("SSL", None),
    ("MTLS", None),
    ("SASL_PLAINTEXT", "PLAIN"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "OAUTHBEARER"),
    pytest.param("SASL_PLAINTEXT", "SCRAM-SHA-512", marks=pytest.mark.slow),
    pytest.param("SASL_PLAINTEXT", "OAUTHBEARER", marks=pytest.mark.slow),
    pytest.param("SASL_SSL", "PLAIN", marks=pytest.mark.slow),
    pytest.param("SASL_SSL", "SCRAM-SHA-256", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("listener", "mechanism"), LISTENERS)
def test_every_client_works_on_every_listener(
    kafka: SecuredKafka, topic: str, listener: str, mechanism: str | None
) -> None:
    factory = Factory(kafka.bootstrap(listener), **kafka.options(listener, mechanism))
    with factory.admin() as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1)])
    with factory.producer() as producer:
        for number in range(COUNT):
            producer.send(topic, b"%d" % number)
    with factory.producer(transactional_id=topic) as producer, producer.transaction() as transaction:
        transaction.send(topic, b"end")
    expected = [*(b"%d" % number for number in range(COUNT)), b"end"]
    with factory.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)], start="earliest")
        assert [record.value for record in consumer.until_end()] == expected
    with factory.consumer(group_id=topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic], start="earliest")
        values = []
        for record in consumer:
            values.append(record.value)
            if record.value == b"end":
                consumer.commit(record)
                break
        assert values == expected
        assert consumer.committed()[TopicPartition(topic, 0)] is not None


def test_the_clients_of_event_loops_do_too(kafka: SecuredKafka, topic: str) -> None:
    tokens = 0

    async def callback() -> str:
        nonlocal tokens
        tokens += 1
        return token("alice")

    async def work() -> list[bytes | None]:
        options = kafka.options("SASL_SSL", "OAUTHBEARER", sasl_oauth_token_callback=callback)
        bootstrap = kafka.bootstrap("SASL_SSL")
        async with aio.Admin(bootstrap, **options) as admin:
            await admin.create_topics([NewTopic(topic, num_partitions=1)])
        async with aio.Producer(bootstrap, **options) as producer:
            await (await producer.send(topic, b"hello"))
        async with aio.Consumer(bootstrap, group_id=topic, **options) as consumer:
            consumer.subscribe([topic], start="earliest")
            async for record in consumer:
                return [record.value]
        return []

    assert asyncio.run(work()) == [b"hello"]
    assert tokens > 3  # one for each connection, since it does not say until when it is good


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_delegation_token_logs_in_as_its_owner(kafka: SecuredKafka, topic: str, mechanism: str) -> None:
    bootstrap, alice = kafka.bootstrap("SASL_SSL"), kafka.options("SASL_SSL", "PLAIN")
    with Admin(bootstrap, **alice) as admin:
        created = admin.create_delegation_token(renewers=["User:bob"], max_lifetime_ms=600_000)
        assert (created.owner, created.requester, created.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert created.hmac == token_hmac(TOKEN_SECRET, created.token_id)
        wait_until(lambda: admin.describe_delegation_tokens(["User:bob"]) != [], "the broker knows the token")
        assert created in admin.describe_delegation_tokens()
        password = b64encode(created.hmac).decode()
        token = {"sasl_mechanism": mechanism, "sasl_username": created.token_id, "sasl_password": password}
        by_token = kafka.options("SASL_SSL", sasl_tokenauth=True, **token)
        with Admin(bootstrap, **by_token) as other:
            other.create_topics([NewTopic(topic, num_partitions=1)])
            with pytest.raises(KafkaError) as error:
                other.describe_delegation_tokens()
            assert error.value.code == Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert admin.renew_delegation_token(created.hmac, period_ms=5_000) < created.expires_ms
        admin.expire_delegation_token(created.hmac)
        wait_until(lambda: created.token_id not in known(admin), "the broker forgets the token")
        with (
            Admin(bootstrap, **by_token) as other,
            pytest.raises(SaslAuthenticationError, match=f"delegation token '{created.token_id}'"),
        ):
            other.list_topics()


def known(admin: Admin) -> set[str]:
    return {one.token_id for one in admin.describe_delegation_tokens()}


def test_a_context_of_the_callers_own_is_used(kafka: SecuredKafka) -> None:
    context = ssl.create_default_context(cafile=str(kafka.authority.certificate))
    context.load_cert_chain(kafka.client.certificate, kafka.client.key, password=KEY_PASSWORD)
    with Admin(kafka.bootstrap("MTLS"), security_protocol="SSL", ssl_context=context) as admin:
        admin.list_topics()


def test_no_name_is_checked_where_that_is_asked_for(kafka: SecuredKafka) -> None:
    options = kafka.options("OTHER_NAME", ssl_endpoint_identification_algorithm="")
    with Admin(kafka.bootstrap("OTHER_NAME"), **options) as admin:
        admin.list_topics()


def test_a_password_is_its_utf_8_as_kafkas_tools_have_it(kafka: SecuredKafka) -> None:
    bob = {"sasl_username": "bob", "sasl_password": UNPREPARED}
    options = kafka.options("SASL_PLAINTEXT", "SCRAM-SHA-256", **bob)
    with Admin(kafka.bootstrap("SASL_PLAINTEXT"), **options) as admin:
        admin.list_topics()


# What cannot be.
Use = Callable[[str, dict[str, Any]], None]


def use_admin(bootstrap: str, options: dict[str, Any]) -> None:
    with Admin(bootstrap, **options) as admin:
        admin.list_topics()


def use_producer(bootstrap: str, options: dict[str, Any]) -> None:
    with Producer(bootstrap, **options) as producer:
        producer.send("none", b"hello").result()


def use_consumer(bootstrap: str, options: dict[str, Any]) -> None:
    with Consumer(bootstrap, **options) as consumer:
        consumer.assign([TopicPartition("none", 0)], start="earliest")
        consumer.poll(timeout_ms=100_000)


def use_member(bootstrap: str, options: dict[str, Any]) -> None:
    with Consumer(bootstrap, group_id="none", **options) as consumer:
        consumer.subscribe(["none"])
        consumer.poll(timeout_ms=100_000)


def use_transaction(bootstrap: str, options: dict[str, Any]) -> None:
    with Producer(bootstrap, transactional_id="none", **options) as producer:
        producer.init_transactions()


def use_aio(bootstrap: str, options: dict[str, Any]) -> None:
    async def work() -> None:
        async with aio.Consumer(bootstrap, **options) as consumer:
            consumer.assign([TopicPartition("none", 0)], start="earliest")
            await consumer.poll(timeout_ms=100_000)

    asyncio.run(work())


USES = [use_admin, use_producer, use_consumer, use_member, use_transaction, use_aio]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("listener", "mechanism", "given"),
    [
        ("SASL_PLAINTEXT", "SCRAM-SHA-256", {"sasl_password": "hunter2"}),
        ("SASL_PLAINTEXT", None, {"security_protocol": "PLAINTEXT"}),
        ("SSL", None, {"security_protocol": "PLAINTEXT", "ssl_truststore_location": None}),
    ],
    ids=["wrong-password", "no-sasl", "no-tls"],
)
def test_every_client_raises_it_from_the_call_that_needs_the_broker(
    kafka: SecuredKafka, listener: str, mechanism: str | None, given: dict[str, Any], use: Use
) -> None:
    with pytest.raises(AuthenticationError, match=kafka.bootstrap(listener)) as error:
        use(kafka.bootstrap(listener), kafka.options(listener, mechanism) | given)
    assert "hunter2" not in str(error.value)


PLAIN = sasl("PLAIN")


@pytest.mark.parametrize(
    ("listener", "given", "kind", "expected"),
    [
        (
            "SSL",
            {"security_protocol": "SSL"},
            SslAuthenticationError,
            "signed by no authority that is trusted here .* since no ssl_truststore_location is given",
        ),
        (
            "SSL",
            {"security_protocol": "SSL", "ssl_truststore_location": "STRANGER"},
            SslAuthenticationError,
            r"signed by no authority that is trusted here .* those in .*stranger\.pem",
        ),
        (
            "OTHER_NAME",
            {"security_protocol": "SSL", "ssl_truststore_location": "AUTHORITY"},
            SslAuthenticationError,
            "the broker's certificate is for another name .*not valid for 'localhost'",
        ),
        (
            "EXPIRED",
            {"security_protocol": "SSL", "ssl_truststore_location": "AUTHORITY"},
            SslAuthenticationError,
            "the broker's certificate is too old .certificate has expired.",
        ),
        (
            "MTLS",
            {"security_protocol": "SSL", "ssl_truststore_location": "AUTHORITY"},
            SslAuthenticationError,
            "this client shows no certificate: .* set ssl_keystore_location",
        ),
        (
            "MTLS",
            {"security_protocol": "SSL", "ssl_truststore_location": "AUTHORITY", "ssl_keystore_location": "UNTRUSTED"},
            SslAuthenticationError,
            "may not trust the authority of this client's certificate",
        ),
        ("SSL", {}, SslAuthenticationError, "speaks TLS, and this client does not: set security_protocol='SSL'"),
        (
            "PLAINTEXT",
            {"security_protocol": "SSL", "ssl_truststore_location": "AUTHORITY"},
            SslAuthenticationError,
            "speaks no TLS, and this client does: set security_protocol='PLAINTEXT'",
        ),
        (
            "SASL_PLAINTEXT",
            {"security_protocol": "SASL_SSL", "ssl_truststore_location": "AUTHORITY"} | PLAIN,
            SslAuthenticationError,
            "speaks no TLS, and this client does: set security_protocol='SASL_PLAINTEXT'",
        ),
        (
            "SASL_SSL",
            {"security_protocol": "SASL_PLAINTEXT"} | PLAIN,
            SslAuthenticationError,
            "speaks TLS, and this client does not: set security_protocol='SASL_SSL'",
        ),
        (
            "SASL_PLAINTEXT",
            {},
            SaslAuthenticationError,
            "asks who this client is, by SASL, .*'SASL_PLAINTEXT', and sasl_mechanism to one of PLAIN",
        ),
        (
            "SASL_SSL",
            {"security_protocol": "SSL", "ssl_truststore_location": "AUTHORITY"},
            SaslAuthenticationError,
            "asks who this client is, by SASL, .*'SASL_SSL', and sasl_mechanism to one of PLAIN",
        ),
        (
            "PLAINTEXT",
            {"security_protocol": "SASL_PLAINTEXT"} | PLAIN,
            SaslAuthenticationError,
            "does not ask for SASL: set security_protocol='PLAINTEXT'",
        ),
        (
            "SASL_PLAINTEXT",
            {"security_protocol": "SASL_PLAINTEXT"} | PLAIN | {"sasl_password": "hunter2"},
            SaslAuthenticationError,
            "SASL PLAIN failed, as user 'alice': .* Invalid username or password",
        ),
        (
            "SASL_PLAINTEXT",
            {"security_protocol": "SASL_PLAINTEXT"}
            | sasl("OAUTHBEARER")
            | {"sasl_oauth_token_callback": lambda: "hunter2.hunter2.hunter2"},
            SaslAuthenticationError,
            "SASL OAUTHBEARER failed, the broker says status 'invalid_token'",
        ),
    ],
    ids=[
        "unknown-authority",
        "another-authority",
        "another-name",
        "expired",
        "no-certificate",
        "untrusted-certificate",
        "plaintext-to-tls",
        "tls-to-plaintext",
        "sasl-ssl-to-sasl-plaintext",
        "sasl-plaintext-to-sasl-ssl",
        "plaintext-to-sasl",
        "ssl-to-sasl-ssl",
        "sasl-to-plaintext",
        "wrong-password",
        "wrong-token",
    ],
)
def test_what_cannot_be_says_where_why_and_what_to_set(
    kafka: SecuredKafka, listener: str, given: dict[str, Any], kind: type[Exception], expected: str
) -> None:
    files = {
        "AUTHORITY": str(kafka.authority.certificate),
        "STRANGER": str(kafka.stranger.certificate),
        "UNTRUSTED": str(kafka.untrusted_client.both),
    }
    options = {name: files.get(value, value) if isinstance(value, str) else value for name, value in given.items()}
    with pytest.raises(kind, match=f"^{kafka.bootstrap(listener)}:? .*{expected}") as error:
        use_admin(kafka.bootstrap(listener), options)
    assert "hunter2" not in str(error.value)


# Sessions that end.
def test_sessions_are_renewed_while_records_are_written_and_read(kafka: SecuredKafka, topic: str) -> None:
    asked = 0

    def callback() -> str:
        nonlocal asked
        asked += 1
        return token("alice")

    options = kafka.options("RENEWED", "OAUTHBEARER", sasl_oauth_token_callback=callback)
    factory = Factory(kafka.bootstrap("RENEWED"), **options)
    with factory.admin() as admin:
        admin.create_topics([NewTopic(topic, num_partitions=1)])
    with factory.producer(linger_ms=0) as producer, factory.consumer(group_id=topic) as consumer:
        consumer.subscribe([topic], start="earliest")
        producer.send(topic, b"0").result()
        sent, read = 1, 0
        while not (records := consumer.poll(timeout_ms=1_000)):
            pass
        read += len(records)
        pools = [producer._async._cluster.pool, consumer._async._cluster.pool]
        connections = [slot.connection for pool in pools for slot in pool._slots.values()]
        assert all(connection is not None for connection in connections)
        before = asked
        while asked < before + 3 * len(connections):  # each three times, about
            futures = [producer.send(topic, b"%d" % number) for number in range(sent, sent + 20)]
            sent += len(futures)
            for record in consumer.poll(timeout_ms=100):
                assert record.value == b"%d" % read
                read += 1
            assert [future.result().offset for future in futures] == list(range(sent - 20, sent))
        while read < sent:
            for record in consumer.poll(timeout_ms=1_000):
                assert record.value == b"%d" % read
                read += 1
        ended = [str(connection.closed) for connection in connections if connection is not None and connection.closed]
        assert ended == []
