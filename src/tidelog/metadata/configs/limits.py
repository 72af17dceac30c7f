"""Settings that limit what peers may make a node, or the cluster, remember. All are Tidelog's own: Kafka has none.

docs/limits.md has every limit, these and Kafka's.
"""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import INT, ConfigKey, keys_in

MAX_FAILED_AUTHENTICATIONS_PER_IP = ConfigKey(
    "max.failed.authentications.per.ip",
    INT,
    "300",
    "Tidelog's own: how often an authentication from one address may fail in a minute. Further ones are refused "
    "(THROTTLING_QUOTA_EXCEEDED) before the password is looked at. A user who logged in from there before is counted "
    "apart.",
    minimum=1,
    is_dynamic=True,
)
MAX_AUTO_CREATED_TOPICS_PER_IP = ConfigKey(
    "max.auto.created.topics.per.ip",
    INT,
    "1000",
    "Tidelog's own: how many topics one user at one address may have made automatically in an hour, as each broker "
    "counts. Further ones are not made (THROTTLING_QUOTA_EXCEEDED in the answer about each).",
    minimum=1,
    is_dynamic=True,
)
MAX_PRODUCER_IDS = ConfigKey(
    "max.producer.ids",
    INT,
    "250000",
    "Tidelog's own: of how many producers the partitions of a node remember the sequence numbers, all together, about "
    "a kilobyte each. Beyond it those are forgotten that were quiet for longest and have no open transaction.",
    minimum=1,
    is_dynamic=True,
)
MAX_ACLS = ConfigKey(
    "max.acls",
    INT,
    "100000",
    "Tidelog's own: the most access rules of the cluster. Further ones are refused (POLICY_VIOLATION).",
    minimum=1,
    is_dynamic=True,
)
MAX_CLIENT_QUOTAS = ConfigKey(
    "max.client.quotas",
    INT,
    "100000",
    "Tidelog's own: the most users, client ids and addresses with quotas in the cluster. Further ones are refused "
    "(POLICY_VIOLATION).",
    minimum=1,
    is_dynamic=True,
)
MAX_SCRAM_CREDENTIALS = ConfigKey(
    "max.scram.credentials",
    INT,
    "100000",
    "Tidelog's own: the most passwords of SCRAM users in the cluster, one for each user and mechanism. Further ones "
    "are refused (POLICY_VIOLATION).",
    minimum=1,
    is_dynamic=True,
)
MAX_DELEGATION_TOKENS = ConfigKey(
    "max.delegation.tokens",
    INT,
    "10000",
    "Tidelog's own: the most delegation tokens in the cluster. Further ones are refused (POLICY_VIOLATION) until some "
    "expire.",
    minimum=1,
    is_dynamic=True,
)
MAX_PARTITIONS = ConfigKey(
    "max.partitions",
    INT,
    "200000",
    "Tidelog's own: the most partitions of all topics of the cluster together. What would make more is refused "
    "(POLICY_VIOLATION); the coordinators' own topics are made all the same.",
    minimum=1,
    is_dynamic=True,
)

MAX_CONFIGURED_RESOURCES = ConfigKey(
    "max.configured.resources",
    INT,
    "250000",
    "Tidelog's own: the most topics, brokers and groups of the cluster that have settings of their own. Settings of a "
    "further group are refused (POLICY_VIOLATION), since a group need not be there; those of topics and brokers are "
    "not.",
    minimum=1,
    is_dynamic=True,
)

LIMIT_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())
