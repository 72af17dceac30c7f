"""What share groups are told to do by the settings of the broker, or of a group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """Kafka's settings of share groups, and their defaults there.

    Attributes:
        session_timeout_ms: `group.share.session.timeout.ms`.
        heartbeat_interval_ms: `group.share.heartbeat.interval.ms`.
        assignment_interval_ms: `group.share.assignment.interval.ms`: between two assignments of a group (KIP-1263).
        group_size_max: `group.share.max.size`, in members.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    group_size_max: int = 200
