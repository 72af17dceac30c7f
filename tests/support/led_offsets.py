"""A partition of `__consumer_offsets`, led, with its coordinator; on a disk in memory and a clock that tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

from support.group_member import commit_request
from support.memory_disk import MemoryDisk
from tidelog.base.errors import Code, DiskError, InvariantBrokenError, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.base.ports import Executor
from tidelog.coordinator import GroupCoordinator, GroupSettings
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.log import Log, LogConfig
from tidelog.metadata import PartitionImage
from tidelog.net.backoff import Backoff
from tidelog.replica import LeaderReplica, LogBounds, ReplicationSettings
from tidelog.server.coordinators.coordinator_partition import CoordinatorHost, CoordinatorPartition
from tidelog.server.coordinators.coordinator_partitions import asks_nobody
from tidelog.server.groups.group_coordinators import GROUPS, forget, forget_all_but
from tidelog.server.replication.partition import Partition
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tidelog.wire.primitives import ZERO_UUID

T = TypeVar("T")

PLACE = TopicPartition("__consumer_offsets", PartitionIndex(7))
BROKER = BrokerId(1)
DIRECTORY = "logs/__consumer_offsets-7"


class SetClock:
    """A clock that stands, until a test moves `time_ms`."""

    def __init__(self) -> None:
        self.time_ms = 1_000

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.time_ms


class GatedExecutor:
    """Works when the gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        async def wait() -> T:
            await self.gate.wait()
            return work()

        return wait()

    compute = run


class WaitingReader:
    """Waits for records, and notes the high watermarks that it is told of."""

    def __init__(self, partition: Partition) -> None:
        self.seen: list[int] = []
        self._partition = partition
        partition.watch(self)

    def on_changed(self) -> None:
        self.seen.append(self._partition.high_watermark)


def state_of(isr: tuple[int, ...], leader_epoch: int, partition_epoch: int = 0) -> PartitionImage:
    in_sync = tuple(map(BrokerId, isr))
    return PartitionImage(in_sync, in_sync, BROKER, LeaderEpoch(leader_epoch), PartitionEpoch(partition_epoch))


class Led:
    """A partition that is led, with its coordinator; and a broker that takes it offline when told."""

    def __init__(
        self,
        disk: MemoryDisk,
        *,
        executor: Executor | None = None,
        leader_epoch: int = 0,
        clean: bool = True,
        isr: tuple[int, ...] = (BROKER,),
        **config: Any,
    ) -> None:
        log = Log.open(disk, DIRECTORY, PLACE, LogConfig(**config), topic_id=None, clean_shutdown=clean, now_ms=0)
        epoch = LeaderEpoch(leader_epoch)
        log.assign_leader_epoch(epoch)
        self.partition = Partition(PLACE, TopicId(ZERO_UUID), log)
        state = state_of(isr, leader_epoch)
        bounds = LogBounds(log.log_start_offset, log.log_end_offset)
        self.partition.lead(
            LeaderReplica(PLACE, BROKER, state, bounds, log.lineage, settings=ReplicationSettings(), now_ms=0)
        )
        self.troubles: list[Exception] = []
        self.reloads = 0
        self.is_full = False  # the disk, as the broker knows it
        self.clock = SetClock()
        host = CoordinatorHost(
            self.clock,
            executor or InlineExecutor(),
            loading=asyncio.Lock(),
            has_room=lambda _: not self.is_full,
            on_disk_error=self.take_offline,
            on_bug=self.take_offline,
            on_refused=self.reload,
            ask_leader=asks_nobody,
            backoff=Backoff(1, 1, SystemRng()),
        )
        coordinator = GroupCoordinator(7, GroupSettings(initial_rebalance_delay_ms=0), rng=SystemRng())
        self.one = CoordinatorPartition(self.partition, coordinator, GROUPS, host)

    def start(self, known: frozenset[str] = frozenset(("t", "u"))) -> None:
        self.one.start(partial(forget_all_but, known, ()))

    def delete_topics(self, names: Collection[str]) -> None:
        self.one.tell(partial(forget, names))

    def take_offline(self, partition: Partition, error: DiskError | InvariantBrokenError) -> None:
        self.troubles.append(error)
        if self.is_full and isinstance(error, DiskError):
            return
        partition.stop()
        self.one.stop()

    def reload(self, partition: Partition, untold: object) -> None:
        self.reloads += 1
        self.one.stop()

    def commit(self, offset: int, topic: str = "t", *, metadata: str = "") -> Any:
        request = commit_request("g", {(topic, 0): offset}, metadata=metadata)
        return self.one.ask(
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_offset_commit(
                request_id, request, api_version=9, now_ms=now_ms, wall_ms=wall_ms
            )
        )

    def committed(self) -> dict[str, int] | Code:
        answer = self.one.ask(
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_offset_fetch(
                request_id, OffsetFetchRequestGroup(group_id="g"), now_ms=now_ms, wall_ms=wall_ms
            )
        )
        if isinstance(answer, KafkaError):
            return answer.code
        assert isinstance(answer, OffsetFetchResponseGroup)
        return {topic.name: topic.partitions[0].committed_offset for topic in answer.topics}
