"""The controller's pushes of StopReplica: to whom, how often, and when it leaves them to the metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from support.fixtures.scripted_broker import HANG_UP, ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import LostReplica
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.metadata import BrokerImage, MetadataImage, RegisteredEndpoint
from tidelog.server.membership import replica_stops
from tidelog.server.membership.replica_stops import ATTEMPTS_MAX, ReplicaStops
from tidelog.server.tasks import Tasks
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_05_stop_replica import DELETED_TOPIC_EPOCH, StopReplicaRequest, StopReplicaResponse

SECONDS_MAX = 60.0
US, THEM = BrokerId(1), BrokerId(2)
TOPIC = TopicId(UUID(int=7))


class Controller:
    """Who pushes, and what it knows of itself."""

    def __init__(self) -> None:
        self.leader_epoch: LeaderEpoch | None = LeaderEpoch(5)
        self.stops = ReplicaStops(
            *(US, "INTERNAL", lambda: self.leader_epoch),
            network=RealNetwork(),
            rng=SystemRng(),
            tasks=Tasks("node"),
        )

    def push(
        self,
        broker: ScriptedBroker,
        *lost: LostReplica,
        broker_epoch: int = 30,
        offset: int = 99,
        listeners: tuple[str, ...] = ("PLAINTEXT", "INTERNAL"),
    ) -> None:
        endpoints = tuple(RegisteredEndpoint(name, "127.0.0.1", broker.port) for name in listeners)
        brokers = {
            each: BrokerImage(each, BrokerEpoch(broker_epoch), UUID(int=each), endpoints, None, is_fenced=False)
            for each in (US, THEM)
        }
        self.stops.on_replicas_lost(lost, MetadataImage(brokers=brokers), Offset(offset))

    async def has_pushed(self) -> None:
        await until(lambda: all(target.pushing is None for target in self.stops._targets.values()))


Scenario = Callable[[Controller, ScriptedBroker], Awaitable[None]]


def run(scenario: Scenario) -> list[StopReplicaRequest]:
    """Returns what the broker was sent."""

    async def go() -> list[StopReplicaRequest]:
        async with ScriptedBroker() as broker:
            controller = Controller()
            broker.on(ApiKey.STOP_REPLICA, lambda request, version: StopReplicaResponse())
            await scenario(controller, broker)
            await controller.stops.stop()
            return broker.messages(ApiKey.STOP_REPLICA)

    return asyncio.run(go())


def lost(index: int = 0, epoch: int | None = 3, *, broker: BrokerId = THEM) -> LostReplica:
    partition = TopicPartition("flights", PartitionIndex(index))
    return LostReplica(broker, partition, TOPIC, None if epoch is None else LeaderEpoch(epoch))


def test_what_is_lost_together_is_told_together_with_all_that_tells_late_orders_apart() -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        controller.push(broker, lost(0), lost(1, None), lost(0, broker=US), lost(0, broker=BrokerId(3)))
        controller.push(broker, lost(2), offset=101)
        await controller.has_pushed()

    (request,) = run(scenario)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (US, 5, 30)
    assert request.is_kraft_controller
    assert request.metadata_offset == 101
    (topic,) = request.topic_states
    assert (topic.topic_name, topic.topic_id) == ("flights", TOPIC)
    told = [(one.partition_index, one.leader_epoch, one.delete_partition) for one in topic.partition_states]
    assert told == [(0, 3, True), (1, DELETED_TOPIC_EPOCH, True), (2, 3, True)]


def test_who_hangs_up_is_told_again_a_few_times_and_no_more() -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        broker.on(ApiKey.STOP_REPLICA, lambda request, version: HANG_UP)
        controller.push(broker, lost(0))
        controller.push(broker, lost(1))
        await controller.has_pushed()
        assert controller.stops.dropped == 2
        broker.on(ApiKey.STOP_REPLICA, lambda request, version: StopReplicaResponse())
        controller.push(broker, lost(2))
        await controller.has_pushed()
        assert controller.stops.dropped == 2

    requests = run(scenario)
    assert len(requests) == ATTEMPTS_MAX + 1
    assert [one.partition_index for one in requests[-1].topic_states[0].partition_states] == [2]


@pytest.mark.parametrize("code", [Code.STALE_CONTROLLER_EPOCH, Code.STALE_BROKER_EPOCH])
def test_a_refusal_is_an_answer(code: Code) -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        broker.on(ApiKey.STOP_REPLICA, lambda request, version: StopReplicaResponse(error_code=code))
        controller.push(broker, lost())
        await controller.has_pushed()
        assert controller.stops.dropped == 0

    assert len(run(scenario)) == 1


@pytest.mark.parametrize("listeners", [("INTERNAL",), ("PLAINTEXT",), ("PLAINTEXT", "OUTSIDE")])
def test_a_broker_that_shares_a_listener_with_clients_is_left_to_the_metadata(
    listeners: tuple[str, ...],
) -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        controller.push(broker, lost(), listeners=listeners)
        await controller.has_pushed()
        assert controller.stops.dropped == 0

    assert run(scenario) == []


def test_a_broker_of_an_older_release_is_left_to_the_metadata() -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        del broker.versions[ApiKey.STOP_REPLICA]
        controller.push(broker, lost())
        await controller.has_pushed()
        assert controller.stops.dropped == 1

    assert run(scenario) == []


def test_a_controller_that_leads_no_more_is_silent() -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        controller.leader_epoch = None
        controller.push(broker, lost())
        await controller.has_pushed()
        controller.leader_epoch = LeaderEpoch(7)
        controller.push(broker, lost())
        controller.stops.on_resigned()
        await controller.has_pushed()
        assert controller.stops.dropped == 2

    assert run(scenario) == []


def test_what_is_queued_for_an_incarnation_is_not_for_the_next() -> None:
    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        controller.push(broker, lost(0))
        controller.push(broker, lost(1), broker_epoch=40)
        await controller.has_pushed()
        assert controller.stops.dropped == 1

    (request,) = run(scenario)
    assert request.broker_epoch == 40
    assert [one.partition_index for one in request.topic_states[0].partition_states] == [1]


def test_more_than_one_request_holds_goes_in_several_and_more_than_the_queue_holds_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replica_stops, "REPLICAS_PER_REQUEST_MAX", 2)
    monkeypatch.setattr(replica_stops, "REPLICAS_QUEUED_MAX", 5)

    async def scenario(controller: Controller, broker: ScriptedBroker) -> None:
        controller.push(broker, *(lost(index) for index in range(7)))
        await controller.has_pushed()
        assert controller.stops.dropped == 2

    requests = run(scenario)
    told = [one.partition_index for each in requests for one in each.topic_states[0].partition_states]
    assert told == [0, 1, 2, 3, 4]
    assert len(requests) == 3
