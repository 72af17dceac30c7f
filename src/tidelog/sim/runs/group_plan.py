"""What is drawn for the consumer group of a run before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.sim.world.rng import SeededRng

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky", "cooperative-sticky")
CLASSIC, CONSUMER = "classic", "consumer"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How much of what a run does in a group.

    Attributes:
        protocols: that members speak when they come, from the first second on.
        later_protocols: that they speak from `changes_at_ms` on, if that is another one.
        changes_at_ms: when each goes over to the other protocol, within a few seconds.
        members: at most; now and then some are away.
        session_ms: who is silent for so long is out.
        rebalance_ms: who does not give up, or join again, within so long is out.
        commit_ms: between two commits of one member.
        leaves: how often, of a hundred seconds, a member leaves and comes back.
        crashes: how often it ends without a word, and another one comes in its place.
        stalls: how often it stands still for about a session.
        away_ms_max: until the next one comes.
        is_slow: whether members take long now and then to give a partition up.
        assignor: of the members of the new protocol.
        strategy: of those of the classic one.
        segment_bytes: of the log of the group. A batch that is longer than that is refused, and a whole group is one.
        is_compacted: whether that is compacted while the run goes on.
    """

    protocols: str = CONSUMER
    later_protocols: str = CONSUMER
    changes_at_ms: int = 0
    members: int = 3
    session_ms: int = 1_500
    rebalance_ms: int = 2_000
    commit_ms: int = 200
    leaves: int = 5
    crashes: int = 5
    stalls: int = 3
    away_ms_max: int = 2_000
    is_slow: bool = True
    assignor: str = "uniform"
    strategy: str = "range"
    segment_bytes: int = 3_000
    is_compacted: bool = True

    @property
    def has_one_protocol(self) -> bool:
        """Whether nobody goes over to the other one."""
        return self.protocols == self.later_protocols

    @property
    def heartbeat_ms(self) -> int:
        """Between two heartbeats."""
        return self.session_ms // 5

    @property
    def properties(self) -> dict[str, str]:
        """Of each node."""
        found = {
            "group.min.session.timeout.ms": str(self.session_ms),
            "group.initial.rebalance.delay.ms": str(self.heartbeat_ms),
            "group.consumer.min.session.timeout.ms": str(self.session_ms),
            "group.consumer.session.timeout.ms": str(self.session_ms),
            "group.consumer.min.heartbeat.interval.ms": str(self.heartbeat_ms),
            "group.consumer.heartbeat.interval.ms": str(self.heartbeat_ms),
            "group.consumer.assignment.interval.ms": str(self.heartbeat_ms),
            "group.consumer.migration.policy": "bidirectional",
            "offsets.topic.segment.bytes": str(self.segment_bytes),
        }
        if self.is_compacted:
            found |= {
                "log.cleaner.backoff.ms": "500",
                "log.cleaner.min.cleanable.ratio": "0.2",
                "log.cleaner.delete.retention.ms": "1000",
            }
        return found


def draw_group_plan(rng: SeededRng) -> GroupPlan:
    """How much of what one run does in a group."""

    def one_of(*choices: int) -> int:
        return choices[rng.randrange(0, len(choices))]

    protocols = (CLASSIC, CONSUMER)[rng.randrange(0, 2)]
    is_changed = rng.random() < 0.4
    other = CLASSIC if protocols == CONSUMER else CONSUMER
    session_ms = one_of(1_000, 1_500, 3_000, 6_000)
    return GroupPlan(
        protocols=protocols,
        later_protocols=other if is_changed else protocols,
        changes_at_ms=one_of(2_000, 10_000, 30_000),
        members=one_of(2, 3, 3, 4),
        session_ms=session_ms,
        rebalance_ms=one_of(1_000, 3_000, 10_000),
        commit_ms=one_of(50, 200, 1_000),
        leaves=one_of(0, 3, 10),
        crashes=one_of(0, 3, 10),
        stalls=one_of(0, 3, 3, 10),
        away_ms_max=one_of(100, 2_000, 2_000, 8_000),
        is_slow=rng.random() < 0.5,
        assignor=("uniform", "range")[rng.randrange(0, 2)],
        segment_bytes=one_of(3_000, 10_000),
        is_compacted=rng.random() < 0.7,
        strategy=STRATEGIES[rng.randrange(0, len(STRATEGIES))],
    )
