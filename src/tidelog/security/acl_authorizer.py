"""Who may do what by the access rules in the metadata log.

Kafka: `StandardAuthorizer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.base.authorizers import CLUSTER_ACTION_AUTHORIZER, STANDARD_AUTHORIZER
from tidelog.base.errors import Code, ConfigError, refusal
from tidelog.base.principals import Principal, Requester, parse_principal
from tidelog.metadata.acls import AclOperation, AclResourceType
from tidelog.metadata.configs.authorization import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
)
from tidelog.security.acl_index import AclIndex
from tidelog.security.authorizer import ANYTHING, AllowEverything, Authorizer
from tidelog.security.cluster_action_authorizer import ClusterActionAuthorizer

_HARD_CODED = "hardcode"
"""A name that Kafka asks about where any will do: who may do it to every resource may do it to this one."""


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """What a node's file says of authorization.

    Attributes:
        class_name: of the authorizer.
        super_users: who may do everything.
        allows_without_rules: whether everybody may do everything with what no rule is about.
    """

    class_name: str
    super_users: frozenset[Principal]
    allows_without_rules: bool

    @staticmethod
    def of(properties: Mapping[str, str]) -> AuthorizerSettings | None:
        """None where there is no authorizer.

        Raises:
            ConfigError: `super.users` is misspelt, or there is no authorizer for it, or it has no rules.
        """
        users = properties.get(SUPER_USERS.name, "")
        class_name = AUTHORIZER_CLASS_NAME.parse(properties.get(AUTHORIZER_CLASS_NAME.name, ""))
        if not class_name:
            for key in (SUPER_USERS, ALLOW_EVERYONE_IF_NO_ACL_FOUND):
                if properties.get(key.name):
                    raise ConfigError(
                        f"{key.name}: there is no authorizer that would go by it; set {AUTHORIZER_CLASS_NAME.name}, or "
                        "leave it out"
                    )
            return None
        try:
            super_users = frozenset(parse_principal(one) for one in users.split(";") if one.strip())
        except ConfigError as error:
            raise ConfigError(f"{SUPER_USERS.name}: {error}; they are parted by semicolons") from None
        allows = ALLOW_EVERYONE_IF_NO_ACL_FOUND.parse(properties.get(ALLOW_EVERYONE_IF_NO_ACL_FOUND.name, "false"))
        if class_name == CLUSTER_ACTION_AUTHORIZER and properties.get(ALLOW_EVERYONE_IF_NO_ACL_FOUND.name):
            raise ConfigError(
                f"{ALLOW_EVERYONE_IF_NO_ACL_FOUND.name}: {class_name} goes by no access rules; leave it out, or set "
                f"{AUTHORIZER_CLASS_NAME.name}={STANDARD_AUTHORIZER}"
            )
        return AuthorizerSettings(class_name, super_users, allows)


class AclAuthorizer:
    """Implements `Authorizer` with the rules of the newest image.

    Attributes:
        index: the rules; None until the metadata log is known up to its end of the time of the start. Super users
            alone pass before that.
    """

    deniable = ANYTHING

    def __init__(self, settings: AuthorizerSettings) -> None:
        self.settings = settings
        self.index: AclIndex | None = None

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        """Whether a requester may do this to the resource of this name.

        Raises:
            KafkaError: NOT_CONTROLLER, which every client asks again after: the rules are not known yet. Listeners of
                brokers open when they are, so that this is seen at those of controllers alone.
        """
        principal = requester.principal
        if principal in self.settings.super_users:
            return True
        index = self._loaded()
        says = index.says(str(principal), requester.host, operation, resource_type, name)
        if says is not None:
            return says
        return self.settings.allows_without_rules and not index.has_rules_of(resource_type, name)

    def authorize_any(self, requester: Requester, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """As Kafka's `authorizeByResourceType`. Raises as `authorize`."""
        if self.authorize(requester, operation, resource_type, _HARD_CODED):
            return True
        return self._loaded().allows_any(str(requester.principal), requester.host, operation, resource_type)

    def _loaded(self) -> AclIndex:
        if self.index is None:
            raise refusal(Code.NOT_CONTROLLER, "the access rules are not loaded yet: the metadata log is being read")
        return self.index


def authorizer_of(properties: Mapping[str, str]) -> Authorizer:
    """The one that a node's file asks for. Raises ConfigError: as `AuthorizerSettings.of`."""
    settings = AuthorizerSettings.of(properties)
    if settings is None:
        return AllowEverything()
    if settings.class_name == CLUSTER_ACTION_AUTHORIZER:
        return ClusterActionAuthorizer(settings.super_users)
    return AclAuthorizer(settings)
