"""What a broker has to tell of losses: what was cut in steps is one range, in whatever order it becomes known."""

from __future__ import annotations

from uuid import UUID

import pytest

from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId
from tidelog.base.losses import LossId, ReplicaFate, ReplicaLoss
from tidelog.server.replication.loss_notes import LossNotes

LOSS = LossId(TopicId(UUID(int=7)), PartitionIndex(0), LeaderEpoch(9))


def cut(start: int, end: int, epoch: int) -> ReplicaLoss:
    epochs = LeaderEpoch(epoch), LeaderEpoch(epoch)
    producers = (ProducerId(epoch),)
    return ReplicaLoss(
        BrokerId(1),
        ReplicaFate.CUT,
        Offset(end),
        Offset(start),
        None,
        *epochs,
        producer_ids=producers,
        producer_count=1,
        kept_size_bytes=end - start,
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 1, 2, 0, 1, 2)])
def test_what_is_cut_in_steps_is_one_range(order: tuple[int, ...]) -> None:
    """What was cut before a crash is read from the disk, perhaps after more was cut."""
    steps = [cut(30, 40, 7), cut(25, 30, 6), cut(20, 25, 5)]
    notes = LossNotes()
    for number in order:
        notes.note(LOSS, steps[number])
    row = notes.untold[LOSS]
    assert (row.cut_from, row.end_offset, row.first_epoch, row.last_epoch) == (20, 40, 5, 7)
    assert (sorted(row.producer_ids), row.producer_count, row.kept_size_bytes) == ([5, 6, 7], 3, 20)


def test_what_is_kept_and_not_told_takes_room() -> None:
    notes = LossNotes()
    notes.kept_size_bytes_max = 25
    notes.note(LOSS, cut(30, 40, 7))
    notes.note(LOSS, cut(20, 30, 6))
    assert notes.room_size_bytes() == 5
    notes.note(LOSS, cut(20, 30, 6))
    assert notes.room_size_bytes() == 5
    notes.on_told(LOSS)
    assert (notes.room_size_bytes(), notes.untold) == (25, {})


def test_a_log_that_began_anew_before_the_election_is_not_whole_until_it_was_in_sync() -> None:
    replica, later = (LOSS.topic_id, LOSS.partition), LOSS._replace(leader_epoch=LeaderEpoch(11))
    notes = LossNotes()
    notes.on_begun_anew(replica)
    notes.await_told(LOSS)
    assert notes.begun_anew == {LOSS}
    notes.on_in_sync(replica)
    notes.await_told(later)
    assert notes.begun_anew == {LOSS}
