"""Who may do what: the question that requests are admitted by. Kafka: `Authorizer`."""

from __future__ import annotations

from typing import Protocol

from tidelog.base.principals import Requester
from tidelog.metadata.acls import AclOperation, AclResourceType

ANYTHING: frozenset[AclOperation] = frozenset(AclOperation)
"""Every operation."""


class Authorizer(Protocol):
    """Answers from the rules of one image. It neither waits nor changes."""

    @property
    def deniable(self) -> frozenset[AclOperation]:
        """The operations that it may deny somebody. It need not be asked about others. Never changes."""
        ...

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Whether a requester may do this to the resource of this name."""
        ...

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether there is a resource of this type that a requester may do this to."""
        ...


class AllowEverything:
    """Where no authorizer is set."""

    deniable: frozenset[AclOperation] = frozenset()

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        return True

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return True
