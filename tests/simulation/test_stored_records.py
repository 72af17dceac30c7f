"""The records of a log as its files have them: where they begin, what is new, what is gone, what would survive."""

from __future__ import annotations

from tidelog.base.ids import LeaderEpoch, Offset
from tidelog.base.ports import Buffer
from tidelog.records import BatchBuilder, leader_change_batch
from tidelog.sim.runs.stored import Control, StoredRecords
from tidelog.sim.world.disk import SimulatedDisk

DIRECTORY = "logs/t-0"


def batch(base_offset: int, *values: bytes, leader_epoch: int = 1) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value)
    return bytes(builder.build(Offset(base_offset), LeaderEpoch(leader_epoch)))


def disk_with(base_offset: int, *batches: bytes) -> tuple[SimulatedDisk, StoredRecords]:
    disk = SimulatedDisk()
    disk.make_dirs(DIRECTORY)
    disk.sync_dir(DIRECTORY)
    file = disk.open(f"{DIRECTORY}/{base_offset:020}.log", create=True)
    for each in batches:
        file.append(each)
    stored = StoredRecords(disk, DIRECTORY)

    def tell(operation: str, path: str, _: Buffer) -> None:
        stored.on_change(operation, path)

    disk.on_change = tell
    return disk, stored


def test_what_is_new_is_read_on_and_what_is_cut_is_told() -> None:
    disk, stored = disk_with(0, batch(0, b"a", b"b"))
    assert stored.read() == (0, [])
    path = f"{DIRECTORY}/{0:020}.log"
    size = len(disk.files[path].data)
    disk.open(path).append(batch(2, b"c"))
    assert stored.read() == (2, [])
    assert [value for _, value in stored.records] == [b"a", b"b", b"c"]
    disk.open(path).truncate(size)
    disk.open(path).append(batch(2, b"d", leader_epoch=2))
    assert stored.read() == (2, [(1, b"c")])
    assert stored.records[2] == (2, b"d")


def test_a_log_begins_with_its_first_file() -> None:
    disk, stored = disk_with(5, batch(5, b"f", b"g"))
    assert stored.read() == (5, [])
    assert (stored.start_offset, stored.end_offset) == (5, 7)
    disk.open(f"{DIRECTORY}/{7:020}.log", create=True).append(batch(7, b"h"))
    assert stored.read() == (7, [])
    disk.remove(f"{DIRECTORY}/{5:020}.log")
    assert stored.read() == (8, []), "what is gone from its start is none that was lost"
    assert (stored.start_offset, stored.records) == (7, [(1, b"h")])


def test_what_the_protocol_wrote_is_told_apart() -> None:
    _, stored = disk_with(0, bytes(leader_change_batch(leader_id=1, voters=(1,), timestamp_ms=0)))
    stored.read()
    assert isinstance(stored.records[0][1], Control)


def test_what_survives_a_loss_of_power_is_what_was_synced_names_included() -> None:
    disk, stored = disk_with(0, batch(0, b"a"))
    path = f"{DIRECTORY}/{0:020}.log"
    disk.open(path).sync()
    stored.read()
    assert stored.synced_end_offset() == 0, "nobody would find the file"
    disk.sync_dir(DIRECTORY)
    assert stored.synced_end_offset() == 1
    disk.open(path).append(batch(1, b"b"))
    stored.read()
    assert stored.synced_end_offset() == 1
    disk.open(path).sync()
    assert stored.synced_end_offset() == 2
