"""Nodes alone do what nodes do, and everybody may do the rest: for a cluster without users and access rules."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.base.principals import Principal, Requester
from tidelog.metadata.acls import AclOperation, AclResourceType

_OF_TOKENS = frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS})
"""On a user: whoever has its token is that user."""


class ClusterActionAuthorizer:
    """Implements `Authorizer`: denies whoever is no super user CLUSTER_ACTION, and tokens of super users.

    Without it whoever reaches a listener may vote, register brokers, stop replicas and fetch as one of them. With it
    whoever is no node does at most what an operator may do.

    Args:
        super_users: the nodes.
    """

    deniable = frozenset({AclOperation.CLUSTER_ACTION, *_OF_TOKENS})

    def __init__(self, super_users: Collection[Principal]) -> None:
        self._super_users = frozenset(super_users)
        self._names = {str(principal) for principal in self._super_users}

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Whether a requester may do this."""
        is_of_nodes = operation is AclOperation.CLUSTER_ACTION or (operation in _OF_TOKENS and name in self._names)
        return not is_of_nodes or requester.principal in self._super_users

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """As `authorize`: of most operations there is such a resource."""
        return self.authorize(requester, operation, resource_type, "")
