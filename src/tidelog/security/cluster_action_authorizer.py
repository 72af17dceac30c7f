"""Nodes alone do what nodes do, and everybody may do the rest: for a cluster without users and access rules."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.base.principals import Principal, Requester
from tidelog.metadata.acls import AclOperation, AclResourceType


class ClusterActionAuthorizer:
    """Implements `Authorizer`: denies CLUSTER_ACTION to whoever is no super user, and nothing else.

    Without it whoever reaches a listener may vote, register brokers, stop replicas and fetch as one of them. With it
    whoever is no node does at most what an operator may do.

    Args:
        super_users: the nodes.
    """

    deniable = frozenset({AclOperation.CLUSTER_ACTION})

    def __init__(self, super_users: Collection[Principal]) -> None:
        self._super_users = frozenset(super_users)

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Whether a requester may do this, whatever the resource."""
        return operation is not AclOperation.CLUSTER_ACTION or requester.principal in self._super_users

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """As `authorize`."""
        return self.authorize(requester, operation, resource_type, "")
