"""What consumer groups are told to do by the settings of the broker, or of a group. Kafka: `GroupConfig`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MigrationPolicy(StrEnum):
    """Which groups change their protocol when a member of the other one joins."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """Kafka's settings of consumer groups, and their defaults there.

    Attributes:
        session_timeout_ms: `group.consumer.session.timeout.ms`.
        heartbeat_interval_ms: `group.consumer.heartbeat.interval.ms`.
        assignment_interval_ms: `group.consumer.assignment.interval.ms`: between two assignments of a group (KIP-1263).
        group_size_max: `group.consumer.max.size`, in members.
        assignors: `group.consumer.assignors`, the default one first.
        migration_policy: `group.consumer.migration.policy`.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    group_size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
