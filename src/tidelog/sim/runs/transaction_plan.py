"""What is drawn for the transactions of a run before it begins."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.sim.world.rng import SeededRng

COPIES = "copies"
LATEST = TopicPartition("latest", PartitionIndex(0))
"""A compacted topic: the last transactions of each copier, by a few keys."""
TRANSACTION_STATE = TopicPartition("__transaction_state", PartitionIndex(0))


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """How much of what a run does in transactions.

    Attributes:
        versions: of the protocol, of each copier; as many as there are.
        partitions: of the topic that is written to.
        timeout_ms: of the transactions.
        interval_ms: between two transactions of one copier.
        dies: how often a producer does at each step of a transaction.
        gives_up: how often a producer aborts while its records are under way.
        dreams: whether one more producer leaves all its transactions open.
        segment_bytes: of the topics that are compacted.
        is_compacted: whether they are compacted while the run goes on.
    """

    versions: tuple[int, ...] = (2,)
    partitions: int = 2
    timeout_ms: int = 2_000
    interval_ms: int = 100
    dies: float = 0.02
    gives_up: float = 0.03
    dreams: bool = False
    segment_bytes: int = 2_000
    is_compacted: bool = True

    @property
    def outputs(self) -> list[TopicPartition]:
        """Of copies."""
        return [TopicPartition(COPIES, PartitionIndex(number)) for number in range(self.partitions)]

    def properties(self, replication_factor: int, min_insync_replicas: int) -> dict[str, str]:
        """Of each node."""
        found = {
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": str(replication_factor),
            "transaction.state.log.min.isr": str(min_insync_replicas),
        }
        if self.is_compacted:
            found |= {
                "log.cleaner.backoff.ms": "500",
                "log.cleaner.min.cleanable.ratio": "0.2",
                "log.cleaner.delete.retention.ms": "1000",
                "offsets.topic.segment.bytes": str(self.segment_bytes),
                "transaction.state.log.segment.bytes": str(self.segment_bytes),
            }
        return found


def draw_transaction_plan(rng: SeededRng, sources: int) -> TransactionPlan:
    """How much of what one run does in transactions.

    Args:
        sources: partitions that there are to be copied.
    """

    def one_of(*choices: int) -> int:
        return choices[rng.randrange(0, len(choices))]

    return TransactionPlan(
        versions=tuple(one_of(1, 2) for _ in range(min(sources, one_of(1, 1, 2)))),
        partitions=one_of(1, 2, 2),
        timeout_ms=one_of(300, 1_000, 3_000, 10_000),
        interval_ms=one_of(20, 100, 300),
        dies=one_of(0, 2, 2, 5) / 100,
        gives_up=one_of(0, 3, 3, 20) / 100,
        dreams=rng.random() < 0.3,
        segment_bytes=one_of(700, 3_000),
        is_compacted=rng.random() < 0.7,
    )
