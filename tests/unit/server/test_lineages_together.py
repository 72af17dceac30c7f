"""A new leader epoch in many logs that follow others: their lineages are synced together, off the loop."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import TypeVar, cast

import pytest

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import DiskError
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.base.ports import Clock
from tidelog.io.executor import InlineExecutor
from tidelog.log import Log, LogConfig
from tidelog.records.lineage import EpochEntry
from tidelog.server.replication.partition import Partition
from tidelog.server.storage.log_dir import LogDir
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.storage.served_logs import ServedLogs
from tidelog.wire.primitives import ZERO_UUID

T = TypeVar("T")
ENTRY = EpochEntry(LeaderEpoch(1), Offset(0))
COUNT = 100


class SlowExecutor(InlineExecutor):
    """Others have a turn while something is written."""

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        async def later() -> T:
            await asyncio.sleep(0)
            return work()

        return later()


class Disk(MemoryDisk):
    """Counts writes, and refuses those to one log."""

    refused = ""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []

    def write_atomically(self, path: str, data: bytes) -> None:
        self.written.append(1)
        self._refuse(path)
        super().write_atomically(path, data)

    def write_all_atomically(self, files: Mapping[str, bytes]) -> None:
        self.written.append(len(files))
        for path in files:
            self._refuse(path)
        super().write_all_atomically(files)

    def _refuse(self, path: str) -> None:
        if self.refused and self.refused in path:
            raise DiskError(path, "no", errno=errno.ENOSPC)


def logs_of(disk: Disk) -> tuple[ServedLogs, list[Partition]]:
    partitions = []
    for index in range(COUNT):
        name = TopicPartition("flights", PartitionIndex(index))
        log = Log.open(disk, f"logs/{name}", name, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=0)
        partitions.append(Partition(name, TopicId(ZERO_UUID), log))
    log_dir = cast(LogDir, object())
    log_dir_of = {each.topic_partition: log_dir for each in partitions}
    files = cast(LogFiles, SimpleNamespace(disk=disk))
    disk.written.clear()
    return ServedLogs(files, log_dir_of, clock=cast(Clock, None), executor=SlowExecutor()), partitions


async def noted(served: ServedLogs, partitions: list[Partition]) -> list[BaseException | None]:
    return await asyncio.gather(
        *(served.note_leader_epochs(each, [ENTRY]) for each in partitions), return_exceptions=True
    )


def test_the_lineages_of_many_logs_are_synced_together() -> None:
    disk = Disk()
    served, partitions = logs_of(disk)
    assert asyncio.run(noted(served, partitions)) == [None] * COUNT
    assert disk.written == [1, COUNT - 1]
    assert all(each.log.lineage.entries == (ENTRY,) for each in partitions)
    path = f"{partitions[-1].log.directory}/leader-epoch-checkpoint"
    assert disk.read_bytes(path) == b"0\n1\n1 0\n"


def test_a_log_that_is_refused_keeps_no_other_from_being_noted() -> None:
    disk = Disk()
    served, partitions = logs_of(disk)
    disk.refused = "flights-7/"
    outcomes = asyncio.run(noted(served, partitions))
    assert [index for index, outcome in enumerate(outcomes) if outcome is not None] == [7]
    assert not partitions[7].log.lineage
    with pytest.raises(DiskError):
        raise cast(DiskError, outcomes[7])
