"""The collector looks at little at a time, however much there is; and finds all garbage in the end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from support.fixtures.fetch_model import ToyBroker
from tidelog.log import Log
from tidelog.server.garbage import (
    GROWN_BLOCKS,
    GROWN_QUIETLY_BLOCKS,
    LOOKED_AT_TOGETHER,
    GarbageCollection,
    expected_blocks,
)
from tidelog.server.replication.partition import Partition


class Link:
    """Of a cycle."""

    def __init__(self) -> None:
        self.itself = self


class Memory:
    """How many blocks are said to be in use."""

    def __init__(self) -> None:
        self.blocks = 0

    def __call__(self) -> int:
        return self.blocks


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def garbage(memory: Memory) -> Iterator[GarbageCollection]:
    gc.collect()
    collection = GarbageCollection(memory)
    collection.begin()
    yield collection
    collection.end()


def test_no_look_meets_many_objects_however_many_there_are(garbage: GarbageCollection) -> None:
    looked_at: list[int] = []

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked_at.append(sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

    gc.callbacks.append(on_collection)
    try:
        image = [[number] for number in range(300_000)]
    finally:
        gc.callbacks.remove(on_collection)
    assert len(looked_at) >= len(image) // LOOKED_AT_TOGETHER - 1
    assert max(looked_at) <= 4 * LOOKED_AT_TOGETHER
    assert len(gc.get_objects()) <= 4 * LOOKED_AT_TOGETHER


def test_what_dies_young_is_found_without_a_look_at_all(garbage: GarbageCollection) -> None:
    link = ref(Link())
    alive = [[number] for number in range(3 * LOOKED_AT_TOGETHER)]
    assert link() is None, len(alive)


def test_what_dies_after_it_was_frozen_is_found_by_a_look_at_all(garbage: GarbageCollection) -> None:
    old = Link()
    link = ref(old)
    alive = [[number] for number in range(20 * LOOKED_AT_TOGETHER)]
    del old
    gc.collect()
    assert link() is not None, "it is frozen, or this test shows nothing"
    garbage.look_at_all()
    assert link() is None, len(alive)


def test_all_is_looked_at_once_memory_has_grown(garbage: GarbageCollection, memory: Memory) -> None:
    """By as much as there was, and no less than what takes no time to look at; sooner where nobody waits."""
    memory.blocks = GROWN_QUIETLY_BLOCKS
    assert not garbage.is_due(is_quiet=True)
    memory.blocks += 1
    assert garbage.is_due(is_quiet=True)
    assert not garbage.is_due(is_quiet=False)
    memory.blocks = 4 * GROWN_BLOCKS
    assert garbage.is_due(is_quiet=False)
    garbage.look_at_all()
    assert not garbage.is_due(is_quiet=True)
    memory.blocks = 5 * GROWN_BLOCKS
    assert not garbage.is_due(is_quiet=True)
    memory.blocks = 8 * GROWN_BLOCKS
    assert garbage.is_due(is_quiet=True)
    assert not garbage.is_due(is_quiet=False)
    memory.blocks += 1
    assert garbage.is_due(is_quiet=False)


def test_memory_that_comes_and_goes_is_no_reason_to_look(garbage: GarbageCollection, memory: Memory) -> None:
    looks: list[int] = []
    garbage.look_at_all = lambda expected_blocks=0: looks.append(memory.blocks)  # type: ignore[method-assign]
    for memory.blocks in (3 * GROWN_BLOCKS, 0, 4 * GROWN_BLOCKS, 5 * GROWN_BLOCKS):
        garbage.on_interval(is_quiet=False)
    assert looks == [5 * GROWN_BLOCKS]


def test_the_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold(), list(gc.callbacks)
    collection = GarbageCollection()
    collection.begin()
    assert gc.get_freeze_count() > 0
    collection.end()
    assert (gc.get_threshold(), gc.callbacks, gc.get_freeze_count()) == (*before, 0)


def test_memory_that_partitions_are_known_to_take_is_not_looked_through(
    garbage: GarbageCollection, memory: Memory
) -> None:
    """Thirty thousand partitions were made: nothing of that is garbage, and a look at all takes most of a second."""
    garbage.freeze(expected_blocks(100, 100))
    memory.blocks = made = 69 * 30_000
    expected = expected_blocks(30_100, 30_100)
    assert not garbage.is_due(is_quiet=True, expected_blocks=expected)
    assert garbage.is_due(is_quiet=True)
    memory.blocks += GROWN_QUIETLY_BLOCKS + 1
    assert garbage.is_due(is_quiet=True, expected_blocks=expected), "that is something else"
    requested = expected_blocks(30_100, 30_100, counted_bytes=100 << 20)
    assert not garbage.is_due(is_quiet=True, expected_blocks=requested), "a long request, which is counted"
    garbage.look_at_all(expected)
    memory.blocks = made
    assert not garbage.is_due(is_quiet=True, expected_blocks=expected)
    assert garbage.is_due(is_quiet=True, expected_blocks=expected_blocks(100, 100)), "deleted ones are not freed"


def test_a_partition_that_was_deleted_is_freed_without_a_look_at_all() -> None:
    def alive() -> int:
        return sum(isinstance(one, (Partition, Log)) for one in gc.get_objects())

    async def story() -> None:
        broker = ToyBroker(2)
        before = alive()
        for index in (0, 1):  # led, and not led any more
            partition = broker.partitions.pop(index)
            if index:
                partition.stop()
            partition.stop()
            partition.log.retire()
            del partition
            await asyncio.sleep(0)
            assert alive() == before - 2 * (index + 1)

    gc.collect()
    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()
