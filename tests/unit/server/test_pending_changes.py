"""The active controller goes on with what a large decision left to do, and so does the one that comes after it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from support.fixtures.controlled_cluster import SeededRng
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset
from tidelog.controller import ControllerSettings, ControllerState, FeatureToUpdate, PartitionScan, TopicToCreate
from tidelog.controller.leaders import LOST_DIRECTORY
from tidelog.io.clock import SystemClock
from tidelog.journal import Decision, LongDecision
from tidelog.metadata import MetadataImage
from tidelog.metadata.features import TRANSACTIONS_SINCE
from tidelog.metadata.records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from tidelog.server.api.handlers import api_73_assign_replicas_to_dirs
from tidelog.server.api.request_context import RequestContext
from tidelog.server.node import Node
from tidelog.server.quorum import controller as controller_module
from tidelog.server.quorum.controller import Controller
from tidelog.server.tasks import Tasks
from tidelog.wire.messages.api_73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)

ONE, TWO = BrokerId(1), BrokerId(2)
COUNT = 7
PORTION = 2


class Quorum:
    """Keeps what is appended; commits it when it is told to, or at once."""

    def __init__(self) -> None:
        self.appended: list[object] = []
        self.batches: list[tuple[object, ...]] = []
        self.controller: Controller
        self.is_following = True
        self.tasks = Tasks("quorum")

    @property
    def end_offset(self) -> int:
        return len(self.appended)

    def append_decision(self, records: tuple[object, ...], leader_epoch: LeaderEpoch) -> Offset:
        first = Offset(self.end_offset)
        self.batches.append(records)
        self.appended += records
        if self.is_following:
            asyncio.get_running_loop().call_soon(self.controller.on_committed, Offset(self.end_offset))
        return first

    def give_up(self, error: Exception) -> None:
        raise error


def new_controller(quorum: Quorum) -> Controller:
    settings = ControllerSettings(partition_changes_max=PORTION)
    quorum.controller = Controller(ControllerState(settings), quorum, on_committed=lambda *_: None, clock=SystemClock())
    return quorum.controller


async def led_by_one(quorum: Quorum) -> Controller:
    """A controller that has just become active, of two brokers; the first of them leads everything."""
    controller = new_controller(quorum)
    controller.on_leading(LeaderEpoch(1), Offset(0))
    brokers = [
        RegisterBrokerRecord(
            broker_id=number,
            incarnation_id=UUID(int=number),
            broker_epoch=number,
            end_points=[],
            features=[],
            fenced=False,
        )
        for number in (ONE, TWO)
    ]
    await controller.request(lambda _: Decision(tuple(brokers), None))
    topic = TopicToCreate("a", assignments=[(index, [ONE, TWO]) for index in range(COUNT)])
    await controller.request(lambda state: state.decide_create_topics([topic], rng=SeededRng()))
    await settled(controller)
    quorum.batches.clear()
    return controller


async def settled(controller: Controller) -> None:
    async with asyncio.timeout(60):
        while controller._pending_changes_task is not None:
            await asyncio.sleep(0)


def leaders(image: MetadataImage) -> list[int | None]:
    return [one.leader for one in image.topics_by_name["a"].partitions]


def sizes(quorum: Quorum) -> list[tuple[int, int]]:
    """Of each batch, how many records are of brokers, and of partitions."""
    kinds = (BrokerRegistrationChangeRecord, PartitionChangeRecord)
    counts = [[sum(isinstance(record, kind) for record in batch) for kind in kinds] for batch in quorum.batches]
    return [(brokers, partitions) for brokers, partitions in counts]


def test_portions_follow_and_the_answer_waits_for_the_first_alone() -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        epoch = controller.journal.committed.metadata.brokers[ONE].broker_epoch
        quorum.is_following = False
        asked = asyncio.ensure_future(controller.request(lambda state: state.decide_fence_broker(ONE, epoch)))
        await turns(20)
        assert sizes(quorum) == [(1, 2), (0, 2), (0, 2), (0, 1)]
        assert not asked.done()
        controller.on_committed(Offset(quorum.end_offset - 5))
        await asked
        assert leaders(controller.image()) == [TWO] * 2 + [ONE] * 5
        controller.on_committed(Offset(quorum.end_offset))
        await settled(controller)
        assert leaders(controller.image()) == [TWO] * COUNT

    asyncio.run(main())


@pytest.mark.parametrize("at_once_max", [1, 2])
def test_few_portions_are_on_their_way_at_a_time(at_once_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who follows, and who waits for another decision, has little before it; and no portion waits for all others."""
    monkeypatch.setattr(controller_module, "PORTIONS_AT_ONCE_MAX", at_once_max)

    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        quorum.is_following = False
        scan = PartitionScan()
        unregistered = asyncio.ensure_future(
            controller.request_in_portions(
                lambda state: state.decide_unregister_broker(ONE, scan=scan), has_more=lambda reply: reply.has_more
            )
        )
        ends: list[Offset] = []
        while not unregistered.done():
            await turns(20)
            ends.append(Offset(quorum.end_offset))
            assert len(quorum.batches) <= len(ends) + 2 * at_once_max + 1, "of the request, and of what the fence left"
            controller.on_committed(Offset(controller.journal.committed_end_offset + PORTION + 1))
        assert len(ends) > 2
        assert ONE not in controller.image().brokers, "the answer waits for the last portion"

    asyncio.run(main())


