"""One node and its clients, production code all, in a world from a seed: what is acknowledged survives; runs repeat."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from support import simulated_story
from support.simulated_story import PARTITION, SYNC_EACH, TOPIC, Outcome, produce, read_all, run
from tidelog.aio import Factory
from tidelog.client.descriptions import NewTopic
from tidelog.sim.node import SimulatedNode
from tidelog.sim.world import SimulatedWorld

KEEPS_WRITTEN = {"log.flush.interval.messages": "1000000"}
STORY_SECONDS_MAX = 60


@pytest.mark.parametrize("seed", range(8))
def test_what_is_acknowledged_after_a_sync_survives_every_kind_of_end(seed: int) -> None:
    outcome = run(seed)
    assert len(outcome.acknowledged) > 100
    assert outcome.lost() == []
    assert sum(outcome.ends.values()) == 4
    gc.collect()  # what a dead process left behind may not complain


@pytest.mark.parametrize("seed", range(3))
def test_what_is_acknowledged_survives_kills_without_a_sync(seed: int) -> None:
    outcome = run(seed, kinds=("kill", "kill in step"), properties=KEEPS_WRITTEN)
    assert len(outcome.acknowledged) > 100
    assert outcome.lost() == []


def test_a_loss_of_power_takes_what_was_not_synced_and_the_check_sees_it() -> None:
    outcomes = [run(seed, kinds=("power",), properties=KEEPS_WRITTEN) for seed in range(4)]
    assert any(outcome.lost() for outcome in outcomes)


def test_nothing_is_there_twice_and_all_is_in_order() -> None:
    outcome = run(4, kinds=("kill", "stop", "kill in step"))
    values = [value for _, value in outcome.read]
    assert len(values) == len(set(values))
    assert [offset for offset, _ in outcome.read] == list(range(len(values)))
    numbers = [int(value.split()[1]) for value in values]
    assert numbers == sorted(numbers)


def test_a_seed_gives_the_same_run_in_every_process() -> None:
    told = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(Path(__file__).parents[1])}
        command = [sys.executable, simulated_story.__file__, "3"]
        told.add(subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout)
    ours = run(3)
    assert told == {f"{ours.digest} {ours.events} {len(ours.acknowledged)} {ours.ends} {ours.elapsed_seconds}\n"}
    assert run(4).digest != ours.digest


def test_a_run_that_ended_leaves_nothing_for_the_next_to_stumble_over() -> None:
    first = [run(seed, ends=1).digest for seed in (5, 6)]
    assert [run(seed, ends=1).digest for seed in (6, 5)] == first[::-1]


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


def test_virtual_time_is_faster_than_the_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    """100 requests/s, each synced, and two consumers. The bound is a tenth of what is usual on an idle machine."""
    virtual_seconds = 10.0
    read = [0, 0]

    async def consume(factory: Factory, number: int) -> None:
        async with factory.consumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([PARTITION])
            while True:
                read[number] += len(await consumer.poll(timeout_ms=1_000))

    async def story(world: SimulatedWorld, outcome: Outcome) -> None:
        node = SimulatedNode(world.machine("node-1"), SYNC_EACH)
        await node.start()
        factory = Factory(node.bootstrap, world=world.client_world("client"))
        consuming = [asyncio.create_task(consume(factory, number)) for number in range(2)]
        stopping = asyncio.Event()
        async with factory.producer() as producer:
            producing = asyncio.create_task(produce(producer, outcome, stopping, 0.01))
            await asyncio.sleep(virtual_seconds)
            stopping.set()
            await producing
        await asyncio.sleep(1)
        for task in consuming:
            task.cancel()
        await asyncio.gather(*consuming, return_exceptions=True)
        assert await node.stop()

    outcome = Outcome()
    with SimulatedWorld(1) as world:
        started = perf_counter()
        world.run(story(world, outcome))
        real_seconds = perf_counter() - started
        callbacks = world.loop.events
    with capsys.disabled():
        print(
            f"\n{virtual_seconds:.0f} virtual seconds in {real_seconds:.2f} s: {virtual_seconds / real_seconds:.0f} x "
            f"real time, {callbacks / real_seconds:.0f} callbacks/s"
        )
    assert read == [len(outcome.acknowledged)] * 2
    assert len(outcome.acknowledged) > 900
    assert virtual_seconds > real_seconds
