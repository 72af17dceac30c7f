"""One node and its clients, production code all, in a world from a seed: what they do while it is bad to them."""

from __future__ import annotations

import asyncio

from tidelog.aio import Consumer, Factory
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.sim.node import SimulatedNode
from tidelog.sim.runs.one_node import OneNodeStory
from tidelog.sim.runs.workload import WorkloadPlan
from tidelog.sim.world.world import SimulatedWorld

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
STORY_SECONDS_MAX = 60


async def read_all(consumer: Consumer) -> list[tuple[int, bytes]]:
    consumer.assign([PARTITION])
    consumer.seek_to_beginning()
    end = (await consumer.end_offsets([PARTITION]))[PARTITION].offset
    read: list[tuple[int, bytes]] = []
    while (await consumer.position(PARTITION)).offset < end:
        for record in await consumer.poll(timeout_ms=1_000):
            assert record.value is not None
            read.append((record.offset, bytes(record.value)))
    return read


def test_a_topic_is_made_written_to_and_read_while_the_network_parts_and_heals() -> None:
    async def story(world: SimulatedWorld) -> list[tuple[int, bytes]]:
        node = SimulatedNode(world.machine("node-1"))
        await node.start()
        factory = Factory(node.bootstrap, world=world.client_world("client"))
        async with factory.admin() as admin, factory.producer() as producer:
            await admin.create_topics([NewTopic(TOPIC, 1, 1)])
            assert [topic.name for topic in await admin.list_topics()] == [TOPIC]
            assert (await (await producer.send(TOPIC, b"before"))).offset == 0
            world.network.block("node-1", "client")  # what is asked arrives, the answer does not
            waiting = await producer.send(TOPIC, b"meanwhile")
            await asyncio.sleep(5)
            assert not waiting.done()
            world.network.heal()
            assert (await waiting).offset == 1
        async with factory.consumer() as consumer:
            read = await read_all(consumer)
        assert await node.stop()
        return read

    with SimulatedWorld(1) as world:
        assert world.run(story(world), limit_seconds=STORY_SECONDS_MAX) == [(0, b"before"), (1, b"meanwhile")]


def test_a_consumer_reads_on_across_a_kill() -> None:
    async def story(world: SimulatedWorld) -> list[bytes]:
        node = SimulatedNode(world.machine("node-1"))
        await node.start()
        factory = Factory(node.bootstrap, world=world.client_world("client"))
        read: list[bytes] = []
        async with factory.producer() as producer, factory.consumer(auto_offset_reset="earliest") as consumer:
            await (await producer.send(TOPIC, b"one"))
            consumer.assign([PARTITION])
            while not read:
                read += [bytes(record.value or b"") for record in await consumer.poll(timeout_ms=1_000)]
            node.kill()
            later = await producer.send(TOPIC, b"two")
            await asyncio.sleep(1)
            await node.start()
            await later
            while len(read) < 2:
                read += [bytes(record.value or b"") for record in await consumer.poll(timeout_ms=1_000)]
        return read

    with SimulatedWorld(1) as world:
        assert world.run(story(world), limit_seconds=STORY_SECONDS_MAX) == [b"one", b"two"]


def test_whatever_is_acknowledged_is_checked_without_faults_too() -> None:
    """100 requests/s, each synced, and two consumers. `bench/bench_sim.py` measures how long that takes."""
    with SimulatedWorld(1) as world:
        report = OneNodeStory(world, WorkloadPlan(interval_ms=10, consumers=2)).run(minutes=1 / 6, faults=[])
    assert report.broken == ()
    assert report.checks["AckedRecordsSurvive"] > 900
