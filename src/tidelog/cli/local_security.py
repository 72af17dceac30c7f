"""What secures a local cluster: certificates, the secrets of its nodes and of its first user, and settings for them.

security/authority.pem      whom clients trust
security/nodes.pem          who the nodes are
security/secrets.properties the passwords of nodes and of admin
security/admin.properties   what a client needs to be admin: for --command-config, and for Kafka's tools
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping

from tidelog.cli.local_certificates import AUTHORITY_FILE, NODES_FILE, write_certificates, write_secret
from tidelog.cli.properties import format_properties, parse_properties
from tidelog.metadata.configs.authorization import STANDARD_AUTHORIZER

CLIENTS, NODES, CONTROLLER = "CLIENTS", "NODES", "CONTROLLER"
ADMIN_FILE = "admin.properties"
_SECRETS_FILE = "secrets.properties"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


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

    def settings(self, host: str, clients: int, between: int, controllers: int) -> dict[str, str]:
        """Of a node, by the ports of its listeners. What it needs is made where it is not there.

        Raises:
            MissingExtraError: the library that makes certificates is not installed.
            OSError: cannot be written.
        """
        os.makedirs(self.directory, mode=0o700, exist_ok=True)
        write_certificates(self.directory, host)
        passwords = self._passwords()
        self._write_admin(passwords["admin"])
        node = passwords["node"]
        of_nodes = f'{_LOGIN} username="node" password="{node}" user_node="{node}";'
        return {
            "listeners": f"{CLIENTS}://{host}:{clients},{NODES}://{host}:{between},{CONTROLLER}://{host}:{controllers}",
            "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{NODES}:SASL_SSL,{CONTROLLER}:SASL_SSL",
            "inter.broker.listener.name": NODES,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": os.path.join(self.directory, NODES_FILE),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": os.path.join(self.directory, AUTHORITY_FILE),
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.nodes.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.clients.plain.sasl.jaas.config": f'{_LOGIN} user_admin="{passwords["admin"]}";',
            "listener.name.nodes.plain.sasl.jaas.config": of_nodes,
            "listener.name.controller.plain.sasl.jaas.config": of_nodes,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:node;User:admin",
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
