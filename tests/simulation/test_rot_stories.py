"""Cold records rot, at followers and at leaders: nobody reads wrong ones or passes over any, and they are repaired."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from struct import Struct

import pytest

from support.nodes.cluster_stage import PARTITION, Stage, tell
from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId
from tidelog.client.core.values import ConsumerRecord
from tidelog.log.batch_chain import BatchChain
from tidelog.log.segment import Segment
from tidelog.server.replication.damage_notes import DamageNotes
from tidelog.sim.runs.cluster_views import running
from tidelog.sim.world.disk import PAGE_SIZE_BYTES

RECORDS = 60
ROTTEN = 7
INT64 = Struct(">q")
SEGMENTS = {"log.segment.bytes": "1024"}
VALUES = [f"m{number}-{'x' * 20}" for number in range(RECORDS)]


def base_offset(data: bytearray, at: int) -> None:
    INT64.pack_into(data, at, INT64.unpack_from(data, at)[0] + 16)


def length(data: bytearray, at: int) -> None:
    data[at + 11] ^= 16


def leader_epoch(data: bytearray, at: int) -> None:
    data[at + 15] ^= 2


def content(data: bytearray, at: int) -> None:
    data[at + 75] ^= 1


KINDS: dict[str, Callable[[bytearray, int], None]] = {
    "base offset": base_offset,
    "length": length,
    "leader epoch": leader_epoch,
    "content": content,
}
HEADERS = ["base offset", "length"]
"""What is found by whoever serves it."""


def notes(stage: Stage, number: int) -> DamageNotes:
    found = running(stage.nodes[BrokerId(number)])
    assert found is not None
    return found.broker.replication.damage_notes


def rot(stage: Stage, number: int, kind: str, offset: int = ROTTEN) -> Segment:
    """Of the batch with this offset, while the node runs."""
    segments = stage.replica(number).log.segments
    segment = segments.overlapping(offset, offset + 1)[0]
    assert segment is not segments.active
    position = segment.position_of(offset)
    KINDS[kind](stage.nodes[BrokerId(number)].machine.disk.files[segment.path].data, position)
    return segment


async def fill(stage: Stage, *replicas: int) -> None:
    await stage.make_topic(*replicas)
    for value in VALUES:
        await stage.produce(value)
    await stage.until_settled()
    await stage.until(lambda: all(stage.replica(number).log.recovery_point >= RECORDS // 2 for number in replicas))


async def read(stage: Stage, *, at: int = 0, seconds: float = 60) -> list[str]:
    """What a consumer is given from the start on, in this time."""
    found: list[ConsumerRecord] = []
    async with (stage.factory_at(at) if at else stage.factory).consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        try:
            async with asyncio.timeout(seconds):
                while len(found) < RECORDS:
                    found += await consumer.poll(timeout_ms=100)
        except TimeoutError:
            pass
    assert [record.offset for record in found] == list(range(len(found)))
    return [bytes(record.value or b"").decode() for record in found]


def play(story: Callable[[Stage], Awaitable[None]], **properties: str) -> None:
    tell(story, properties=SEGMENTS | properties)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 2])
def test_what_nobody_reads_is_found_and_repaired_at_a_leader_and_at_a_follower(kind: str, number: int) -> None:
    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        assert stage.leader == 1
        epoch = stage.state.leader_epoch
        before = [stage.values(each) for each in (1, 2, 3)]
        rot(stage, number, kind)
        await stage.until(lambda: notes(stage, number).repaired == 1, seconds_max=300)
        assert (notes(stage, number).found, notes(stage, number).open_count) == (1, 0)
        await stage.until_settled()
        assert [stage.values(each) for each in (1, 2, 3)] == before
        assert (stage.leader, stage.state.leader_epoch) == (1, epoch)
        assert set(stage.state.isr) == {1, 2, 3}
        assert await read(stage) == VALUES

    play(story)


@pytest.mark.parametrize("kind", HEADERS)
def test_a_reader_waits_for_the_repair_of_what_it_comes_upon(kind: str) -> None:
    """No round of the scrubber is needed: whoever is about to send it finds it."""

    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        stage.replica(1).log.segments.first.release()
        rot(stage, 1, kind)
        assert await read(stage) == VALUES
        assert notes(stage, 1).repaired == 1

    play(story, **{"log.scrubber.io.max.bytes.per.second": "0"})


@pytest.mark.parametrize("kind", HEADERS)
def test_what_no_other_replica_has_is_refused_and_kept(kind: str) -> None:
    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        files = []
        for number in (1, 2, 3):
            path = rot(stage, number, kind).path
            files.append(stage.nodes[BrokerId(number)].machine.disk.files[path])
        before = [bytes(file.data) for file in files]
        given = await read(stage, seconds=20)
        assert given == VALUES[: len(given)]
        assert len(given) <= ROTTEN
        await stage.until(lambda: notes(stage, 1).lost_count == 1, seconds_max=150)
        assert [bytes(file.data) for file in files] == before

    play(story)


def spoil(stage: Stage, number: int, offset: int = ROTTEN) -> set[int]:
    """The disk cannot read the pages of the batch with this offset any more. Returns them."""
    segment = stage.replica(number).log.segments.overlapping(offset, offset + 1)[0]
    contents = stage.nodes[BrokerId(number)].machine.disk.files[segment.path]
    contents.bad_pages = {segment.position_of(offset) // PAGE_SIZE_BYTES}
    return contents.bad_pages


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("rate", ["1048576", "0"])
def test_what_a_disk_cannot_read_any_more_is_repaired(number: int, rate: str) -> None:
    """The scrubber comes upon it, or a reader does: of a leader a consumer, and of a follower whoever reads there."""

    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        before = [stage.values(each) for each in (1, 2, 3)]
        epoch = stage.state.leader_epoch
        spoil(stage, number)
        if rate == "0":
            if number == 2:
                stage.kill(1)
                await stage.until(lambda: stage.leader == 2)
            assert await read(stage, at=number) == VALUES
            if number == 2:
                await stage.start(1)
        await stage.until(lambda: notes(stage, number).repaired == 1, seconds_max=300)
        assert (notes(stage, number).found, notes(stage, number).open_count) == (1, 0)
        await stage.until_settled()
        assert [stage.values(each) for each in (1, 2, 3)] == before
        if rate != "0":
            assert (stage.leader, stage.state.leader_epoch) == (1, epoch)
        assert set(stage.state.isr) == {1, 2, 3}

    play(story, **{"log.scrubber.io.max.bytes.per.second": rate})


def test_what_a_disk_could_not_read_for_a_while_is_served_again() -> None:
    """Nobody has another replica: readers are refused, told, and served once the disk reads it after all."""

    async def story(stage: Stage) -> None:
        await fill(stage, 1)
        pages = spoil(stage, 1)
        given = await read(stage, seconds=20)
        assert given == VALUES[: len(given)]
        assert len(given) <= ROTTEN
        await stage.until(lambda: notes(stage, 1).lost_count == 1, seconds_max=150)
        (damage,) = notes(stage, 1).open[PARTITION]
        assert damage.reason == "the disk cannot read it"
        pages.clear()
        await stage.until(lambda: notes(stage, 1).open_count == 0, seconds_max=150)
        assert await read(stage) == VALUES

    play(story)


def test_a_disk_that_still_cannot_read_a_place_is_asked_for_no_more_than_that() -> None:
    """A segment may have a gigabyte, which is not read every minute."""

    async def story(stage: Stage) -> None:
        await fill(stage, 1)
        pages = spoil(stage, 1)
        await read(stage, seconds=5)
        await stage.until(lambda: notes(stage, 1).lost_count == 1, seconds_max=150)
        before = notes(stage, 1).scrubbed_bytes
        await asyncio.sleep(150)
        assert notes(stage, 1).scrubbed_bytes == before
        pages.clear()
        await stage.until(lambda: notes(stage, 1).open_count == 0, seconds_max=150)
        assert await read(stage) == VALUES

    play(story, **{"log.scrubber.io.max.bytes.per.second": "0"})


def test_a_follower_that_rotted_may_lead_and_passes_over_nothing() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        for number in (2, 3):
            stage.replica(number).log.segments.first.release()
        rot(stage, 2, "base offset")
        stage.kill(1)
        await stage.until(lambda: stage.leader == 2)
        assert await read(stage, at=2) == VALUES
        assert notes(stage, 2).repaired == 1
        await stage.start(1)
        await stage.until_settled()

    play(story, **{"log.scrubber.io.max.bytes.per.second": "0"})


def test_what_rotted_at_both_at_different_places_comes_from_each_other() -> None:
    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        rot(stage, 1, "content", ROTTEN)
        rot(stage, 2, "base offset", ROTTEN + 1)
        rot(stage, 3, "length", 2 * ROTTEN)
        await stage.until(lambda: all(notes(stage, each).repaired for each in (1, 2, 3)), seconds_max=400)
        assert all(notes(stage, each).open_count == 0 for each in (1, 2, 3))
        assert await read(stage) == VALUES

    play(story)


def test_without_the_comparison_the_rot_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: the same rot, and nobody looks at what is sent. This reader notices; not every one does."""

    async def story(stage: Stage) -> None:
        await fill(stage, 1, 2, 3)
        stage.replica(1).log.segments.first.release()
        rot(stage, 1, "base offset")
        with pytest.raises(KafkaError, match="the batch at offset 8 comes behind one that ends at 24"):
            await read(stage, seconds=20)

    monkeypatch.setattr(BatchChain, "follow", lambda self, data, start: None)
    play(story, **{"log.scrubber.io.max.bytes.per.second": "0"})
