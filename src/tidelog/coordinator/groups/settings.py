"""What a group coordinator is told to do by the broker's settings. Kafka: `GroupCoordinatorConfig`."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.coordinator.groups.consumer.settings import ConsumerGroupSettings
from tidelog.coordinator.groups.share.settings import ShareGroupSettings

MINUTE_MS = 60_000

PENDING_MEMBERS_MAX = 10_000
"""Members of one group that were given an id and have not come back with it; each takes some 100 bytes."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's settings of groups, and their defaults there.

    Attributes:
        session_timeout_ms_min: `group.min.session.timeout.ms`, inclusive.
        session_timeout_ms_max: `group.max.session.timeout.ms`, inclusive.
        initial_rebalance_delay_ms: `group.initial.rebalance.delay.ms`: how long the first member waits for more.
        group_size_max: `group.max.size`, in members.
        offset_metadata_length_max: `offset.metadata.max.bytes`; Kafka counts characters.
        offsets_retention_ms: `offsets.retention.minutes`, in milliseconds.
        retention_check_interval_ms: `offsets.retention.check.interval.ms`.
        consumer: those of consumer groups (KIP-848).
        share: those of share groups (KIP-932).
    """

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 30 * MINUTE_MS
    initial_rebalance_delay_ms: int = 3_000
    group_size_max: int = 2**31 - 1
    offset_metadata_length_max: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    retention_check_interval_ms: int = 10 * MINUTE_MS
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)
