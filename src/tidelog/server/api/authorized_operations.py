"""What one is authorized to do, a bit for each operation by Kafka's number (KIP-430).

Where there is no authorizer, everybody may do whatever there is to do with a resource.

Kafka: `AuthHelper.authorizedOperations`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from tidelog.base.errors import Code
from tidelog.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from tidelog.server.api.rights import Rights, is_authorized

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi
    from tidelog.server.api.request_context import RequestContext


class DescribedGroupRow(Protocol):
    """What a group is described by, whatever its kind."""

    error_code: int
    group_id: str
    authorized_operations: int


_CONFIGS = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)

OPERATIONS = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        *_CONFIGS,
    ),
    AclResourceType.GROUP: (AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE, *_CONFIGS),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    ),
}
"""What there is to do with a resource."""


def _bits(operations: Iterable[AclOperation]) -> int:
    return sum(1 << operation for operation in operations)


ALL = {resource_type: _bits(operations) for resource_type, operations in OPERATIONS.items()}


class AuthorizedOperations:
    """What the requester of one request may do, on whatever thread it is asked."""

    __slots__ = ("_rights",)

    def __init__(self, node: MetadataApi, context: RequestContext) -> None:
        self._rights = Rights(node, context) if is_authorized(node) else None

    def on_topic(self, name: str) -> int:
        return self._on(AclResourceType.TOPIC, name)

    def on_cluster(self) -> int:
        """Nothing is told to who may not describe the cluster."""
        if self._rights is not None and not self._rights.on_cluster(AclOperation.DESCRIBE):
            return 0
        return self._on(AclResourceType.CLUSTER, CLUSTER_NAME)

    def add_to_groups(self, rows: Iterable[DescribedGroupRow]) -> None:
        """Say of each group that has no error what one is authorized to do with it."""
        for row in rows:
            if row.error_code == Code.NONE:
                row.authorized_operations = self._on(AclResourceType.GROUP, row.group_id)

    def _on(self, resource_type: AclResourceType, name: str) -> int:
        rights = self._rights
        if rights is None:
            return ALL[resource_type]
        return _bits(one for one in OPERATIONS[resource_type] if rights.may(one, resource_type, name))