def test_who_asked_for_portions_is_told_once_that_this_is_no_controller_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        quorum.is_following = False
        scan = PartitionScan()
        unregistered = asyncio.ensure_future(
            controller.request_in_portions(
                lambda state: state.decide_unregister_broker(ONE, scan=scan), has_more=lambda reply: reply.has_more
            )
        )
        await turns(20)
        assert len(quorum.batches) > 2
        controller.on_lost()
        with pytest.raises(KafkaError) as caught:
            await unregistered
        assert caught.value.code is Code.NOT_CONTROLLER
        await settled(controller)

    asyncio.run(main())
    gc.collect()
    assert not caplog.records


SETTINGS = tuple(
    ConfigRecord(resource_type=4, resource_name="", name=f"made-up-{number}", value="v") for number in range(8)
)


async def at_level(controller: Controller, level: int) -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=level)
    await controller.request(lambda _: Decision((record,), None))


def as_a_whole(*portions: tuple[object, ...]) -> Callable[[ControllerState], LongDecision[str]]:
    return lambda _: LongDecision(iter(portions), "done")


def configs(controller: Controller) -> int:
    return sum(map(len, controller.image().configs.values()))


def test_what_counts_as_a_whole_is_seen_when_its_end_is_committed() -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        await at_level(controller, TRANSACTIONS_SINCE)
        quorum.is_following = False
        quorum.batches.clear()
        end_offset = controller.journal.committed_end_offset
        asked = asyncio.ensure_future(
            controller.request_whole(as_a_whole(SETTINGS[:2], (), SETTINGS[2:4], SETTINGS[4:6], ()))
        )
        other = asyncio.ensure_future(controller.request(lambda _: Decision(SETTINGS[6:], "other")))
        await turns(20)
        assert [len(batch) for batch in quorum.batches] == [3, 2, 3, 2], "begin, two, two, two, end, and the other"
        assert quorum.batches[-1] == SETTINGS[6:], "nothing is decided in between"
        controller.on_committed(Offset(quorum.end_offset - 3))
        await turns(5)
        assert (configs(controller), controller.journal.committed_end_offset) == (0, end_offset)
        assert not asked.done()
        controller.on_committed(Offset(quorum.end_offset - 2))
        assert (await asked, configs(controller)) == ("done", 6)
        assert not other.done()
        controller.on_committed(Offset(quorum.end_offset))
        assert (await other, configs(controller)) == ("other", 8)

    asyncio.run(main())


@pytest.mark.parametrize("committed", range(3))
def test_the_next_controller_ends_what_was_half_appended(committed: int) -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        await at_level(controller, TRANSACTIONS_SINCE)
        quorum.is_following = False
        before = quorum.end_offset
        asked = asyncio.ensure_future(controller.request_whole(as_a_whole(*(SETTINGS[:2], SETTINGS[2:4]) * 50)))
        waits = asyncio.ensure_future(controller.request(lambda _: Decision(SETTINGS[6:], "other")))
        await turns(20)
        controller.on_lost()
        for each in (asked, waits):
            with pytest.raises(KafkaError):
                await each
        del quorum.appended[before + 2 * committed :]

        quorum.is_following = True
        successor = new_controller(quorum)
        for offset, record in enumerate(quorum.appended):
            successor.journal.replay(record, Offset(offset))
        assert configs(successor) == 0
        successor.on_leading(LeaderEpoch(2), Offset(quorum.end_offset))
        await successor.request(lambda _: Decision(SETTINGS[6:], None))
        assert configs(successor) == 2
        has_aborted = any(isinstance(record, AbortTransactionRecord) for record in quorum.appended)
        assert has_aborted == (committed > 0)
        await settled(successor)

        third = new_controller(quorum)
        for offset, record in enumerate(quorum.appended):
            third.journal.replay(record, Offset(offset))
        assert third.image() == successor.image()

    asyncio.run(main())


