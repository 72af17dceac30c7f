"""What the active controller says of unclean elections, and counts."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.base.losses import LossCause
from tidelog.controller import ControllerSettings, ControllerState, ElectionType
from tidelog.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from tidelog.server.quorum.controller import Controller
from tidelog.server.quorum.metadata_log import MetadataBatch
from tidelog.server.tasks import Tasks

FLIGHTS = TopicPartition("flights", PartitionIndex(0))
TOPIC = TopicId(UUID(int=7))
NOW_MS = 1_700_000_000_000


class Quorum:
    """Takes what is decided, to be committed when the test says so."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.tasks = Tasks("quorum")

    def append_decision(self, records: tuple[object, ...], leader_epoch: LeaderEpoch) -> Offset:
        base_offset, self.end_offset = self.end_offset, self.end_offset + len(records)
        return Offset(base_offset)

    def give_up(self, error: Exception) -> None:
        raise error


class NoClock:
    """Stands still."""

    def now_ms(self) -> int:
        return 0

    def wall_ms(self) -> int:
        return NOW_MS


HISTORY = (
    RegisterBrokerRecord(
        broker_id=2, broker_epoch=2, incarnation_id=UUID(int=2), end_points=[], features=[], fenced=False
    ),
    TopicRecord(name="flights", topic_id=TOPIC),
    PartitionRecord(
        topic_id=TOPIC, partition_id=0, replicas=[1, 2], isr=[1], leader=-1, leader_epoch=3, partition_epoch=4
    ),
)


def batch(records: tuple[object, ...]) -> MetadataBatch:
    return MetadataBatch(Offset(0), Offset(len(records)), LeaderEpoch(0), 0, 0, records, ())


def test_an_unclean_election_is_said_and_counted_once_when_it_is_committed(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        quorum = Quorum()
        controller = Controller(
            ControllerState(ControllerSettings()), quorum, on_committed=lambda *news: None, clock=NoClock()
        )
        quorum.end_offset = len(HISTORY)
        controller.on_replayed(batch(HISTORY))
        controller.on_leading(LeaderEpoch(1), Offset(3))
        asked = asyncio.ensure_future(
            controller.request(lambda state: state.decide_elect_leaders(ElectionType.UNCLEAN, [FLIGHTS]))
        )
        await asyncio.sleep(0)
        assert controller.unclean_elections == 0, "nothing is committed yet"
        controller.on_committed(Offset(quorum.end_offset))
        assert (await asked)[0].code is Code.NONE
        controller.on_committed(Offset(quorum.end_offset))
        controller.on_lost()
        assert controller.unclean_elections == 1
        (line,) = (line for line in caplog.records if "UNCLEAN ELECTION" in line.message)
        assert line.levelname == "WARNING"
        assert (
            "flights-0: UNCLEAN ELECTION: broker 2 leads from leader epoch 4 on, ordered by an operator" in line.message
        )
        assert "[1]" in line.message
        (loss,) = controller.image().losses.values()
        assert (loss.name, loss.cause, loss.leader, loss.opened_ms) == ("flights-0@4", LossCause.BY_OPERATOR, 2, NOW_MS)
        assert loss.awaited == (1, 2)

    asyncio.run(story())


def test_what_another_controller_held_is_not_counted_here(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        state = ControllerState(ControllerSettings())
        for record in HISTORY:
            state.apply(record)
        elected = state.decide_elect_leaders(ElectionType.UNCLEAN, [FLIGHTS]).records
        controller = Controller(
            ControllerState(ControllerSettings()), Quorum(), on_committed=lambda *news: None, clock=NoClock()
        )
        controller.on_replayed(batch((*HISTORY, *elected)))
        assert controller.unclean_elections == 0
        assert not caplog.records

    asyncio.run(story())
