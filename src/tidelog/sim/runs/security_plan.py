"""What is drawn for the security of a cluster before a run begins."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.sim.world.rng import SeededRng

USERS_PORT = 9095
USERS = "USERS"
"""The listener that asks who somebody is. Nodes, and all other clients, are nobody in particular elsewhere."""
OPERATOR, READER = "operator", "reader"
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
    """

    has_authorizer: bool = True
    operators: int = 2
    interval_ms: int = 300
    readers: int = 1
    wait_ms: int = 5_000

    def properties(self, *, is_broker: bool) -> dict[str, str]:
        """Of one node, beside the listener itself."""
        found = {"delegation.token.secret.key": "a secret", "metadata.consistency.wait.ms.max": str(self.wait_ms)}
        if is_broker:
            users = " ".join(f'user_{user}="{password_of(user)}"' for user in (OPERATOR, READER))
            found |= {
                f"listener.name.{USERS.lower()}.sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
                f"listener.name.{USERS.lower()}.plain.sasl.jaas.config": f"PlainLoginModule required {users};",
            }
        if self.has_authorizer:
            found |= {
                "authorizer.class.name": AUTHORIZER,
                "super.users": f"User:ANONYMOUS;User:{OPERATOR}",
            }
        return found


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
    )
