"""OnePartitionOneOwner, NoCommitLost, EpochsOfCommits: what members of a group are told, held against what is done.

Each commit carries its number as metadata, so that whoever is told an offset knows whose it is:

    member a   told p0 ──── commit 1 ──── commit 2 ─ ─ (isolated: its session ends) ─ ─ commit 4: refused
    member b                                         told p0, commit 2 ──── commit 3
                                                     from here on nothing that a asks for p0 may be done

A tick counts what clients send and are told: of two ticks the later is the larger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from tidelog.base.ids import TopicPartition
from tidelog.sim.checkers.views import Broken


@dataclass(slots=True, eq=False)
class Ownership:
    """A member was told that a partition is its own.

    Attributes:
        epoch: in which it was told: the generation of a classic group, or the member epoch.
        told_at: the tick of that.
        is_open: whether it neither gave the partition up nor was told that it is no member.
        contested_at: since when another one is known to own the partition.
        contested_by: that one.
    """

    member_id: str
    partition: TopicPartition
    epoch: int
    told_at: int
    is_open: bool = True
    contested_at: int | None = None
    contested_by: str = ""


class CommitFate(Enum):
    """What a member knows of a commit, which it sends once."""

    ASKED = auto()
    """It was not answered, or told to try again: it may be done, even later."""
    ANSWERED = auto()
    """It is done."""
    REFUSED = auto()
    """It was refused, and will not be done."""


@dataclass(slots=True, eq=False)
class OffsetCommit:
    """One of them.

    Attributes:
        number: of two commits, the one that is sent later has the larger.
        epoch: that it carries: the generation, or the member epoch.
        asked_at: the tick at which it was sent.
        answered_at: that of the answer.
    """

    number: int
    ownership: Ownership
    epoch: int
    offset: int
    leader_epoch: int | None
    asked_at: int
    fate: CommitFate = CommitFate.ASKED
    answered_at: int = field(default=0)

    @property
    def name(self) -> str:
        return f"commit {self.number} of {self.ownership.member_id} in epoch {self.epoch}"


class FetchedOffset(NamedTuple):
    """What a group is told of one partition.

    Attributes:
        number: of the commit, from its metadata; None where there is none.
    """

    offset: int
    leader_epoch: int | None
    number: int | None


class OnePartitionOneOwner:
    """Of two members that own a partition one after the other, the first can do nothing there once the second was told.

    A member may believe for longer that a partition is its own, and a coordinator that was deposed may confirm it. So
    what counts is what is written to the log of the group: a commit, or that the member moves to its next epoch.

    Args:
        has_one_protocol: whether epochs never begin anew, as they may where a group without members changes its
            protocol.
    """

    name = "OnePartitionOneOwner"

    def __init__(self, *, has_one_protocol: bool) -> None:
        self._has_one_protocol = has_one_protocol
        self._owners: dict[TopicPartition, list[Ownership]] = defaultdict(list)
        self._of_epochs: dict[tuple[TopicPartition, int], str] = {}

    def owned(self, member_id: str, partition: TopicPartition) -> Ownership | None:
        """What a member has, as it believes."""
        for one in self._owners[partition]:
            if one.member_id == member_id and one.is_open:
                return one
        return None

    def on_told(
        self, member_id: str, partition: TopicPartition, epoch: int, *, asked_at: int, told_at: int, is_of_the_day: bool
    ) -> Iterator[Broken]:
        """A member was told that a partition is its own, now or still.

        Args:
            asked_at: the tick of the request.
            is_of_the_day: whether no other coordinator can have known better.
        """
        if is_of_the_day and self._has_one_protocol:
            other = self._of_epochs.setdefault((partition, epoch), member_id)
            if other != member_id:
                what = f"{partition} was given to {other} and to {member_id}, both in epoch {epoch}"
                yield Broken(self.name, what)
        known = self.owned(member_id, partition)
        if known is not None:
            return
        self._owners[partition].append(Ownership(member_id, partition, epoch, told_at))
        if is_of_the_day:
            self._contest(member_id, partition, asked_at, told_at)

    def on_given_up(self, member_id: str, partitions: Collection[TopicPartition]) -> None:
        """It is about to say that it does not read them any more."""
        for partition in partitions:
            known = self.owned(member_id, partition)
            if known is not None:
                known.is_open = False

    def on_out(self, member_id: str) -> None:
        """It was told that it is no member, or ended: nothing that it asks for counts any more."""
        for partition, owners in self._owners.items():
            self._owners[partition] = [one for one in owners if one.member_id != member_id]
            for one in owners:
                one.is_open = one.is_open and one.member_id != member_id

    def on_moved(self, member_id: str, asked_at: int, what: str) -> Iterator[Broken]:
        """The log of the group says that a member is in its next epoch.

        Args:
            asked_at: the tick of the request by which it came there.
        """
        for owners in self._owners.values():
            for one in owners:
                if one.member_id == member_id:
                    yield from self._check(one, asked_at, what)

    def on_committed(self, commit: OffsetCommit) -> Iterator[Broken]:
        """A commit was answered."""
        yield from self._check(commit.ownership, commit.asked_at, f"{commit.name} is done")
        ownership = commit.ownership
        self._contest(ownership.member_id, ownership.partition, commit.asked_at, commit.answered_at)

    def _check(self, ownership: Ownership, asked_at: int, what: str) -> Iterator[Broken]:
        if ownership.contested_at is not None and ownership.contested_at < asked_at:
            whose = f"{ownership.partition}, which {ownership.member_id} had since epoch {ownership.epoch}"
            yield Broken(self.name, f"{whose}, is {ownership.contested_by}'s, and after that {what}")

    def _contest(self, member_id: str, partition: TopicPartition, asked_at: int, told_at: int) -> None:
        """Who was told before this one asked does not own the partition any more, unless it gave it up."""
        for one in self._owners[partition]:
            if one.member_id != member_id and one.is_open and one.told_at < asked_at and one.contested_at is None:
                one.contested_at, one.contested_by = told_at, member_id


class NoCommitLost:
    """Who asks for an offset is told of the newest commit that was answered before, or of a newer one.

    A commit without an answer may be done later, and once more set the group back, as long as its member goes on in
    that epoch. One that was refused is never done.
    """

    name = "NoCommitLost"

    def __init__(self) -> None:
        self.commits: dict[int, OffsetCommit] = {}
        self._answered: dict[TopicPartition, list[OffsetCommit]] = defaultdict(list)

    def on_asked(self, commit: OffsetCommit) -> None:
        """It is about to be sent."""
        self.commits[commit.number] = commit

    def on_answered(self, commit: OffsetCommit) -> None:
        """It is done."""
        self._answered[commit.ownership.partition].append(commit)

    def newest(self, partition: TopicPartition, before: int) -> OffsetCommit | None:
        """The last commit that was answered before a tick."""
        answered = (one for one in self._answered[partition] if one.answered_at < before)
        return max(answered, key=lambda one: one.number, default=None)

    def check(self, partition: TopicPartition, found: FetchedOffset | None, asked_at: int) -> Iterator[Broken]:
        """An offset was asked for at a tick, and answered."""
        newest = self.newest(partition, asked_at)
        if found is None or found.number is None:
            if newest is not None:
                yield Broken(self.name, f"{partition}: {newest.name} was answered, and nothing is known of any")
            return
        commit = self.commits.get(found.number)
        if commit is None or commit.ownership.partition != partition:
            yield Broken(self.name, f"{partition}: offset {found.offset} is of commit {found.number}, nobody's")
        elif commit.fate is CommitFate.REFUSED:
            yield Broken(self.name, f"{partition}: {commit.name} was refused, and its offset {found.offset} is told")
        elif newest is not None and commit.number < newest.number and not _may_come_late(commit, newest):
            what = f"offset {found.offset} of {commit.name} is told, after offset {newest.offset} of {newest.name}"
            yield Broken(self.name, f"{partition}: {what} was answered")


def _may_come_late(commit: OffsetCommit, newest: OffsetCommit) -> bool:
    one, other = commit.ownership, newest.ownership
    is_same = one is other or (one.member_id == other.member_id and commit.epoch == newest.epoch)
    return commit.fate is CommitFate.ASKED and is_same


class EpochsOfCommits:
    """An offset comes back with the leader epoch that was committed with it."""

    name = "EpochsOfCommits"

    def check(self, commit: OffsetCommit, found: FetchedOffset) -> Iterator[Broken]:
        """Of the same number."""
        if (commit.offset, commit.leader_epoch) != (found.offset, found.leader_epoch):
            committed = f"offset {commit.offset} of leader epoch {commit.leader_epoch}"
            what = f"{commit.name} has {committed}, and comes back as {found.offset} of {found.leader_epoch}"
            yield Broken(self.name, f"{commit.ownership.partition}: {what}")
