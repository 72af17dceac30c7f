"""The checkers of consumer groups: what breaks each, and what does not."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

import pytest

from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.sim.checkers.groups import (
    CommitFate,
    EpochsOfCommits,
    FetchedOffset,
    NoCommitLost,
    OffsetCommit,
    OnePartitionOneOwner,
)
from tidelog.sim.checkers.views import Broken

P = TopicPartition("flights", PartitionIndex(0))


class Group:
    """Members `a` and `b`, and what becomes of what they ask."""

    def __init__(self, *, has_one_protocol: bool = True) -> None:
        self.owners = OnePartitionOneOwner(has_one_protocol=has_one_protocol)
        self.commits = NoCommitLost()
        self.found: list[Broken] = []
        self._ticks = count(1)
        self._numbers = count(1)

    def tick(self) -> int:
        return next(self._ticks)

    def tell(self, member_id: str, epoch: int, asked_at: int | None = None, *, is_of_the_day: bool = True) -> None:
        asked_at = self.tick() if asked_at is None else asked_at
        self._note(
            self.owners.on_told(
                member_id, P, epoch, asked_at=asked_at, told_at=self.tick(), is_of_the_day=is_of_the_day
            )
        )

    def ask(self, member_id: str, epoch: int, offset: int) -> OffsetCommit:
        ownership = self.owners.owned(member_id, P)
        assert ownership is not None
        commit = OffsetCommit(next(self._numbers), ownership, epoch, offset, 3, self.tick())
        self.commits.on_asked(commit)
        return commit

    def answer(self, commit: OffsetCommit) -> OffsetCommit:
        commit.fate, commit.answered_at = CommitFate.ANSWERED, self.tick()
        self.commits.on_answered(commit)
        self._note(self.owners.on_committed(commit))
        return commit

    def fetch(self, commit: OffsetCommit | None) -> None:
        found = None if commit is None else FetchedOffset(commit.offset, commit.leader_epoch, commit.number)
        self._note(self.commits.check(P, found, self.tick()))

    def names(self) -> set[str]:
        return {one.invariant for one in self.found}

    def _note(self, found: Iterable[Broken]) -> None:
        self.found += found


# OnePartitionOneOwner.


def test_one_after_the_other() -> None:
    group = Group()
    group.tell("a", 1)
    group.answer(group.ask("a", 1, 10))
    group.owners.on_given_up("a", [P])
    group.tell("b", 2)
    group.answer(group.ask("b", 2, 20))
    group.found += group.owners.on_moved("a", group.tick(), "moves")
    assert group.found == []


def test_a_commit_after_another_one_was_told() -> None:
    group = Group()
    group.tell("a", 1)
    group.tell("b", 2)
    group.answer(group.ask("a", 1, 10))
    assert group.names() == {"OnePartitionOneOwner"}


def test_a_commit_that_was_sent_before_may_be_answered_late() -> None:
    group = Group()
    group.tell("a", 1)
    commit = group.ask("a", 1, 10)
    group.tell("b", 2)
    group.answer(commit)
    assert group.found == []


def test_a_member_goes_on_that_was_never_asked_to_give_up() -> None:
    group = Group()
    group.tell("a", 1)
    group.tell("b", 2)
    asked_at = group.tick()
    group.owners.on_given_up("a", [P])
    group.found += group.owners.on_moved("a", asked_at, "moves to epoch 2")
    assert group.names() == {"OnePartitionOneOwner"}


def test_a_member_that_was_told_that_it_is_out_begins_anew() -> None:
    group = Group()
    group.tell("a", 1)
    group.tell("b", 2)
    group.owners.on_out("a")
    group.owners.on_given_up("b", [P])
    group.tell("a", 3)
    group.answer(group.ask("a", 3, 10))
    assert group.found == []


def test_a_coordinator_that_was_deposed_proves_nothing() -> None:
    group = Group()
    group.tell("b", 2)
    group.tell("a", 1, is_of_the_day=False)
    group.answer(group.ask("b", 2, 10))
    assert group.found == []


def test_an_answer_may_be_older_than_what_another_one_was_told_meanwhile() -> None:
    group = Group()
    asked_at = group.tick()
    group.tell("b", 2)
    group.tell("a", 1, asked_at)
    group.answer(group.ask("b", 2, 10))
    assert group.found == []


@pytest.mark.parametrize("has_one_protocol", [True, False])
def test_two_in_one_epoch(*, has_one_protocol: bool) -> None:
    group = Group(has_one_protocol=has_one_protocol)
    group.tell("a", 1)
    group.owners.on_given_up("a", [P])
    group.tell("b", 1)
    assert group.names() == ({"OnePartitionOneOwner"} if has_one_protocol else set())


# NoCommitLost.


def test_the_newest_is_told() -> None:
    group = Group()
    group.fetch(None)
    group.tell("a", 1)
    group.answer(group.ask("a", 1, 10))
    group.fetch(group.answer(group.ask("a", 1, 20)))
    group.fetch(group.ask("a", 1, 30))  # done, and not answered yet
    assert group.found == []


def test_an_older_one_is_told() -> None:
    group = Group()
    group.tell("a", 1)
    first = group.answer(group.ask("a", 1, 10))
    group.answer(group.ask("a", 1, 20))
    group.fetch(first)
    assert group.names() == {"NoCommitLost"}


def test_none_is_told() -> None:
    group = Group()
    group.tell("a", 1)
    group.answer(group.ask("a", 1, 10))
    group.fetch(None)
    assert group.names() == {"NoCommitLost"}


def test_one_is_told_that_was_refused() -> None:
    group = Group()
    group.tell("a", 1)
    commit = group.ask("a", 1, 10)
    commit.fate = CommitFate.REFUSED
    group.fetch(commit)
    assert group.names() == {"NoCommitLost"}


def test_one_without_an_answer_may_come_late_while_its_member_goes_on() -> None:
    group = Group()
    group.tell("a", 1)
    late = group.ask("a", 1, 10)
    group.answer(group.ask("a", 1, 20))
    group.fetch(late)
    assert group.found == []
    group.owners.on_given_up("a", [P])
    group.tell("b", 2)
    group.answer(group.ask("b", 2, 30))
    group.fetch(late)
    assert group.names() == {"NoCommitLost"}


# EpochsOfCommits.


@pytest.mark.parametrize(("leader_epoch", "offset"), [(3, 10), (None, 10), (2, 10), (3, 11)])
def test_a_leader_epoch_comes_back(leader_epoch: int | None, offset: int) -> None:
    group = Group()
    group.tell("a", 1)
    commit = group.ask("a", 1, 10)
    found = list(EpochsOfCommits().check(commit, FetchedOffset(offset, leader_epoch, commit.number)))
    assert (found == []) == ((leader_epoch, offset) == (3, 10))
