"""A broker of Apache Kafka with a listener of every security protocol, and what its clients are given."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from time import time
from typing import Any

from support.clients.kafka_peer import TOOL_FLAGS, KafkaPeer
from support.fixtures.certificates import OVER, Authority
from tidelog.cli.ports import free_ports

HOSTS = "DNS:localhost,IP:127.0.0.1"
PASSWORD = "alice-secret"
KEY_PASSWORD = "sesame"
TOKEN_SECRET = "what all brokers share"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
RENEWED_MS = 2_000
"""How long sessions last on the listener RENEWED. Kafka renews none twice within a second."""

PROTOCOLS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "OTHER_NAME": "SSL",
    "EXPIRED": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "RENEWED": "SASL_SSL",
}
"""The listeners beside PLAINTEXT by name, and what they speak. MTLS wants a certificate of its clients."""

_LOGINS = {
    "PLAIN": f'plain.PlainLoginModule required user_alice="{PASSWORD}";',
    "SCRAM-SHA-256": "scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "scram.ScramLoginModule required;",
    "OAUTHBEARER": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";',
}


class SecuredKafka:
    """One broker. Its users are to be made with `credentials` by Kafka's own tool.

    Args:
        directory: of all files.

    Attributes:
        peer: the broker; its PLAINTEXT listener asks for nothing.
        authority: whom to trust.
        client: a certificate for clients, in one file with its key, which is encrypted with KEY_PASSWORD.
        stranger: an authority that nobody trusts.
    """

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "authority")
        self.stranger = Authority(directory, "stranger")
        broker = self.authority.sign("broker", hosts=HOSTS)
        other = self.authority.sign("other", hosts="DNS:elsewhere.example")
        expired = self.authority.sign("expired", hosts=HOSTS, valid=OVER)
        self.client = self.authority.sign("client", password=KEY_PASSWORD)
        self.untrusted_client = self.stranger.sign("untrusted")
        self.ports = dict(zip(PROTOCOLS, free_ports("127.0.0.1", [None] * len(PROTOCOLS)), strict=True))
        self.peer = KafkaPeer(directory / "kafka", flags=TOOL_FLAGS)
        listeners = {"PLAINTEXT": self.peer.port, "CONTROLLER": self.peer.controller_port} | self.ports
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"} | PROTOCOLS
        config = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in listeners.items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "delegation.token.secret.key": TOKEN_SECRET,
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": str(broker.both),
            "ssl.truststore.location": str(self.authority.certificate),
            _key("SSL", "ssl.client.auth"): "requested",
            _key("MTLS", "ssl.client.auth"): "required",
            _key("OTHER_NAME", "ssl.keystore.location"): str(other.both),
            _key("EXPIRED", "ssl.keystore.location"): str(expired.both),
            _key("RENEWED", "connections.max.reauth.ms"): str(RENEWED_MS),
        }
        for name, protocol in PROTOCOLS.items():
            if protocol.startswith("SASL"):
                config[_key(name, "sasl.enabled.mechanisms")] = ",".join(MECHANISMS)
                for mechanism, login in _LOGINS.items():
                    key = _key(name, f"{mechanism.lower()}.sasl.jaas.config")
                    config[key] = f"org.apache.kafka.common.security.{login}"
        self.peer.config = config

    def bootstrap(self, listener: str) -> str:
        return f"localhost:{self.peer.port if listener == 'PLAINTEXT' else self.ports[listener]}"

    def credentials(self, user: str, mechanism: str, password: str) -> Sequence[str]:
        """What `kafka-configs` is to be told so that a user has a password."""
        place = ["--bootstrap-server", self.peer.bootstrap, "--entity-type", "users", "--entity-name", user]
        return [*place, "--alter", "--add-config", f"{mechanism}=[iterations=4096,password={password}]"]

    # What clients are given.
    @property
    def trusting(self) -> dict[str, Any]:
        return {"ssl_truststore_location": str(self.authority.certificate)}

    def options(self, listener: str, mechanism: str | None = None, **others: Any) -> dict[str, Any]:
        """All that a client needs for a listener."""
        protocol = PROTOCOLS.get(listener, "PLAINTEXT")
        found: dict[str, Any] = {"security_protocol": protocol}
        if protocol.endswith("SSL"):
            found |= self.trusting
        if listener == "MTLS":
            found |= {"ssl_keystore_location": str(self.client.both), "ssl_key_password": KEY_PASSWORD}
        return found | (sasl(mechanism) if mechanism is not None else {}) | others


def sasl(mechanism: str) -> dict[str, Any]:
    """Who alice is."""
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_callback": lambda: (token("alice"), time() + 3_600)}
    return {"sasl_mechanism": mechanism, "sasl_username": "alice", "sasl_password": PASSWORD}


def token(user: str) -> str:
    """A token as Kafka takes it without a signature, where nobody has set up more."""
    now = int(time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": now + 3_600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


def _key(listener: str, key: str) -> str:
    return f"listener.name.{listener.lower()}.{key}"
