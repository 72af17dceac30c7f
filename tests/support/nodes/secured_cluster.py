"""Nodes as `tidelog up --secure` starts them, and who may log in there: what clients of every kind are given."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any

from support.nodes.cluster import Cluster
from tidelog import AclBinding, Admin
from tidelog.cli.ports import free_ports
from tidelog.cli.properties import parse_properties
from tidelog.client.admin.user_descriptions import UserScramCredentialUpsertion

if TYPE_CHECKING:
    from support.fixtures.json_web_tokens import Signer  # it needs joserfc, which only its users do

__all__ = ["LISTENERS", "OAUTHBEARER", "RENEWED_MS", "Login", "SecuredCluster", "oauth_login", "properties_of"]

HOST = "127.0.0.1"
MODULE = "org.apache.kafka.common.security"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
OAUTHBEARER = "OAUTHBEARER"
LISTENERS = ("CLIENTS", "RENEWED", "OPEN")
"""OPEN asks for nothing: who connects there is nobody, whom rules allow what they allow to everybody."""

RENEWED_MS = 2_000
"""How long sessions last at the listener RENEWED."""

PASSWORD = "alice's secret"
TOKEN_SECONDS = 600
ALLOWED = "allowed-"
"""How the names begin of what alice may use: topics, groups and transactional ids."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who a client is.

    Attributes:
        mechanism: of SASL.
        password: with OAUTHBEARER, a signed token.
        tokenauth: whether the user is the id of a delegation token, and the password its HMAC.
    """

    mechanism: str
    username: str
    password: str
    tokenauth: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Of Tidelog's clients, without what TLS needs."""
        if self.mechanism == OAUTHBEARER:
            return {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": self.mechanism,
                "sasl_oauth_token_callback": lambda: self.password,
            }
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": self.mechanism,
            "sasl_username": self.username,
            "sasl_password": self.password,
            "sasl_tokenauth": self.tokenauth,
        }


def properties_of(login: Login, authority: Path | str) -> dict[str, str]:
    """Of Java's clients and of Kafka's tools, all. Not with OAUTHBEARER."""
    module = "plain.PlainLoginModule" if login.mechanism == "PLAIN" else "scram.ScramLoginModule"
    tokenauth = ' tokenauth="true"' if login.tokenauth else ""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
        "sasl.mechanism": login.mechanism,
        "sasl.jaas.config": (
            f'{MODULE}.{module} required username="{login.username}" password="{login.password}"{tokenauth};'
        ),
    }


def oauth_login(signer: Signer) -> Login:
    """That of alice, by a token that lasts TOKEN_SECONDS."""
    now = int(time())
    return Login(OAUTHBEARER, "alice", signer.token({"sub": "alice", "iat": now, "exp": now + TOKEN_SECONDS}))


class SecuredCluster:
    """User alice has a password for every mechanism, and may do everything with what begins with ALLOWED.

    Args:
        home: where all files go.
        size: how many nodes.
        config: Kafka's keys, for every node.
        signer: whose tokens the listeners take, by OAUTHBEARER. None if they do not have it.

    Attributes:
        cluster: the nodes. Start it by `start` of this class.
    """

    def __init__(
        self, home: Path, size: int, *, config: dict[str, str] | None = None, signer: Signer | None = None
    ) -> None:
        self.cluster = Cluster(home, size, config=config, is_secured=True)
        self._security = home / "security"
        self._signer = signer
        self._keys = home / "keys.json"
        ports = iter(free_ports(HOST, [None] * len(LISTENERS) * size))
        self._ports = {name: list(islice(ports, size)) for name in LISTENERS}
        for index, node in enumerate(self.cluster.nodes.values()):
            self._add_listeners(node.settings, {name: self._ports[name][index] for name in LISTENERS})

    def _add_listeners(self, settings: dict[str, str], ports: dict[str, int]) -> None:
        others = [one for one in settings["listeners"].split(",") if not one.startswith("CLIENTS://")]
        settings["listeners"] = ",".join([*(f"{name}://{HOST}:{port}" for name, port in ports.items()), *others])
        settings["listener.security.protocol.map"] += ",RENEWED:SASL_SSL,OPEN:PLAINTEXT"
        mechanisms = list(MECHANISMS)
        if self._signer is not None:
            self._keys.write_bytes(self._signer.key_set())
            settings["sasl.oauthbearer.jwks.endpoint.url"] = self._keys.as_uri()
            mechanisms.append(OAUTHBEARER)
        users = {"admin": self.admin.password, "alice": PASSWORD}
        for name in ("CLIENTS", "RENEWED"):
            prefix = f"listener.name.{name.lower()}"
            settings[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(mechanisms)
            settings[f"{prefix}.plain.sasl.jaas.config"] = (
                f"{MODULE}.plain.PlainLoginModule required "
                + " ".join(f'user_{user}="{password}"' for user, password in users.items())
                + ";"
            )
        settings["listener.name.renewed.connections.max.reauth.ms"] = str(RENEWED_MS)

    def start(self) -> None:
        """Return when all nodes serve, and alice is known."""
        self.cluster.start()
        rules = [
            AclBinding(kind, ALLOWED, "User:alice", "all", pattern_type="prefixed")
            for kind in ("topic", "group", "transactional_id")
        ]
        with self.admin_client() as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("alice", PASSWORD, mechanism) for mechanism in SCRAM]  # type: ignore[arg-type]
            )
            admin.create_acls(rules)

    def close(self) -> None:
        """Leave nothing running."""
        self.cluster.close()

    def bootstrap(self, listener: str = "CLIENTS") -> str:
        return ",".join(f"{HOST}:{port}" for port in self._ports[listener])

    @property
    def authority(self) -> Path:
        """Whom to trust, as a file in PEM."""
        return self._security / "authority.pem"

    @property
    def admin_file(self) -> Path:
        """What is given by `--command-config` to be admin."""
        return self._security / "admin.properties"

    @cached_property
    def admin(self) -> Login:
        config = parse_properties(self.admin_file.read_text(), source=str(self.admin_file))["sasl.jaas.config"]
        return Login("PLAIN", "admin", config.partition('password="')[2].partition('"')[0])

    def options(self, login: Login) -> dict[str, Any]:
        """Of Tidelog's clients, all."""
        return login.options | {"ssl_truststore_location": str(self.authority)}

    def admin_client(self) -> Admin:
        return Admin(self.bootstrap(), **self.options(self.admin))

    def login(self, mechanism: str) -> Login:
        """That of alice."""
        if mechanism == OAUTHBEARER:
            assert self._signer is not None, "the cluster takes nobody's tokens"
            return oauth_login(self._signer)
        return Login(mechanism, "alice", PASSWORD)

    def token_login(self, mechanism: str) -> Login:
        """That of somebody who has a delegation token of alice, which is created."""
        with Admin(self.bootstrap(), **self.options(self.login(mechanism))) as admin:
            token = admin.create_delegation_token()
        return Login(mechanism, token.token_id, b64encode(token.hmac).decode(), tokenauth=True)
