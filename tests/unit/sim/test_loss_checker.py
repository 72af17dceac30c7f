"""LossesAreAccounted: each way to be wrong is said, and the closest one that is right is not."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicId
from tidelog.base.losses import Loss, LossCause, LossId, ReplicaFate, ReplicaLoss
from tidelog.metadata import MetadataImage, PartitionImage
from tidelog.sim.checkers.history import PartitionHistory
from tidelog.sim.checkers.losses import LossesAreAccounted, SeenRecords, awaited, without_entry
from tidelog.sim.checkers.views import PartitionView, Record, ReplicaView

TOPIC = TopicId(UUID(int=7))
A, B = BrokerId(1), BrokerId(2)


def records(log: str) -> list[Record]:
    """`m1@0 m2@0`"""
    words = [token.partition("@") for token in log.split()]
    return [(LeaderEpoch(int(leader_epoch)), value) for value, _, leader_epoch in words]


def cut(start: int, end: int, first: int, last: int, broker: BrokerId = B) -> ReplicaLoss:
    epochs = LeaderEpoch(first), LeaderEpoch(last)
    return ReplicaLoss(broker, ReplicaFate.CUT, Offset(end), Offset(start), None, *epochs)


def entry(leader_epoch: int, *replicas: ReplicaLoss) -> Loss:
    where = "flights", TOPIC, PartitionIndex(0), LeaderEpoch(leader_epoch)
    return Loss(*where, LossCause.BY_OPERATOR, A, 0, replicas)


class World:
    """A leads with a log; B had another one, of which all that A lacks was cut off; all of it had been committed."""

    def __init__(self, leader: str, follower: str, *, start: int = 0) -> None:
        self.seen, self.history = SeenRecords(), PartitionHistory()
        self.leader, follower_log = records(leader), records(follower)
        self.start = start
        for offset, record in enumerate(follower_log):
            self.history.on_committed(record[0], offset, record)
        self.seen.on_read(B, 0, [], follower_log, is_cut=False)
        self.common = next(
            at for at in count() if follower_log[at : at + 1] != self.leader[at : at + 1] or at == len(follower_log)
        )
        self.gone = follower_log[self.common :]

    def lose(self, *, is_cut: bool = True) -> World:
        self.seen.on_read(B, self.common, self.gone, self.leader[self.common :], is_cut=is_cut)
        return self

    def said(self, *losses: Loss) -> str:
        state = PartitionImage((A, B), (A, B), A, LeaderEpoch(9), PartitionEpoch(0))
        leader = ReplicaView(
            A,
            is_up=True,
            leads=True,
            leader_epoch=LeaderEpoch(9),
            log_start_offset=Offset(self.start),
            records=self.leader[self.start :],
            lineage=(),
            high_watermark=Offset(len(self.leader)),
        )
        checker = LossesAreAccounted(self.seen)
        return "; ".join(
            broken.what for broken in checker.check(PartitionView(state, {A: leader}), self.history, losses)
        )


@pytest.mark.parametrize("row", [cut(1, 3, 0, 1), cut(1, 3, 0, 5)])
def test_what_was_cut_off_is_named(row: ReplicaLoss) -> None:
    assert World("m1@0 n2@2", "m1@0 m2@0 m3@1").lose().said(entry(2, row)) == ""


@pytest.mark.parametrize(
    "row", [cut(2, 3, 0, 1), cut(1, 2, 0, 1), cut(1, 3, 1, 1), cut(1, 3, 0, 0), ReplicaLoss(B, ReplicaFate.WHOLE)]
)
def test_what_was_cut_off_and_is_named_in_part_is_told_of(row: ReplicaLoss) -> None:
    assert "broker 2 cut it off, and no entry says so" in World("m1@0", "m1@0 m2@0 m3@1").lose().said(entry(2, row))


def test_what_is_gone_takes_an_entry_though_nobody_cut_it_off() -> None:
    world = World("m1@0", "m1@0 m2@0").lose(is_cut=False)
    assert "no entry is of a later epoch" in world.said()
    assert "no entry is of a later epoch" in world.said(entry(0))
    assert world.said(entry(1, ReplicaLoss(B, ReplicaFate.WHOLE))) == ""


def test_a_replica_whose_directory_went_cannot_tell() -> None:
    world = World("m1@0", "m1@0 m2@0").lose()
    world.seen.on_notes_lost(B)
    assert world.said(entry(1, ReplicaLoss(B, ReplicaFate.WHOLE))) == ""


def test_what_retention_removed_is_no_loss() -> None:
    assert World("m1@0 m2@0 m3@0", "m1@0 m2@0", start=2).said() == ""


def test_a_row_that_names_what_is_there_or_never_was_is_told_of() -> None:
    world = World("m1@0", "m1@0 m2@0").lose()
    assert "flights-0@1 names offset=0 of broker 2, where m1@0 is" in world.said(entry(1, cut(0, 2, 0, 0)))
    assert "names offset=2, where broker 2 had no record" in world.said(entry(1, cut(1, 3, 0, 0)))


def test_a_range_of_epochs_may_hold_one_that_is_there() -> None:
    """B had epochs 3 and 7 where epoch 5 is."""
    assert World("n1@5", "m1@3 m2@7").lose().said(entry(9, cut(0, 2, 3, 7))) == ""


def test_a_later_entry_may_bring_back_what_was_cut_off() -> None:
    world = World("m1@0", "m1@0 m2@0").lose()
    world.leader = records("m1@0 m2@0")
    first = entry(1, cut(1, 2, 0, 0))
    assert "where m2@0 is" in world.said(first)
    assert world.said(first, entry(2)) == ""
    kept = World("m1@0 m2@0", "m1@0 m2@0")
    assert "which has kept m2@0" in kept.said(first, entry(2))


def test_epochs_without_an_entry_and_entries_that_await_are_told_of() -> None:
    image = MetadataImage.empty()
    loss_id = LossId(TOPIC, PartitionIndex(0), LeaderEpoch(1))
    (broken,) = without_entry(image, [loss_id])
    assert "no entry was opened with it" in broken.what
    opened = replace(image, losses={loss_id: entry(1, ReplicaLoss(B))})
    assert list(without_entry(opened, [loss_id])) == []
    assert list(awaited(opened)) == ["flights-0@1 awaits [2]"]
    assert list(awaited(image)) == []


def test_who_lost_a_record_by_itself() -> None:
    lost, cut_off = (World("m1@0", "m1@0 m2@3").lose(is_cut=is_cut) for is_cut in (False, True))
    assert list(lost.seen.who_lost(1)) == [(B, (LeaderEpoch(3), "m2"))]
    assert list(cut_off.seen.who_lost(1)) == []
