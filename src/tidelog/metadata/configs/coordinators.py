"""Settings of the coordinators of groups and of transactions."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import BOOLEAN, INT, LONG, SHORT, ConfigKey, keys_in

OFFSETS_TOPIC_NUM_PARTITIONS = ConfigKey(
    "offsets.topic.num.partitions",
    INT,
    "50",
    "The partitions of __consumer_offsets, over which groups are spread. It cannot be changed once the topic is there.",
    minimum=1,
)
OFFSETS_TOPIC_REPLICATION_FACTOR = ConfigKey(
    "offsets.topic.replication.factor",
    SHORT,
    "3",
    "The replicas of __consumer_offsets. Unless it is set, a cluster of fewer brokers takes as many as it has.",
    minimum=1,
)
OFFSETS_TOPIC_SEGMENT_BYTES = ConfigKey(
    "offsets.topic.segment.bytes", INT, "104857600", "segment.bytes of __consumer_offsets.", minimum=1
)
OFFSETS_RETENTION_MINUTES = ConfigKey(
    "offsets.retention.minutes",
    INT,
    "10080",
    "How long offsets are kept after their group became empty, or after the last commit of a group that never had "
    "members.",
    minimum=1,
)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = ConfigKey(
    "offsets.retention.check.interval.ms", LONG, "600000", "How often offsets to forget are looked for.", minimum=1
)
OFFSET_METADATA_MAX_BYTES = ConfigKey(
    "offset.metadata.max.bytes", INT, "4096", "The most that a commit may say beside an offset.", minimum=0
)
TRANSACTION_STATE_LOG_NUM_PARTITIONS = ConfigKey(
    "transaction.state.log.num.partitions",
    INT,
    "50",
    "The partitions of __transaction_state, over which transactional ids are spread. It cannot be changed once the "
    "topic is there.",
    minimum=1,
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = ConfigKey(
    "transaction.state.log.replication.factor",
    SHORT,
    "3",
    "The replicas of __transaction_state. Unless it is set, a cluster of fewer brokers takes as many as it has.",
    minimum=1,
)
TRANSACTION_STATE_LOG_MIN_ISR = ConfigKey(
    "transaction.state.log.min.isr",
    INT,
    "2",
    "min.insync.replicas of __transaction_state; no more than it has replicas.",
    minimum=1,
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = ConfigKey(
    "transaction.state.log.segment.bytes", INT, "104857600", "segment.bytes of __transaction_state.", minimum=1
)
TRANSACTION_MAX_TIMEOUT_MS = ConfigKey(
    "transaction.max.timeout.ms",
    INT,
    "900000",
    "The longest transaction.timeout.ms that a producer may ask for. Readers of what is committed wait for an open "
    "transaction that long.",
    minimum=1,
)
TRANSACTIONAL_ID_EXPIRATION_MS = ConfigKey(
    "transactional.id.expiration.ms",
    INT,
    "604800000",
    "How long a transactional id is remembered after its last transaction ended.",
    minimum=1,
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = ConfigKey(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    INT,
    "3600000",
    "How often transactional ids to forget are looked for.",
    minimum=1,
)
TRANSACTION_PARTITION_VERIFICATION_ENABLE = ConfigKey(
    "transaction.partition.verification.enable",
    BOOLEAN,
    "true",
    "Whether the leader of a partition asks the coordinator before a producer's first batch of a transaction is taken "
    "(KIP-890). Without it a batch that comes late may begin a transaction that nobody ends.",
    is_dynamic=True,
)
GROUP_INITIAL_REBALANCE_DELAY_MS = ConfigKey(
    "group.initial.rebalance.delay.ms",
    INT,
    "3000",
    "How long the first generation of a group waits for more members.",
    minimum=0,
)
GROUP_MIN_SESSION_TIMEOUT_MS = ConfigKey(
    "group.min.session.timeout.ms", INT, "6000", "The shortest session time-out that members may ask.", minimum=1
)
GROUP_MAX_SESSION_TIMEOUT_MS = ConfigKey(
    "group.max.session.timeout.ms", INT, "1800000", "The longest session time-out that members may ask.", minimum=1
)
GROUP_MAX_SIZE = ConfigKey("group.max.size", INT, "2147483647", "The most members that a group may have.", minimum=1)
GROUP_COORDINATOR_MEMORY_BYTES = ConfigKey(
    "group.coordinator.memory.bytes",
    LONG,
    "134217728",
    "Tidelog's own: about the memory of all groups that a node coordinates: their members' names, metadata and "
    "assignments. A member that finds no room is refused (GROUP_MAX_SIZE_REACHED).",
    minimum=1,
)
GROUP_OFFSETS_MEMORY_BYTES = ConfigKey(
    "group.offsets.memory.bytes",
    LONG,
    "268435456",
    "Tidelog's own: about the memory of the committed offsets of all groups that a node coordinates, some 200 bytes "
    "each. A commit to a place that has no offset yet is refused where it finds no room (INVALID_COMMIT_OFFSET_SIZE); "
    "what is committed already can be committed anew.",
    minimum=1,
)
TRANSACTION_COORDINATOR_MEMORY_BYTES = ConfigKey(
    "transaction.coordinator.memory.bytes",
    LONG,
    "134217728",
    "Tidelog's own: about the memory of all transactional ids that a node coordinates: their names, the partitions of "
    "their transactions, and their requests that wait. A new id that finds no room, or a further partition, is refused "
    "(THROTTLING_QUOTA_EXCEEDED); ids go when nobody used them for transactional.id.expiration.ms.",
    minimum=1,
)

COORDINATOR_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())
