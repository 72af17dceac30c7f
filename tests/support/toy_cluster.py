"""Partitions in memory, with replicas that part ways: what a planner needs of a cluster, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from tidelog.base.errors import Code, refusal
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicPartition
from tidelog.client.core.positions import EpochEnd, Questions
from tidelog.records.lineage import LeaderEpochLineage
from tidelog.spark.plan import ClusterFacts
from tidelog.spark.truncation import PartitionFacts

R = TypeVar("R")

IDS = ("AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw")


class Record(NamedTuple):
    """A record that cannot be taken for another."""

    leader_epoch: int
    number: int


@dataclass
class ToyPartition:
    """Two replicas of one log. Only the leader takes records; the other has them when it is told to catch up."""

    replicas: list[list[Record]] = field(default_factory=lambda: [[], []])
    leader: int = 0
    leader_epoch: int = 0
    log_start_offset: int = 0
    written: int = 0
    lineages: list[LeaderEpochLineage] = field(default_factory=lambda: [LeaderEpochLineage(), LeaderEpochLineage()])

    @property
    def log(self) -> list[Record]:
        return self.replicas[self.leader]

    def append(self, count: int) -> None:
        self.lineages[self.leader].assign(LeaderEpoch(self.leader_epoch), Offset(len(self.log)))
        for _ in range(count):
            self.log.append(Record(self.leader_epoch, self.written))
            self.written += 1

    def replicate(self) -> None:
        """The follower becomes the leader's equal."""
        self.replicas[1 - self.leader] = list(self.log)
        self.lineages[1 - self.leader] = self.lineages[self.leader].clone()

    def elect(self, replica: int) -> None:
        """Make a replica the leader, whatever it lacks: an unclean election if it lacks something."""
        if len(self.replicas[replica]) < self.log_start_offset:
            return
        self.leader = replica
        self.leader_epoch += 1
        self.lineages[replica].assign(LeaderEpoch(self.leader_epoch), Offset(len(self.log)))

    def truncate(self, end_offset: int) -> None:
        """A leader that lost the end of its log comes back, in a new epoch."""
        del self.log[end_offset:]
        self.lineages[self.leader].truncate_from_end(Offset(end_offset))
        self.leader_epoch += 1
        self.lineages[self.leader].assign(LeaderEpoch(self.leader_epoch), Offset(end_offset))

    def retain_from(self, log_start_offset: int) -> None:
        self.log_start_offset = max(self.log_start_offset, min(log_start_offset, len(self.log)))
        self.lineages[self.leader].truncate_from_start(Offset(self.log_start_offset))

    def end_of(self, leader_epoch: LeaderEpoch) -> EpochEnd:
        return self.lineages[self.leader].end_offset_for(leader_epoch, Offset(len(self.log)))


class ToyCluster:
    """Implements `tidelog.spark.planner.Cluster`."""

    def __init__(self, **partition_counts: int) -> None:
        self.topic_ids: dict[str, str | None] = {}
        self.partitions: dict[TopicPartition, ToyPartition] = {}
        self.created = 0
        self.questions = 0
        self.time_ms = 0
        self.failures: list[Exception] = []
        self.arriving: Callable[[], None] | None = None
        for topic, count in partition_counts.items():
            self.create(topic, count)

    def create(self, topic: str, count: int) -> None:
        self.topic_ids[topic] = IDS[self.created % len(IDS)]
        self.created += 1
        self.partitions |= {TopicPartition(topic, PartitionIndex(number)): ToyPartition() for number in range(count)}
        for number in range(count):
            self[topic, number].append(0)

    def delete(self, topic: str) -> None:
        del self.topic_ids[topic]
        self.partitions = {key: value for key, value in self.partitions.items() if key.topic != topic}

    def __getitem__(self, name: tuple[str, int]) -> ToyPartition:
        return self.partitions[TopicPartition(name[0], PartitionIndex(name[1]))]

    def facts(self, expected: Collection[str] = ()) -> ClusterFacts:
        if self.failures:
            raise self.failures.pop()
        return ClusterFacts(
            dict(self.topic_ids),
            {
                key: PartitionFacts(
                    LeaderEpoch(partition.leader_epoch), Offset(partition.log_start_offset), Offset(len(partition.log))
                )
                for key, partition in self.partitions.items()
            },
        )

    def offsets_at(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """A record's timestamp is its number."""
        return {
            key: next(
                (Offset(offset) for offset, record in enumerate(self.partitions[key].log) if record.number >= at), None
            )
            for key, at in timestamps_ms.items()
        }

    def ask(self, questions: Mapping[TopicPartition, Questions[R]], facts: ClusterFacts) -> dict[TopicPartition, R]:
        return {key: self._answer(key, question, facts) for key, question in questions.items()}

    def _answer(self, key: TopicPartition, question: Questions[R], facts: ClusterFacts) -> R:
        partition = self.partitions[key]
        if facts.partitions[key].leader_epoch != partition.leader_epoch:
            raise refusal(Code.FENCED_LEADER_EPOCH)
        try:
            asked = next(question)
            while True:
                self.questions += 1
                asked = question.send(partition.end_of(asked))
        except StopIteration as stop:
            result: R = stop.value
            return result

    def patiently(self, what: str, work: Callable[[], R]) -> R:
        for _ in range(3):
            try:
                return work()
            except OSError:
                pass
        raise AssertionError(f"{what} failed three times")

    def now_ms(self) -> int:
        return self.time_ms

    def pause(self, pause_ms: int) -> None:
        self.time_ms += pause_ms

    def wait_for_records(self, offsets: Mapping[TopicPartition, Offset], wait_ms: int) -> None:
        self.time_ms += wait_ms
        if self.arriving is not None:
            self.arriving()

    def close(self) -> None:
        pass
