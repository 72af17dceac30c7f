"""What is drawn for the share group of a run before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from tidelog.sim.world.rng import SeededRng

SHARE_STATE = TopicPartition(SHARE_GROUP_STATE_TOPIC, PartitionIndex(0))


@dataclass(frozen=True, slots=True)
class SharePlan:
    """How much of what a run does in a share group.

    Attributes:
        members: at most; now and then some are away.
        session_ms: who is silent for so long is out.
        lock_ms: for which a member has a record.
        delivery_count_max: a record that was delivered so often, and is not done, is archived.
        records_max: that a member acquires at a time.
        is_strict: whether that may cut a batch in two (KIP-1206).
        works_ms_max: that a member takes over a record.
        releases: how many of a hundred records are released.
        rejects: how many are rejected.
        renews: for how many a member asks for more time (KIP-1222).
        forgets: about how many a member never says anything.
        leaves: how often, of a hundred seconds, a member leaves and comes back.
        crashes: how often it ends without a word, and another one comes in its place.
        stalls: how often it stands still for about as long as it has a record.
        away_ms_max: until the next one comes.
        updates_per_snapshot: of the state of a partition.
        locks_max: of records of a partition that are not done.
        segment_bytes: of `__share_group_state`. A batch that is longer than that is refused, and a state is one: some
            60 bytes for each lock.
        prune_ms: how often what is redundant there is deleted.
    """

    members: int = 3
    session_ms: int = 1_500
    lock_ms: int = 1_000
    delivery_count_max: int = 5
    records_max: int = 20
    is_strict: bool = True
    works_ms_max: int = 200
    releases: int = 5
    rejects: int = 3
    renews: int = 5
    forgets: int = 2
    leaves: int = 5
    crashes: int = 5
    stalls: int = 3
    away_ms_max: int = 2_000
    locks_max: int = 100
    updates_per_snapshot: int = 20
    segment_bytes: int = 10_000
    prune_ms: int = 1_000

    @property
    def heartbeat_ms(self) -> int:
        """Between two heartbeats."""
        return self.session_ms // 5

    def properties(self, replication_factor: int, min_insync_replicas: int) -> dict[str, str]:
        """Of each node."""
        return {
            "group.share.min.session.timeout.ms": str(self.session_ms),
            "group.share.session.timeout.ms": str(self.session_ms),
            "group.share.min.heartbeat.interval.ms": str(self.heartbeat_ms),
            "group.share.heartbeat.interval.ms": str(self.heartbeat_ms),
            "group.share.assignment.interval.ms": str(self.heartbeat_ms),
            "group.share.min.record.lock.duration.ms": str(self.lock_ms),
            "group.share.record.lock.duration.ms": str(self.lock_ms),
            "group.share.delivery.count.limit": str(self.delivery_count_max),
            "group.share.partition.max.record.locks": str(self.locks_max),
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": str(replication_factor),
            "share.coordinator.state.topic.min.isr": str(min_insync_replicas),
            "share.coordinator.state.topic.segment.bytes": str(self.segment_bytes),
            "share.coordinator.state.topic.prune.interval.ms": str(self.prune_ms),
            "share.coordinator.cold.partition.snapshot.interval.ms": str(2 * self.prune_ms),
            "share.coordinator.snapshot.update.records.per.snapshot": str(self.updates_per_snapshot),
        }


def draw_share_plan(rng: SeededRng) -> SharePlan:
    """How much of what one run does in a share group."""

    def one_of(*choices: int) -> int:
        return choices[rng.randrange(0, len(choices))]

    locks_max = one_of(100, 100, 2_000)
    return SharePlan(
        members=one_of(2, 3, 3, 4),
        session_ms=one_of(1_000, 1_500, 3_000, 6_000),
        lock_ms=one_of(1_000, 1_000, 2_000, 5_000),
        delivery_count_max=one_of(3, 5, 10, 10),
        records_max=one_of(1, 5, 20, 100),
        is_strict=rng.random() < 0.5,
        works_ms_max=one_of(0, 50, 200, 800),
        releases=one_of(0, 5, 20),
        rejects=one_of(0, 3),
        renews=one_of(0, 5, 20),
        forgets=one_of(0, 2, 10),
        leaves=one_of(0, 3, 10),
        crashes=one_of(0, 3, 10),
        stalls=one_of(0, 3, 3, 10),
        away_ms_max=one_of(100, 2_000, 2_000, 8_000),
        updates_per_snapshot=one_of(0, 3, 20, 500),
        locks_max=locks_max,
        segment_bytes=one_of(10_000, 20_000, 1_000_000) if locks_max == 100 else 1_000_000,
        prune_ms=one_of(500, 2_000, 60_000),
    )
