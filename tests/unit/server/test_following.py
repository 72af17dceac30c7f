"""What drives a follower's machine, beside what takes its time and what comes to an end meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, cast

from support.memory_disk import MemoryDisk
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.log import Log, LogConfig
from tidelog.metadata import PartitionImage
from tidelog.records import BatchBuilder
from tidelog.replica import FollowerReplica, FollowerRequest, FollowerSettings, Truncation
from tidelog.server.following import Following, FollowingHost
from tidelog.server.partition import Partition
from tidelog.wire.primitives import ZERO_UUID

PARTITION = TopicPartition("flights", PartitionIndex(0))
BROKER, LEADER = BrokerId(1), BrokerId(2)
NOW_MS = 1_700_000_000_000


class Host:
    """Notes what it is asked for, and begins nothing by itself."""

    backoff_ms_max = 1_000

    def __init__(self) -> None:
        self.asked: list[FollowerRequest] = []
        self.started: list[Coroutine[object, object, None]] = []
        self.cuts: list[Truncation] = []

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return NOW_MS

    def due_at(self, who: Following, due_ms: int) -> None:
        pass

    def ask(self, following: Following, request: FollowerRequest) -> None:
        self.asked.append(request)

    def forget(self, following: Following) -> None:
        pass

    def start(self, work: Coroutine[object, object, None]) -> Any:
        self.started.append(work)
        return work

    async def cut(self, partition: Partition, truncation: Truncation) -> None:
        self.cuts.append(truncation)
        partition.log.truncate_to(truncation.end_offset)


def followed(host: Host) -> Partition:
    """A partition of three records of epoch 0, which follows the leader of epoch 1."""
    log = Log.open(
        MemoryDisk(), "logs/flights-0", PARTITION, LogConfig(), topic_id=None, clean_shutdown=True, now_ms=NOW_MS
    )
    log.assign_leader_epoch(LeaderEpoch(0))
    for _ in range(3):
        builder = BatchBuilder()
        builder.append(NOW_MS, None, b"x")
        log.append_as_leader(memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(0), now_ms=NOW_MS)
    partition = Partition(PARTITION, TopicId(ZERO_UUID), log)
    state = PartitionImage((LEADER, BROKER), (LEADER,), LEADER, LeaderEpoch(1), PartitionEpoch(1))
    machine = FollowerReplica(
        PARTITION, BROKER, state, partition.bounds, log.lineage, settings=FollowerSettings(fetch_backoff_ms=20)
    )
    partition.follow(Following(partition, machine, cast(FollowingHost, host)))
    return partition


def test_what_a_leader_had_cut_is_not_cut_in_the_next_epoch() -> None:
    """The epoch may end before the truncation has begun: by then the log is the next role's, which may be to lead."""

    async def story(is_stopped: bool) -> tuple[Offset, list[Truncation]]:
        host = Host()
        partition = followed(host)
        assert partition.following is not None
        partition.following.on_epoch_end(host.asked[0].number, (LeaderEpoch(0), Offset(1)))
        if is_stopped:
            partition.stop(LeaderEpoch(2))
        for work in host.started:
            await work
        return partition.log.log_end_offset, host.cuts

    assert asyncio.run(story(is_stopped=False)) == (1, [Truncation(Offset(1))])
    assert asyncio.run(story(is_stopped=True)) == (3, [])
