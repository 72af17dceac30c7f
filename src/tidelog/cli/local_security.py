"""What secures a local cluster, and settings for it.

In every cluster of `tidelog up` nodes log in to each other with a secret, so that nobody else does what nodes do. A
secured one has certificates, a first user and access rules as well:

security/authority.pem      whom clients trust
security/nodes.pem          who the nodes are
security/secrets.properties the passwords of nodes and of admin
security/admin.properties   what a client needs to be admin: for --command-config, and for Kafka's tools
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Mapping

from tidelog.base.authorizers import CLUSTER_ACTION_AUTHORIZER, STANDARD_AUTHORIZER
from tidelog.cli.local_certificates import AUTHORITY_FILE, NODES_FILE, write_certificates, write_secret
from tidelog.cli.properties import format_properties, parse_properties

PLAINTEXT, CLIENTS, NODES, CONTROLLER = "PLAINTEXT", "CLIENTS", "NODES", "CONTROLLER"
NODES_USER = "User:node"
ADMIN_FILE = "admin.properties"
_SECRETS_FILE = "secrets.properties"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def node_secret() -> str:
    """What the nodes of one start log in to each other with."""
    return secrets.token_urlsafe(24)


def settings_with_secret(secret: str) -> dict[str, str]:
    """Of each node of a cluster that asks its clients nothing: what nodes ask each other is for nodes alone.

    Args:
        secret: the same for all; whoever has it is a node.
    """
    return {
        "listener.security.protocol.map": (f"{PLAINTEXT}:PLAINTEXT,{NODES}:SASL_PLAINTEXT,{CONTROLLER}:SASL_PLAINTEXT"),
        **_between_nodes(secret),
        "authorizer.class.name": CLUSTER_ACTION_AUTHORIZER,
        "super.users": NODES_USER,
    }


def _between_nodes(secret: str) -> dict[str, str]:
    login = f'{_LOGIN} username="node" password="{secret}" user_node="{secret}";'
    return {
        "inter.broker.listener.name": NODES,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.nodes.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.nodes.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
    }


class LocalSecurity:
    """That of the cluster below a directory."""

    def __init__(self, data: str) -> None:
        self.directory = os.path.join(os.path.abspath(data), "security")

    @property
    def is_there(self) -> bool:
        return os.path.exists(os.path.join(self.directory, _SECRETS_FILE))

    @property
    def admin_file(self) -> str:
        return os.path.join(self.directory, ADMIN_FILE)

    def settings(self, hosts: Collection[str]) -> dict[str, str]:
        """Of each node of a secured cluster. What it needs is made where it is not there.

        Args:
            hosts: the names and addresses that nodes are called by.

        Raises:
            MissingExtraError: the library that makes certificates is not installed.
            OSError: cannot be written.
        """
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        write_certificates(self.directory, hosts)
        passwords = self._passwords()
        self._write_admin(passwords["admin"])
        return {
            "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{NODES}:SASL_SSL,{CONTROLLER}:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": os.path.join(self.directory, NODES_FILE),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.path.join(self.directory, AUTHORITY_FILE),
            **_between_nodes(passwords["node"]),
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.clients.plain.sasl.jaas.config": f'{_LOGIN} user_admin="{passwords["admin"]}";',
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"{NODES_USER};User:admin",
            "delegation.token.secret.key": passwords["tokens"],
        }

    def _passwords(self) -> Mapping[str, str]:
        path = os.path.join(self.directory, _SECRETS_FILE)
        if not os.path.exists(path):
            made = {whose: secrets.token_urlsafe(24) for whose in ("node", "admin", "tokens")}
            write_secret(
                path, format_properties(made, comment="Made by `tidelog up --secure`; all nodes have the same.")
            )
        with open(path, encoding="utf-8") as file:
            return parse_properties(file.read(), source=path)

    def _write_admin(self, password: str) -> None:
        pairs = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_LOGIN} username="admin" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.path.join(self.directory, AUTHORITY_FILE),
        }
        write_secret(self.admin_file, format_properties(pairs, comment="Who may do everything in this cluster."))
