"""Groups whose partition has a follower: what is not committed is not answered, nor served by the next leader."""

from __future__ import annotations

import asyncio
from typing import Any

from support.fixtures.led_offsets import BROKER, PLACE, Led
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.replicated_brokers import until
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from tidelog.metadata import PartitionImage
from tidelog.replica import FollowerFetch, LeaderReplica, LogBounds, ReplicationSettings

FOLLOWER = BrokerId(2)


class Replicated(Led):
    """Led, with a follower in sync."""

    def __init__(self, disk: MemoryDisk, *, leader_epoch: int = 0, min_insync: int = 2, **config: Any) -> None:
        super().__init__(disk, leader_epoch=leader_epoch, **config)
        both = (BROKER, FOLLOWER)
        state = PartitionImage(both, both, BROKER, LeaderEpoch(leader_epoch), PartitionEpoch(0))
        partition = self.partition
        bounds = LogBounds(partition.log.log_start_offset, partition.log.log_end_offset)
        self.partition.stop()
        settings = ReplicationSettings(min_insync_replicas=min_insync)
        self.partition.lead(
            LeaderReplica(PLACE, BROKER, state, bounds, partition.log.lineage, settings=settings, now_ms=0)
        )

    def fetch(self, offset: int) -> None:
        """The follower asks, and so has all below."""
        epoch = self.partition.role.leader_epoch
        self.partition.on_fetched(
            FollowerFetch(FOLLOWER, Offset(offset), epoch, None, BrokerEpoch(1), 0), log_start_offset=0
        )


def test_a_commit_is_answered_when_everyone_in_sync_has_it() -> None:
    async def run() -> None:
        led = Replicated(MemoryDisk())
        led.fetch(0)
        led.start()
        answer = led.commit(7)
        assert asyncio.isfuture(answer)
        await asyncio.sleep(0)
        assert not answer.done()
        led.fetch(led.partition.log.log_end_offset)
        await until(answer.done)
        assert answer.result().topics[0].partitions[0].error_code == Code.NONE
        assert led.committed() == {"t": 7}

    asyncio.run(run())


def test_a_new_leader_serves_once_it_knows_that_what_it_loaded_is_committed() -> None:
    async def run() -> None:
        disk = MemoryDisk()
        before = Led(disk)
        before.start()
        before.commit(7)
        end_offset = before.partition.log.log_end_offset
        led = Replicated(disk, leader_epoch=1, clean=False)
        led.start()
        led.fetch(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert led.committed() is Code.COORDINATOR_LOAD_IN_PROGRESS
        led.fetch(end_offset)
        await until(lambda: led.committed() == {"t": 7})

    asyncio.run(run())


def test_who_waits_for_a_commit_when_the_leadership_ends_is_sent_elsewhere() -> None:
    async def run() -> None:
        led = Replicated(MemoryDisk())
        led.fetch(0)
        led.start()
        answer = led.commit(7)
        led.partition.stop()
        led.one.stop()
        await until(answer.done)
        assert answer.result().code == Code.NOT_COORDINATOR

    asyncio.run(run())


def test_offsets_are_not_told_while_one_in_sync_is_silent_however_few_are_needed() -> None:
    """It may coordinate by now, and have others."""

    async def run() -> None:
        led = Replicated(MemoryDisk(), min_insync=1)
        led.fetch(0)
        led.start()
        answer = led.commit(7)
        led.fetch(led.partition.log.log_end_offset)
        await until(answer.done)
        silence = led.partition.leader().silence
        silence.on_silent(FOLLOWER)
        assert not silence.is_cut_off
        assert led.committed() is Code.NOT_COORDINATOR
        silence.on_contact(FOLLOWER)
        assert led.committed() == {"t": 7}

    asyncio.run(run())
