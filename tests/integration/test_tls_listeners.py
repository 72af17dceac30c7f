"""Listeners with TLS: clients and nodes over them, certificates that are renewed, and peers that do not shake hands."""

from __future__ import annotations

import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from support.fixtures.certificates import Authority, Certificate, missing_openssl
from support.fixtures.waiting import wait_until
from support.nodes.forked_command import run_command
from support.nodes.server_process import NodeFailedError, ServerProcess
from tidelog import (
    AclBinding,
    Admin,
    ConfigResource,
    Consumer,
    NewTopic,
    Producer,
    SslAuthenticationError,
    TimedOutError,
    TopicPartition,
)
from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.base.ids import BrokerId, ClusterId
from tidelog.cli.node_directories import format_directory
from tidelog.cli.ports import free_ports

HOST = "127.0.0.1"
HOSTS = f"DNS:localhost,IP:{HOST}"

pytestmark = pytest.mark.skipif(missing_openssl() is not None, reason=str(missing_openssl()))


class Keys:
    """An authority, and what it has signed for nodes and for clients."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.authority = Authority(directory)
        self.nodes = self.authority.sign("nodes", hosts=HOSTS)
        self.client = self.authority.sign("client")
        (directory / "others").mkdir()
        self.stranger = Authority(directory / "others", "others").sign("stranger", hosts=HOSTS)

    @property
    def settings(self) -> dict[str, str]:
        """Of a node."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.nodes.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }

    def options(self, certificate: Certificate | None = None) -> dict[str, str]:
        """Of a client."""
        shown = {} if certificate is None else {"ssl_keystore_location": str(certificate.both)}
        return {"security_protocol": "SSL", "ssl_truststore_location": str(self.authority.certificate), **shown}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys") / "tls")


@pytest.fixture
def secured(keys: Keys, tmp_path: Path) -> Iterator[ServerProcess]:
    """A node whose clients speak TLS, not yet started."""
    node = ServerProcess(tmp_path, tmp_path / "data")
    node.settings |= {
        "listeners": f"CLIENTS://{HOST}:0,CONTROLLER://{HOST}:0",
        "listener.security.protocol.map": "CLIENTS:SSL,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        **keys.settings,
    }
    yield node
    node.close()


def write_and_read(bootstrap: str, topic: str, options: dict[str, str]) -> list[bytes | None]:
    with Producer(bootstrap, **options) as producer:  # type: ignore[arg-type]
        for number in range(3):
            producer.send(topic, b"x" * 100_000 * number)
    with Consumer(bootstrap, auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes | None] = []
        while len(found) < 3:
            found += [record.value for record in consumer.poll(timeout_ms=1_000)]
    return found


def test_three_nodes_and_their_clients_speak_tls_alone(keys: Keys, tmp_path: Path) -> None:
    ports, cluster_id = free_ports(HOST, [None] * 6), ClusterId("tls-tls-tls-tls-tls-tl")
    nodes = []
    for node_id in (1, 2, 3):
        node = ServerProcess(tmp_path, tmp_path / f"data-{node_id}", node_id=node_id)
        node.settings |= {
            "listeners": f"SSL://{HOST}:{ports[node_id - 1]},CONTROLLER://{HOST}:{ports[node_id + 2]}",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL",
            "controller.quorum.voters": ",".join(f"{one}@{HOST}:{ports[one + 2]}" for one in (1, 2, 3)),
            "security.inter.broker.protocol": "SSL",
            "ssl.client.auth": "required",
            **keys.settings,
        }
        format_directory(str(tmp_path / f"data-{node_id}"), BrokerId(node_id), cluster_id)
        nodes.append(node)
    options = keys.options(keys.client)
    # The third is known to nobody, until its certificate is renewed.
    file = tmp_path / "third.pem"
    file.write_bytes(keys.stranger.both.read_bytes())
    nodes[2].settings["ssl.keystore.location"] = str(file)
    try:
        for node in nodes:
            node.start_soon()
        for node in nodes[:2]:
            node.wait_until_serving()
        wait_until(lambda: "TLS handshake failed" in nodes[0].log, "the third is refused")
        file.write_bytes(keys.nodes.both.read_bytes())
        nodes[2].wait_until_serving()
        bootstrap = nodes[0].bootstrap
        with Admin(bootstrap, **options) as admin:  # type: ignore[arg-type]
            admin.create_topics([NewTopic("kept", 1, 3, {"min.insync.replicas": "3"})])
            assert admin.describe_cluster().controller_id in (1, 2, 3)

            def in_sync() -> bool:
                return len(admin.describe_topics(["kept"])["kept"].partitions[0].isr) == 3

            wait_until(in_sync, "all replicas are in sync")
        assert write_and_read(bootstrap, "kept", options) == [b"x" * 100_000 * number for number in range(3)]
        with pytest.raises(SslAuthenticationError, match=r"shows no certificate.*ssl_keystore_location"):
            Admin(bootstrap, default_api_timeout_ms=5_000, **keys.options()).list_topics()  # type: ignore[arg-type]
        with pytest.raises(SslAuthenticationError, match=r"may not trust the authority"):
            Admin(bootstrap, **keys.options(keys.stranger)).list_topics()  # type: ignore[arg-type]
        with pytest.raises(SslAuthenticationError, match=r"speaks TLS, and this client does not"):
            Admin(bootstrap).list_topics()
    finally:
        for node in nodes:
            node.close()


