"""A broker tells the controller where its replicas lie, until it is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.scripted_broker import HANG_UP, ScriptedBroker
from support.fixtures.waiting import until
from tidelog.base.errors import Code
from tidelog.base.ids import (
    BrokerEpoch,
    BrokerId,
    ClusterId,
    LeaderEpoch,
    Offset,
    PartitionEpoch,
    TopicId,
    TopicPartition,
)
from tidelog.io.network import RealNetwork
from tidelog.io.rng import SystemRng
from tidelog.metadata import BrokerImage, MetadataDelta, MetadataImage, PartitionImage, TopicImage
from tidelog.metadata.records.topics import PartitionChangeRecord
from tidelog.net.address import Address
from tidelog.server.membership import directory_assignments
from tidelog.server.membership.controller_channel import ControllerChannel
from tidelog.server.membership.directory_assignments import DirectoryAssignments
from tidelog.server.tasks import Tasks
from tidelog.wire import ApiKey
from tidelog.wire.messages.api_73_assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

SECONDS_MAX = 60.0
US, OTHER = BrokerId(1), BrokerId(2)
TOPIC = TopicId(UUID(int=7))
A, B = UUID(int=1_001), UUID(int=1_002)
EPOCH = BrokerEpoch(30)


class Leader:
    """One, for as long as it lasts."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.leader_id = BrokerId(9)
        self.leader_epoch = LeaderEpoch(1)
        self.leader_address = Address("127.0.0.1", broker.port)
        self.is_leaderless = False
        self.leaderless_ms = 0
        self.voters_heard = "1 of the 3 voters answers"

    async def leader_changed(self) -> None:
        await asyncio.Event().wait()


class Assigning:
    """A broker with replicas 0 to 3, of which the even ones lie in `A` and the odd ones in `B`."""

    def __init__(self, controller: ScriptedBroker) -> None:
        self.controller = controller
        self.broker_epoch: BrokerEpoch | None = EPOCH
        self.channel = ControllerChannel(US, ClusterId("c"), Leader(controller), network=RealNetwork(), rng=SystemRng())
        files: Any = SimpleNamespace(
            directory_of=lambda one: (
                SimpleNamespace(directory_id=(A, B)[one.partition % 2]) if isinstance(one, TopicPartition) else None
            )
        )
        self.tasks = Tasks("broker")
        self.assignments = DirectoryAssignments(
            US, files, lambda: self.broker_epoch, self.channel, rng=SystemRng(), tasks=self.tasks
        )
        self.requests: list[AssignReplicasToDirsRequest] = []

    def learn(self, *directories: UUID | None, level: int = 27, changed: tuple[int, ...] = ()) -> None:
        """The metadata says where replicas lie."""
        partitions = tuple(
            PartitionImage(
                (OTHER, US),
                (OTHER, US),
                OTHER,
                LeaderEpoch(0),
                PartitionEpoch(0),
                directories=(UUID(int=0), each) if each else (),
            )
            for each in directories
        )
        topic = TopicImage("flights", TOPIC, partitions)
        broker = BrokerImage(US, EPOCH, UUID(int=1), (), None, is_fenced=False)
        image = MetadataImage(
            {"flights": topic},
            {TOPIC: topic},
            {US: broker},
            features={"metadata.version": level},
            last_offset=Offset(40),
        )
        delta = MetadataDelta(image)
        for index in changed:
            delta.replay(PartitionChangeRecord(partition_id=index, topic_id=TOPIC))
        self.assignments.on_image_changed(delta, image)

    async def has_told(self) -> None:
        await until(lambda: self.assignments._report_task is None)


def run(scenario: Callable[[Assigning], Awaitable[None]]) -> list[dict[UUID, list[int]]]:
    """Returns what the controller was told, by request: the partitions in each directory."""

    async def go() -> list[dict[UUID, list[int]]]:
        async with ScriptedBroker() as controller:
            controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda request, version: AssignReplicasToDirsResponse())
            assigning = Assigning(controller)
            await scenario(assigning)
            await assigning.tasks.end()
            await assigning.channel.close()
            requests: list[AssignReplicasToDirsRequest] = controller.messages(ApiKey.ASSIGN_REPLICAS_TO_DIRS)
            assert {(one.broker_id, one.broker_epoch) for one in requests} <= {(US, EPOCH)}
            return [
                {
                    each.id: [one.partition_index for topic in each.topics for one in topic.partitions]
                    for each in one.directories
                }
                for one in requests
            ]

    return asyncio.run(go())


def test_what_the_metadata_does_not_say_or_says_wrongly_is_told() -> None:
    async def scenario(assigning: Assigning) -> None:
        assigning.learn(None, B, B, None)
        await assigning.has_told()
        assigning.learn(A, B, A, B, changed=(0, 2, 3))
        await assigning.has_told()

    assert run(scenario) == [{A: [0, 2], B: [3]}]


@pytest.mark.parametrize("answer", [HANG_UP, AssignReplicasToDirsResponse(error_code=Code.STALE_BROKER_EPOCH)])
def test_it_goes_on_until_it_is_heard(answer: object) -> None:
    async def scenario(assigning: Assigning) -> None:
        answers = [answer, answer, AssignReplicasToDirsResponse()]
        assigning.controller.on(ApiKey.ASSIGN_REPLICAS_TO_DIRS, lambda request, version: answers.pop(0))
        assigning.learn(None, B)
        await assigning.has_told()
        assert answers == []

    assert run(scenario) == [{A: [0]}] * 3


def test_where_there_are_no_words_for_directories_nothing_is_said_until_there_are() -> None:
    async def scenario(assigning: Assigning) -> None:
        assigning.learn(None, None, level=16)
        assigning.learn(None, None, level=16, changed=(0,))
        assert assigning.assignments._report_task is None
        assigning.learn(None, None, level=17)
        await assigning.has_told()

    assert run(scenario) == [{A: [0], B: [1]}]


def test_nothing_is_said_of_an_earlier_incarnation() -> None:
    async def scenario(assigning: Assigning) -> None:
        for broker_epoch in (None, BrokerEpoch(EPOCH + 1)):
            assigning.broker_epoch = broker_epoch
            assigning.learn(None, None)
        assert assigning.assignments._report_task is None

    assert run(scenario) == []


def test_many_are_told_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "REPLICAS_PER_REQUEST_MAX", 3)

    async def scenario(assigning: Assigning) -> None:
        assigning.learn(*[None] * 4)
        await assigning.has_told()

    assert run(scenario) == [{A: [0, 2], B: [1]}, {B: [3]}]
