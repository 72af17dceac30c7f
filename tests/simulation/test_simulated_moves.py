"""A log is moved to another directory, and the process ends, or the power, at a step: what was acknowledged is there.

One node, production code all. A producer writes while the log is moved. At the next start there is one log, in one of
the directories; it holds what was acknowledged, once, and goes on.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tidelog.aio import Factory
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.client.admin.descriptions import NewTopic
from tidelog.records import read_records, split_batches
from tidelog.server.replication.partition import Partition
from tidelog.sim.node import SimulatedNode
from tidelog.sim.world.world import SimulatedWorld

TOPIC = "flights"
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))
BEFORE = 20
EVERY = 4
"""Of the steps that are tried: all of them take a minute."""
SECONDS_MAX = 120.0


def partition_of(node: SimulatedNode) -> Partition:
    assert node.node is not None
    return node.node.broker.partition(*PARTITION)


def values_of(partition: Partition) -> list[bytes]:
    log, offset, values = partition.log, partition.log.log_start_offset, []
    while offset < log.log_end_offset:
        found = log.read(offset, size_bytes_max=1 << 20, end_offset=log.log_end_offset)
        data = found.read_all()
        for position, header in split_batches(data):
            values += [bytes(record.value or b"") for record in read_records(data, position, header)]
            offset = header.next_offset  # type: ignore[assignment]
    return values


class Story:
    """One run: `step` of the move at which it ends; None for never."""

    def __init__(self, world: SimulatedWorld, step: int | None, *, without_power: bool) -> None:
        self.world = world
        self.step = step
        self.without_power = without_power
        self.acknowledged: list[bytes] = []
        self.steps = 0
        self.is_over = False
        self.found: tuple[str, ...] = ()
        self.node = SimulatedNode(
            world.machine("node-1"), {"log.dirs": "logs,more", "group.initial.rebalance.delay.ms": "0"}
        )

    async def play(self) -> None:
        """What happens."""
        node = self.node
        await node.start()
        factory = Factory(node.bootstrap, world=self.world.client_world("client"))
        async with factory.admin() as admin:
            configs = {"segment.bytes": "2000"} | ({"flush.messages": "1"} if self.without_power else {})
            await admin.create_topics([NewTopic(TOPIC, 1, 1, configs=configs)])
        async with factory.producer(linger_ms=0) as producer:
            for number in range(BEFORE):
                await (await producer.send(TOPIC, b"before %d " % number + b"x" * 200))
        self.acknowledged = values_of(partition_of(node))
        node.machine.executor.faults.wait_ms_max = 4.0
        writing = asyncio.ensure_future(self._write(factory))
        while len(self.acknowledged) < BEFORE + 3:
            await asyncio.sleep(0.001)
        await self._move()
        self.found = self._what_lies_there()
        if self.step is not None:
            if self.without_power:
                node.lose_power()
            else:
                node.kill()
            await node.start()
        self.is_over = True
        await writing
        await self._check()
        async with factory.producer(linger_ms=0) as another:
            await (await another.send(TOPIC, b"after"))
        assert values_of(partition_of(node))[-1] == b"after"

    async def _write(self, factory: Factory) -> None:
        """An idempotent producer, which tries again what was not answered."""
        async with factory.producer(linger_ms=0) as producer:
            number = 0
            while not self.is_over:
                value = b"meanwhile %d " % number + b"y" * 200
                await (await producer.send(TOPIC, value))
                self.acknowledged.append(value)
                number += 1

    def _what_lies_there(self) -> tuple[str, ...]:
        """Of each log its mark, and which of them is the longer one."""
        disk = self.node.machine.disk
        sizes: dict[str, int] = {}
        for directory in ("logs", "more"):
            path = f"{directory}/{PARTITION}"
            if disk.exists(path):
                names = disk.list(path)
                mark = disk.read_bytes(f"{path}/future-log").decode().split()[1] if "future-log" in names else "log"
                sizes[mark] = sum(len(disk.files[f"{path}/{name}"].data) for name in names if name.endswith(".log"))
        marks = sorted(sizes)
        if len(set(sizes.values())) == 2:
            marks.append("longer: the log" if max(sizes, key=lambda mark: sizes[mark]) == "log" else "longer: the copy")
        return tuple(marks)

    async def _move(self) -> None:
        machine, server = self.node.machine, self.node.node
        assert server is not None
        partition = partition_of(self.node)
        held = server.files.directory_of(PARTITION)
        [target] = [each for each in server.files.directories if each is not held]

        changes = 0
        on_change = machine.disk.on_change

        def count(operation: str, path: str, data: object) -> None:
            nonlocal changes
            changes += 1
            on_change(operation, path, data)  # type: ignore[arg-type]

        machine.disk.on_change = count
        machine.kill_at_change = self.step

        async def move() -> None:
            await server.broker.moves.move(partition, target)

        machine.do(move)
        async with asyncio.timeout(SECONDS_MAX):
            while machine.is_running:
                if server.files.directory_of(PARTITION) is target and not server.broker.moves._moves:
                    break
                await asyncio.sleep(0.001)
        machine.disk.on_change = on_change
        self.steps = changes

    async def _check(self) -> None:
        """One log, whole, with all that was acknowledged; and nothing else is left once a move goes on."""
        server = self.node.node
        assert server is not None
        async with asyncio.timeout(SECONDS_MAX):
            while server.broker.moves._moves:
                await asyncio.sleep(0.01)
        values = values_of(partition_of(self.node))
        missing = [value for value in self.acknowledged if value not in set(values)]
        assert not missing, missing
        assert max(Counter(values).values()) == 1
        numbers = [value for value in values if value.startswith(b"meanwhile")]
        assert numbers == sorted(numbers, key=lambda value: int(value.split()[1]))
        names = [f"{each}/{name}" for each in ("logs", "more") for name in self.node.machine.disk.list(each)]
        logs = [name for name in names if f"/{PARTITION}" in name and not name.endswith("-delete")]
        assert len(logs) == 1, logs
        assert "future-log" not in self.node.machine.disk.list(logs[0])


def play(step: int | None, *, seed: int = 1, without_power: bool) -> Story:
    with SimulatedWorld(seed) as world:
        story = Story(world, step, without_power=without_power)
        world.run(story.play(), limit_seconds=600)
        return story


def test_undisturbed_it_lies_elsewhere_and_nothing_is_missing() -> None:
    story = play(None, without_power=False)
    assert story.steps > 20


@pytest.mark.parametrize(("without_power", "first"), [(False, 0), (True, 2)])
def test_whatever_step_it_ends_at(without_power: bool, first: int) -> None:
    steps = play(None, without_power=without_power).steps
    stories = [play(step, seed=step + 1, without_power=without_power) for step in range(first, steps, EVERY)]
    assert {each.found[0] for each in stories} >= {"copying", "level", "log"}, "it ended before, meanwhile and after"
