"""The settings of the authorizer: whether there is one, and who passes it unasked. Kafka: `StandardAuthorizer`."""

from __future__ import annotations

from tidelog.base.authorizers import CLUSTER_ACTION_AUTHORIZER, STANDARD_AUTHORIZER
from tidelog.metadata.configs.key import BOOLEAN, LIST, STRING, ConfigKey, keys_in

AUTHORIZER_CLASS_NAME = ConfigKey(
    "authorizer.class.name",
    STRING,
    "",
    "What requests are held against. StandardAuthorizer: the access rules in the metadata log. "
    "tidelog.ClusterActionAuthorizer: what only nodes ask each other is for super users alone, everybody may do the "
    "rest. Empty: everybody may do everything. All nodes of a cluster need the same.",
    choices=("", STANDARD_AUTHORIZER, CLUSTER_ACTION_AUTHORIZER),
)
SUPER_USERS = ConfigKey(
    "super.users",
    STRING,
    "",
    "Principals that may do everything, whatever the rules say, as User:NAME;User:NAME. The nodes' own have to be "
    "among them.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = ConfigKey(
    "allow.everyone.if.no.acl.found",
    BOOLEAN,
    "false",
    "Whether everybody may do everything with a resource that no rule is about.",
)
EARLY_START_LISTENERS = ConfigKey(
    "early.start.listeners",
    LIST.or_none,
    None,
    "Names of listeners that open before the access rules are known; until then super users alone are answered there. "
    "One of a broker opens when the broker is registered, the others when it may lead. Unless it is set, those of "
    "controllers open early, and they alone.",
)

AUTHORIZATION_CONFIGS = keys_in(globals())
