"""Settings of consumer groups (KIP-848): of brokers, and of one group over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.base.errors import ConfigError
from tidelog.metadata.configs.key import (
    BOOLEAN,
    INT,
    LIST,
    STRING,
    ConfigKey,
    ConfigValue,
    Synonym,
    keys_in,
    refused,
    unserved,
)
from tidelog.metadata.configs.share_groups import SHARE_CONFIGS, SHARE_RANGES, SHARE_SESSION

POLICIES = ("bidirectional", "disabled", "downgrade", "upgrade")

GROUP_CONSUMER_SESSION_TIMEOUT_MS = ConfigKey(
    "group.consumer.session.timeout.ms",
    INT,
    "45000",
    "How long a member of a consumer group may be silent before its partitions are given to others.",
    minimum=1,
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = ConfigKey(
    "group.consumer.min.session.timeout.ms", INT, "45000", "The least that it may be set to, of a group too.", minimum=1
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = ConfigKey(
    "group.consumer.max.session.timeout.ms", INT, "60000", "The most that it may be set to, of a group too.", minimum=1
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "group.consumer.heartbeat.interval.ms",
    INT,
    "5000",
    "How often members of consumer groups are told to send heartbeats. They learn of a rebalance by the answers.",
    minimum=1,
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "group.consumer.min.heartbeat.interval.ms",
    INT,
    "5000",
    "The least that it may be set to, of a group too.",
    minimum=1,
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "group.consumer.max.heartbeat.interval.ms",
    INT,
    "15000",
    "The most that it may be set to, of a group too.",
    minimum=1,
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "group.consumer.assignment.interval.ms",
    INT,
    "1000",
    "How long a consumer group waits after one assignment before the next, so that members that come together are "
    "assigned together (KIP-1263).",
    minimum=0,
    is_dynamic=True,
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "group.consumer.min.assignment.interval.ms", INT, "0", "The least that it may be set to, of a group too.", minimum=0
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "group.consumer.max.assignment.interval.ms",
    INT,
    "15000",
    "The most that it may be set to, of a group too.",
    minimum=0,
)
GROUP_CONSUMER_MAX_SIZE = ConfigKey(
    "group.consumer.max.size", INT, "2147483647", "The most members that a consumer group may have.", minimum=1
)
GROUP_CONSUMER_ASSIGNORS = ConfigKey(
    "group.consumer.assignors",
    LIST,
    "uniform,range",
    "The assignors of consumer groups. The first is taken where members ask for none.",
    choices=("uniform", "range"),
    why="assignors of one's own would be Java classes",
)
GROUP_CONSUMER_MIGRATION_POLICY = ConfigKey(
    "group.consumer.migration.policy",
    STRING,
    "bidirectional",
    "Which groups change their protocol while they have members: classic groups that a member of the new protocol "
    "joins (upgrade), consumer groups whose last member of the new protocol leaves (downgrade), both or none.",
    choices=(*POLICIES, *map(str.upper, POLICIES)),
)

GROUP_CONSUMER_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())

CONSUMER_SESSION_TIMEOUT_MS = ConfigKey(
    "consumer.session.timeout.ms",
    INT,
    "45000",
    "How long a member may be silent before its partitions are given to others.",
    minimum=1,
    synonyms=(Synonym(GROUP_CONSUMER_SESSION_TIMEOUT_MS.name),),
    is_dynamic=True,
)
CONSUMER_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "consumer.heartbeat.interval.ms",
    INT,
    "5000",
    "How often members are told to send heartbeats.",
    minimum=1,
    synonyms=(Synonym(GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS.name),),
    is_dynamic=True,
)
CONSUMER_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "consumer.assignment.interval.ms",
    INT,
    "1000",
    "How long the group waits after one assignment before the next.",
    minimum=0,
    synonyms=(Synonym(GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS.name),),
    is_dynamic=True,
)

RANGES = (
    (CONSUMER_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS, GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS),
    (
        CONSUMER_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        CONSUMER_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    *SHARE_RANGES,
)
"""A setting of a group, and what the broker allows of it, and of its own setting behind it."""

SESSIONS = (
    (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS),
    SHARE_SESSION,
)
"""A session has to outlast the interval between heartbeats."""

GROUP_CONFIGS: tuple[ConfigKey[Any], ...] = (
    CONSUMER_SESSION_TIMEOUT_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
    *refused(
        "large assignments are made in pieces between other requests",
        unserved("consumer.assignor.offload.enable", BOOLEAN, "true"),
        unserved("share.assignor.offload.enable", BOOLEAN, "true"),
    ),
    *SHARE_CONFIGS,
)
"""Of one group. Kafka's others are of kinds of groups that are not served."""


def check_ranges(value_of: Callable[[ConfigKey[int]], int], names: Callable[[ConfigKey[int]], str]) -> None:
    """Return if what is set of a group, or of a broker for its groups, is within what the broker allows.

    Args:
        value_of: what is in force of a setting of groups, and of one of the broker.
        names: what the setting of groups is called where it was set.

    Raises:
        ConfigError: at the first that is not.
    """
    for key, minimum, maximum in RANGES:
        value, low, high = value_of(key), value_of(minimum), value_of(maximum)
        if not low <= value <= high:
            raise ConfigError(
                f"{names(key)} is {value}: it must be from {low} ({minimum.name}) to {high} ({maximum.name})"
            )
    for session, heartbeat in SESSIONS:
        if value_of(session) <= value_of(heartbeat):
            raise ConfigError(
                f"{names(session)} is {value_of(session)}: it must be above {names(heartbeat)}, which is "
                f"{value_of(heartbeat)}"
            )


def within_range(values: Callable[[ConfigKey[int]], ConfigValue], key: ConfigKey[int], value: int) -> int:
    """What counts of a value that was set when a broker allowed more."""
    _, minimum, maximum = next(one for one in RANGES if one[0] is key)
    low, high = values(minimum), values(maximum)
    assert isinstance(low, int)
    assert isinstance(high, int)
    return max(low, min(value, high))
