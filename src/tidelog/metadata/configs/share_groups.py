"""Settings of share groups (KIP-932, KIP-1240, KIP-1263): of brokers, and of one group over them."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import BOOLEAN, INT, STRING, ConfigKey, Synonym, keys_in

GROUP_SHARE_SESSION_TIMEOUT_MS = ConfigKey(
    "group.share.session.timeout.ms",
    INT,
    "45000",
    "How long a member of a share group may be silent before others read its partitions.",
    minimum=1,
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = ConfigKey(
    "group.share.min.session.timeout.ms", INT, "45000", "The least that it may be set to, of a group too.", minimum=1
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = ConfigKey(
    "group.share.max.session.timeout.ms", INT, "60000", "The most that it may be set to, of a group too.", minimum=1
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "group.share.heartbeat.interval.ms",
    INT,
    "5000",
    "How often members of share groups are told to send heartbeats. They learn what to read by the answers.",
    minimum=1,
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "group.share.min.heartbeat.interval.ms", INT, "5000", "The least that it may be set to, of a group too.", minimum=1
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "group.share.max.heartbeat.interval.ms", INT, "15000", "The most that it may be set to, of a group too.", minimum=1
)
GROUP_SHARE_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "group.share.assignment.interval.ms",
    INT,
    "1000",
    "How long a share group waits after one assignment before the next, so that members that come together are "
    "assigned together (KIP-1263).",
    minimum=0,
    is_dynamic=True,
)
GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "group.share.min.assignment.interval.ms", INT, "0", "The least that it may be set to, of a group too.", minimum=0
)
GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "group.share.max.assignment.interval.ms", INT, "15000", "The most that it may be set to, of a group too.", minimum=0
)
GROUP_SHARE_MAX_SIZE = ConfigKey(
    "group.share.max.size", INT, "200", "The most members that a share group may have.", minimum=1, maximum=1000
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS = ConfigKey(
    "group.share.record.lock.duration.ms",
    INT,
    "30000",
    "For how long a member of a share group has the records that it acquired. Then others may acquire them.",
    minimum=1000,
    maximum=3_600_000,
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = ConfigKey(
    "group.share.min.record.lock.duration.ms",
    INT,
    "15000",
    "The least that it may be set to, of a group too.",
    minimum=1000,
    maximum=30_000,
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = ConfigKey(
    "group.share.max.record.lock.duration.ms",
    INT,
    "60000",
    "The most that it may be set to, of a group too.",
    minimum=30_000,
    maximum=3_600_000,
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT = ConfigKey(
    "group.share.delivery.count.limit",
    INT,
    "5",
    "How often a record is delivered to a share group. One that nobody has accepted by then is archived.",
    minimum=2,
    maximum=10,
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = ConfigKey(
    "group.share.min.delivery.count.limit",
    INT,
    "2",
    "The least that it may be set to, of a group too.",
    minimum=2,
    maximum=5,
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = ConfigKey(
    "group.share.max.delivery.count.limit",
    INT,
    "10",
    "The most that it may be set to, of a group too.",
    minimum=5,
    maximum=25,
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = ConfigKey(
    "group.share.partition.max.record.locks",
    INT,
    "2000",
    "How many records of a partition a share group may have at once that are not done. What is acquired together is "
    "acquired up to the end of a batch, unless a member wants no more than it says.",
    minimum=100,
    maximum=10_000,
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = ConfigKey(
    "group.share.min.partition.max.record.locks",
    INT,
    "100",
    "The least that it may be set to, of a group too.",
    minimum=100,
    maximum=2_000,
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = ConfigKey(
    "group.share.max.partition.max.record.locks",
    INT,
    "4000",
    "The most that it may be set to, of a group too.",
    minimum=2_000,
    maximum=10_000,
)
GROUP_SHARE_MAX_SHARE_SESSIONS = ConfigKey(
    "group.share.max.share.sessions",
    INT,
    "2000",
    "How many members of share groups may fetch from a broker at a time. One more is refused.",
    minimum=1,
)

GROUP_SHARE_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())

SHARE_SESSION_TIMEOUT_MS = ConfigKey(
    "share.session.timeout.ms",
    INT,
    "45000",
    "How long a member may be silent before others read its partitions.",
    minimum=1,
    synonyms=(Synonym(GROUP_SHARE_SESSION_TIMEOUT_MS.name),),
    is_dynamic=True,
)
SHARE_HEARTBEAT_INTERVAL_MS = ConfigKey(
    "share.heartbeat.interval.ms",
    INT,
    "5000",
    "How often members are told to send heartbeats.",
    minimum=1,
    synonyms=(Synonym(GROUP_SHARE_HEARTBEAT_INTERVAL_MS.name),),
    is_dynamic=True,
)
SHARE_ASSIGNMENT_INTERVAL_MS = ConfigKey(
    "share.assignment.interval.ms",
    INT,
    "1000",
    "How long the group waits after one assignment before the next.",
    minimum=0,
    synonyms=(Synonym(GROUP_SHARE_ASSIGNMENT_INTERVAL_MS.name),),
    is_dynamic=True,
)
SHARE_RECORD_LOCK_DURATION_MS = ConfigKey(
    "share.record.lock.duration.ms",
    INT,
    "30000",
    "For how long a member has the records that it acquired. Then others may acquire them.",
    minimum=1000,
    synonyms=(Synonym(GROUP_SHARE_RECORD_LOCK_DURATION_MS.name),),
    is_dynamic=True,
)
SHARE_DELIVERY_COUNT_LIMIT = ConfigKey(
    "share.delivery.count.limit",
    INT,
    "5",
    "How often a record is delivered. One that nobody has accepted by then is archived.",
    minimum=2,
    synonyms=(Synonym(GROUP_SHARE_DELIVERY_COUNT_LIMIT.name),),
    is_dynamic=True,
)
SHARE_PARTITION_MAX_RECORD_LOCKS = ConfigKey(
    "share.partition.max.record.locks",
    INT,
    "2000",
    "How many records of a partition the group may have at once that are not done.",
    minimum=100,
    synonyms=(Synonym(GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS.name),),
    is_dynamic=True,
)
SHARE_AUTO_OFFSET_RESET = ConfigKey(
    "share.auto.offset.reset",
    STRING,
    "latest",
    "Where the group begins in a partition that it has not read yet: at the records that come from now on, at the "
    "earliest, or at those of a time before now (by_duration:P1D is a day).",
    pattern=(
        r"earliest|latest|by_duration:P(?=[\dT])(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d+)?S)?)?",
        "earliest, latest, by_duration:PnDTnHnMn.nS",
    ),
    is_dynamic=True,
)
SHARE_ISOLATION_LEVEL = ConfigKey(
    "share.isolation.level",
    STRING,
    "read_uncommitted",
    "Whether records of transactions are delivered before these are committed, and of those that are aborted.",
    choices=("read_committed", "read_uncommitted"),
    is_dynamic=True,
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE = ConfigKey(
    "share.renew.acknowledge.enable",
    BOOLEAN,
    "true",
    "Whether a member may lengthen the time for which it has a record (KIP-1222).",
    is_dynamic=True,
)

SHARE_CONFIGS: tuple[ConfigKey[Any], ...] = tuple(one for one in keys_in(globals()) if one not in GROUP_SHARE_CONFIGS)
"""Of one group."""

SHARE_RANGES = (
    (SHARE_SESSION_TIMEOUT_MS, GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
    (SHARE_ASSIGNMENT_INTERVAL_MS, GROUP_SHARE_MIN_ASSIGNMENT_INTERVAL_MS, GROUP_SHARE_MAX_ASSIGNMENT_INTERVAL_MS),
    (
        SHARE_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (SHARE_DELIVERY_COUNT_LIMIT, GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    (
        SHARE_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
)
"""A setting of a group, and what the broker allows of it, and of its own setting behind it."""

SHARE_SESSION = (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS)
"""The first has to be above the second."""
