"""What is noted and kept of a tail before it is cut off, and what of a note holds after a crash."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from support.fixtures.logs import DIRECTORY, append, open_log
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId
from tidelog.base.losses import LossId, ReplicaFate, ReplicaLoss
from tidelog.base.ports import Buffer
from tidelog.log import Log
from tidelog.log.lost_records import (
    LostTail,
    keep_lost_tail,
    kept_files,
    read_notes,
    remove_notes,
    remove_uncut,
    what_is_gone,
)
from tidelog.sim.world.disk import SimulatedDisk

LOSS = LossId(TopicId(UUID(int=7)), PartitionIndex(0), LeaderEpoch(9))


def noted(disk: SimulatedDisk) -> list[tuple[LossId, ReplicaLoss]]:
    return read_notes(
        disk, DIRECTORY, topic_id=TopicId(UUID(int=7)), partition=PartitionIndex(0), broker_id=BrokerId(1)
    )


def log_of(disk: SimulatedDisk, *epochs: int) -> Log:
    """One record in each of these epochs."""
    log = open_log(disk)
    for offset, epoch in enumerate(epochs):
        append(log, f"m{offset}", epoch=epoch)
    return log


def cut(start: int, end: int, first: int = 1, last: int = 1) -> ReplicaLoss:
    epochs = LeaderEpoch(first), LeaderEpoch(last)
    return ReplicaLoss(BrokerId(1), ReplicaFate.CUT, Offset(end), Offset(start), None, *epochs)


def test_the_tail_is_kept_and_noted_until_it_is_told() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, 1, 1, 2)
    for start, end in ((2, 3), (1, 2)):  # in two steps, as a walk through the epochs cuts
        keep_lost_tail(disk, log, LostTail(LOSS, cut(start, end), 1 << 20))
    assert [(row.cut_from, row.end_offset, row.first_epoch) for _, row in noted(disk)] == [
        (1, 2, 1),
        (2, 3, 2),
    ]
    remove_notes(disk, DIRECTORY, LOSS.leader_epoch, from_offset=Offset(2))
    assert [row.cut_from for _, row in noted(disk)] == [1]
    assert len(kept_files(disk, DIRECTORY, LOSS.leader_epoch)) == 2


def test_what_was_not_cut_off_leaves_neither_note_nor_copy() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, 1, 1)
    keep_lost_tail(disk, log, LostTail(LOSS, cut(1, 2), 1 << 20))
    remove_uncut(disk, DIRECTORY, LOSS.leader_epoch, Offset(1))
    assert (noted(disk), kept_files(disk, DIRECTORY, LOSS.leader_epoch)) == ([], [])


def test_a_note_finds_room_where_the_copy_does_not() -> None:
    """What is left for the copy is less than the tail; when the copy is removed there is room again."""
    disk = SimulatedDisk()
    log = log_of(disk, 1, 1)

    def on_change(operation: str, path: str, _: Buffer) -> None:
        if operation == "remove" and path.endswith(".lost"):
            disk.free_write_bytes = None

    disk.on_change, disk.free_write_bytes = on_change, 10
    row = keep_lost_tail(disk, log, LostTail(LOSS, cut(1, 2), 1 << 20))
    assert row == cut(1, 2)
    assert [noted for _, noted in noted(disk)] == [row]


def test_a_copy_leaves_room_for_the_note() -> None:
    disk = SimulatedDisk()
    log = log_of(disk, 1, 1)
    size = keep_lost_tail(disk, log, LostTail(LOSS, cut(1, 2), 1 << 20)).kept_size_bytes
    remove_uncut(disk, DIRECTORY, LOSS.leader_epoch, Offset(1))

    def on_change(operation: str, path: str, _: Buffer) -> None:
        if operation == "remove" and path.endswith(".lost"):
            disk.free_write_bytes = None

    disk.on_change, disk.free_write_bytes = on_change, size
    assert keep_lost_tail(disk, log, LostTail(LOSS, cut(1, 2), 1 << 20)).kept_size_bytes == 0
    assert len(noted(disk)) == 1
    assert kept_files(disk, DIRECTORY, LOSS.leader_epoch) == []


@pytest.mark.parametrize(
    ("epochs", "noted", "gone_from"),
    [
        ((0, 1, 1), cut(1, 3), None),  # nothing was cut off
        ((0, 1, 1, 5), cut(1, 3), None),  # it is back, and others wrote behind it
        ((0,), cut(1, 3), 1),  # all of it is gone
        ((0, 5, 5), cut(1, 3), 1),  # and others are there
        ((0, 1), cut(1, 3), 2),  # the end of it is gone
        ((0, 1, 5), cut(1, 3), 1),  # a part of it is back; the whole range is told
        ((0, 1, 2), cut(1, 3, 1, 2), None),
    ],
)
def test_a_note_is_held_against_the_log(epochs: tuple[int, ...], noted: ReplicaLoss, gone_from: int | None) -> None:
    gone = what_is_gone(log_of(SimulatedDisk(), *epochs), noted)
    assert gone == (None if gone_from is None else replace(noted, cut_from=Offset(gone_from)))
