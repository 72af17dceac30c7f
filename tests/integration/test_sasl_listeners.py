"""Listeners with SASL: clients and nodes that say who they are, and peers that do not, cannot, or lie."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from support.fixtures.certificates import Authority, missing_openssl
from support.fixtures.waiting import wait_until
from support.nodes.server_process import ServerProcess
from tidelog import Admin, Consumer, NewTopic, Producer, SaslAuthenticationError, TopicPartition
from tidelog.base.ids import BrokerId, ClusterId
from tidelog.cli.node_directories import format_directory
from tidelog.cli.ports import free_ports
from tidelog.security.sasl_session import REAUTHENTICATED_MS_MIN
from tidelog.wire import decode, decode_response_header, encode_request
from tidelog.wire.messages.api_03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.api_17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidelog.wire.messages.api_18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.api_36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

HOST = "127.0.0.1"
PASSWORD = "alice's secret"
LOGIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
JAAS = f'{LOGIN_MODULE} username="node" password="of nodes" user_node="of nodes" user_alice="{PASSWORD}" user_bob="b";'
STRANGE_JAAS = f'{LOGIN_MODULE} username="node" password="of others" user_node="of others";'
ALICE = f"\0alice\0{PASSWORD}".encode()
OPTIONS: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": PASSWORD,
}
SETTINGS = {
    "listeners": f"CLIENTS://{HOST}:0,CONTROLLER://{HOST}:0",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": JAAS,
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


def tls_settings(authority: Authority) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.sign("nodes", hosts=f"DNS:localhost,IP:{HOST}").both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
    }


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[ServerProcess]:
    """A node that asks its clients who they are, not yet started."""
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.settings |= SETTINGS
    yield node
    node.close()


@pytest.fixture
def node(stopped: ServerProcess) -> ServerProcess:
    stopped.start()
    return stopped


class Raw:
    """A peer that says what a test has it say."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=60)
        self._correlation_id = 0

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_frame(self, data: bytes) -> None:
        self.send(struct.pack(">i", len(data)) + data)

    def ask(self, message: Any, response: type[Any], version: int) -> Any:
        """The answer; EOFError if the connection ends instead."""
        key = {SaslHandshakeRequest: 17, SaslAuthenticateRequest: 36, ApiVersionsRequest: 18, MetadataRequest: 3}
        api_key = key[type(message)]
        self._correlation_id += 1
        pieces: list[Any] = encode_request(api_key, version, self._correlation_id, "raw", message)
        self.send(b"".join(bytes(piece) for piece in pieces))
        frame = self.frame()
        correlation_id, _, position = decode_response_header(frame, api_key, version)
        assert correlation_id == self._correlation_id
        return decode(response, frame, version, position)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
        answer: SaslHandshakeResponse = self.ask(
            SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version
        )
        return answer

    def authenticate(self, message: bytes = ALICE, version: int = 2) -> SaslAuthenticateResponse:
        answer: SaslAuthenticateResponse = self.ask(
            SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, version
        )
        return answer

    def metadata(self) -> MetadataResponse:
        answer: MetadataResponse = self.ask(MetadataRequest(topics=[]), MetadataResponse, 9)
        return answer

    def frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def is_closed(self) -> bool:
        """Waits until it is, or something comes."""
        try:
            return not self._socket.recv(1)
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError("the connection was closed")
            data += piece
        return data


@pytest.fixture
def raw(node: ServerProcess) -> Iterator[Raw]:
    with closing(Raw(node.port)) as peer:
        yield peer


