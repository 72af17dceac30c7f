"""What a node writes about its logs, over deletions and crashes: a new topic never inherits the past of an old one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from uuid import UUID

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import BrokerEpoch, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log import Log
from tidelog.log.leader_epochs import assign_leader_epochs
from tidelog.metadata import MetadataImage
from tidelog.records import BatchBuilder
from tidelog.records.lineage import EpochEntry
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.storage.wanted_log import WantedLog
from tidelog.server.tasks import Tasks

PARTITION = TopicPartition("flights", PartitionIndex(0))
OLD, NEW = TopicId(UUID(int=17)), TopicId(UUID(int=18))
NOW_MS = 1_700_000_000_000
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "logs",
}


def start(disk: MemoryDisk) -> LogFiles:
    """What a node does first, after whatever end the one before had."""
    disk.locked.clear()
    config = NodeConfig.from_properties(PROPERTIES)
    files = LogFiles(
        config,
        disk=disk,
        clock=SystemClock(),
        rng=SystemRng(),
        executor=InlineExecutor(),
        tasks=Tasks("node"),
        room_for_logs=lambda: None,
    )
    files.open()
    files.open_metadata_log()
    return files


def open_log(
    files: LogFiles, topic_id: TopicId, *, is_new: bool = True, first_leader_epoch: LeaderEpoch | None = None
) -> Log:
    wanted = WantedLog(PARTITION, topic_id, is_new, first_leader_epoch=first_leader_epoch)
    opening = files.opening.open([wanted], MetadataImage.empty())
    with pytest.raises(StopIteration) as opened:  # nothing waits on this executor
        opening.send(None)
    (log,) = opened.value.value
    assert isinstance(log, Log), log
    return log


def append(log: Log, count: int) -> None:
    builder = BatchBuilder()
    for number in range(count):
        builder.append(NOW_MS, None, b"%d" % number)
    log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)


def disk_with_a_log_that_starts_at_5(disk: MemoryDisk) -> None:
    files = start(disk)
    log = open_log(files, OLD)
    for _ in range(2):
        append(log, 5)
    log.advance_log_start_offset(Offset(5))
    closing = files.close([Partition(PARTITION, OLD, log)], BrokerEpoch(1))
    with pytest.raises(StopIteration):
        closing.send(None)


async def deleted_by_the_node(disk: MemoryDisk) -> LogFiles:
    files = start(disk)
    open_log(files, OLD)
    files.deletions.mark_for_deletion([(PARTITION, OLD)])
    return files


async def gone_while_it_was_down(disk: MemoryDisk) -> LogFiles:
    disk.remove_tree("logs/flights-0")
    return start(disk)


async def deleted_while_it_was_down(disk: MemoryDisk) -> LogFiles:
    return start(disk)


@pytest.mark.parametrize("end", [deleted_by_the_node, gone_while_it_was_down, deleted_while_it_was_down])
def test_a_topic_created_anew_keeps_its_first_records_over_a_crash(end: Callable[[MemoryDisk], object]) -> None:
    """The log start of the deleted one was in a checkpoint that is written once a minute."""
    disk = MemoryDisk()
    disk_with_a_log_that_starts_at_5(disk)

    async def create_and_crash() -> None:
        files = await end(disk)  # type: ignore[misc]
        log = open_log(files, NEW)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert files.high_watermark(PARTITION) is None
        append(log, 3)

    asyncio.run(create_and_crash())
    files = start(disk)
    log = open_log(files, NEW)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert log.recovery_point == 0
    assert files.high_watermark(PARTITION) is None


def test_a_stray_of_any_name_is_set_aside_under_one_that_fits() -> None:
    """Names of files end at 255 bytes, topics' at 249."""
    disk = MemoryDisk()
    files = start(disk)
    name = "n" * 249
    disk.make_dirs(f"logs/{name}-0")
    disk.write_atomically(f"logs/{name}-0/partition.metadata", b"")
    disk.make_dirs("logs/backup-2024")  # somebody's own
    disk.write_atomically("logs/backup-2024/notes.txt", b"")
    files.deletions.set_strays_aside(MetadataImage.empty())
    (aside,) = [path for path in disk.directories if path.startswith("logs/nnn")]
    assert aside.endswith("-stray")
    assert len(aside.removeprefix("logs/")) <= 255
    assert disk.exists("logs/backup-2024/notes.txt")


def test_what_a_kill_left_of_a_log_that_was_being_made_goes_with_its_topic() -> None:
    """The directory was there, and its first file had not its name yet; meanwhile the topic was deleted."""
    disk = MemoryDisk()
    files = start(disk)
    disk.make_dirs("logs/made-0")
    disk.make_dirs("logs/made-1")
    disk.open("logs/made-1/partition.metadata.tmp", create=True).close()
    disk.make_dirs("logs/notes-1")
    disk.open("logs/notes-1/mine.tmp", create=True).close()  # somebody's own
    files.deletions.set_strays_aside(MetadataImage.empty())
    assert {name for name in disk.list("logs") if "-" in name} >= {"notes-1"}
    assert not any(name.startswith("made") for name in disk.list("logs"))
    assert disk.exists("logs/notes-1/mine.tmp")