def test_a_certificate_is_renewed_while_the_node_runs(keys: Keys, secured: ServerProcess, tmp_path: Path) -> None:
    file, broken = tmp_path / "shown.pem", tmp_path / "broken.pem"
    file.write_bytes(keys.stranger.both.read_bytes())
    secured.settings["listener.name.clients.ssl.keystore.location"] = str(file)
    # Who it shows itself as is nobody's business here but the client's.
    secured.settings["listener.name.clients.ssl.truststore.location"] = str(keys.authority.certificate)
    secured.start()
    with pytest.raises(SslAuthenticationError, match="no authority that is trusted here"):
        Admin(secured.bootstrap, **keys.options()).list_topics()  # type: ignore[arg-type]
    # A file that is half written changes nothing.
    broken.write_text("-----BEGIN CERTIFICATE-----\n")
    os.replace(broken, file)
    wait_until(lambda: "the certificate stays as it was" in secured.log, "the broken file is told of")
    assert shown(secured.port) == subject_of(keys.stranger)
    broken.write_bytes(keys.nodes.both.read_bytes())
    os.replace(broken, file)
    wait_until(lambda: shown(secured.port) == subject_of(keys.nodes), "the new certificate is shown")
    with Admin(secured.bootstrap, **keys.options()) as admin:  # type: ignore[arg-type]
        admin.create_topics([NewTopic("t")])
        # A setting does the same at once.
        where = ConfigResource("broker", "1")
        name = "listener.name.clients.ssl.keystore.location"
        admin.alter_configs({where: {name: str(keys.stranger.both)}})
    wait_until(lambda: shown(secured.port) == subject_of(keys.stranger), "the certificate of the setting is shown")