def write_and_read(bootstrap: str, topic: str, options: dict[str, Any]) -> None:
    with Producer(bootstrap, **options) as producer:
        for number in range(3):
            producer.send(topic, b"x" * 100_000 * number)
    with Consumer(bootstrap, auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < 3:
            found += [record.value for record in consumer.poll(timeout_ms=1_000)]
    assert [len(value or b"") for value in found] == [0, 100_000, 200_000]


# Clients.


def test_our_clients_write_and_read_and_learn_why_they_are_refused(node: ServerProcess) -> None:
    write_and_read(node.bootstrap, "kept", OPTIONS)
    with pytest.raises(SaslAuthenticationError, match=r"SASL PLAIN failed, as user 'alice': check sasl_username"):
        Admin(node.bootstrap, **OPTIONS | {"sasl_password": "b"}).list_topics()
    with pytest.raises(SaslAuthenticationError, match=r"SCRAM-SHA-256 is not offered .* set sasl_mechanism .* PLAIN"):
        Admin(node.bootstrap, **OPTIONS | {"sasl_mechanism": "SCRAM-SHA-256"}).list_topics()
    with pytest.raises(SaslAuthenticationError, match=r"security_protocol='SASL_PLAINTEXT'"):
        Admin(node.bootstrap).list_topics()
    wait_until(lambda: "the authentication failed" in node.log, "the node tells of it")
    assert PASSWORD not in node.log


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of kafka-python
def test_foreign_clients_write_and_read(node: ServerProcess) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from kafka import KafkaConsumer, KafkaProducer

    sasl = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "bootstrap.servers": node.bootstrap,
    }
    errors: list[Any] = []
    producer = confluent_kafka.Producer(sasl)
    producer.produce("kept", b"librdkafka", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]
    plain: dict[str, Any] = {
        "bootstrap_servers": node.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
    }
    with closing(KafkaProducer(**plain)) as other:
        other.send("kept", b"kafka-python").get(60)

    async def aio() -> list[bytes | None]:
        writer = AIOKafkaProducer(**plain)
        await writer.start()
        await writer.send_and_wait("kept", b"aiokafka")
        await writer.stop()
        reader = AIOKafkaConsumer("kept", auto_offset_reset="earliest", **plain)
        await reader.start()
        found = [(await reader.getone()).value for _ in range(3)]
        await reader.stop()
        return found

    everything = [b"librdkafka", b"kafka-python", b"aiokafka"]
    assert asyncio.run(aio()) == everything
    with closing(KafkaConsumer("kept", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **plain)) as reader:
        assert [next(reader).value for _ in range(3)] == everything
    with closing(confluent_kafka.Consumer({**sasl, "group.id": "g", "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe(["kept"])
        found: list[bytes | None] = []
        while len(found) < 3:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            found.append(message.value())
    assert found == everything
    wrong: list[Any] = []
    refused = confluent_kafka.Producer({**sasl, "sasl.password": "b", "error_cb": wrong.append})
    wait_until(lambda: refused.poll(0.1) >= 0 and wrong, "librdkafka is refused")
    assert wrong[0].code() == confluent_kafka.KafkaError._AUTHENTICATION


@pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))
def test_clients_over_tls_say_who_they_are(stopped: ServerProcess, authority: Authority) -> None:
    stopped.settings |= tls_settings(authority)
    stopped.settings["listener.security.protocol.map"] = "CLIENTS:SASL_SSL,CONTROLLER:SASL_SSL"
    stopped.start()
    options = OPTIONS | {"security_protocol": "SASL_SSL", "ssl_truststore_location": str(authority.certificate)}
    write_and_read(stopped.bootstrap, "kept", options)
    with pytest.raises(SaslAuthenticationError, match="SASL PLAIN failed"):
        Admin(stopped.bootstrap, **options | {"sasl_password": "b"}).list_topics()


# Nodes.


@pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))
def test_three_nodes_say_to_each_other_who_they_are(authority: Authority, tmp_path: Path) -> None:
    ports, cluster_id = free_ports(HOST, [None] * 6), ClusterId("sasl-sasl-sasl-sasl-sa")
    nodes = []
    for node_id in (1, 2, 3):
        node = ServerProcess(tmp_path, tmp_path / f"data-{node_id}", node_id=node_id)
        node.settings |= SETTINGS | tls_settings(authority)
        node.settings |= {
            "listeners": f"CLIENTS://{HOST}:{ports[node_id - 1]},CONTROLLER://{HOST}:{ports[node_id + 2]}",
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_SSL",
            "controller.quorum.voters": ",".join(f"{one}@{HOST}:{ports[one + 2]}" for one in (1, 2, 3)),
        }
        format_directory(str(tmp_path / f"data-{node_id}"), BrokerId(node_id), cluster_id)
        nodes.append(node)
    # The third does not know the password of nodes, at first.
    nodes[2].settings["listener.name.controller.plain.sasl.jaas.config"] = JAAS.replace(
        '="of nodes" user_node', '="?" a'
    )
    try:
        for node in nodes:
            node.start_soon()
        for node in nodes[:2]:
            node.wait_until_serving()
        wait_until(lambda: "the authentication failed" in nodes[0].log + nodes[1].log, "the third is refused")
        nodes[2].close()
        nodes[2].settings["listener.name.controller.plain.sasl.jaas.config"] = JAAS
        nodes[2].start()
        with Admin(nodes[0].bootstrap, **OPTIONS) as admin:
            admin.create_topics([NewTopic("kept", 1, 3, {"min.insync.replicas": "3"})])

            def in_sync() -> bool:
                return len(admin.describe_topics(["kept"])["kept"].partitions[0].isr) == 3

            wait_until(in_sync, "all replicas are in sync")
        write_and_read(nodes[0].bootstrap, "kept", OPTIONS)
    finally:
        for node in nodes:
            node.close()


# Peers that mean no good, or know no better.


def test_nothing_else_is_served_before_the_authentication(raw: Raw) -> None:
    versions = raw.ask(
        ApiVersionsRequest(client_software_name="x", client_software_version="1"), ApiVersionsResponse, 3
    )
    assert {17, 36} <= {row.api_key for row in versions.api_keys}
    assert raw.handshake().mechanisms == ["PLAIN"]
    with pytest.raises(EOFError):
        raw.metadata()


@pytest.mark.parametrize("key", [0, 1, 3, 10, 19, 22, 36, 12_345])
def test_whoever_asks_without_an_authentication_is_hung_up_on(raw: Raw, node: ServerProcess, key: int) -> None:
    raw.send_frame(struct.pack(">hhih", key, 1, 7, -1))
    assert raw.is_closed()
    wait_until(lambda: "came before any authentication" in node.log, "the node says why")


