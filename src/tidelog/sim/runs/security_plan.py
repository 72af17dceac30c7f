"""What is drawn for the security of a cluster before a run begins."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ports import Rng
from tidelog.net.logins import PlainLogin
from tidelog.net.security import ConnectionSecurity
from tidelog.sim.world.rng import SeededRng

USERS_PORT = 9095
USERS = "USERS"
"""The listener that asks clients who they are. Elsewhere those of other workloads are nobody in particular."""
OF_NODES = ("INTERNAL", "CONTROLLER")
"""The listeners between nodes. Where these do not ask, a node is nobody in particular either."""
OPERATOR, READER, NODE = "operator", "reader", "node"
MECHANISMS_OF_NODES = ("sasl.mechanism.inter.broker.protocol", "sasl.mechanism.controller.protocol")
SCRAM = "SCRAM-SHA-256"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def password_of(user: str) -> str:
    """Of a user that the files of the nodes know."""
    return f"of {user}"


@dataclass(frozen=True, slots=True)
class SecurityPlan:
    """How much of what an operator of users and rights does.

    Attributes:
        has_authorizer: whether access rules count. Nodes are super users, and so is the operator.
        operators: who change things, each its own.
        interval_ms: between two changes of one, about.
        readers: that ask all along, beside the operators.
        wait_ms: that a broker holds a request up for the metadata of its token.
        nodes_log_in: whether nodes say who they are to each other.
    """

    has_authorizer: bool = True
    operators: int = 2
    interval_ms: int = 300
    readers: int = 1
    wait_ms: int = 5_000
    nodes_log_in: bool = False

    @property
    def protocols(self) -> dict[str, str]:
        """Of the listeners that ask who somebody is."""
        return dict.fromkeys((USERS, *(OF_NODES if self.nodes_log_in else ())), "SASL_PLAINTEXT")

    def node_security(self, rng: Rng) -> ConnectionSecurity | None:
        """How a node connects to others; None where it need not say who it is."""
        return ConnectionSecurity(None, PlainLogin(NODE, password_of(NODE)), rng) if self.nodes_log_in else None

    def properties(self, *, is_broker: bool) -> dict[str, str]:
        """Of one node, beside the listener itself."""
        found = {"delegation.token.secret.key": "a secret", "metadata.consistency.wait.ms.max": str(self.wait_ms)}
        if is_broker:
            found |= _listener(USERS, f"PLAIN,{SCRAM}", "", OPERATOR, READER)
        if self.nodes_log_in:
            found |= dict.fromkeys(MECHANISMS_OF_NODES, "PLAIN")
            own = f'username="{NODE}" password="{password_of(NODE)}" '
            for name in OF_NODES:
                found |= _listener(name, "PLAIN", own, NODE, OPERATOR)
        if self.has_authorizer:
            found |= {
                "authorizer.class.name": AUTHORIZER,
                "super.users": f"User:ANONYMOUS;User:{OPERATOR};User:{NODE}",
            }
        return found


def _listener(name: str, mechanisms: str, own: str, *users: str) -> dict[str, str]:
    """Args: own: what the node itself logs in with, where others listen by that name."""
    known = " ".join(f'user_{user}="{password_of(user)}"' for user in users)
    return {
        f"listener.name.{name.lower()}.sasl.enabled.mechanisms": mechanisms,
        f"listener.name.{name.lower()}.plain.sasl.jaas.config": f"PlainLoginModule required {own}{known};",
    }


def draw_security_plan(rng: SeededRng) -> SecurityPlan:
    """How much of what one run does."""

    def one_of(*choices: int) -> int:
        return choices[rng.randrange(0, len(choices))]

    return SecurityPlan(
        has_authorizer=rng.random() < 0.6,
        operators=one_of(1, 2, 3),
        interval_ms=one_of(100, 300, 1_000),
        readers=one_of(0, 1, 2),
        wait_ms=one_of(500, 5_000, 5_000),
        nodes_log_in=rng.random() < 0.4,
    )
