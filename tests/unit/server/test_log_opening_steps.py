"""What the start of a node asks of the disk for each log: with thousands of logs each step counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.ids import BrokerEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.io.clock import SystemClock
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log import Log
from tidelog.metadata import MetadataImage
from tidelog.server.replication.partition import Partition
from tidelog.server.settings.config import NodeConfig
from tidelog.server.storage.log_dir_assignment import WantedLog
from tidelog.server.storage.log_files import LogFiles
from tidelog.server.tasks import Tasks

TOPIC = TopicId(UUID(int=17))
COUNT = 20
PROPERTIES = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:0",
    "log.dirs": "logs",
}


class CountingDisk(MemoryDisk):
    """How often each thing is asked about what lies in the directory of a log, or about that."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def _count(self, what: str, path: str) -> None:
        self.asked[what] += "/flights-" in path

    def exists(self, path: str) -> bool:
        self._count("exists", path)
        return super().exists(path)

    def is_directory(self, path: str) -> bool:
        self._count("is_directory", path)
        return super().is_directory(path)

    def list(self, path: str) -> list[str]:
        self._count("list", path)
        return super().list(path)

    def open(self, path: str, *, create: bool = False) -> Any:
        self._count("open", path)
        return super().open(path, create=create)


def start(disk: MemoryDisk) -> LogFiles:
    disk.locked.clear()
    files = LogFiles(
        NodeConfig.from_properties(PROPERTIES),
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


async def open_all(files: LogFiles, *, is_only_replica: bool) -> list[Partition]:
    names = [TopicPartition("flights", PartitionIndex(index)) for index in range(COUNT)]
    wanted = [WantedLog(name, TOPIC, is_new=True, is_only_replica=is_only_replica) for name in names]
    logs = await files.opening.open(wanted, MetadataImage.empty())
    return [Partition(name, TOPIC, log) for name, log in zip(names, logs, strict=True) if isinstance(log, Log)]


def test_a_log_is_listed_once_at_a_start_and_asked_little_about() -> None:
    """After a clean stop, with replicas elsewhere or not."""

    async def story(*, is_only_replica: bool) -> Counter[str]:
        disk = CountingDisk()
        files = start(disk)
        await files.close(await open_all(files, is_only_replica=is_only_replica), BrokerEpoch(1))
        disk.asked.clear()
        again = start(disk)
        assert len(await open_all(again, is_only_replica=is_only_replica)) == COUNT
        return disk.asked

    for is_only_replica in (True, False):
        asked = asyncio.run(story(is_only_replica=is_only_replica))
        assert asked["is_directory"] == 0
        assert asked["list"] <= COUNT
        assert asked["exists"] <= 5 * COUNT
        assert asked["open"] <= 7 * COUNT
