"""The disk that forgets: held against the plainest model there is, and each fault once."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import DiskError
from tidelog.sim.world.disk import PAGE_SIZE_BYTES, Contents, SimulatedDisk
from tidelog.sim.world.machine import Machine
from tidelog.sim.world.process import ProcessKilledError
from tidelog.sim.world.world import SimulatedWorld

positions = st.integers(0, 5 * PAGE_SIZE_BYTES)
changes = st.one_of(
    st.tuples(st.just("write"), positions, st.integers(1, 3 * PAGE_SIZE_BYTES)),
    st.tuples(st.just("truncate"), positions, st.just(0)),
    st.tuples(st.just("sync"), st.just(0), st.just(0)),
)


@given(st.lists(changes, max_size=30))
def test_what_is_synced_is_what_it_was_at_the_last_sync(history: list[tuple[str, int, int]]) -> None:
    contents, data, synced = Contents(), bytearray(), b""
    for number, (change, position, size) in enumerate(history):
        if change == "write":
            piece = bytes([number + 1]) * size
            contents.write_at(position, piece)
            data.extend(bytes(max(position - len(data), 0)))
            data[position : position + size] = piece
        elif change == "truncate":
            contents.truncate(position)
            data = data[:position] + bytearray(max(position - len(data), 0))
        else:
            contents.mark_synced()
            synced = bytes(data)
        assert contents.data[: contents.synced_bytes] == synced[: contents.synced_bytes]
        assert contents.data == data
        assert contents.synced == synced


def disk_with(path: str, data: bytes) -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_dirs("a")
    disk.write_atomically(path, data)
    return disk


def test_a_crash_keeps_all_and_a_loss_of_power_what_was_synced() -> None:
    kept: set[bytes] = set()
    for seed in range(50):
        disk = disk_with("a/file", b"synced")
        disk.open("a/file").append(b" or not")
        disk.open("a/other", create=True).append(b"never synced")
        disk.crash()
        assert disk.read_bytes("a/file") == b"synced or not"
        assert disk.list("a") == ["file", "other"]
        disk.lose_power(Random(seed))
        kept.add(disk.read_bytes("a/file"))
        assert disk.read_bytes("a/file").startswith(b"synced")
        assert disk.list("a") in (["file"], ["file", "other"])
    assert {b"synced", b"synced or not"} < kept


@pytest.mark.parametrize("is_synced", [False, True])
def test_a_directory_that_was_renamed_comes_back_whole_under_one_name(is_synced: bool) -> None:
    names = set()
    for seed in range(20):
        disk = SimulatedDisk()
        disk.make_dirs("logs/t-0")
        disk.write_atomically("logs/t-0/0.log", b"records")
        disk.rename("logs/t-0", "logs/t-0.x-delete")
        if is_synced:
            disk.sync_dir("logs")
        disk.lose_power(Random(seed))
        (name,) = disk.list("logs")
        names.add(name)
        assert disk.read_bytes(f"logs/{name}/0.log") == b"records"
    assert names == ({"t-0.x-delete"} if is_synced else {"t-0", "t-0.x-delete"})


def test_a_tree_that_was_removed_stays_away_once_that_is_synced() -> None:
    found = set()
    for is_synced in (False, True):
        for seed in range(20):
            disk = disk_with("a/b", b"x")
            disk.make_dirs("a/tree")
            disk.write_atomically("a/tree/file", b"y")
            disk.remove_tree("a/tree")
            if is_synced:
                disk.sync_dir("a")
            disk.lose_power(Random(seed))
            found.add((is_synced, disk.exists("a/tree/file")))
    assert (True, True) not in found
    assert (False, True) in found


def test_a_full_disk_takes_a_part_and_says_so() -> None:
    disk = disk_with("a/file", b"")
    disk.free_write_bytes = 3
    with pytest.raises(DiskError, match="no space left"):
        disk.open("a/file").append(b"hello")
    assert disk.read_bytes("a/file") == b"hel"
    assert disk.free_bytes("a") == 0


def test_rot_changes_one_bit_that_no_sync_brings_back() -> None:
    disk = disk_with("a/file", bytes(100))
    position = disk.rot("a/file", Random(1))
    disk.open("a/file").sync()
    assert [index for index, value in enumerate(disk.read_bytes("a/file")) if value] == [position]


def test_a_disk_may_be_cold_unplugged_or_held_by_another() -> None:
    disk = disk_with("a/file", b"x")
    lock = disk.lock("a/.lock")
    with pytest.raises(DiskError, match="another process"):
        disk.lock("a/.lock")
    lock.release()
    disk.lock("a/.lock")
    disk.crash()
    disk.lock("a/.lock")
    disk.is_cold = lambda: True
    file = disk.open("a/file")
    assert file.read_cached_at(0, 1) is None
    disk.is_unplugged = True
    for refused in (lambda: file.append(b"y"), lambda: file.read_at(0, 1), lambda: disk.list("a"), file.sync):
        with pytest.raises(DiskError, match="refused"):
            refused()


def test_a_process_can_be_killed_in_place_of_any_change() -> None:
    """The change is not made, nothing after it is either, and what was made before is kept."""
    outcomes = []
    for killed_at in range(8):
        with SimulatedWorld(1) as world:
            machine = world.machine("one")
            machine.disk.make_dirs("a")
            world.run(killed_while_writing(world, machine, killed_at))
            assert not machine.is_running
            assert not machine.disk.is_unplugged
            outcomes.append({name: machine.disk.read_bytes(f"a/{name}") for name in machine.disk.list("a")})
    assert outcomes[0] == {}
    assert {"file.tmp": b"data"} in outcomes
    assert outcomes[-1] == {"file": b"data", "after.tmp": b""}


async def killed_while_writing(world: SimulatedWorld, machine: Machine, killed_at: int) -> None:
    async def main() -> None:
        try:
            machine.disk.write_atomically("a/file", b"data")
            machine.disk.write_atomically("a/after", b"data")
        finally:
            with pytest.raises(DiskError):
                machine.disk.remove("a/file")

    machine.kill_at_change = killed_at
    with pytest.raises(ProcessKilledError):
        await machine.start(main)
    while machine.is_running:
        await asyncio.sleep(0)
