"""Replicas of three brokers are moved between directories while leaders change, logs are cut and processes end.

Whatever came in between, all replicas are alike at the end and hold what was acknowledged, each in one directory.
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random

import pytest

from support.fixtures.replicated_brokers import PARTITION, ReplicatedBroker, ReplicatedCluster, run, until
from tidelog.base.errors import Code, KafkaError, TidelogError

DIRECTORIES = ("logs", "more")
ROUNDS = 40


class Story:
    """What happens to one cluster; `random` draws it."""

    def __init__(self, cluster: ReplicatedCluster, random: Random) -> None:
        self.cluster = cluster
        self.random = random
        self.acknowledged: list[bytes] = []
        self.cut_count = 0
        self.moved_count = 0
        self._number = 0

    @property
    def up(self) -> list[ReplicatedBroker]:
        return [broker for broker in self.cluster.brokers.values() if broker._is_up]

    async def play(self) -> None:
        """All of it."""
        await self.cluster.create(min_insync_replicas="1", segment_bytes="1500")
        for _ in range(ROUNDS):
            does = self.random.choices(
                (self.produce, self.move, self.change_leader, self.kill, self.delete), weights=(6, 5, 3, 2, 1)
            )[0]
            await does()
        await self.heal()
        self.check()

    async def produce(self) -> None:
        """Some are acknowledged by all in sync, some by their leader alone, and may be lost with it."""
        for _ in range(self.random.randrange(1, 8)):
            self._number += 1
            value = f"{self._number} " + "x" * self.random.randrange(400)
            acks = self.random.choice((1, -1))
            leader = self.cluster.state().leader
            if leader is None or not self.cluster.brokers[leader]._is_up:
                return
            try:
                answer = await self.cluster.produce(value, acks=acks, timeout_ms=2_000)
            except TidelogError:
                return
            if answer.error_code == Code.NONE and acks == -1:
                self.acknowledged.append(value.encode())

    async def move(self) -> None:
        """At one broker, or at all at once; sometimes back before it is there."""
        for broker in self.random.sample(self.up, self.random.randrange(1, len(self.up) + 1)):
            try:
                partition = broker.partition()
            except KafkaError:
                continue
            target = self.random.choice(broker.files.directories)
            before = broker.files.directory_of(PARTITION)
            await broker.machine.do(lambda b=broker, p=partition, t=target: b.broker.moves.move(p, t))  # type: ignore[misc]
            self.moved_count += target is not before
        if self.random.random() < 0.5:
            await asyncio.sleep(self.random.random() / 20)

    async def change_leader(self) -> None:
        """Who led may have records that nobody else has."""
        leader = self.cluster.state().leader
        if leader is None or len(self.up) < 3:
            return
        broker = self.cluster.brokers[leader]
        broker.is_deaf = True  # it leads on, as far as it knows
        self.cluster.controller.fence(leader)
        for number in range(self.random.randrange(3)):
            with contextlib.suppress(TidelogError, TimeoutError):
                await asyncio.wait_for(self.cluster.produce(f"lost {number}", acks=1, broker=leader), 1)
        broker.is_deaf = False
        broker.hear()
        await self.produce()
        self.cluster.controller.unfence(leader)
        await self.cluster.caught_up()

    async def kill(self) -> None:
        """The process ends, and begins anew, perhaps while its log is on the way."""
        broker = self.random.choice(self.up)
        broker.kill()
        self.cluster.controller.fence(broker.broker_id)
        await self.cluster.caught_up()
        await self.produce()
        await broker.start()

    async def delete(self) -> None:
        """The oldest records."""
        leader = self.cluster.state().leader
        if leader is None or not self.cluster.brokers[leader]._is_up:
            return
        broker = self.cluster.brokers[leader]
        try:
            partition = broker.partition()
            high_watermark = partition.high_watermark
            partition.delete_records(self.random.randrange(partition.log.log_start_offset, high_watermark + 1))
        except KafkaError:
            return
        await broker.machine.do(lambda: broker.files.served.persist_log_starts(broker.broker.partitions))

    async def heal(self) -> None:
        await self.cluster.in_sync(*self.cluster.brokers)
        await until(lambda: all(not broker.broker.moves._moves for broker in self.up))
        await self.cluster.produce("the last")
        await self.cluster.alike()

    def check(self) -> None:
        leader = self.cluster.leader
        values = leader.values()
        log = leader.partition().log
        kept = [value for value in self.acknowledged if int(value.split()[0]) >= self._first(values)]
        assert [value for value in kept if value not in set(values)] == []
        assert len(values) == len(set(values)) or any(value.startswith(b"lost") for value in values)
        for broker in self.cluster.brokers.values():
            own = broker.partition().log
            assert own.lineage.entries[-1] == log.lineage.entries[-1]
            assert (own.log_start_offset, own.log_end_offset) == (log.log_start_offset, log.log_end_offset)
            disk = broker.machine.disk
            found = [each for each in DIRECTORIES if disk.exists(f"{each}/{PARTITION}")]
            assert found == [broker.files.directory_of(PARTITION).path]  # type: ignore[union-attr]
            assert "future-log" not in disk.list(f"{found[0]}/{PARTITION}")

    def _first(self, values: list[bytes]) -> int:
        """The number of the first record that is not deleted: those before it in the log may be."""
        numbers = [int(value.split()[0]) for value in values if value[:1].isdigit()]
        return min(numbers, default=0)


@pytest.mark.parametrize("seed", range(4))
def test_all_are_alike_and_nothing_is_missing(seed: int) -> None:
    stories = []

    async def story(cluster: ReplicatedCluster) -> None:
        stories.append(Story(cluster, Random(seed)))
        await stories[0].play()

    run(story, properties={"log.dirs": ",".join(DIRECTORIES)}, seed=seed + 1)
    assert stories[0].moved_count
