"""What the requester of one request may do, by the rules that are in force while it is answered.

Kafka: `AuthHelper`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import TopicId
from tidelog.base.principals import USER, Principal, Requester
from tidelog.metadata.acls import CLUSTER_NAME, AclOperation, AclResourceType
from tidelog.security.authorizer import ANYTHING
from tidelog.wire.api import api

if TYPE_CHECKING:
    from tidelog.metadata import MetadataImage
    from tidelog.server.api.ports import MetadataApi
    from tidelog.server.api.request_context import RequestContext

CODES = {
    AclResourceType.TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""What a denial is answered with, by what it is about."""


class Rights:
    """Answers for one requester, on whatever thread it is asked.

    Attributes:
        image: the metadata that the request is looked at by: what it names by ids has these names.
    """

    __slots__ = ("_authorizer", "_requester", "image")

    def __init__(self, node: MetadataApi, context: RequestContext) -> None:
        self.image: MetadataImage = node.image
        self._authorizer = node.authorizer
        self._requester = context.requester

    @property
    def has_rules(self) -> bool:
        """Whether there are access rules, by which anything may be denied."""
        return self._authorizer.deniable == ANYTHING

    def is_node(self, user: str) -> bool:
        """Whether a user of this name may do what nodes do."""
        requester = Requester(Principal(USER, user), self._requester.host)
        return self._authorizer.authorize(requester, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)

    def may(self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the requester may do this to the resource of this name."""
        return self._authorizer.authorize(self._requester, operation, resource_type, name)

    def may_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether there is a resource of this type that it may do this to."""
        return self._authorizer.authorize_any(self._requester, operation, resource_type)

    def on_cluster(self, *operations: AclOperation) -> bool:
        """Whether it may do one of these to the cluster."""
        return any(self.may(operation, AclResourceType.CLUSTER) for operation in operations)

    def denial(
        self, operation: AclOperation, resource_type: AclResourceType, name: str = CLUSTER_NAME, shown: object = None
    ) -> KafkaError | None:
        """Why the requester may not do this; None if it may.

        Args:
            shown: how the requester called it, if not by its name.
        """
        if self.may(operation, resource_type, name):
            return None
        return self.refusal((operation,), resource_type, name if shown is None else shown)

    def denial_by_id(self, operation: AclOperation, topic_id: UUID) -> KafkaError | None:
        """As `denial`, of a topic that is called by its id.

        Where there is none, that is the answer: by the time that a handler looks, or the controller that it asks, there
        may be one, which nobody was asked about.
        """
        found = self.image.topic_by_id(TopicId(topic_id))
        if found is None:
            return refusal(Code.UNKNOWN_TOPIC_ID, f"there is no topic of the id {topic_id}")
        return self.denial(operation, AclResourceType.TOPIC, found.name, topic_id)

    def cluster_denial(self, *operations: AclOperation) -> KafkaError | None:
        """Why the requester may do none of these to the cluster; None if it may."""
        return None if self.on_cluster(*operations) else self.refusal(operations, AclResourceType.CLUSTER)

    def refusal(
        self, operations: Iterable[AclOperation], resource_type: AclResourceType, shown: object = None
    ) -> KafkaError:
        """The error of a denial, which says what rule is missing, where there are rules."""
        named = "the cluster"
        if resource_type != AclResourceType.CLUSTER:
            named = f"{resource_type.name.lower().replace('_', ' ')} {str(shown)!r}"
        principal, host = self._requester.principal, self._requester.host
        if not self.has_rules:
            return refusal(
                CODES[resource_type], f"{principal} at {host} is none of the nodes, which alone ask for this"
            )
        wanted = " or ".join(one.name for one in operations)
        return refusal(CODES[resource_type], f"{principal} at {host} needs an ACL that allows {wanted} on {named}")


class ReadableTopics:
    """Which topics one requester may read, for as long as one request takes: each is asked about once."""

    __slots__ = ("_denials", "_on_denied", "_rights")

    def __init__(self, rights: Rights, on_denied: Callable[[str], None]) -> None:
        self._rights = rights
        self._on_denied = on_denied
        self._denials: dict[str | UUID, KafkaError | None] = {}

    def check(self, topic: str | UUID) -> None:
        """Whoever names a topic is not told whether it is there.

        Raises:
            KafkaError: TOPIC_AUTHORIZATION_FAILED. UNKNOWN_TOPIC_ID: it is not there, so nobody can tell.
        """
        denials = self._denials
        if topic not in denials:
            denials[topic] = denial = self._denial(topic)
            if denial is not None:
                self._on_denied(str(denial))
        error = denials[topic]
        if error is not None:
            raise error

    def _denial(self, topic: str | UUID) -> KafkaError | None:
        if isinstance(topic, str):
            return self._rights.denial(AclOperation.READ, AclResourceType.TOPIC, topic)
        return self._rights.denial_by_id(AclOperation.READ, topic)


def readable_topics(node: MetadataApi, context: RequestContext) -> ReadableTopics | None:
    """What a request that fetches is held against; None where there are no access rules."""
    if not has_rules(node):
        return None
    return ReadableTopics(Rights(node, context), partial(node.audit.on_denied, api(context.header.api_key)))


def is_authorized(node: MetadataApi) -> bool:
    """Whether requests are looked at at all: `authorizer.class.name` names an authorizer."""
    return bool(node.authorizer.deniable)


def has_rules(node: MetadataApi) -> bool:
    """Whether that authorizer goes by access rules, which may deny anything."""
    return node.authorizer.deniable == ANYTHING
