"""TxnOffsetCommit and markers at a broker: what is asked of whom, what the log's producers refuse, what is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.led_offsets import BROKER, PLACE, Led, SetClock, state_of
from support.fixtures.lone_broker import lone_replication
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, ProducerEpoch, ProducerId, TopicId, TopicPartition
from tidelog.coordinator.groups import GroupCoordinator
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.metadata import MetadataImage, TopicImage
from tidelog.records import ControlType, read_records, split_batches
from tidelog.records.control import read_end_transaction_marker
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.api.handlers.api_09_offset_fetch import handle as fetch
from tidelog.server.api.handlers.api_28_txn_offset_commit import handle
from tidelog.server.broker.broker import Broker
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode
from tidelog.server.groups.group_coordinators import GroupCoordinators
from tidelog.server.groups.transactional_commits import as_answered
from tidelog.server.tasks import Tasks
from tidelog.wire.messages.api_09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from tidelog.wire.messages.api_28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tidelog.wire.primitives import ZERO_UUID

PRODUCER = 77
GROUP = "g"
"""Of partition 7 of the 8 that there are."""


class Transactions:
    """The coordinator of transactions. It notes what it is asked, and says the same until told otherwise."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, TopicPartition, bool]] = []
        self.code = Code.NONE
        self.error: KafkaError | None = None
        self.meanwhile: Callable[[], Coroutine[object, object, object]] | None = None

    async def verify(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, Code]:
        self.asked += ((transactional_id, producer_id, producer_epoch, one, adds) for one in partitions)
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.error is not None:
            raise self.error
        return dict.fromkeys(partitions, self.code)


async def no_topics(topics: object) -> Sequence[Any]:
    return ()