def shown(port: int) -> bytes | None:
    """The certificate that a listener shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((HOST, port), 10) as plain, context.wrap_socket(plain) as stream:
        return stream.getpeercert(binary_form=True)


def subject_of(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certificate.certificate.read_text())


def test_who_does_not_shake_hands_harms_nobody(keys: Keys, secured: ServerProcess) -> None:
    secured.start()
    silent = [socket.create_connection((HOST, secured.port), 10) for _ in range(5)]
    for peer in silent[:2]:
        peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")  # a half hello
    for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x10\x00\x12\x00\x03" + b"\x00" * 12, os.urandom(4096)):
        with socket.create_connection((HOST, secured.port), 10) as peer:
            peer.sendall(junk)
            peer.settimeout(20)
            answer = b""
            try:
                while piece := peer.recv(4096):
                    answer += piece
            except ConnectionError:
                pass
            assert len(answer) < 64, "an alert at most"
    assert write_and_read(secured.bootstrap, "t", keys.options()) == [b"x" * 100_000 * number for number in range(3)]
    for peer in silent:
        peer.close()
    assert "Traceback" not in secured.log


@pytest.mark.parametrize(
    ("setting", "value", "error"),
    [
        ("ssl.keystore.location", None, "ssl.keystore.location is missing: a listener with TLS needs a certificate"),
        ("ssl.keystore.location", "/nowhere.pem", "ssl.keystore.location='/nowhere.pem': it cannot be read"),
        ("ssl.keystore.type", "JKS", "ssl.keystore.type=JKS: PEM and PKCS12 are read.*keytool"),
        ("ssl.truststore.location", "{key}", "ssl.truststore.location=.*no certificate in PEM"),
        ("ssl.keystore.key", "x", "ssl.keystore.key and ssl.keystore.certificate.chain go together"),
        ("ssl.keystore.password", "x", "ssl.keystore.password: a PEM store has no password"),
        ("ssl.client.auth", "maybe", "ssl.client.auth.*none, requested, required"),
        ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256", "ssl.cipher.suites"),
        ("security.inter.broker.protocol", "SSL", "inter.broker.listener.name is CLIENTS and security.inter.broker"),
    ],
)
def test_what_cannot_be_meant_ends_the_start(
    keys: Keys, secured: ServerProcess, setting: str, value: str | None, error: str
) -> None:
    if value is None:
        del secured.settings[setting]
    else:
        secured.settings[setting] = value.format(key=keys.nodes.key)
    with pytest.raises(NodeFailedError, match=rf"(?s)error: .*{error}"):
        secured.start()


def test_stores_of_java_serve_as_well(keys: Keys, secured: ServerProcess) -> None:
    pytest.importorskip("cryptography")
    store, trusted = keys.authority.store(keys.nodes, "sesame"), keys.authority.trust_store("sesame")
    secured.settings |= {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "sesame",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": "sesame",
        "ssl.client.auth": "required",
    }
    secured.start()
    options = {
        "security_protocol": "SSL",
        "ssl_truststore_type": "PKCS12",
        "ssl_truststore_location": str(trusted),
        "ssl_truststore_password": "sesame",
        "ssl_keystore_type": "PKCS12",
        "ssl_keystore_location": str(keys.authority.store(keys.client, "open")),
        "ssl_keystore_password": "open",
    }
    assert write_and_read(secured.bootstrap, "t", options) == [b"x" * 100_000 * number for number in range(3)]


def test_commands_take_the_properties_of_kafkas_tools(keys: Keys, secured: ServerProcess, tmp_path: Path) -> None:
    secured.settings["ssl.client.auth"] = "required"
    secured.start()
    file = tmp_path / "client.properties"
    own = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.authority.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.client.both),
        "ssl.key.password": "",
    }
    file.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
    config = ["--command-config", str(file)]
    assert run_command(["produce", "t", *config], stdin="a\nb\n", timeout=60).returncode == 0
    command = ["consume", "t", "--from-beginning", "--count", "2", "--output", "json", *config]
    read = run_command(command, timeout=60)
    assert [json.loads(line)["value"] for line in read.stdout.splitlines()] == ["a", "b"]
    listed = run_command(["topics", "list", "--output", "json", *config], timeout=60)
    assert [json.loads(line)["topic"] for line in listed.stdout.splitlines()] == ["t"]

    for text, error in (
        ("security.protocol=TLS\n", "security.protocol=TLS: one of PLAINTEXT, SSL"),
        ("ssl.keystore.location=x.pem\n", "ssl.keystore.location has no effect without TLS: set security.protocol=SSL"),
        ("security.protocl=SSL\n", "did you mean security.protocol?"),
    ):
        file.write_text(text)
        refused = run_command(["topics", "list", *config], timeout=60)
        assert refused.returncode == 2
        assert refused.stderr.startswith(f"error: {file}: ")
        assert error in refused.stderr
    tls = f"bootstrap.servers={secured.bootstrap}\nsecurity.protocol=SSL\n"
    for text, status, error in (  # as the client says it, who has names of its own for what is in the file
        (
            f"{tls}ssl.truststore.location=/gone.pem\n",
            2,
            f"{file}: ssl.truststore.location=/gone.pem: it cannot be read",
        ),
        (tls, 1, "since no ssl.truststore.location is given"),
        (f"bootstrap.servers={secured.bootstrap}\n", 1, "set security.protocol=SSL, or"),
        ("request.timeout.ms=-1\n", 2, f"{file}: request.timeout.ms=-1: a whole number from 1"),
        ("request.timeout.ms=x\n", 2, f"{file}: request.timeout.ms=x: a whole number is expected"),
    ):
        file.write_text(text)
        refused = run_command(["topics", "list", *config], timeout=60)
        assert (refused.returncode, error in refused.stderr) == (status, True), refused.stderr
    unasked = run_command(["topics", "list", "--bootstrap", secured.bootstrap], timeout=60)
    assert "if the listener asks for a user; in a file, for --command-config" in unasked.stderr
    gone = run_command(["topics", "list", "--command-config", str(tmp_path / "gone")], timeout=60)
    assert "it cannot be read: No such file" in gone.stderr


def test_stock_clients_speak_tls_to_it(keys: Keys, secured: ServerProcess) -> None:
    secured.settings["ssl.client.auth"] = "required"
    secured.start()
    config: dict[str, str | int | float | bool] = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(keys.authority.certificate),
        "ssl.certificate.location": str(keys.client.certificate),
        "ssl.key.location": str(keys.client.key),
    }
    producer = confluent_kafka.Producer(config)
    for number in range(3):
        producer.produce("t", b"x" * 100_000 * number)
    assert producer.flush(20) == 0
    consumer = confluent_kafka.Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    found = consumer.consume(3, 20)
    consumer.close()
    assert [record.value() for record in found] == [b"x" * 100_000 * number for number in range(3)]


def test_who_shows_a_certificate_is_who_rules_and_quotas_are_about(keys: Keys, secured: ServerProcess) -> None:
    secured.settings |= {
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": r"RULE:^CN=(client)$/$1/U,RULE:^CN=(nodes)$/$1/",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:nodes",
    }
    secured.start()
    with Admin(secured.bootstrap, **keys.options(keys.nodes)) as admin:  # type: ignore[arg-type]
        admin.create_topics([NewTopic("t", 1, 1)])
    client = keys.options(keys.client)
    with Admin(secured.bootstrap, **client) as admin:  # type: ignore[arg-type]
        assert admin.list_topics() == []
    with Admin(secured.bootstrap, **keys.options(keys.nodes)) as admin:  # type: ignore[arg-type]
        admin.create_acls([AclBinding("topic", "t", "User:CLIENT", "describe")])
    with Admin(secured.bootstrap, **client) as admin:  # type: ignore[arg-type]
        assert [one.name for one in admin.list_topics()] == ["t"]
    unknown = keys.authority.sign("unknown")
    options = {**keys.options(unknown), "default_api_timeout_ms": 1_000}
    with pytest.raises(TimedOutError), Admin(secured.bootstrap, **options) as admin:  # type: ignore[arg-type]
        admin.list_topics()
    assert "say nothing of the certificate of 'CN=unknown'" in secured.log
