"""One node, its producer and its consumer in a world from a seed: crashes, losses of power, a bad network, a slow disk.

As a program it prints what a run came to: `python simulated_story.py SEED`.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from itertools import count

from tidelog.aio import Consumer, Factory, Producer
from tidelog.base.errors import TidelogError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.sim.node import SimulatedNode
from tidelog.sim.rng import SeededRng
from tidelog.sim.world import SimulatedWorld

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
SYNC_EACH = {"log.flush.interval.messages": "1"}
START_ATTEMPT_SECONDS = 60.0


@dataclass
class Outcome:
    """What a run came to.

    Attributes:
        acknowledged: offsets by record.
        failed: records that the producer gave up, with the reasons.
        read: (offset, value) of all that is in the log at the end, in order.
        ends: how often the node came to its end, by kind.
    """

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    failed: dict[bytes, str] = field(default_factory=dict)
    read: list[tuple[int, bytes]] = field(default_factory=list)
    ends: dict[str, int] = field(default_factory=dict)
    digest: str = ""
    events: int = 0
    elapsed_seconds: float = 0.0

    def lost(self) -> list[bytes]:
        """Acknowledged records that are not where the acknowledgement said."""
        held = dict(self.read)
        return [value for value, offset in self.acknowledged.items() if held.get(offset) != value]


def draw_faults(world: SimulatedWorld, node: SimulatedNode, rng: SeededRng) -> None:
    """Each run is bad in its own way: most of what can go wrong is left out of most of them."""
    network, disk = world.network.faults, node.machine.executor.faults
    if rng.random() < 0.5:
        network.reset_rate = 0.005 * rng.random()
    if rng.random() < 0.5:
        network.straggle_rate = 0.2 * rng.random()
    if rng.random() < 0.5:
        network.cut_rate = rng.random()
    if rng.random() < 0.5:
        disk.stall_rate = 0.01 * rng.random()
    if rng.random() < 0.5:
        cold_rate, cold = rng.random(), rng.stream("cold")
        node.machine.disk.is_cold = lambda: cold.random() < cold_rate


def heal(world: SimulatedWorld, node: SimulatedNode) -> None:
    """From now on nothing is in the way: what was begun must come to its end."""
    world.network.faults.reset_rate = 0.0
    world.network.heal()
    node.machine.executor.faults.stall_rate = 0.0


async def start_again(node: SimulatedNode) -> None:
    starting = node.start_soon()
    await asyncio.wait([starting], timeout=START_ATTEMPT_SECONDS)
    assert starting.done(), "the node did not start in a minute"
    starting.result()


async def part(world: SimulatedWorld, rng: SeededRng) -> None:
    """Nothing gets through between the client and the node for a while, one way or both."""
    ways = [("client", "node-1"), ("node-1", "client")]
    for source, target in (ways, ways[:1], ways[1:])[rng.randrange(0, 3)]:
        world.network.block(source, target)
    await asyncio.sleep(3 * rng.random())
    world.network.heal()


async def end_and_restart(node: SimulatedNode, rng: SeededRng, outcome: Outcome, kinds: tuple[str, ...]) -> None:
    """One end of the node, of a kind that is drawn, and its return."""
    kind = kinds[rng.randrange(0, len(kinds))]
    outcome.ends[kind] = outcome.ends.get(kind, 0) + 1
    machine = node.machine
    if kind == "kill":
        node.kill()
    elif kind == "power":
        node.lose_power()
    elif kind == "stop":
        await node.stop()
    else:  # in the midst of a step
        machine.kill_at_change = rng.randrange(0, 30)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if not machine.is_running:
                break
        if machine.is_running:
            node.kill()
        if kind == "power in step":
            machine.lose_power()
    await asyncio.sleep(rng.random())
    await start_again(node)


async def produce(producer: Producer, outcome: Outcome, stopping: asyncio.Event, interval_seconds: float) -> None:
    waiting = []
    for number in count():
        if stopping.is_set():
            break
        value = b"record %d" % number
        try:
            waiting.append((value, await producer.send(TOPIC, value, partition=0)))
        except TidelogError as error:
            outcome.failed[value] = str(error)
        await asyncio.sleep(interval_seconds)
    for value, future in waiting:
        try:
            offset = (await future).offset
            assert offset is not None
            outcome.acknowledged[value] = offset
        except TidelogError as error:
            outcome.failed[value] = str(error)


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


async def tell(
    world: SimulatedWorld,
    outcome: Outcome,
    *,
    ends: int,
    kinds: tuple[str, ...],
    properties: dict[str, str] | None = None,
    interval_seconds: float = 0.01,
) -> None:
    """Produce all along, while the node comes to so many ends; then let everything heal, and read what is there."""
    rng = world.rng.stream("story")
    node = SimulatedNode(world.machine("node-1"), properties)
    await node.start()
    draw_faults(world, node, rng)
    factory = Factory(node.bootstrap, world=world.client_world("client"))
    stopping = asyncio.Event()
    async with factory.producer() as producer:
        producing = asyncio.create_task(produce(producer, outcome, stopping, interval_seconds))
        for _ in range(ends):
            await asyncio.sleep(2 * rng.random())
            if rng.random() < 0.3:
                await part(world, rng)
            await end_and_restart(node, rng, outcome, kinds)
        await asyncio.sleep(1)
        heal(world, node)
        stopping.set()
        await producing
    async with factory.consumer() as consumer:
        outcome.read = await read_all(consumer)
    await node.stop()


def run(
    seed: int,
    *,
    ends: int = 4,
    kinds: tuple[str, ...] = ("kill", "power", "stop", "kill in step", "power in step"),
    properties: dict[str, str] | None = None,
) -> Outcome:
    outcome = Outcome()
    with SimulatedWorld(seed) as world:
        world.run(tell(world, outcome, ends=ends, kinds=kinds, properties=properties or SYNC_EACH))
        outcome.digest, outcome.events = world.trace.digest, world.trace.count
        outcome.elapsed_seconds = world.elapsed_seconds
    return outcome


if __name__ == "__main__":
    told = run(int(sys.argv[1]))
    print(told.digest, told.events, len(told.acknowledged), told.ends, told.elapsed_seconds)
