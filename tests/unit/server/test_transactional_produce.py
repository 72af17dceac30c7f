"""Batches that begin a transaction: when their coordinator is asked, and what becomes of answers that come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from support.fixtures.logs import NOW_MS, open_log
from support.fixtures.memory_disk import MemoryDisk
from support.fixtures.transactions import commit, send, txn_batch
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import LeaderEpoch, PartitionIndex, TopicPartition
from tidelog.server.api.handlers.api_00_produce import handle
from tidelog.server.api.transactional_produce import ADDS_FROM_VERSION, ASKED_MAX, CONTINUES, beginnings, verified
from tidelog.wire.messages.api_00_produce import PartitionProduceData, ProduceRequest, TopicProduceData

PLACE = TopicPartition("t", PartitionIndex(0))
PRODUCER = 5


class World:
    """A partition, and a coordinator of transactions that says yes; `meanwhile` is what happens as it is asked."""

    def __init__(self) -> None:
        self.log = open_log(MemoryDisk())
        self.asked = 0
        self.meanwhile: Callable[[], object] = lambda: None
        self.code = Code.NONE
        partition = SimpleNamespace(log=self.log, topic_partition=PLACE, leader=lambda: None)
        self.node: Any = SimpleNamespace(
            clock=SimpleNamespace(wall_ms=lambda: NOW_MS),
            broker=SimpleNamespace(partition=lambda topic, index: partition),
            verification=self,
        )

    async def verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Sequence[TopicPartition], *,
        adds: bool,
    ) -> Mapping[TopicPartition, Code]:  # fmt: skip
        assert (transactional_id, producer_id, adds) == ("txn", PRODUCER, True)
        self.asked += 1
        self.meanwhile()
        return dict.fromkeys(partitions, self.code)

    def produce(self, *values: str, epoch: int) -> Code:
        """What becomes of the first batch of a transaction."""
        batch = txn_batch(PRODUCER, *values, epoch=epoch)
        data = PartitionProduceData(index=0, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id="txn",
            acks=-1,
            timeout_ms=9,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        context: Any = SimpleNamespace(api_version=ADDS_FROM_VERSION, gathering=None)
        asked = beginnings(self.node, request, context)
        assert [one.data for one in asked] == [data]
        verdict = asyncio.run(verified(self.node, request, context, asked))[id(data)]
        if verdict.refusal is not None:
            return verdict.refusal.code
        if verdict is CONTINUES:
            return Code.NONE
        try:
            self.log.append_as_leader(
                batch, leader_epoch=LeaderEpoch(0), now_ms=NOW_MS, verification_guard=verdict.guard
            )
        except KafkaError as error:
            return error.code
        return Code.NONE


def test_what_waits_for_the_coordinator_is_kept_before_the_connection_reads_on() -> None:
    """The next bytes of the connection take the place of the frame as soon as its handler returns."""
    frame = txn_batch(PRODUCER, "v", epoch=0)
    sent = bytes(frame)
    data = PartitionProduceData(index=0, records=memoryview(frame))
    topics = [TopicProduceData(name="t", partition_data=[data])]
    request = ProduceRequest(transactional_id="txn", acks=-1, timeout_ms=9, topic_data=topics)
    context: Any = SimpleNamespace(api_version=ADDS_FROM_VERSION, gathering=None)
    waiting = handle(World().node, request, context)
    assert isinstance(waiting, Coroutine)
    frame[:] = bytes(len(frame))
    assert isinstance(data.records, memoryview)
    assert bytes(data.records) == sent
    waiting.close()


def test_a_coordinator_is_asked_once() -> None:
    world = World()
    assert world.produce("v", epoch=0) is Code.NONE
    assert world.asked == 1


@pytest.mark.parametrize("then", [Code.NONE, Code.TRANSACTION_ABORTABLE])
def test_the_marker_of_the_transaction_before_may_come_late(then: Code) -> None:
    """EndTxn was answered before that, and the producer went on: what is said of its next transaction counts."""
    world = World()
    send(world.log, PRODUCER, epoch=0)

    def late_marker() -> None:
        commit(world.log, PRODUCER, epoch=1, version=2)
        world.meanwhile = say

    def say() -> None:
        world.code = then

    world.meanwhile = late_marker
    assert world.produce("next", epoch=1) is then
    assert world.asked == 2


def test_a_batch_that_another_one_of_its_producer_came_before_continues() -> None:
    world = World()
    world.meanwhile = lambda: send(world.log, PRODUCER, epoch=0)
    assert world.produce("same", epoch=0) is Code.NONE
    assert world.asked == 1


def test_whoever_is_always_late_is_refused_in_the_end() -> None:
    world = World()
    markers = iter(range(1, 9))
    world.meanwhile = lambda: commit(world.log, PRODUCER, epoch=0, coordinator_epoch=next(markers))
    assert world.produce("late", epoch=0) is Code.INVALID_TXN_STATE
    assert world.asked == ASKED_MAX
