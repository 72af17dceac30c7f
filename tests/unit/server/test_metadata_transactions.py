"""A large decision on three controllers: every node sees all of it or nothing, whoever ends meanwhile (KIP-868)."""

from __future__ import annotations

import asyncio

import pytest

from support.examples import examples
from support.worlds.simulated_quorum import EVERYBODY, Quorum, run_quorum
from tidelog.journal import Decision
from tidelog.metadata import MetadataImage
from tidelog.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    decode_record,
)
from tidelog.records import read_records, split_batches
from tidelog.server.node import Node

COUNT = 120
SETTINGS = {
    "controller.partition.changes.max": "10",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}


def made_up(value: int) -> tuple[object, ...]:
    """All of them say the same."""
    kind, name = EVERYBODY
    return tuple(
        ConfigRecord(resource_type=kind, resource_name=name, name=f"made-up-{number}", value=str(value))
        for number in range(COUNT)
    )


def seen(image: MetadataImage) -> str | None:
    """What an image says; it says one thing."""
    values = [value for name, value in image.configs.get(EVERYBODY, {}).items() if name.startswith("made-up-")]
    assert len(values) in (0, COUNT)
    assert len(set(values)) <= 1
    return values[0] if values else None


async def decide(quorum: Quorum, node: Node, value: int) -> asyncio.Task[None]:
    """Have a controller decide it, in its own process."""

    async def request() -> None:
        await node.controller.request(lambda _: Decision(made_up(value), None))

    return quorum.machine(node.config.node_id).do(request)


def boundaries(quorum: Quorum, node_id: int) -> list[type]:
    data = quorum.log_of(node_id)
    kinds = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)
    found = []
    for position, header in split_batches(data):
        if not header.is_control:
            for record in read_records(data, position, header):
                assert record.value is not None
                found.append(type(decode_record(record.value)))
    return [one for one in found if one in kinds]


def test_every_image_has_all_of_it_or_nothing() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        node = quorum.node(await quorum.leader())
        for value in range(3):
            deciding = await decide(quorum, node, value)
            while not deciding.done():
                for one in quorum.running:
                    assert seen(one.image) in (str(value), str(value - 1) if value else None)
                await asyncio.sleep(0.0002)
            deciding.result()
            assert seen(node.image) == str(value)
            await quorum.until(lambda: all(seen(one.image) == str(value) for one in quorum.running), "all have it")  # noqa: B023
        assert boundaries(quorum, node.config.node_id)[-2:] == [BeginTransactionRecord, EndTransactionRecord]

    run_quorum(story, settings={"controller.partition.changes.max": "10"})


@pytest.mark.parametrize("seed", range(examples(12)))
def test_a_leader_that_is_killed_midway_leaves_nothing_of_it_or_all(seed: int) -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        before: str | None = None
        for value in range(4):
            leader = await quorum.leader()
            node = quorum.node(leader)
            deciding = await decide(quorum, node, value)
            await asyncio.sleep(0.001 * (seed + 1) * (value + 1) / 4)
            is_told = deciding.done() and deciding.exception() is None
            quorum.nodes[leader].kill()
            await quorum.leader(other_than=leader)
            await quorum.set(2_000 + value)
            await quorum.nodes[leader].start()
            await quorum.until_all_have(2_000 + value)
            (after,) = {seen(one.image) for one in quorum.running}
            assert after == str(value) if is_told else after in (before, str(value))
            before = after

    run_quorum(story, seed, SETTINGS)


def test_a_leader_that_is_alone_ends_what_it_had_left_half_appended() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        for value in range(8):
            await decide(quorum, quorum.node(1), value)
            for _ in range(2 * value):
                await asyncio.sleep(0)
            quorum.nodes[1].kill()
            await quorum.nodes[1].start()
            await quorum.set(2_000 + value)
            seen(quorum.node(1).image)
        assert AbortTransactionRecord in boundaries(quorum, 1)

    run_quorum(story, settings={"controller.partition.changes.max": "10"}, ids=(1,))


def test_the_next_leader_ends_what_the_one_before_had_left_half_appended() -> None:
    async def story(quorum: Quorum) -> None:
        await quorum.start()
        aborted = 0
        for value in range(8):
            leader = await quorum.leader()
            await decide(quorum, quorum.node(leader), value)
            await asyncio.sleep(0.0005 * value)
            quorum.nodes[leader].kill()
            await quorum.leader(other_than=leader)
            await quorum.nodes[leader].start()
            await quorum.set(2_000 + value)
            await quorum.until_all_have(2_000 + value)
            assert len({seen(one.image) for one in quorum.running}) == 1
            aborted = boundaries(quorum, leader).count(AbortTransactionRecord)
        assert aborted

    run_quorum(story, settings={"controller.partition.changes.max": "10"})
