"""The files of a log as rows, those of Apache Kafka and damaged ones included."""

from __future__ import annotations

import pytest

from support.fixtures.logs import DIRECTORY, NOW_MS, append, make_batch, open_log
from support.fixtures.memory_disk import Contents, MemoryDisk
from tidelog.base.errors import CorruptLogError
from tidelog.base.ids import LeaderEpoch
from tidelog.log.dump import Dump, Row, dump
from tidelog.records import end_transaction_batch

SIZE = len(make_batch("0"))
SEGMENT = f"{DIRECTORY}/00000000000000000000.log"


def rows_of(disk: MemoryDisk, path: str, *, records: bool = False) -> list[Row]:
    [found] = dump(disk, path, records=records)
    return list(found.rows)


def put(disk: MemoryDisk, name: str, data: bytes) -> str:
    path = f"{DIRECTORY}/{name}"
    disk.make_dirs(DIRECTORY)
    disk.files[path] = Contents()
    disk.files[path].data.extend(data)
    return path


def filled(disk: MemoryDisk) -> None:
    log = open_log(disk, index_interval_bytes=0)
    append(log, "a", "b", epoch=1, compression="zstd")
    append(log, "c", epoch=2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = end_transaction_batch(
        committed=True, producer_id=7, producer_epoch=0, coordinator_epoch=4, timestamp_ms=NOW_MS + 1
    )
    log.append_as_leader(bytearray(marker), leader_epoch=LeaderEpoch(2), now_ms=NOW_MS, origin="coordinator")
    log.close()


def test_a_directory_is_all_its_files() -> None:
    disk = MemoryDisk()
    filled(disk)
    put(disk, "quorum-state", b"{}")
    found: list[Dump] = list(dump(disk, DIRECTORY))
    assert [(each.path.rpartition("/")[2], each.kind) for each in found] == [
        ("00000000000000000000.index", "offset index"),
        ("00000000000000000000.log", "batches"),
        ("00000000000000000000.timeindex", "time index"),
        ("00000000000000000004.snapshot", "producers"),
        ("leader-epoch-checkpoint", "leader epochs"),
    ]
    assert all("problem" not in row for each in found for row in each.rows)


def test_batches() -> None:
    disk = MemoryDisk()
    filled(disk)
    first, second, third = rows_of(disk, SEGMENT)
    assert first | {"crc": 0, "size_bytes": 0} == {
        "base_offset": 0,
        "last_offset": 1,
        "record_count": 2,
        "leader_epoch": 1,
        "max_timestamp": NOW_MS,
        "timestamp_type": "CreateTime",
        "compression": "zstd",
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "last_sequence": -1,
        "is_transactional": False,
        "is_control": False,
        "position": 0,
        "size_bytes": 0,
        "crc": 0,
        "crc_is_right": True,
    }
    assert (second["producer_id"], second["is_transactional"], second["position"]) == (7, True, first["size_bytes"])
    assert (third["is_control"], third["base_offset"]) == (True, 3)


def test_records() -> None:
    disk = MemoryDisk()
    filled(disk)
    rows = rows_of(disk, SEGMENT, records=True)
    assert [(row["offset"], row["key"], row["value"], row["leader_epoch"]) for row in rows[:3]] == [
        (0, b"k", b"a", 1),
        (1, b"k", b"b", 1),
        (2, b"k", b"c", 2),
    ]
    assert str(rows[3]["control"]).startswith("COMMIT")
    assert "coordinator_epoch=4" in str(rows[3]["control"])


def test_small_files() -> None:
    disk = MemoryDisk()
    filled(disk)
    assert rows_of(disk, f"{DIRECTORY}/leader-epoch-checkpoint") == [
        {"leader_epoch": 1, "start_offset": 0},
        {"leader_epoch": 2, "start_offset": 2},
    ]
    [producer] = rows_of(disk, f"{DIRECTORY}/00000000000000000004.snapshot")
    assert (producer["producer_id"], producer["last_sequence"], producer["coordinator_epoch"]) == (7, 0, 4)
    index = rows_of(disk, f"{DIRECTORY}/00000000000000000000.index")
    assert [row["offset"] for row in index] == [2, 3]
    times = rows_of(disk, f"{DIRECTORY}/00000000000000000000.timeindex")
    assert times == [{"timestamp": NOW_MS, "offset": 1}, {"timestamp": NOW_MS + 1, "offset": 3}]


def test_files_that_only_others_write() -> None:
    disk = MemoryDisk()
    aborted = (0).to_bytes(2) + b"".join(number.to_bytes(8) for number in (9, 100, 120, 90))
    assert rows_of(disk, put(disk, "00000000000000000100.txnindex", aborted)) == [
        {"producer_id": 9, "first_offset": 100, "last_offset": 120, "last_stable_offset": 90}
    ]
    assert rows_of(disk, put(disk, "recovery-point-offset-checkpoint", b"0\n1\nflights 3 17\n")) == [
        {"topic": "flights", "partition": 3, "offset": 17}
    ]
    assert rows_of(disk, put(disk, "partition.metadata", b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAQ\n")) == [
        {"key": "topic_id", "value": "AAAAAAAAQACAAAAAAAAAAQ"}
    ]
    assert rows_of(disk, put(disk, "meta.properties", b"#\nversion=1\nnode.id=2\ncluster.id=x\n")) == [
        {"key": "cluster.id", "value": "x"},
        {"key": "node.id", "value": 2},
        {"key": "directory.id", "value": ""},
    ]


def test_indexes_with_unused_space_behind_their_entries() -> None:
    """What Kafka leaves when it is killed: index files of the full size, zeros after the last entry."""
    disk = MemoryDisk()
    offsets = put(disk, "00000000000000000500.index", (7).to_bytes(4) + (4200).to_bytes(4) + bytes(800))
    assert rows_of(disk, offsets) == [{"offset": 507, "position": 4200}]
    times = put(disk, "00000000000000000500.timeindex", (99).to_bytes(8) + (7).to_bytes(4) + bytes(1200))
    assert rows_of(disk, times) == [{"timestamp": 99, "offset": 507}]
    assert rows_of(disk, put(disk, "00000000000000000600.index", bytes(80))) == []


def test_what_is_wrong_is_the_last_row() -> None:
    disk = MemoryDisk()
    torn = put(disk, "00000000000000000000.log", bytes(make_batch("a") + make_batch("b")[:-3]))
    *good, bad = rows_of(disk, torn)
    assert [row["base_offset"] for row in good] == [0]
    assert bad["position"] == SIZE
    assert "of which" in str(bad["problem"])
    old = make_batch("a")
    old[16] = 1
    [bad] = rows_of(disk, put(disk, "00000000000000000001.log", bytes(old)), records=True)
    assert "message format 1 is not stored" in str(bad["problem"])
    [bad] = rows_of(disk, put(disk, "leader-epoch-checkpoint", b"\xff\xff"))
    assert bad == {"problem": "not text"}
    *_, bad = rows_of(disk, put(disk, "00000000000000000002.index", bytes([0, 0, 0, 9, 0, 0, 0, 9] * 2)))
    assert "does not lie after" in str(bad["problem"])
    [bad] = rows_of(disk, put(disk, "00000000000000000003.snapshot", b"\0\1"))
    assert "too few" in str(bad["problem"])
    [bad] = rows_of(disk, put(disk, "x-offset-checkpoint", b"1\n"))
    assert bad == {"problem": "line 1: version 0 is expected"}


def test_a_wrong_crc_is_told_and_the_next_batch_shown() -> None:
    disk = MemoryDisk()
    data = make_batch("a") + make_batch("b", base_offset=1)
    data[SIZE - 2] ^= 1
    path = put(disk, "00000000000000000000.log", bytes(data))
    assert [row["crc_is_right"] for row in rows_of(disk, path)] == [False, True]


def test_files_that_something_was_being_done_to() -> None:
    disk = MemoryDisk()
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.log.swap", "00000000000000000000.cut"):
        assert len(rows_of(disk, put(disk, name, bytes(make_batch("a"))))) == 1


def test_a_name_that_means_nothing_is_refused() -> None:
    disk = MemoryDisk()
    with pytest.raises(CorruptLogError, match="not the name of a file of a log"):
        rows_of(disk, put(disk, "notes.txt", b""))
