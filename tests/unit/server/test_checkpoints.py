"""What the checkpoints of a directory remember of logs that are deleted, and for how long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import Offset, PartitionIndex, TopicPartition
from tidelog.log import Log, LogConfig
from tidelog.log.directory import HIGH_WATERMARK_FILE, LOG_START_OFFSET_FILE, RECOVERY_POINT_FILE, LogDirectory
from tidelog.server.storage.checkpoints import Checkpoints

FILES = (RECOVERY_POINT_FILE, LOG_START_OFFSET_FILE, HIGH_WATERMARK_FILE)
OTHER = TopicPartition("other", PartitionIndex(0))


class Name(str):
    """Of a topic; it is seen whether anybody still holds it."""


class Hosted(NamedTuple):
    """A replica whose log lies in the directory."""

    topic_partition: TopicPartition
    log: Log
    high_watermark: Offset = Offset(0)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_dirs("data")
    return disk


@pytest.fixture
def directory(disk: MemoryDisk) -> LogDirectory:
    return LogDirectory.open(disk, "data")


@pytest.fixture
def checkpoints(directory: LogDirectory) -> Checkpoints:
    return Checkpoints(directory, {})


def host(checkpoints: Checkpoints, disk: MemoryDisk, topic_partition: TopicPartition) -> Hosted:
    """Open a log in the directory, and note where it starts."""
    log = Log.open(
        disk,
        f"data/{topic_partition.topic}-0",
        topic_partition,
        LogConfig(),
        topic_id=None,
        clean_shutdown=True,
        recovery_point=Offset(0),
        now_ms=0,
    )
    checkpoints._logs[topic_partition] = log
    checkpoints.note_log_starts([log])
    return Hosted(topic_partition, log)


def write(checkpoints: Checkpoints, *hosted: Hosted) -> None:
    checkpoints.write_recovery_points(hosted)
    checkpoints.write_high_watermarks(hosted)


def named(directory: LogDirectory, topic_partition: TopicPartition) -> list[str]:
    """The files that name a log."""
    return [name for name in FILES if topic_partition in directory.read_offsets(name)]


def test_no_name_of_a_deleted_log_is_held_once_the_files_are_written(
    checkpoints: Checkpoints, disk: MemoryDisk
) -> None:
    other = host(checkpoints, disk, OTHER)

    def live_and_die() -> weakref.ref[Name]:
        name = Name("deleted")
        topic_partition = TopicPartition(name, PartitionIndex(0))
        write(checkpoints, other, host(checkpoints, disk, topic_partition))
        log = checkpoints.let_go_of(topic_partition)
        assert log is not None
        log.retire()
        return weakref.ref(name)

    held = live_and_die()
    write(checkpoints, other)
    host(checkpoints, disk, TopicPartition("next", PartitionIndex(0)))
    gc.collect()
    assert held() is None


def test_a_log_that_is_made_anew_finds_nothing_of_one_that_was_deleted_before(
    checkpoints: Checkpoints, directory: LogDirectory, disk: MemoryDisk
) -> None:
    again = TopicPartition("again", PartitionIndex(0))
    write(checkpoints, host(checkpoints, disk, OTHER), host(checkpoints, disk, again))
    checkpoints.let_go_of(again)
    assert named(directory, again) == [*FILES]
    checkpoints.forget([again])
    assert named(directory, again) == []
    assert named(directory, OTHER) == [*FILES]


def test_a_disk_that_fails_while_forgetting_is_asked_again(
    checkpoints: Checkpoints, directory: LogDirectory, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = TopicPartition("again", PartitionIndex(0))
    write(checkpoints, host(checkpoints, disk, OTHER), host(checkpoints, disk, again))
    with monkeypatch.context() as patch:
        patch.setattr(directory, "write_offsets", refuse)
        with pytest.raises(DiskError):
            checkpoints.forget([again])
    assert named(directory, again) == [*FILES]
    checkpoints.forget([again])
    assert named(directory, again) == []


def test_what_a_failing_disk_may_have_written_is_forgotten(
    checkpoints: Checkpoints, directory: LogDirectory, disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = TopicPartition("again", PartitionIndex(0))
    written = directory.write_offsets

    def write_and_refuse(name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        written(name, offsets)
        refuse()

    with monkeypatch.context() as patch:
        patch.setattr(directory, "write_offsets", write_and_refuse)
        with pytest.raises(DiskError):
            host(checkpoints, disk, again)
    assert named(directory, again) == [LOG_START_OFFSET_FILE]
    checkpoints.forget([again])
    assert named(directory, again) == []


def refuse(*_: object) -> None:
    raise DiskError("data", "no room")
