"""What a share coordinator is told to do by the broker's settings. Kafka: `ShareCoordinatorConfig`."""

from __future__ import annotations

from dataclasses import dataclass

BATCHES_MAX = 10_000
"""In the state of one partition: as many records as a leader may have under way (`group.share.partition.max.record.\
locks`), each of them alone. A state of more is not what a leader writes, and takes long to write anew."""


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    """Kafka's settings of share coordinators, and their defaults there.

    Attributes:
        updates_per_snapshot: `share.coordinator.snapshot.update.records.per.snapshot`; 0: every write is a snapshot.
        cold_snapshot_interval_ms: `share.coordinator.cold.partition.snapshot.interval.ms`: how old the snapshot of a
            partition is when another is written that lets the log before it go.
    """

    updates_per_snapshot: int = 500
    cold_snapshot_interval_ms: int = 5 * 60_000
