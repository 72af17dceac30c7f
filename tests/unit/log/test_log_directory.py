"""A node's log directory: who may use it, how it was left, and the names in it."""

from __future__ import annotations

from uuid import UUID

import pytest

from support.fixtures.logs import FLIGHTS, append, open_log
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import CorruptLogError, DiskError
from tidelog.base.ids import BrokerEpoch, BrokerId, ClusterId, Offset, PartitionIndex, TopicPartition
from tidelog.log.directory import (
    HIGH_WATERMARK_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    LogDirectory,
    parse_directory_name,
)
from tidelog.log.files.checkpoint import MetaProperties
from tidelog.log.run_files import RunFiles


class FixedRng:
    def random(self) -> float:
        return 0.5

    def randrange(self, start: int, stop: int) -> int:
        return start

    def uuid(self) -> UUID:
        return UUID("0123456789abcdef0123456789abcdef")


def test_one_at_a_time() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    with pytest.raises(DiskError, match=r"data/.lock: another process"):
        LogDirectory.open(disk, "data")
    directory.close()
    LogDirectory.open(disk, "data")


def test_an_unformatted_directory_belongs_to_nobody() -> None:
    directory = LogDirectory.open(MemoryDisk(), "data")
    assert directory.read_meta_properties() is None
    properties = MetaProperties(ClusterId("cluster"), BrokerId(1), "dir")
    directory.write_meta_properties(properties)
    assert directory.read_meta_properties() == properties


def test_a_clean_stop_counts_once() -> None:
    disk = MemoryDisk()
    disk.make_dirs("data")
    files = RunFiles(disk, "data")
    assert files.take_clean_shutdown() == (False, None)
    files.mark_clean_shutdown(BrokerEpoch(7))
    assert files.take_clean_shutdown() == (True, 7)
    assert files.take_clean_shutdown() == (False, None)


def test_checkpoints_come_back_and_a_corrupt_one_is_taken_for_missing() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    offsets = {FLIGHTS: Offset(5)}
    directory.write_offsets(RECOVERY_POINT_FILE, offsets)
    directory.write_offsets(HIGH_WATERMARK_FILE, {FLIGHTS: Offset(6)})
    directory.write_offsets(LOG_START_OFFSET_FILE, {FLIGHTS: Offset(2)})
    assert directory.read_offsets(RECOVERY_POINT_FILE) == offsets
    assert directory.read_offsets(HIGH_WATERMARK_FILE) == {FLIGHTS: 6}
    assert directory.read_offsets(LOG_START_OFFSET_FILE) == {FLIGHTS: 2}
    assert sorted(name for name in disk.list("data") if "checkpoint" in name) == [
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    disk.files["data/replication-offset-checkpoint"].data[:] = b"garbage"
    disk.remove("data/log-start-offset-checkpoint")
    assert directory.read_offsets(HIGH_WATERMARK_FILE) == {}
    assert directory.read_offsets(LOG_START_OFFSET_FILE) == {}
    assert directory.faults == ["data/replication-offset-checkpoint: line 1: version 0 is expected"]


def test_a_checkpoint_that_cannot_be_written_stays_as_it_was() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    directory.write_offsets(RECOVERY_POINT_FILE, {FLIGHTS: Offset(5)})
    disk.free_write_bytes = 3
    with pytest.raises(DiskError):
        directory.write_offsets(RECOVERY_POINT_FILE, {FLIGHTS: Offset(6)})
    assert directory.read_offsets(RECOVERY_POINT_FILE) == {FLIGHTS: 5}


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [
        ("flights-0", "flights", 0),
        ("my-topic-17", "my-topic", 17),
        ("a--0", "a-", 0),
        ("__cluster_metadata-0", "__cluster_metadata", 0),
    ],
)
def test_names_of_logs(name: str, topic: str, partition: int) -> None:
    assert parse_directory_name(name) == TopicPartition(topic, PartitionIndex(partition))
    assert str(parse_directory_name(name)) == name


@pytest.mark.parametrize(
    "name",
    ["flights", "-0", "flights-", "x-y", "flights-0.01-delete", "flights-0.01-stray", ".x-0", "lost+found", "x-٣"],
)
def test_names_of_no_log(name: str) -> None:
    assert parse_directory_name(name) is None


def test_a_doomed_log_is_gone_at_once_and_its_files_later() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    log = open_log(disk, directory=directory.log_path(FLIGHTS))
    append(log, "a")
    disk.files["data/flights-1"] = disk.files["data/.lock"]  # a file, whatever its name
    assert directory.partitions() == [FLIGHTS]
    log.release()
    assert directory.mark_for_deletion(FLIGHTS, FixedRng()) == "data/flights-0.0123456789abcdef0123456789abcdef-delete"
    assert directory.partitions() == []
    again = open_log(disk, directory=directory.log_path(FLIGHTS))
    assert again.log_end_offset == 0
    assert directory.remove_marked() == 1
    assert directory.remove_marked() == 0
    assert directory.partitions() == [FLIGHTS]


def test_what_somebody_else_named_so_is_left_alone() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    disk.make_dirs("data/to-delete")
    disk.make_dirs("data/flights-0.12-delete")
    assert directory.remove_marked() == 0
    assert disk.exists("data/to-delete")


def test_a_long_name_is_cut_to_fit() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    longest = TopicPartition("t" * 249, PartitionIndex(12))
    open_log(disk, directory=directory.log_path(longest)).release()
    name = directory.mark_for_deletion(longest, FixedRng()).removeprefix("data/")
    assert len(name) == 255
    assert name.endswith("t-12.0123456789abcdef0123456789abcdef-delete")
    assert directory.remove_marked() == 1


def test_another_release_is_told_apart() -> None:
    disk = MemoryDisk()
    directory = LogDirectory.open(disk, "data")
    disk.write_atomically("data/meta.properties", b"version=2\n")
    with pytest.raises(CorruptLogError, match="formatted by another release"):
        directory.read_meta_properties()
