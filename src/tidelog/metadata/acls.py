"""The words of access rules, with the numbers of the protocol.

Kafka: `AclOperation`, `ResourceType`, `PatternType`, `AclPermissionType`, `AccessControlEntry`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

CLUSTER_NAME = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
WILDCARD = "*"
"""Of a literal pattern, a host, or the name of a principal: any."""


class AclOperation(IntEnum):
    """What somebody may do. ANY is for filters; ALL is for rules, and includes the others."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(IntEnum):
    """What it is done to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a rule names resources. ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """What a rule says."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_OF_CONFIGS = frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS))
OPERATIONS_OF: dict[AclResourceType, frozenset[AclOperation]] = {
    AclResourceType.TOPIC: _OF_CONFIGS
    | {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    },
    AclResourceType.GROUP: _OF_CONFIGS | {AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE},
    AclResourceType.CLUSTER: _OF_CONFIGS
    | {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
    },
    AclResourceType.TRANSACTIONAL_ID: frozenset(
        (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT)
    ),
    AclResourceType.DELEGATION_TOKEN: frozenset((AclOperation.DESCRIBE,)),
    AclResourceType.USER: frozenset((AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS)),
}
"""What can be done to a resource of each type. Kafka: `AclEntry.supportedOperations`."""


class Acl(NamedTuple):
    """One rule, without its id.

    Attributes:
        principal: as Kafka spells it; `User:*` is everybody.
        host: an address; `*` is any.
    """

    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclFilter(NamedTuple):
    """Which rules are meant. None, and ANY, match whatever there is.

    Attributes:
        resource_name: with the pattern type MATCH, all rules are meant that are about this name; else those of it.
    """

    resource_type: AclResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def matches(self, acl: Acl) -> bool:
        """Kafka: `AclBindingFilter.matches`."""
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._is_about(acl)
        )

    def _is_about(self, acl: Acl) -> bool:
        name, kind = self.resource_name, self.pattern_type
        if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if name is None or name == acl.resource_name:
            return True
        if kind is not PatternType.MATCH:
            return False
        if acl.pattern_type is PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name == WILDCARD
