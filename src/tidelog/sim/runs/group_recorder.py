"""Keeps what members of a group were told, and holds it against what they are told later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import count
from typing import NamedTuple

from tidelog.base.ids import BrokerId, LeaderEpoch, TopicPartition
from tidelog.sim.checkers.groups import (
    CommitFate,
    EpochsOfCommits,
    FetchedOffset,
    NoCommitLost,
    OffsetCommit,
    OnePartitionOneOwner,
    Ownership,
)
from tidelog.sim.checkers.views import Broken
from tidelog.sim.runs.cluster_plan import OFFSETS
from tidelog.sim.runs.cluster_recorder import ClusterRecorder

GROUP_MAKES_PROGRESS = "GroupMakesProgress"


class Asked(NamedTuple):
    """A request, as it is sent.

    Attributes:
        tick: counts what is sent and told.
        leader: who coordinates, and in which epoch, by the committed metadata; None if nobody does.
    """

    tick: int
    leader: tuple[BrokerId, LeaderEpoch] | None


class GroupRecorder:
    """See the module.

    Args:
        cluster: sees all else.
        has_one_protocol: whether all members speak one protocol at all times.
    """

    def __init__(self, cluster: ClusterRecorder, *, has_one_protocol: bool) -> None:
        self._cluster = cluster
        self._ticks = count(1)
        self._numbers = count(1)
        self._owners = OnePartitionOneOwner(has_one_protocol=has_one_protocol)
        self._commits = NoCommitLost()

    def expect(self, holds: bool, invariant: str, what: str | Callable[[], str]) -> None:
        """As of the cluster's."""
        self._cluster.expect(holds, invariant, what)

    # What members ask and are told.

    def asked(self) -> Asked:
        """One is about to ask the coordinator of the group."""
        return Asked(next(self._ticks), self._leader())

    def on_told(
        self, member_id: str, epoch: int, partitions: Collection[TopicPartition], asked: Asked, broker: BrokerId
    ) -> None:
        """It was told what it owns."""
        told_at, is_of_the_day = next(self._ticks), self._is_of_the_day(asked, broker)
        for partition in sorted(partitions):
            found = self._owners.on_told(
                member_id, partition, epoch, asked_at=asked.tick, told_at=told_at, is_of_the_day=is_of_the_day
            )
            self._note(self._owners.name, found)

    def on_moved(self, member_id: str, epoch: int, asked: Asked) -> None:
        """It was told that it came to its next epoch."""
        self._cluster.facts["member moved"] += 1
        self._note(self._owners.name, self._owners.on_moved(member_id, asked.tick, f"moves to epoch {epoch}"))

    def on_given_up(self, member_id: str, partitions: Collection[TopicPartition]) -> None:
        """It reads them no more, and is about to say so."""
        self._owners.on_given_up(member_id, partitions)

    def on_out(self, member_id: str) -> None:
        """It was told that it is no member, or ended."""
        self._owners.on_out(member_id)

    def on_commit_asked(
        self, member_id: str, epoch: int, partition: TopicPartition, offset: int, leader_epoch: int | None
    ) -> OffsetCommit:
        """It is about to commit how far it read."""
        ownership = self._owners.owned(member_id, partition)
        assert ownership is not None
        commit = OffsetCommit(next(self._numbers), ownership, epoch, offset, leader_epoch, asked_at=self.asked().tick)
        self._commits.on_asked(commit)
        return commit

    def on_committed(self, commit: OffsetCommit) -> None:
        """It was told that this is done."""
        commit.fate, commit.answered_at = CommitFate.ANSWERED, next(self._ticks)
        self._cluster.facts["offset committed"] += 1
        self._commits.on_answered(commit)
        self._note(self._owners.name, self._owners.on_committed(commit))

    def on_refused(self, commit: OffsetCommit) -> None:
        """It was told that this will not be done."""
        commit.fate = CommitFate.REFUSED
        self._cluster.facts["commit refused"] += 1

    def on_fetched(
        self, partition: TopicPartition, found: FetchedOffset | None, asked: Asked, broker: BrokerId
    ) -> None:
        """Somebody asked for the offset of the group, and was answered.

        A coordinator that was deposed and has not heard of it may answer what was so before.
        """
        commit = None if found is None or found.number is None else self._commits.commits.get(found.number)
        if commit is not None and found is not None:
            self._note(EpochsOfCommits.name, EpochsOfCommits().check(commit, found))
        broken = list(self._commits.check(partition, found, asked.tick))
        if self._is_of_the_day(asked, broker):
            self._note(self._commits.name, broken)
        elif broken:
            self._cluster.facts["older offset of a deposed coordinator"] += 1

    # What is checked at the end.

    def end_offset(self, partition: TopicPartition) -> int | None:
        """Where the log of a partition ends; None while nobody leads it."""
        records = self._cluster.watched[partition].to_be_read()
        return None if records is None else len(records)

    def owned(self, member_id: str, partition: TopicPartition) -> Ownership | None:
        """What a member has, as it believes."""
        return self._owners.owned(member_id, partition)

    # How.

    def _leader(self) -> tuple[BrokerId, LeaderEpoch] | None:
        state = self._cluster.latest.partition(OFFSETS.topic, OFFSETS.partition)
        return None if state is None or state.leader is None else (state.leader, state.leader_epoch)

    def _is_of_the_day(self, asked: Asked, broker: BrokerId) -> bool:
        """Whether who answered was the coordinator all along."""
        leader = self._leader()
        return leader is not None and leader == asked.leader and leader[0] == broker

    def _note(self, invariant: str, found: Iterable[Broken]) -> None:
        """What was committed may be gone where the cluster may have lost it."""
        broken = list(found)
        self._cluster.note([invariant], broken if self._cluster.keeps(OFFSETS) else ())