class World:
    """A broker that leads the partition of the group, and a node around it for the handlers."""

    def __init__(
        self, disk: MemoryDisk | None = None, *, leader_epoch: int = 0, isr: tuple[int, ...] = (BROKER,)
    ) -> None:
        self.disk = disk or MemoryDisk()
        files: Any = SimpleNamespace(directory_of=lambda _: None)
        clock = SetClock()
        broker = Broker(
            BROKER,
            ZERO_UUID,
            files,
            lone_replication(BROKER, None, clock),
            clock=clock,
            executor=InlineExecutor(),
            tasks=Tasks("node"),
            on_failed=pytest.fail,
        )
        topics = {
            name: TopicImage(name, TopicId(UUID(int=number)), (state_of((BROKER,), 0),) * count)
            for number, (name, count) in enumerate((("t", 2), (PLACE.topic, 8)), start=2)
        }
        broker.image = MetadataImage(topics_by_name=topics, topics_by_id={one.topic_id: one for one in topics.values()})
        self.groups = GroupCoordinators(CoordinatorNode(broker, {}, clock, InlineExecutor(), SystemRng(), no_topics))
        self.transactions = Transactions()
        self.node: Any = SimpleNamespace(
            image=broker.image, groups=self.groups, clock=clock, verification=self.transactions
        )
        self.led = Led(self.disk, leader_epoch=leader_epoch)
        self.groups._has_begun = True
        self.groups.on_leadership_changed(self.led.partition)

    async def begin(self) -> World:
        (one,) = self.groups.here
        while one.refusal is not None:
            await asyncio.sleep(0)
        return self

    async def commit(
        self,
        offset: int = 5,
        *,
        topic: str = "t",
        partitions: tuple[int, ...] = (0,),
        producer_id: int = PRODUCER,
        producer_epoch: int = 0,
        generation_id: int = -1,
        group_id: str = GROUP,
        api_version: int = 5,
    ) -> list[Code]:
        request = TxnOffsetCommitRequest(
            transactional_id="txn",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic,
                    [
                        TxnOffsetCommitRequestPartition(
                            partition_index=one, committed_offset=offset, committed_leader_epoch=3
                        )
                        for one in partitions
                    ],
                )
            ],
        )
        context: Any = SimpleNamespace(api_version=api_version)
        answer = await handle(self.node, request, context)
        assert [one.name for one in answer.topics] == [topic]
        assert [one.partition_index for one in answer.topics[0].partitions] == list(partitions)
        return [Code(one.error_code) for one in answer.topics[0].partitions]

    async def marker(
        self,
        *,
        producer_id: int = PRODUCER,
        producer_epoch: int = 0,
        is_commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> Code:
        return await self.groups.write_marker(
            PLACE.partition,
            TransactionMarker(
                ProducerId(producer_id),
                ProducerEpoch(producer_epoch),
                is_commit,
                LeaderEpoch(coordinator_epoch),
                transaction_version,
            ),
        )

    async def fetched(self, *, require_stable: bool = False) -> dict[int, int | Code]:
        """The offsets of the topic, or their errors, by partition."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP)], require_stable=require_stable)
        context: Any = SimpleNamespace(api_version=9)
        answer = fetch(self.node, request, context)
        if not isinstance(answer, OffsetFetchResponse):
            answer = await answer
        return {
            one.partition_index: Code(one.error_code) if one.error_code else one.committed_offset
            for topic in answer.groups[0].topics
            for one in topic.partitions
        }


def run(story: Callable[[World], Coroutine[object, object, None]]) -> None:
    async def play() -> None:
        await story(await World().begin())

    asyncio.run(play())


def test_an_offset_counts_with_the_marker() -> None:
    async def story(world: World) -> None:
        assert await world.commit(partitions=(0, 1, 2)) == [Code.NONE, Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert await world.fetched() == {}
        assert await world.fetched(require_stable=True) == {
            0: Code.UNSTABLE_OFFSET_COMMIT,
            1: Code.UNSTABLE_OFFSET_COMMIT,
        }
        assert await world.marker(coordinator_epoch=4) is Code.NONE
        assert await world.fetched(require_stable=True) == {0: 5, 1: 5}
        assert await world.commit(6, producer_epoch=1) == [Code.NONE]
        assert await world.marker(producer_epoch=1, is_commit=False, coordinator_epoch=4) is Code.NONE
        assert await world.fetched(require_stable=True) == {0: 5, 1: 5}

    run(story)


def test_the_log_holds_what_kafka_writes() -> None:
    async def story(world: World) -> None:
        await world.commit(producer_epoch=2)
        await world.marker(producer_epoch=3, coordinator_epoch=4)
        log = world.led.partition.log
        data = log.read(log.log_start_offset, size_bytes_max=1 << 20, end_offset=log.log_end_offset).read_all()
        (at, offsets), (marker_at, marker) = split_batches(data)
        assert (offsets.producer_id, offsets.producer_epoch, offsets.base_sequence) == (PRODUCER, 2, -1)
        assert (offsets.is_transactional, offsets.is_control) == (True, False)
        assert len(list(read_records(data, at, offsets))) == 1
        assert (marker.producer_id, marker.producer_epoch, marker.base_sequence) == (PRODUCER, 3, -1)
        assert (marker.is_transactional, marker.is_control) == (True, True)
        (record,) = read_records(data, marker_at, marker)
        assert record.key == bytes([0, 0, 0, ControlType.COMMIT])
        said = read_end_transaction_marker(record)
        assert said is not None
        assert said.coordinator_epoch == 4

    run(story)


@pytest.mark.parametrize(("api_version", "adds"), [(0, False), (4, False), (5, True)])
def test_the_coordinator_of_the_transaction_is_asked_once(api_version: int, adds: bool) -> None:
    async def story(world: World) -> None:
        assert await world.commit(api_version=api_version) == [Code.NONE]
        assert await world.commit(api_version=api_version) == [Code.NONE]
        assert world.transactions.asked == [("txn", PRODUCER, 0, PLACE, adds)], "it is open here by then"
        await world.marker()
        assert await world.commit(api_version=api_version) == [Code.NONE]
        assert len(world.transactions.asked) == 2

    run(story)


def test_nobody_is_asked_about_partitions_that_do_not_exist() -> None:
    async def story(world: World) -> None:
        assert await world.commit(topic="u") == [Code.UNKNOWN_TOPIC_OR_PARTITION]
        assert await world.commit(partitions=(-1, 2)) == [Code.UNKNOWN_TOPIC_OR_PARTITION] * 2
        assert world.transactions.asked == []

    run(story)


def test_nothing_is_taken_in_for_a_transaction_that_is_not_open() -> None:
    async def story(world: World) -> None:
        world.transactions.code = Code.TRANSACTION_ABORTABLE
        assert await world.commit(api_version=4) == [Code.TRANSACTION_ABORTABLE]
        assert await world.commit(api_version=3) == [Code.INVALID_TXN_STATE]
        world.transactions.error = refusal(Code.COORDINATOR_LOAD_IN_PROGRESS)
        assert await world.commit(api_version=2) == [Code.COORDINATOR_LOAD_IN_PROGRESS]
        assert await world.commit(api_version=1) == [Code.COORDINATOR_NOT_AVAILABLE]
        assert world.led.partition.log.log_end_offset == 0

    run(story)


@pytest.mark.parametrize(
    ("said", "api_version", "answered"),
    [
        (Code.PRODUCER_FENCED, 5, Code.INVALID_PRODUCER_EPOCH),
        (Code.INVALID_PRODUCER_EPOCH, 5, Code.INVALID_PRODUCER_EPOCH),
        (Code.INVALID_PRODUCER_ID_MAPPING, 3, Code.INVALID_PRODUCER_ID_MAPPING),
        (Code.TRANSACTION_ABORTABLE, 4, Code.TRANSACTION_ABORTABLE),
        (Code.TRANSACTION_ABORTABLE, 3, Code.INVALID_TXN_STATE),
        (Code.CONCURRENT_TRANSACTIONS, 5, Code.CONCURRENT_TRANSACTIONS),
        (Code.CONCURRENT_TRANSACTIONS, 4, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Code.NETWORK_EXCEPTION, 5, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Code.NOT_COORDINATOR, 5, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.REQUEST_TIMED_OUT, 0, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.COORDINATOR_NOT_AVAILABLE, 5, Code.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_each_version_is_told_what_its_clients_understand(said: Code, api_version: int, answered: Code) -> None:
    assert as_answered(said, api_version) is answered


@pytest.mark.parametrize("was_open", [False, True])
def test_an_offset_does_not_come_in_behind_the_marker_of_its_transaction(was_open: bool) -> None:
    """KIP-890: it would be pending for ever. A marker of the same epoch is what transaction version 1 writes."""

    async def story(world: World) -> None:
        if was_open:
            await world.commit(4, producer_epoch=0)
            await world.marker()
        world.transactions.meanwhile = world.marker
        assert await world.commit(api_version=4) == [Code.INVALID_TXN_STATE]
        world.transactions.meanwhile = None
        assert not world.groups.here[0].coordinator.pending_producer_ids
        assert await world.commit(api_version=4) == [Code.NONE], "asked anew"

    run(story)


@pytest.mark.parametrize("then", [Code.NONE, Code.TRANSACTION_ABORTABLE])
def test_the_marker_of_the_transaction_before_may_come_late(then: Code) -> None:
    """The coordinator answered EndTxn before that, and its producer went on: what it says of the next one counts."""

    async def story(world: World) -> None:
        await world.commit(4, producer_epoch=0)

        async def late_marker() -> None:
            world.transactions.meanwhile = say
            await world.marker(producer_epoch=1, transaction_version=2)

        async def say() -> None:
            world.transactions.code = then

        world.transactions.meanwhile = late_marker
        assert await world.commit(5, producer_epoch=1) == [then]
        asked = [producer_epoch for _, _, producer_epoch, _, _ in world.transactions.asked]
        assert asked == [0, 1, 1]
        await world.marker(producer_epoch=2, transaction_version=2)
        assert await world.fetched() == {0: 5 if then is Code.NONE else 4}

    run(story)


def test_two_requests_that_verify_at_once_are_both_taken_in() -> None:
    async def story(world: World) -> None:
        world.transactions.meanwhile = lambda: asyncio.sleep(0)
        first, second = await asyncio.gather(world.commit(5), world.commit(6, partitions=(1,)))
        assert (first, second) == ([Code.NONE], [Code.NONE])
        await world.marker()
        assert await world.fetched() == {0: 5, 1: 6}

    run(story)


def test_an_older_epoch_of_the_producer_is_refused() -> None:
    async def story(world: World) -> None:
        await world.commit(producer_epoch=3)
        await world.marker(producer_epoch=4)
        asked = len(world.transactions.asked)
        assert await world.commit(6, producer_epoch=3) == [Code.INVALID_PRODUCER_EPOCH]
        assert len(world.transactions.asked) == asked
        end_offset = world.led.partition.log.log_end_offset
        assert await world.marker(producer_epoch=3) is Code.INVALID_PRODUCER_EPOCH
        assert world.led.partition.log.log_end_offset == end_offset
        assert await world.fetched(require_stable=True) == {0: 5}
        assert world.led.reloads == 0

    run(story)


def test_an_older_coordinator_of_the_transaction_is_refused() -> None:
    async def story(world: World) -> None:
        await world.commit()
        await world.marker(coordinator_epoch=5)
        await world.commit(6, producer_epoch=1)
        assert await world.marker(producer_epoch=1, coordinator_epoch=4) is Code.TRANSACTION_COORDINATOR_FENCED
        assert await world.fetched(require_stable=True) == {0: Code.UNSTABLE_OFFSET_COMMIT}
        assert await world.marker(producer_epoch=1, coordinator_epoch=5) is Code.NONE

    run(story)


def test_a_marker_that_comes_again_or_for_somebody_unknown_is_written() -> None:
    async def story(world: World) -> None:
        await world.commit()
        assert [await world.marker(), await world.marker()] == [Code.NONE, Code.NONE]
        assert await world.marker(producer_id=1_000, is_commit=False) is Code.NONE
        assert world.led.partition.log.log_end_offset == 4
        assert await world.fetched() == {0: 5}

    run(story)


def test_from_transaction_version_2_on_a_marker_has_an_epoch_of_its_own() -> None:
    async def story(world: World) -> None:
        await world.commit(producer_epoch=3)
        assert await world.marker(producer_epoch=3, transaction_version=2) is Code.INVALID_PRODUCER_EPOCH
        assert await world.marker(producer_epoch=4, transaction_version=2) is Code.NONE
        assert await world.fetched() == {0: 5}

    run(story)


def test_the_next_leader_waits_for_the_markers() -> None:
    async def play() -> None:
        before = await World().begin()
        await before.commit(4)
        await before.marker()
        await before.commit(5, producer_epoch=1)
        await before.commit(6, producer_id=8, partitions=(1,))
        before.groups.here[0].stop()
        world = await World(before.disk, leader_epoch=1).begin()
        assert await world.fetched() == {0: 4}
        assert await world.fetched(require_stable=True) == {
            0: Code.UNSTABLE_OFFSET_COMMIT,
            1: Code.UNSTABLE_OFFSET_COMMIT,
        }
        assert await world.commit(5, producer_epoch=1) == [Code.NONE]
        assert world.transactions.asked == [], "the log knows that it is open"
        await world.marker(producer_epoch=1)
        await world.marker(producer_id=8, is_commit=False)
        assert await world.fetched(require_stable=True) == {0: 5}

    asyncio.run(play())


def test_whoever_is_not_the_leader_says_so() -> None:
    async def story(world: World) -> None:
        world.groups.here[0].stop()
        assert await world.commit() == [Code.NOT_COORDINATOR]
        assert await world.marker() is Code.NOT_LEADER_OR_FOLLOWER
        marker = TransactionMarker(ProducerId(7), ProducerEpoch(0), True, LeaderEpoch(0), 0)
        assert await world.groups.write_marker(3, marker) is Code.NOT_LEADER_OR_FOLLOWER
        assert await world.commit(group_id="other") == [Code.NOT_COORDINATOR]

    run(story)


def test_while_groups_are_loaded_markers_are_to_be_sent_again() -> None:
    async def play() -> None:
        before = await World().begin()
        await before.commit()
        world = World(before.disk, leader_epoch=1)
        assert world.groups.here[0].refusal is not None
        assert await world.marker() is Code.NOT_LEADER_OR_FOLLOWER
        assert await world.commit(api_version=2) == [Code.COORDINATOR_LOAD_IN_PROGRESS]
        assert await world.commit(api_version=1) == [Code.COORDINATOR_NOT_AVAILABLE]
        await world.begin()
        assert await world.marker() is Code.NONE

    asyncio.run(play())


def test_the_machine_refuses_for_each_partition() -> None:
    async def story(world: World) -> None:
        assert await world.commit(partitions=(1, 0), generation_id=3) == [Code.ILLEGAL_GENERATION] * 2
        assert await world.commit(group_id="") == [Code.NOT_COORDINATOR], "it is of partition 0"

    run(story)


def test_what_a_machine_writes_for_a_producer_is_checked_by_the_log() -> None:
    """A machine that got past the checks would find the log refuse, and be loaded anew."""

    async def story(world: World) -> None:
        await world.marker(producer_epoch=4)
        one = world.groups.here[0]

        def end(coordinator: GroupCoordinator, request_id: Any, now_ms: int, wall_ms: int) -> None:
            coordinator.on_end_transaction(
                request_id, PRODUCER, 3, is_commit=True, coordinator_epoch=0, now_ms=now_ms, wall_ms=wall_ms
            )

        answer = one.submit(end)
        assert isinstance(answer, KafkaError)
        assert answer.code is Code.NOT_COORDINATOR
        assert world.groups.here != [one]
        assert world.led.partition.log.lineage.latest_leader_epoch == LeaderEpoch(0)

    run(story)