def test_a_client_that_goes_away_leaves_nothing_half_appended() -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        await at_level(controller, TRANSACTIONS_SINCE)
        asked = asyncio.ensure_future(controller.request_whole(as_a_whole(SETTINGS[:2], SETTINGS[2:4], SETTINGS[4:])))
        await turns(3)
        asked.cancel()
        await controller.request(lambda _: Decision((), None))
        assert configs(controller) == 8

    asyncio.run(main())


@pytest.mark.parametrize("count", [5 * PORTION, 5 * PORTION + 1])
@pytest.mark.parametrize("level", [TRANSACTIONS_SINCE - 1, TRANSACTIONS_SINCE])
def test_a_decision_that_is_too_large_for_a_batch_is_a_transaction(count: int, level: int) -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        await at_level(controller, level)
        quorum.batches.clear()
        records = SETTINGS * 2
        assert await controller.request(lambda _: Decision(records[:count], "done")) == "done"
        is_divided = level == TRANSACTIONS_SINCE and count > 5 * PORTION
        assert len(quorum.batches) == (6 if is_divided else 1)
        assert max(map(len, quorum.batches)) == (3 if is_divided else count)

    asyncio.run(main())


def test_a_change_of_the_level_is_refused_or_done_as_a_whole() -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        await controller.request(lambda state: state.decide_bootstrap())
        quorum.batches.clear()
        unknown = [FeatureToUpdate("metadata.version", 1_000)]
        (refused,) = await controller.request_whole(lambda state: state.decide_update_features(unknown))
        assert refused.code is Code.INVALID_UPDATE_VERSION
        assert quorum.batches == []

    asyncio.run(main())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_the_next_controller_finds_what_is_left() -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        epoch = controller.journal.committed.metadata.brokers[ONE].broker_epoch
        quorum.is_following = False
        asked = asyncio.ensure_future(controller.request(lambda state: state.decide_fence_broker(ONE, epoch)))
        await asyncio.sleep(0)
        controller.on_lost()
        with pytest.raises(KafkaError):  # it may have been done, or not
            await asked
        await settled(controller)

        quorum.is_following = True
        successor = new_controller(quorum)
        for offset, records in enumerate(quorum.appended):
            successor.journal.replay(records, Offset(offset))
        assert leaders(successor.image()).count(TWO) == PORTION
        successor.on_leading(LeaderEpoch(2), Offset(quorum.end_offset))
        await settled(successor)
        assert leaders(successor.image()) == [TWO] * COUNT

    asyncio.run(main())


def test_long_requests_about_directories_are_decided_in_pieces() -> None:
    async def main() -> None:
        quorum = Quorum()
        controller = await led_by_one(quorum)
        brokers = controller.journal.committed.metadata.brokers
        topic = controller.image().topics_by_name["a"]
        told = [AssignedPartition(index) for index in range(COUNT)]
        unknown = AssignedTopic(UUID(int=99), [AssignedPartition(0)])
        request = AssignReplicasToDirsRequest(
            broker_id=TWO,
            broker_epoch=brokers[TWO].broker_epoch,
            directories=[AssignedDirectory(LOST_DIRECTORY, [AssignedTopic(topic.topic_id, told), unknown])],
        )
        node = cast(Node, SimpleNamespace(controller=controller))
        context = cast(RequestContext, SimpleNamespace(is_long=False))
        answer = await api_73_assign_replicas_to_dirs.handle(node, request, context)
        assert sizes(quorum) == [(0, 2), (0, 2), (0, 2), (0, 1)]
        (directory,) = answer.directories
        assert [[one.error_code for one in each.partitions] for each in directory.topics] == [
            [0] * COUNT,
            [Code.UNKNOWN_TOPIC_ID],
        ]

    asyncio.run(main())
