"""What the benchmarks of security share: a node and a Kafka that listen with and without TLS, and their one user."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from beside_kafka import CONFIG, Target
from harness import skip

from support.clients.kafka_peer import KafkaPeer
from support.fixtures.certificates import Authority, missing_openssl
from support.nodes.server_process import ServerProcess
from tidelog import Admin
from tidelog.cli.ports import free_ports
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion

__all__ = ["MECHANISM", "PASSWORD", "USER", "Secured", "secured_brokers"]

HOST = "127.0.0.1"
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "SASL_SSL": "SASL_SSL", "CONTROLLER": "PLAINTEXT"}
MECHANISM: Final = "SCRAM-SHA-256"
USER = "alice"
PASSWORD = "alice-secret"


class Secured(NamedTuple):
    """Both brokers.

    Attributes:
        listeners: by the name of a listener the two, the node first.
        authority: the file with the certificate that clients trust.
    """

    listeners: dict[str, list[Target]]
    authority: Path


@contextmanager
def secured_brokers() -> Iterator[Secured]:
    """A node and a Kafka, both serving, with the same certificate; all gone afterwards."""
    if (reason := missing_openssl()) is not None:
        skip(reason)
    directory = Path(tempfile.mkdtemp(prefix="secured-bench-"))
    authority = Authority(directory)
    certificate = authority.sign("broker", hosts=f"DNS:localhost,IP:{HOST}")
    config = CONFIG | {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    node = ServerProcess(directory, directory / "node-data")
    node.wrapper = ("env",)  # a process of its own from the start
    peer = KafkaPeer(directory / "kafka")
    ports = {
        name: dict(zip(PROTOCOLS, free_ports(HOST, [None] * len(PROTOCOLS)), strict=True)) for name in ("node", "peer")
    }
    ports["peer"] |= {"PLAINTEXT": peer.port, "CONTROLLER": peer.controller_port}
    node.settings |= config | {"listeners": _listeners(ports["node"])}
    peer.config = config | {"listeners": _listeners(ports["peer"])}
    try:
        node.start()
        peer.start()
        pids = {"node": node.pid, "peer": peer.pid}
        listeners = {
            listener: [Target(name, pids[name], ports[name][listener]) for name in ("node", "peer")]
            for listener in PROTOCOLS
        }
        for target in listeners["PLAINTEXT"]:
            with Admin(target.bootstrap) as admin:
                admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, PASSWORD, MECHANISM)])
        yield Secured(listeners, authority.certificate)
    finally:
        node.close()
        peer.close()
        shutil.rmtree(directory, ignore_errors=True)


def _listeners(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