@pytest.mark.parametrize(
    "chore",
    [
        lambda log: log.delete_segments_before(log.log_start_offset),
        lambda log: log.roll(NOW_MS),
        lambda log: log.flush(),
        lambda log: append(log, 1),
        lambda log: log.truncate_to(Offset(0)),
    ],
    ids=["deleting segments", "rolling", "flushing", "appending", "truncating"],
)
def test_a_chore_of_a_deleted_topic_that_comes_late_does_not_touch_its_namesake(chore: Callable[[Log], object]) -> None:
    """Retention waits for the disk between its steps, and files are known by their names."""

    async def recreate() -> None:
        disk = MemoryDisk()
        files = start(disk)
        old = open_log(files, OLD)
        append(old, 3)
        old.roll(NOW_MS)
        append(old, 3)
        old.advance_log_start_offset(Offset(3))
        files.deletions.mark_for_deletion([(PARTITION, OLD)])
        new = open_log(files, NEW)
        append(new, 5)
        before = {path: bytes(file.data) for path, file in disk.files.items()}
        with pytest.raises(DiskError, match="deleted"):
            chore(old)
        old.segments.remove_deleted_files()
        assert {path: bytes(file.data) for path, file in disk.files.items()} == before
        assert (new.log_start_offset, new.log_end_offset) == (0, 5)

    asyncio.run(recreate())


def test_a_log_that_failed_is_looked_at_when_it_is_opened_again_however_the_last_stop_went() -> None:
    disk = MemoryDisk()
    disk_with_a_log_that_starts_at_5(disk)
    files = start(disk)
    assert open_log(files, OLD).recovery.was_clean
    before = files.directories[0].logs[PARTITION]
    files.on_failed(PARTITION)
    assert not open_log(files, OLD).recovery.was_clean
    with pytest.raises(DiskError, match="opened anew"):
        before.roll(NOW_MS)


def test_the_epoch_that_a_new_log_is_led_in_is_on_disk_with_it() -> None:
    """So the files are synced once for a new topic, not once for the log and once for its lineage (rule 1)."""
    disk = MemoryDisk()
    files = start(disk)
    log = open_log(files, NEW, first_leader_epoch=LeaderEpoch(4))
    assert log.lineage.entries == (EpochEntry(LeaderEpoch(4), Offset(0)),)
    assert disk.files["logs/flights-0/leader-epoch-checkpoint"].synced == b"0\n1\n4 0\n"
    disk.refusals.add("rename")
    assert assign_leader_epochs(disk, [(log, LeaderEpoch(4))]) == [None]


def test_a_log_that_others_lead_has_no_lineage_at_first() -> None:
    log = open_log(start(MemoryDisk()), NEW)
    assert log.lineage.entries == ()


class KilledError(BaseException):
    """Where the process ends."""


def make_until(log_dir: LogDir, disk: MemoryDisk, step: int, first_leader_epoch: LeaderEpoch | None) -> None:
    """Make a log, until so many changes of the disk have begun."""
    left = step

    def on_change(*_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KilledError

    wanted = WantedLog(PARTITION, NEW, is_new=True, first_leader_epoch=first_leader_epoch)
    before, disk.on_change = disk.on_change, on_change
    with suppress(KilledError):
        log_dir.make([wanted])
    disk.on_change = before


STEPS = range(1, 16)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("first_leader_epoch", [None, LeaderEpoch(4)])
def test_a_kill_while_a_log_is_made_leaves_nothing_once_its_topic_is_gone(
    first_leader_epoch: LeaderEpoch | None, step: int
) -> None:
    disk = MemoryDisk()
    (log_dir,) = start(disk).online
    make_until(log_dir, disk, step, first_leader_epoch)
    disk.crash()
    start(disk).deletions.set_strays_aside(MetadataImage.empty())
    names = {name for name in disk.list("logs") if name.startswith("flights")}
    assert all(name.endswith(("-stray", "-delete")) for name in names), names


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("step", STEPS)
def test_a_log_whose_making_ended_half_way_can_be_led(step: int, seed: int | None) -> None:
    """By a kill, or a loss of power: it has its whole lineage or none, and is led from its first record on."""
    disk = MemoryDisk()
    (log_dir,) = start(disk).online
    make_until(log_dir, disk, step, LeaderEpoch(4))
    if seed is None:
        disk.crash()
    else:
        disk.lose_power(Random(seed))
    log = open_log(start(disk), NEW, is_new=False)
    assert log.lineage.entries in {(), (EpochEntry(LeaderEpoch(4), Offset(0)),)}
    assert assign_leader_epochs(disk, [(log, LeaderEpoch(6))]) == [None]
    assert log.lineage.latest_leader_epoch == 6


def test_nobody_leads_by_a_lineage_that_was_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk refuses, once, to sync the names of the files (rule 1)."""
    disk = MemoryDisk()
    files = start(disk)
    sync_dir, refused = disk.sync_dir, list[str]()

    def sync_or_refuse(path: str) -> None:
        if path == "logs/flights-0" and not refused:
            refused.append(path)
            raise DiskError(path, "refused to sync", errno=5)
        sync_dir(path)

    monkeypatch.setattr(disk, "sync_dir", sync_or_refuse)
    log = open_log(files, NEW, first_leader_epoch=LeaderEpoch(4))
    assert refused
    assert assign_leader_epochs(disk, [(log, LeaderEpoch(4))]) == [None]
    assert disk.synced_data("logs/flights-0/leader-epoch-checkpoint") == b"0\n1\n4 0\n"
