"""Settings of the coordinators of share groups' states (KIP-932)."""

from __future__ import annotations

from typing import Any

from tidelog.metadata.configs.key import INT, LONG, SHORT, ConfigKey, keys_in

STATE_TOPIC_NUM_PARTITIONS = ConfigKey(
    "share.coordinator.state.topic.num.partitions",
    INT,
    "50",
    "The partitions of __share_group_state, over which the states of share groups are spread. It cannot be changed "
    "once the topic is there.",
    minimum=1,
)
STATE_TOPIC_REPLICATION_FACTOR = ConfigKey(
    "share.coordinator.state.topic.replication.factor",
    SHORT,
    "3",
    "The replicas of __share_group_state. Unless it is set, a cluster of fewer brokers takes as many as it has.",
    minimum=1,
)
STATE_TOPIC_MIN_ISR = ConfigKey(
    "share.coordinator.state.topic.min.isr",
    SHORT,
    "2",
    "min.insync.replicas of __share_group_state; no more than it has replicas.",
    minimum=1,
)
STATE_TOPIC_SEGMENT_BYTES = ConfigKey(
    "share.coordinator.state.topic.segment.bytes",
    INT,
    "104857600",
    "segment.bytes of __share_group_state.",
    minimum=1,
)
STATE_TOPIC_PRUNE_INTERVAL_MS = ConfigKey(
    "share.coordinator.state.topic.prune.interval.ms",
    INT,
    "300000",
    "How often the records of __share_group_state are deleted that newer snapshots made redundant.",
    minimum=1,
)
COLD_PARTITION_SNAPSHOT_INTERVAL_MS = ConfigKey(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    INT,
    "300000",
    "How old the snapshot of a state that nobody changes is before another is written, so that older records can be "
    "deleted. It is written where at least half of the records behind it are redundant.",
    minimum=1,
)
SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT = ConfigKey(
    "share.coordinator.snapshot.update.records.per.snapshot",
    INT,
    "500",
    "How many updates of a state are written before it is written as a whole.",
    minimum=0,
    maximum=500,
)
WRITE_TIMEOUT_MS = ConfigKey(
    "share.coordinator.write.timeout.ms",
    INT,
    "5000",
    "How long a change waits for the replicas of __share_group_state; then COORDINATOR_NOT_AVAILABLE is answered.",
    minimum=1,
)
SHARE_COORDINATOR_MEMORY_BYTES = ConfigKey(
    "share.coordinator.memory.bytes",
    LONG,
    "134217728",
    "Tidelog's own: about the memory of all states of share groups that a node coordinates. A state that finds no "
    "room, or a change that enlarges one, is refused (THROTTLING_QUOTA_EXCEEDED).",
    minimum=1,
)

SHARE_COORDINATOR_CONFIGS: tuple[ConfigKey[Any], ...] = keys_in(globals())
