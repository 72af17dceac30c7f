"""Brokers that replicate while they are killed, lose power, are parted and hear late: what was acknowledged stays."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from support.fixtures.replicated_brokers import ReplicatedBroker, ReplicatedCluster, run, until
from tidelog.base.errors import Code, TidelogError

PARTITIONS = 3
SECONDS = 15
BROKERS = (1, 2, 3)


class Trouble:
    """What goes wrong, one thing after the other; never so much that acknowledged records may be lost."""

    def __init__(self, cluster: ReplicatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._down: ReplicatedBroker | None = None

    async def make(self) -> None:
        cluster, random = self._cluster, self._random
        broker = cluster.brokers[random.choice(BROKERS)]
        match random.choice(("end", "start", "start", "fence", "part", "heal", "deaf", "silence")):
            case "end" if self._down is None:
                self._end(broker)
            case "start" if self._down is not None:
                await self._start()
            case "fence" if self._down is None:
                cluster.controller.fence(broker.broker_id)
                await asyncio.sleep(random.random())
                cluster.controller.unfence(broker.broker_id)
            case "part":
                cluster.world.network.block(broker.machine.name, f"broker-{random.choice(BROKERS)}")
            case "heal":
                cluster.world.network.heal()
            case "deaf" if broker is not self._down:
                broker.is_deaf = True
                await asyncio.sleep(2 * random.random())
                broker.is_deaf = False
                broker.hear()
            case "silence":
                cluster.controller.answers_nothing = not cluster.controller.answers_nothing

    def _end(self, broker: ReplicatedBroker) -> None:
        """Power may be lost where all are in sync: one may then lack what was not synced, and no second."""
        are_all_in_sync = all(len(self._cluster.state(index).isr) == len(BROKERS) for index in range(PARTITIONS))
        if are_all_in_sync and self._random.random() < 0.5:
            broker.lose_power()
        else:
            broker.kill()
        self._down = broker
        self._cluster.controller.fence(broker.broker_id)

    async def _start(self) -> None:
        assert self._down is not None
        await self._down.start()
        self._down = None

    async def end(self) -> None:
        """From now on all is well."""
        self._cluster.controller.answers_nothing = False
        self._cluster.world.network.heal()
        if self._down is not None:
            await self._start()


@pytest.mark.parametrize("seed", [3, 4])
def test_what_was_acknowledged_by_all_in_sync_survives_and_all_logs_agree(seed: int) -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        random = Random(seed)
        await cluster.create(partitions=PARTITIONS, min_insync_replicas="2")
        acknowledged: dict[int, list[bytes]] = {index: [] for index in range(PARTITIONS)}
        is_over = False

        async def produce(producer: int) -> None:
            number = 0
            while not is_over:
                number += 1
                index, value = random.randrange(PARTITIONS), f"{producer}-{number}"
                leader = cluster.state(index).leader
                try:
                    answer = await cluster.produce(value, index=index, broker=leader or 1, timeout_ms=3_000)
                    if answer.error_code == Code.NONE:
                        acknowledged[index].append(value.encode())
                except TidelogError:
                    pass
                await asyncio.sleep(0.05 * random.random())

        producers = [asyncio.ensure_future(produce(number)) for number in range(3)]
        trouble = Trouble(cluster, random)
        end_us = cluster.world.loop.now_us + SECONDS * 1_000_000
        while cluster.world.loop.now_us < end_us:
            await trouble.make()
            await asyncio.sleep(random.random())
        await trouble.end()
        is_over = True
        await asyncio.gather(*producers)
        for index in range(PARTITIONS):
            await cluster.in_sync(*BROKERS, index=index)
            await cluster.alike(index)
            held = set(cluster.brokers[1].values(index))
            assert [value for value in acknowledged[index] if value not in held] == []
        assert sum(map(len, acknowledged.values())) > 50
        await until(
            lambda: all(
                len({each.partition(index).high_watermark for each in cluster.brokers.values()}) == 1
                for index in range(PARTITIONS)
            )
        )
        assert [each.broker.offline_partitions for each in cluster.brokers.values()] == [[], [], []]

    run(story, seed=seed, properties={"replica.lag.time.max.ms": "2000"})
