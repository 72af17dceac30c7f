"""Clients whose call taught them who leads, and whose next call finds that leader dead, or silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.modelled_admin import FAST
from support.fixtures.scripted_broker import SILENT, ScriptedBroker
from tidelog import TopicPartition, aio
from tidelog.base.ids import Offset, PartitionIndex
from tidelog.records import split_batches
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_00_produce as produce
from tidelog.wire.messages import api_02_list_offsets as list_offsets
from tidelog.wire.messages import api_03_metadata as metadata
from tidelog.wire.messages import api_23_offset_for_leader_epoch as epoch_end
from tidelog.wire.messages.api_22_init_producer_id import InitProducerIdResponse

PARTITION = TopicPartition("flights", PartitionIndex(0))


class Replica(ScriptedBroker):
    """One of two brokers that hold the partition; both say the same of who leads it."""

    def __init__(self, brokers: list[Replica]) -> None:
        super().__init__()
        self.brokers = brokers
        self.leader_id = 0
        self.written: list[int] = []
        self.on(ApiKey.METADATA, self._metadata)
        self.on(ApiKey.LIST_OFFSETS, self._list_offsets)
        self.on(ApiKey.OFFSET_FOR_LEADER_EPOCH, self._epoch_end)
        self.on(ApiKey.INIT_PRODUCER_ID, lambda request, version: InitProducerIdResponse(producer_id=1))
        self.on(ApiKey.PRODUCE, self._produce)

    def _metadata(self, request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
        names = ["flights"] if request.topics is None else [topic.name for topic in request.topics]
        row = metadata.MetadataResponsePartition(
            partition_index=0, leader_id=self.leader_id, leader_epoch=4 + self.leader_id, replica_nodes=[0, 1]
        )
        return metadata.MetadataResponse(
            brokers=[
                metadata.MetadataResponseBroker(number, "127.0.0.1", one.port)
                for number, one in enumerate(self.brokers)
            ],
            cluster_id="one",
            controller_id=1,
            topics=[
                metadata.MetadataResponseTopic(name=name, topic_id=UUID(int=1), partitions=[row]) for name in names
            ],
        )

    def _list_offsets(self, request: list_offsets.ListOffsetsRequest, version: int) -> list_offsets.ListOffsetsResponse:
        row = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=Offset(7), leader_epoch=5)
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("flights", [row])])

    def _produce(self, request: produce.ProduceRequest, version: int) -> produce.ProduceResponse:
        (topic,) = request.topic_data
        (partition,) = topic.partition_data
        assert partition.records is not None
        self.written += [header.base_sequence for _, header in split_batches(partition.records)]
        row = produce.PartitionProduceResponse(index=0, error_code=0, base_offset=self.written[-1])
        return produce.ProduceResponse(
            responses=[
                produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])
            ]
        )

    def _epoch_end(
        self, request: epoch_end.OffsetForLeaderEpochRequest, version: int
    ) -> epoch_end.OffsetForLeaderEpochResponse:
        row = epoch_end.EpochEndOffset(partition=0, leader_epoch=4, end_offset=7)
        return epoch_end.OffsetForLeaderEpochResponse(topics=[epoch_end.OffsetForLeaderTopicResult("flights", [row])])


async def describe(admin: aio.Admin) -> None:
    assert (await admin.describe_topics(["flights"]))["flights"].partitions[0].leader == 0


async def list_all(admin: aio.Admin) -> None:
    assert [topic.name for topic in await admin.list_topics()] == ["flights"]


async def ask_before(admin: aio.Admin) -> None:
    await admin.describe_lineages([PARTITION])


async def offsets(admin: aio.Admin) -> None:
    found = (await admin.list_offsets({PARTITION: "latest"}))[PARTITION]
    assert found is not None
    assert found.offset == 7


async def epoch_ends(admin: aio.Admin) -> None:
    assert (await admin.offsets_for_leader_epoch({PARTITION: (None, 4)}))[PARTITION] == (4, 7)


Call = Callable[[aio.Admin], Coroutine[Any, Any, None]]


def run(scenario: Callable[[aio.Admin, Replica, Replica], Awaitable[None]], **options: Any) -> None:
    """Of an Admin that is connected to the second broker, while the first leads."""

    async def main() -> None:
        brokers: list[Replica] = []
        async with Replica(brokers) as first, Replica(brokers) as second:
            brokers += [first, second]
            async with aio.Admin(second.address, **{**FAST, **options}) as admin:
                await scenario(admin, first, second)

    asyncio.run(main())


@pytest.mark.parametrize("then", [offsets, epoch_ends])
@pytest.mark.parametrize("taught", [describe, list_all, ask_before])
def test_what_was_learned_by_any_call_is_kept_up_to_date_once_its_leader_is_dead(taught: Call, then: Call) -> None:
    async def scenario(admin: aio.Admin, first: Replica, second: Replica) -> None:
        await taught(admin)
        await first.stop()
        second.leader_id = 1
        await then(admin)

    run(scenario)


@pytest.mark.parametrize("then", [offsets, epoch_ends])
@pytest.mark.parametrize("silent", [ApiKey.API_VERSIONS, None])
def test_a_leader_that_does_not_answer_is_left_as_soon_as_another_leads(then: Call, silent: ApiKey | None) -> None:
    async def scenario(admin: aio.Admin, first: Replica, second: Replica) -> None:
        await describe(admin)
        silenced = [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH] if silent is None else [silent]
        for key in silenced:
            first.on(key, lambda request, version: SILENT)
        second.leader_id = 1
        await then(admin)

    # Whoever waited for the first one would wait for ever.
    hour = 3_600_000
    run(scenario, request_timeout_ms=hour, socket_connection_setup_timeout_ms=hour)


def test_what_a_silent_leader_was_sent_goes_to_the_next_in_its_order() -> None:
    async def main() -> None:
        brokers: list[Replica] = []
        async with Replica(brokers) as first, Replica(brokers) as second:
            brokers += [first, second]
            hour = 3_600_000
            async with aio.Producer(
                second.address, batch_size=1, linger_ms=0, request_timeout_ms=hour, delivery_timeout_ms=2 * hour
            ) as producer:
                await (await producer.send("flights", b"before", partition=0))
                asked = asyncio.Event()

                def stay_silent(request: produce.ProduceRequest, version: int) -> object:
                    asked.set()
                    return SILENT

                first.on(ApiKey.PRODUCE, stay_silent)
                sent = [await producer.send("flights", b"after", partition=0) for _ in range(3)]
                await asked.wait()
                second.leader_id = first.leader_id = 1
                await asyncio.gather(*sent)
            assert (first.written, second.written) == ([0], [1, 2, 3])

    asyncio.run(main())


def test_a_producer_takes_its_id_from_another_broker_if_one_that_is_cut_off_does_not_answer() -> None:
    async def main() -> None:
        brokers: list[Replica] = []
        async with Replica(brokers) as first, Replica(brokers) as second:
            brokers += [first, second]
            second.on(ApiKey.INIT_PRODUCER_ID, lambda request, version: SILENT)  # it waits for the controller
            hour = 3_600_000
            async with aio.Producer(second.address, request_timeout_ms=hour, delivery_timeout_ms=2 * hour) as producer:
                await (await producer.send("flights", b"hello", partition=0))
            assert second.messages(ApiKey.INIT_PRODUCER_ID)
            assert first.written == [0]

    asyncio.run(main())
