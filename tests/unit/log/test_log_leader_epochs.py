"""The leader epochs of many logs, as they begin after a start: on disk before anybody leads in them (rule 1)."""

from __future__ import annotations

from support.fixtures.logs import append, lineage_of, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.log import Log
from tidelog.log.leader_epochs import assign_leader_epochs


def two_logs(disk: MemoryDisk) -> tuple[Log, Log]:
    """One with a record of leader epoch 1, and an empty one."""
    first, second = open_log(disk, directory="data/first-0"), open_log(disk, directory="data/second-0")
    append(first, "a", epoch=1)
    return first, second


def on_disk(disk: MemoryDisk, log: Log) -> bytes:
    """What a loss of power leaves of the lineage."""
    return disk.files[f"{log.directory}/leader-epoch-checkpoint"].synced


def test_every_epoch_is_on_disk_when_they_may_be_led() -> None:
    disk = MemoryDisk()
    first, second = two_logs(disk)
    assert assign_leader_epochs(disk, [(first, LeaderEpoch(3)), (second, LeaderEpoch(5))]) == [None, None]
    assert (lineage_of(first), lineage_of(second)) == ([(1, 0), (3, 1)], [(5, 0)])
    assert (on_disk(disk, first), on_disk(disk, second)) == (b"0\n2\n1 0\n3 1\n", b"0\n1\n5 0\n")


def test_nobody_leads_in_an_epoch_that_the_disk_does_not_take() -> None:
    disk = MemoryDisk()
    first, second = two_logs(disk)
    disk.refusals.add("rename")
    outcomes = assign_leader_epochs(disk, [(first, LeaderEpoch(3)), (second, LeaderEpoch(5))])
    assert [type(outcome) for outcome in outcomes] == [DiskError, DiskError]
    assert (lineage_of(first), lineage_of(second)) == ([(1, 0)], [])


def test_a_log_of_a_later_epoch_than_the_metadatas_keeps_nobody_else_from_being_led() -> None:
    disk = MemoryDisk()
    first, second = two_logs(disk)
    refused, led = assign_leader_epochs(disk, [(first, LeaderEpoch(0)), (second, LeaderEpoch(5))])
    assert isinstance(refused, CorruptLogError)
    assert "of leader epoch 1, but the metadata only of 0" in str(refused)
    assert led is None
    assert (lineage_of(first), lineage_of(second)) == ([(1, 0)], [(5, 0)])


def test_a_start_that_did_not_come_to_the_disk_leaves_no_record_without_an_epoch() -> None:
    """The lineage was trimmed to the new start already; a start behind all of the log, even."""
    for moved_to, known in ((2, [(1, 0), (3, 1)]), (4, [(1, 0), (3, 1)])):
        disk = MemoryDisk()
        log = open_log(disk, segment_size_bytes=100)
        append(log, "a", epoch=1)
        for value in "bcd":
            append(log, value, epoch=3)
        log.advance_log_start_offset(Offset(moved_to))
        assert lineage_of(log) == [(3, moved_to)]
        log.close()
        log = open_log(disk, segment_size_bytes=100, log_start_offset=Offset(0))
        assert (log.log_start_offset, lineage_of(log)) == (0, known)
        assert not log.recovery.lines()
