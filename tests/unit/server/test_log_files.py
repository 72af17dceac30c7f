"""What a node writes about its logs, over deletions and crashes: a new topic never inherits the past of an old one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import BrokerEpoch, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log import Log
from tidelog.metadata import MetadataImage
from tidelog.records import BatchBuilder
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_dir_assignment import WantedLog
from tidelog.server.storage.log_files import LogFiles
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


def open_log(files: LogFiles, topic_id: TopicId) -> Log:
    opening = files.opening.open([WantedLog(PARTITION, topic_id, is_new=True)], MetadataImage.empty())
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
