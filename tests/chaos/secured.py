"""A cluster whose clients and nodes speak TLS and log in, with an authorizer: what faults on secrets work with.

The tools of a round, such as those that look for leaders, come in plain text, on listeners that nobody else uses; the
load and the nodes do not.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Final

from support.fixtures.certificates import Authority
from support.load.ways import Login, Way
from support.nodes.cluster import ClusterNode
from tidelog.base.authorizers import STANDARD_AUTHORIZER
from tidelog.cli.ports import free_ports
from tidelog.client.admin.acl_descriptions import AclBinding, AclBindingFilter
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.user_descriptions import UserScramCredentialDeletion, UserScramCredentialUpsertion

if TYPE_CHECKING:
    from chaos.nodes import ChaosCluster

NODE, OF_NODES = "node", "of nodes"
CLIENTS, NODES, QUORUM = "CLIENTS", "NODES", "QUORUM"
PORTS = {CLIENTS: 9094, NODES: 9095, QUORUM: 9096}
SCRAM: Final = "SCRAM-SHA-512"
CERTIFICATE = "certificate"
BETWEEN_BROKERS = ("PLAIN", SCRAM, CERTIFICATE)
BETWEEN_CONTROLLERS = ("PLAIN", CERTIFICATE)
"""How nodes say who they are: drawn from these."""
REAUTH_MS = ("0", "4000")
READER_GROUP = "none"
"""Of librdkafka's readers, which look for its coordinator."""


class Secured:
    """The secrets of a cluster, and who uses them. Is to be made before nodes start.

    Args:
        dice: draws how nodes log in, and how often clients do.
    """

    def __init__(self, cluster: ChaosCluster, dice: random.Random, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._home: Path = cluster.home / "secrets"
        self._home.mkdir(parents=True)
        self._authority = Authority(self._home)
        self._hosts = ",".join(sorted({f"IP:{node.host}" for node in cluster.nodes.values()}))
        self._ports = {
            node.node_id: dict(PORTS)
            if node.wrapper
            else dict(zip(PORTS, free_ports(node.host, [None] * len(PORTS)), strict=True))
            for node in cluster.nodes.values()
        }
        self._users = 0
        self.between_brokers = dice.choice(BETWEEN_BROKERS)
        self.between_controllers = dice.choice(BETWEEN_CONTROLLERS)
        self.reauth_ms = dice.choice(REAUTH_MS)
        for node in cluster.nodes.values():
            self.renew(node)
            self._configure(node)

    def __str__(self) -> str:
        return (
            f"secured: brokers by {self.between_brokers}, controllers by {self.between_controllers}, "
            f"sessions of {self.reauth_ms} ms"
        )

    def renew(self, node: ClusterNode) -> None:
        """A new key and certificate for a node, in the place of the old ones."""
        signed = self._authority.sign(NODE, hosts=self._hosts)
        beside = self._certificate(node).with_suffix(".new")
        beside.write_bytes(signed.both.read_bytes())
        beside.replace(self._certificate(node))

    def begin(self) -> Way:
        """Once the nodes serve: the user of nodes, if they are one, and a first one for clients."""
        if self.between_brokers == SCRAM:
            with Admin(self._cluster.bootstrap) as admin:
                admin.alter_user_scram_credentials([UserScramCredentialUpsertion(NODE, OF_NODES, SCRAM)])
        return self.new_way()

    def new_way(self) -> Way:
        """One more user, who may write to the topic and read it, and how it comes in."""
        self._users += 1
        user = f"app-{self._users}"
        rules = [
            AclBinding("topic", self._topic, f"User:{user}", "all"),
            AclBinding("group", READER_GROUP, f"User:{user}", "all"),
        ]
        with Admin(self._cluster.bootstrap) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, f"of {user}", SCRAM)])
            admin.create_acls(rules)
        bootstrap = ",".join(
            f"{node.host}:{self._ports[node.node_id][CLIENTS]}" for node in self._cluster.nodes.values()
        )
        return Way(bootstrap, Login(user, f"of {user}", self._authority.certificate, SCRAM))

    def remove(self, way: Way) -> None:
        """A user and its rules are gone."""
        assert way.login is not None
        with Admin(self._cluster.bootstrap) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialDeletion(way.login.user, SCRAM)])
            admin.delete_acls([AclBindingFilter(principal=f"User:{way.login.user}")])

    def _certificate(self, node: ClusterNode) -> Path:
        return self._home / f"node-{node.node_id}.pem"

    def _configure(self, node: ClusterNode) -> None:
        ports = self._ports[node.node_id]
        protocols = {
            CLIENTS: "SASL_SSL",
            NODES: "SSL" if self.between_brokers == CERTIFICATE else "SASL_SSL",
            QUORUM: "SSL" if self.between_controllers == CERTIFICATE else "SASL_SSL",
            "PLAINTEXT": "PLAINTEXT",
            "CONTROLLER": "PLAINTEXT",
        }
        others = ",".join(f"{name}://{node.host}:{port}" for name, port in ports.items())
        node.settings |= {
            "listeners": f"{node.settings['listeners']},{others}",
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": NODES,
            "controller.listener.names": f"{QUORUM},CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{one.node_id}@{one.host}:{self._ports[one.node_id][QUORUM]}" for one in self._cluster.nodes.values()
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate(node)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._authority.certificate),
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
            "listener.name.clients.sasl.enabled.mechanisms": SCRAM,
            "listener.name.clients.connections.max.reauth.ms": self.reauth_ms,
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{NODE};User:ANONYMOUS",
        }
        for listener, mechanism, key in (
            (NODES, self.between_brokers, "sasl.mechanism.inter.broker.protocol"),
            (QUORUM, self.between_controllers, "sasl.mechanism.controller.protocol"),
        ):
            prefix = f"listener.name.{listener.lower()}"
            if mechanism == CERTIFICATE:
                node.settings[f"{prefix}.ssl.client.auth"] = "required"
                continue
            module, known = (
                ("plain.Plain", f' user_{NODE}="{OF_NODES}"') if mechanism == "PLAIN" else ("scram.Scram", "")
            )
            node.settings |= {
                key: mechanism,
                f"{prefix}.sasl.enabled.mechanisms": mechanism,
                f"{prefix}.{mechanism.lower()}.sasl.jaas.config": (
                    f"org.apache.kafka.common.security.{module}LoginModule required "
                    f'username="{NODE}" password="{OF_NODES}"{known};'
                ),
            }
