"""What an Admin tells of access rules, and takes to change them: Kafka's words, in small letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AclResourceTypeName = Literal["topic", "group", "cluster", "transactional_id", "delegation_token", "user"]
AclOperationName = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster_action",
    "describe_configs",
    "alter_configs",
    "idempotent_write",
    "create_tokens",
    "describe_tokens",
    "two_phase_commit",
]
AclPatternTypeName = Literal["literal", "prefixed"]
AclPermissionName = Literal["allow", "deny"]


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """An access rule. A rule that denies comes before all that allow.

    Attributes:
        resource_name: a name, or `*` for every one; the begin of names if the pattern is prefixed. The one resource of
            type cluster is `kafka-cluster`.
        principal: `User:NAME`; `User:*` is everybody.
        host: the address that they connect from; `*` is any.
    """

    resource_type: AclResourceTypeName
    resource_name: str
    principal: str
    operation: AclOperationName
    permission: AclPermissionName = "allow"
    host: str = "*"
    pattern_type: AclPatternTypeName = "literal"


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Which access rules are meant: those that match all that is not None.

    Attributes:
        pattern_type: `match` means all rules that are about the resource of this name: of its name, of a begin of it,
            and of every name.
    """

    resource_type: AclResourceTypeName | None = None
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperationName | None = None
    permission: AclPermissionName | None = None
    host: str | None = None
    pattern_type: AclPatternTypeName | Literal["match"] | None = None
