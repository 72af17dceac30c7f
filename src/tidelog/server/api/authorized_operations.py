"""What one is authorized to do, a bit for each operation by Kafka's number (KIP-430).

Kafka's counterpart is `AuthHelper.authorizedOperations`. There are no access rules, so everybody may do whatever there
is to do with a resource, as in an Apache Kafka that has no authorizer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from tidelog.base.errors import Code
from tidelog.metadata.acls import AclOperation


class DescribedGroupRow(Protocol):
    """What a group is described by, whatever its kind."""

    error_code: int
    authorized_operations: int


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


_CONFIGS = {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS}

TOPIC_OPERATIONS = _bits(
    {
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    }
)
GROUP_OPERATIONS = _bits({AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS})
CLUSTER_OPERATIONS = _bits(
    {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    }
)


def authorize_groups(rows: Iterable[DescribedGroupRow]) -> None:
    """Say of each group that has no error what one is authorized to do with it."""
    for row in rows:
        if row.error_code == Code.NONE:
            row.authorized_operations = GROUP_OPERATIONS
