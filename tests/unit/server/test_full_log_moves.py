"""A replica is moved to a log directory whose disk is full at some step of it."""

from __future__ import annotations

import asyncio

import pytest

from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.waiting import until
from tidelog.base.errors import Code
from tidelog.server.broker import replica_log_dir_move
from unit.server.test_log_moves import (
    SECONDS_MAX,
    TOPIC,
    alter,
    copying,
    files_of,
    fill,
    hold,
    let_go,
    moved,
    other_than,
)
from unit.server.test_several_directories import create, directory_of, produce, run, started


class FullDisk(MemoryDisk):
    """Has no room for one file."""

    full_at: str | None = None
    refused = 0

    def admit_write(self, path: str, size: int) -> int:
        if self.full_at is not None and path.startswith(self.full_at):
            self.refused += 1
            return 0
        return super().admit_write(path, size)


@pytest.mark.parametrize(
    "name",
    [
        "{target}/flights-0/00000000000000000000.log",
        "{target}/flights-0/leader-epoch-checkpoint",
        "{target}/flights-0/future-log",
        "{target}/flights-0/00000000000000000010.snapshot",
        "{target}/recovery-point-offset-checkpoint",
        "{target}/replication-offset-checkpoint",
    ],
)
def test_a_disk_that_is_full_at_any_step_delays_the_move(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_log_dir_move, "ROOM_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(replica_log_dir_move, "COMPLETIONS_MAX", 1_000_000)

    async def scenario() -> None:
        disk = FullDisk()
        node = await started(disk, "a,b")
        await create(node, TOPIC, 1)
        await fill(node, 10)
        hold(node)
        target = other_than(node)
        assert await alter(node, target, 0) == [Code.NONE]
        await copying(node)
        disk.full_at = name.format(target=target)
        let_go(node)
        await until(lambda: disk.refused)
        await asyncio.sleep(0)
        assert await produce(node, TOPIC, 0, b"meanwhile") in (Code.NONE, Code.KAFKA_STORAGE_ERROR)
        disk.full_at = None
        await moved(node, target)
        partition = node.broker.partition(TOPIC, 0)
        while await produce(node, TOPIC, 0, b"after") != Code.NONE:
            await asyncio.sleep(0.01)
        end_offset = partition.log.log_end_offset
        assert end_offset in (11, 12)
        assert files_of(disk, "b" if target == "a" else "a") == []
        assert "future-log" not in disk.list(f"{target}/{TOPIC}-0")
        await node.stop()
        again = await started(disk, "a,b")
        assert directory_of(again, TOPIC, 0) == target
        assert again.broker.partition(TOPIC, 0).log.log_end_offset == end_offset
        await again.stop()

    run(scenario)


def test_a_log_whose_move_cannot_be_completed_goes_offline_and_is_whole_after_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_log_dir_move, "ROOM_CHECK_SECONDS", 0.01)

    async def scenario() -> None:
        disk = FullDisk()
        node = await started(disk, "a,b")
        await create(node, TOPIC, 1)
        await fill(node, 10)
        target = other_than(node)
        disk.full_at = f"{target}/recovery-point-offset-checkpoint"
        assert await alter(node, target, 0) == [Code.NONE]
        written = 10
        async with asyncio.timeout(SECONDS_MAX):
            while (code := await produce(node, TOPIC, 0, b"%d" % written)) == Code.NONE:
                written += 1
                await asyncio.sleep(0.05)
        assert code == Code.KAFKA_STORAGE_ERROR
        await node.stop()
        disk.full_at = None
        again = await started(disk, "a,b")
        assert again.broker.partition(TOPIC, 0).log.log_end_offset == written
        await again.stop()

    run(scenario)
