"""Our transactional producer among simulated nodes that die, on a network that loses answers and delivers twice."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from support.nodes.cluster_stage import PARTITION, Stage, tell
from tidelog.base.errors import ProducerFencedError, TidelogError, TransactionAbortableError
from tidelog.client.admin.cluster_descriptions import FeatureUpdate
from tidelog.client.async_producer import AsyncProducer
from tidelog.sim.runs.workload import TOPIC
from tidelog.sim.world.rng import SeededRng

TRANSACTIONS = 40
RECORDS = 3
GIVES_UP = 0.2
KILLS = 8
PROPERTIES = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
}


class GaveUpError(Exception):
    """The program changes its mind in the middle of a transaction."""


async def committed(stage: Stage) -> int:
    """How many transactions are committed, as the group's offset says, which each of them sets."""
    async with stage.factory.admin() as admin:
        found = await admin.list_group_offsets("copier", [PARTITION])
    return found[PARTITION].offset if PARTITION in found else 0


async def write(producer: AsyncProducer, number: int, random: SeededRng) -> None:
    """One transaction."""
    async with producer.transaction() as transaction:
        for index in range(RECORDS):
            await transaction.send(TOPIC, b"%d-%d" % (number, index), partition=0)
            if random.random() < 0.3:
                await asyncio.sleep(random.random() * 0.2)
        await transaction.send_offsets({PARTITION: number + 1}, "copier")
        if random.random() < GIVES_UP:
            raise GaveUpError


async def copy(stage: Stage, random: SeededRng) -> dict[str, int]:
    """All transactions, one after the other. What ends a producer is repaired by another one. Returns what happened."""
    happened: dict[str, int] = {}
    done = 0
    while done < TRANSACTIONS:
        try:
            async with stage.factory.producer(
                transactional_id="copier", default_api_timeout_ms=8_000, request_timeout_ms=3_000
            ) as producer:
                await producer.init_transactions()
                done = await committed(stage)
                while done < TRANSACTIONS:
                    with suppress(TransactionAbortableError, GaveUpError):
                        await write(producer, done, random)
                        done += 1
        except TidelogError as error:
            name = type(error).__name__
            happened[name] = happened.get(name, 0) + 1
    return happened


async def read_committed(stage: Stage) -> list[str]:
    found: list[str] = []
    async with stage.factory.consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([PARTITION])
        async with asyncio.timeout(60):
            while len(found) < TRANSACTIONS * RECORDS:
                found += [bytes(record.value or b"").decode() for record in await consumer.poll(timeout_ms=100)]
        found += [bytes(record.value or b"").decode() for record in await consumer.poll(timeout_ms=1_000)]
    return found


@pytest.mark.parametrize(("version", "seed"), [(1, 9), (1, 14), (2, 1), (2, 24)])
def test_every_transaction_is_committed_once_and_in_order(version: int, seed: int) -> None:
    async def story(stage: Stage) -> None:
        random = stage.world.rng.stream("copier")
        await stage.make_topic(1, 2, 3)
        async with stage.factory.admin() as admin:
            if version == 1:
                await admin.update_features({"transaction.version": FeatureUpdate(1, "safe downgrade")})

        async def disturb() -> None:
            faults = stage.world.network.faults
            faults.reset_rate, faults.half_reset_rate, faults.loss_rate = 0.01, 0.02, 0.02
            for _ in range(KILLS):
                await asyncio.sleep(0.2 + 2 * random.random())
                victim = 1 + random.randrange(0, 3)
                stage.kill(victim)
                await asyncio.sleep(0.2 + random.random())
                await stage.start(victim)
            faults.reset_rate = faults.half_reset_rate = faults.loss_rate = 0.0

        disturbing = asyncio.create_task(disturb())
        happened = await copy(stage, random)
        await disturbing
        await stage.until_settled()
        assert happened.get(ProducerFencedError.__name__, 0) <= 1, happened  # by its own InitProducerId, come late
        expected = [f"{number}-{index}" for number in range(TRANSACTIONS) for index in range(RECORDS)]
        assert await read_committed(stage) == expected

    tell(story, seed=seed, properties=PROPERTIES)
