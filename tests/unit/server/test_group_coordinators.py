"""The topic behind groups: with how many replicas it is asked for, once for all who wait, and what a refusal says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.led_offsets import PLACE, GatedExecutor, Led, SetClock
from support.fixtures.lone_broker import lone_replication
from support.fixtures.memory_disk import MemoryDisk
from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, ProducerEpoch, ProducerId, TopicId
from tidelog.base.ports import Executor
from tidelog.controller import CreateTopicResult, TopicToCreate
from tidelog.coordinator.transactions.transaction import Transaction
from tidelog.io.executor import InlineExecutor
from tidelog.io.rng import SystemRng
from tidelog.metadata import BrokerImage, MetadataDelta, MetadataImage, TopicImage
from tidelog.metadata.records.brokers import RegisterBrokerRecord
from tidelog.metadata.records.cluster import ConfigRecord
from tidelog.metadata.records.topics import TopicRecord
from tidelog.records.transaction_marker import TransactionMarker
from tidelog.server.broker.broker import Broker
from tidelog.server.coordinators.coordinator_partitions import CoordinatorNode, send_to_nobody
from tidelog.server.groups.group_coordinators import GroupCoordinators, forget
from tidelog.server.tasks import Tasks
from tidelog.server.transactions.transaction_coordinators import TransactionCoordinators
from tidelog.wire.primitives import ZERO_UUID


class Controller:
    """Notes what it is asked to create, and answers with one code."""

    def __init__(self, code: Code = Code.NONE) -> None:
        self.asked: list[TopicToCreate] = []
        self._code = code

    async def create(self, topics: list[TopicToCreate]) -> Sequence[CreateTopicResult]:
        self.asked += topics
        await asyncio.sleep(0)
        return [CreateTopicResult(topic.name, self._code, "too few brokers") for topic in topics]


class NoFiles:
    """No log lies in a directory that could be full."""

    def directory_of(self, topic_partition: object) -> None:
        return None


def groups(
    controller: Controller, properties: Mapping[str, str], *, brokers: int = 1, executor: Executor | None = None
) -> GroupCoordinators:
    files: Any = NoFiles()
    broker = Broker(
        BrokerId(1),
        ZERO_UUID,
        files,
        lone_replication(BrokerId(1), None, SetClock()),
        clock=SetClock(),
        executor=InlineExecutor(),
        tasks=Tasks("node"),
        on_failed=pytest.fail,
    )
    registered = {
        BrokerId(number): BrokerImage(BrokerId(number), BrokerEpoch(0), ZERO_UUID, (), None, is_fenced=False)
        for number in range(1, brokers + 1)
    }
    broker.image = MetadataImage(brokers=registered)
    return GroupCoordinators(
        CoordinatorNode(broker, properties, SetClock(), executor or InlineExecutor(), SystemRng(), controller.create)
    )


@pytest.mark.parametrize(
    ("properties", "brokers", "replication_factor"),
    [({}, 1, 1), ({}, 2, 2), ({}, 5, 3), ({"offsets.topic.replication.factor": "3"}, 1, 3)],
)
def test_unless_told_it_takes_as_many_replicas_as_there_can_be(
    properties: dict[str, str], brokers: int, replication_factor: int
) -> None:
    controller = Controller()
    asyncio.run(groups(controller, properties, brokers=brokers).create_topic())
    (topic,) = controller.asked
    assert (topic.name, topic.num_partitions) == ("__consumer_offsets", 50)
    assert topic.replication_factor == replication_factor
    assert dict(topic.configs) == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_who_comes_meanwhile_waits_along() -> None:
    controller = Controller()

    async def run() -> None:
        found = groups(controller, {"offsets.topic.num.partitions": "7"})
        await asyncio.gather(*(found.create_topic() for _ in range(20)))

    asyncio.run(run())
    assert [topic.num_partitions for topic in controller.asked] == [7]


def test_a_refusal_says_what_to_do_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    controller = Controller(Code.INVALID_REPLICATION_FACTOR)

    async def run() -> None:
        found = groups(controller, {})
        for _ in range(3):
            with pytest.raises(KafkaError, match=r"offsets\.topic\.replication\.factor") as refused:
                await found.create_topic()
            assert refused.value.code is Code.COORDINATOR_NOT_AVAILABLE

    asyncio.run(run())
    assert len(controller.asked) == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_one_that_is_there_already_is_no_error() -> None:
    asyncio.run(groups(Controller(Code.TOPIC_ALREADY_EXISTS), {}).create_topic())


def image_of(*topics: str) -> MetadataImage:
    by_name = {name: TopicImage(name, TopicId(UUID(int=number)), ()) for number, name in enumerate(topics, start=2)}
    return MetadataImage(topics_by_name=by_name, topics_by_id={topic.topic_id: topic for topic in by_name.values()})


@pytest.mark.parametrize("is_deleted_first", [False, True])
def test_a_topic_that_is_made_while_groups_are_loaded_has_no_offsets(is_deleted_first: bool) -> None:
    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        led.commit(5, "t")
        led.commit(6, "u")
        executor = GatedExecutor()
        found = groups(Controller(), {}, executor=executor)
        broker = found._broker
        broker.image = image_of("t", "u") if is_deleted_first else image_of("u")
        found.on_leadership_changed(Led(disk, leader_epoch=1).partition)
        loading = asyncio.ensure_future(found.begin())
        await asyncio.sleep(0)
        if is_deleted_first:
            delta = MetadataDelta(broker.image)
            delta.deleted_topics[TopicId(UUID(int=2))] = broker.image.topics_by_name["t"]
            found.on_image_changed(delta, broker.image)
        broker.image = image_of("u", "t")  # made, maybe anew
        executor.gate.set()
        await loading
        (one,) = found.here
        while one.refusal is not None and one.refusal.code is Code.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0)
        assert one.coordinator.topics == {"u"}
        await found.events_synced()

    asyncio.run(run())


def test_a_deletion_that_the_log_refuses_while_groups_are_loaded_is_told_once_they_are_loaded_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(batch: object) -> None:
        raise refusal(Code.MESSAGE_TOO_LARGE, "not now")

    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        led.commit(5, "t")
        led.commit(6, "u")
        executor = GatedExecutor()
        found = groups(Controller(), {}, executor=executor)
        broker = found._broker
        broker.image = image_of("t", "u")
        found._has_begun = True
        found.on_leadership_changed(Led(disk, leader_epoch=1).partition)
        (before,) = found.here
        monkeypatch.setattr(before, "_append", refuse)
        delta = MetadataDelta(broker.image)
        delta.deleted_topics[TopicId(UUID(int=2))] = broker.image.topics_by_name["t"]
        found.on_image_changed(delta, broker.image)
        broker.image = image_of("t", "u")  # made anew, while the groups are loaded
        executor.gate.set()
        while found.here == [before] or found.here[0].refusal is not None:
            await asyncio.sleep(0)
        assert found.here[0].coordinator.topics == {"u"}

    asyncio.run(run())


def test_offsets_are_kept_of_a_topic_that_comes_with_the_image_that_makes_this_broker_lead() -> None:
    """A broker that is behind applies both at once. The image before does not have the topic yet."""

    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        led.commit(5, "t")
        led.commit(6, "gone")
        found = groups(Controller(), {}, executor=GatedExecutor())
        broker = found._broker
        found._has_begun = True
        broker.image, broker._next_image = image_of(), image_of("t")
        found.on_leadership_changed(Led(disk, leader_epoch=1).partition)
        executor = found._host.executor
        assert isinstance(executor, GatedExecutor)
        executor.gate.set()
        (one,) = found.here
        while one.refusal is not None:
            await asyncio.sleep(0)
        assert one.coordinator.topics == {"t"}
        await found.events_synced()

    asyncio.run(run())


def test_consumer_groups_know_the_topics_from_the_first_and_hear_of_each_change() -> None:
    """KIP-848: the coordinator assigns partitions, so it needs to know what there are."""

    async def run() -> None:
        found = groups(Controller(), {})
        broker = found._broker
        found._has_begun = True
        broker.image = replace(image_of("t"), last_offset=Offset(5))
        found.on_leadership_changed(Led(MemoryDisk(), leader_epoch=1).partition)
        known = found.here[0].coordinator.consumer_groups.members.known
        assert (known.version, known.ids(("t", "u"))) == (6, frozenset({TopicId(UUID(int=2))}))

        delta = MetadataDelta(broker.image)
        delta.replay(TopicRecord(name="u", topic_id=UUID(int=3)))
        broker.image = image = delta.apply(Offset(6))
        found.on_image_changed(delta, image)
        assert (known.version, known.ids(("t", "u"))) == (7, frozenset({TopicId(UUID(int=2)), TopicId(UUID(int=3))}))
        assert known.may_differ({"u"}, 6)
        assert not known.may_differ({"t"}, 6)

        delta = MetadataDelta(image)
        delta.replay(
            RegisterBrokerRecord(
                broker_id=7, broker_epoch=1, incarnation_id=UUID(int=7), rack="r", end_points=[], features=[]
            )
        )
        found.on_image_changed(delta, delta.apply(Offset(7)))
        assert known.may_differ({"t"}, 7), "any topic may stand on a broker that came"

        delta = MetadataDelta(image)
        delta.replay(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
        found.on_image_changed(delta, delta.apply(Offset(8)))
        assert known.version == 8, "nothing that groups go by"

    asyncio.run(run())


OLD, NEW = UUID(int=2), UUID(int=7)


def image_with(topic_id: UUID) -> MetadataImage:
    topic = TopicImage("t", TopicId(topic_id), ())
    return MetadataImage(topics_by_name={"t": topic}, topics_by_id={topic.topic_id: topic})


def commit_for(led: Led, topic_id: UUID) -> None:
    """As a broker does that knows the topic of this name by this id."""
    led.one.coordinator.consumer_groups.on_metadata(image_with(topic_id), 1, ())
    led.commit(5, "t")


def deletion() -> MetadataDelta:
    """Of the topic. Whether it is made anew, the image says."""
    before = image_with(OLD)
    delta = MetadataDelta(before)
    delta.deleted_topics[TopicId(OLD)] = before.topics_by_name["t"]
    return delta


@pytest.mark.parametrize(("committed_for", "is_kept"), [(OLD, False), (NEW, True)])
def test_a_start_keeps_the_offsets_of_a_topic_that_was_made_anew_long_ago(committed_for: UUID, is_kept: bool) -> None:
    """A node that starts replays the deletion and what made the next topic of that name, and then loads the groups."""

    async def run() -> None:
        disk = MemoryDisk()
        led = Led(disk)
        led.start()
        commit_for(led, committed_for)
        found = groups(Controller(), {}, executor=GatedExecutor())
        found._broker.image = image_with(NEW)
        found.on_image_changed(deletion(), image_with(NEW))
        found.on_leadership_changed(Led(disk, leader_epoch=1).partition)
        executor = found._host.executor
        assert isinstance(executor, GatedExecutor)
        executor.gate.set()
        await found.begin()
        (one,) = found.here
        while one.refusal is not None:
            await asyncio.sleep(0)
        assert one.coordinator.topics == ({"t"} if is_kept else set())
        await found.events_synced()

    asyncio.run(run())


@pytest.mark.parametrize(("committed_for", "is_kept"), [(OLD, False), (NEW, True)])
def test_a_deletion_that_a_broker_hears_of_late_keeps_the_offsets_of_the_next_topic(
    committed_for: UUID, is_kept: bool
) -> None:
    async def run() -> None:
        led = Led(MemoryDisk())
        led.start()
        commit_for(led, committed_for)
        led.one.notify(partial(forget, ["t"], image_with(NEW)))
        await asyncio.sleep(0)
        assert led.one.coordinator.topics == ({"t"} if is_kept else set())

    asyncio.run(run())


def test_a_coordinator_of_transactions_that_is_loaded_anew_goes_on_with_the_numbers_of_markers() -> None:
    """It has the epoch of the one before, whose markers are known by their numbers where they were written."""

    async def run() -> None:
        node = CoordinatorNode(
            groups(Controller(), {})._broker, {}, SetClock(), InlineExecutor(), SystemRng(), Controller().create
        )
        found = TransactionCoordinators(node, send_to_leader=send_to_nobody)
        before, after = (found._new_machine(0)._markers for _ in range(2))
        transaction = Transaction(
            transactional_id="t",
            producer_id=ProducerId(1),
            producer_epoch=ProducerEpoch(0),
            timeout_ms=1_000,
            partitions=frozenset((PLACE,)),
            updated_ms=0,
        )
        markers = [send.request for one in (before, after) for send in one.begin(transaction, LeaderEpoch(0))]
        assert [marker.number for marker in markers if isinstance(marker, TransactionMarker)] == [1, 2]

    asyncio.run(run())
