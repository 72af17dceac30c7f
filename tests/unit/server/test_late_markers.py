"""Markers that come again, late: they must not end the transaction that has begun meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.fixtures.led_offsets import PLACE, Led, SetClock
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tidelog.records import BatchBuilder
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.groups.group_coordinators import GroupCoordinators
from tidelog.server.replication import leader_driver
from tidelog.server.transactions.markers import MarkerWriter

PRODUCER = ProducerId(7)
DATA = TopicPartition("t", PLACE.partition)


class World:
    """A partition that is led here in leader epoch 3, and whoever writes markers to it."""

    def __init__(self) -> None:
        self.led = Led(MemoryDisk(), leader_epoch=3)
        self.sequence = 0
        broker: Any = SimpleNamespace(partition=lambda topic, index: self.led.partition, failures=None)
        self.writer = MarkerWriter(broker, cast(GroupCoordinators, None), SetClock())

    def produce(self, producer_id: ProducerId = PRODUCER) -> None:
        builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        builder.append(0, None, b"record")
        self.led.partition.append_as_coordinator(
            memoryview(bytearray(builder.build())), leader_epoch=LeaderEpoch(3), now_ms=0
        )

    async def mark(
        self,
        number: int | None,
        *,
        coordinator_epoch: int = 1,
        leader_epoch: int = 3,
        is_commit: bool = False,
        producer_id: ProducerId = PRODUCER,
    ) -> Code:
        epoch = LeaderEpoch(coordinator_epoch)
        marker = TransactionMarker(producer_id, ProducerEpoch(0), is_commit, epoch, 1, number)
        try:
            await self.writer.write(DATA, marker, leader_epoch)
        except KafkaError as error:
            return error.code
        return Code.NONE

    @property
    def is_open(self) -> bool:
        state = self.led.partition.log.producers.get(PRODUCER)
        return state is not None and state.transaction_first_offset is not None


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def play() -> None:
        await scenario(World())

    asyncio.run(play())


def test_a_marker_that_comes_again_late_ends_no_later_transaction() -> None:
    async def scenario(world: World) -> None:
        world.produce()
        assert await world.mark(5) is Code.NONE
        world.produce()
        assert await world.mark(5) is Code.INVALID_PRODUCER_EPOCH
        assert await world.mark(4) is Code.INVALID_PRODUCER_EPOCH
        assert world.is_open
        assert await world.mark(6, is_commit=True) is Code.NONE
        assert not world.is_open

    run(scenario)


def test_one_that_comes_late_twice_does_not_lower_what_is_known() -> None:
    """With no transaction open it is taken once more, which ends nothing; the next ones go by the highest number."""

    async def scenario(world: World) -> None:
        for number in (5, 6):
            world.produce()
            assert await world.mark(number) is Code.NONE
        await world.mark(5)
        world.produce()
        assert await world.mark(6) is Code.INVALID_PRODUCER_EPOCH
        assert world.is_open

    run(scenario)


def test_a_marker_whose_first_answer_was_lost_is_answered_again() -> None:
    async def scenario(world: World) -> None:
        world.produce()
        assert await world.mark(5) is Code.NONE
        assert await world.mark(5) is Code.NONE

    run(scenario)


def test_another_coordinator_counts_anew() -> None:
    async def scenario(world: World) -> None:
        world.produce()
        assert await world.mark(5) is Code.NONE
        world.produce()
        assert await world.mark(1, coordinator_epoch=2) is Code.NONE
        assert not world.is_open
        world.produce()
        assert await world.mark(6, coordinator_epoch=1) is Code.INVALID_PRODUCER_EPOCH
        assert world.is_open

    run(scenario)


def test_a_marker_for_an_earlier_leader_is_sent_again() -> None:
    async def scenario(world: World) -> None:
        world.produce()
        assert await world.mark(5, leader_epoch=2) is Code.FENCED_LEADER_EPOCH
        assert await world.mark(5, leader_epoch=4) is Code.UNKNOWN_LEADER_EPOCH
        assert world.is_open
        assert all(code.retriable for code in (Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH))

    run(scenario)


def test_a_tool_that_counts_nothing_ends_what_is_open() -> None:
    async def scenario(world: World) -> None:
        world.produce()
        assert await world.mark(5) is Code.NONE
        world.produce()
        assert await world.mark(None, leader_epoch=-1) is Code.NONE
        assert not world.is_open

    run(scenario)


def test_it_is_remembered_of_so_many_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_driver, "LAST_MARKERS_MAX", 2)

    async def scenario(world: World) -> None:
        for producer_id in (7, 8, 7, 9):
            world.produce(ProducerId(producer_id))
            assert await world.mark(world.sequence, producer_id=ProducerId(producer_id)) is Code.NONE
            world.sequence += 1
        assert world.led.partition.role.leading().last_markers == {7: (1, 2), 9: (1, 3)}

    run(scenario)