def test_wrong_passwords_are_answered_late_and_alike(stopped: ServerProcess) -> None:
    stopped.settings["connection.failed.authentication.delay.ms"] = "300"
    stopped.start()
    told = set()
    for message in (b"\0alice\0b", b"\0nobody\0b", b"\0bob\0", b"bob\0alice\0" + PASSWORD.encode(), b"", b"\0" * 9):
        with closing(Raw(stopped.port)) as raw:
            raw.handshake()
            begun = asyncio.run(_now())
            answer = raw.authenticate(message)
            assert asyncio.run(_now()) - begun > 0.25
            assert (answer.error_code, answer.auth_bytes) == (58, b"")
            told.add(answer.error_message)
            assert raw.is_closed()
    assert len(told) == 1


async def _now() -> float:
    return asyncio.get_running_loop().time()


def test_a_mechanism_that_is_not_offered_ends_the_connection(raw: Raw) -> None:
    answer = raw.handshake("GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN"])
    assert raw.is_closed()


def test_nothing_that_comes_behind_a_refusal_is_served(raw: Raw) -> None:
    raw.handshake()
    both: list[Any] = []
    for number, message in ((50, b"\0alice\0b"), (51, ALICE)):
        both += encode_request(36, 2, number, "raw", SaslAuthenticateRequest(auth_bytes=message))
    raw.send(b"".join(bytes(piece) for piece in both))
    assert decode_response_header(raw.frame(), 36, 2)[0] == 50
    assert raw.is_closed()


def test_large_requests_come_only_from_who_is_known(stopped: ServerProcess) -> None:
    stopped.settings["sasl.server.max.receive.size"] = "2000"
    stopped.start()
    with closing(Raw(stopped.port)) as raw:
        raw.send(struct.pack(">i", 2_001))
        assert raw.is_closed()
    with closing(Raw(stopped.port)) as raw:
        raw.handshake()
        raw.authenticate()
        raw.ask(SaslHandshakeRequest(mechanism="x" * 3_000), SaslHandshakeResponse, 1)


def test_messages_without_headers_follow_an_old_handshake(raw: Raw) -> None:
    assert raw.handshake(version=0).error_code == 0
    raw.send_frame(ALICE)
    assert raw.frame() == b""
    assert raw.metadata().cluster_id


def test_a_refusal_without_headers_is_the_end_of_the_connection(raw: Raw) -> None:
    raw.handshake(version=0)
    raw.send_frame(b"\0alice\0b")
    assert raw.is_closed()


def test_who_has_authenticated_stays_so_whatever_they_send_next(raw: Raw) -> None:
    raw.handshake()
    assert raw.authenticate().session_lifetime_ms == 0
    assert raw.metadata().cluster_id
    # Too early for another, and a message of none.
    assert raw.handshake().error_code == 34
    answer = raw.authenticate()
    assert (answer.error_code, answer.error_message and "comes after SaslHandshake" in answer.error_message) == (
        34,
        True,
    )
    assert raw.metadata().cluster_id


def test_a_listener_without_sasl_says_so(stopped: ServerProcess) -> None:
    stopped.settings["listener.security.protocol.map"] = "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT"
    stopped.start()
    with closing(Raw(stopped.port)) as raw:
        assert raw.handshake().error_code == 34
        assert raw.authenticate().error_code == 34
        assert raw.metadata().cluster_id


# Sessions that end.


def test_clients_authenticate_again_and_go_on(stopped: ServerProcess) -> None:
    stopped.settings["connections.max.reauth.ms"] = "2000"
    stopped.start()
    with Producer(stopped.bootstrap, **OPTIONS) as producer:
        deadline = asyncio.run(_now()) + 5

        def is_over() -> bool:
            producer.send("kept", b"x").result(60)
            return asyncio.run(_now()) > deadline

        wait_until(is_over, "two sessions are over")
    assert "the authentication failed" not in stopped.log


def test_after_its_session_a_connection_authenticates_again_as_the_same_user_or_ends(stopped: ServerProcess) -> None:
    session_ms = REAUTHENTICATED_MS_MIN + 200
    stopped.settings["listener.name.clients.plain.connections.max.reauth.ms"] = str(session_ms)
    stopped.start()

    def begun() -> Raw:
        raw = Raw(stopped.port)
        raw.handshake()
        assert raw.authenticate().session_lifetime_ms == session_ms
        assert raw.metadata().cluster_id
        return raw

    with closing(begun()) as stays, closing(begun()) as changes, closing(begun()) as asks, closing(begun()) as fails:
        until = asyncio.run(_now()) + session_ms / 1000 + 0.1
        wait_until(lambda: asyncio.run(_now()) > until, "the sessions are over")
        with pytest.raises(EOFError):
            asks.metadata()
        assert stays.handshake().error_code == 0
        assert stays.authenticate().session_lifetime_ms == session_ms
        assert stays.metadata().cluster_id
        changes.handshake()
        answer = changes.authenticate(b"\0bob\0b")
        assert (answer.error_code, "same user" in (answer.error_message or "")) == (58, True)
        assert changes.is_closed()
        fails.handshake()
        with pytest.raises(EOFError):
            fails.metadata()
