"""The states of share groups on three whole nodes: written through any of them, whoever coordinates and dies."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from support.fixtures.coordinated_share import ACKNOWLEDGED, ARCHIVED, batch, change
from support.nodes.cluster_stage import Stage, tell
from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.controller import TopicToCreate
from tidelog.controller.values import FeatureToUpdate, TopicToDelete
from tidelog.metadata.features import SHARE_VERSION
from tidelog.metadata.image import PartitionImage
from tidelog.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from tidelog.server.node import Node
from tidelog.server.share_state.persister import SharePersister, StartedState
from tidelog.share.key import ShareKey
from tidelog.share.state import ShareState
from tidelog.share.summary import ShareSummary
from tidelog.sim.runs.cluster_views import hosted

T = TypeVar("T")

PROPERTIES = {"share.coordinator.state.topic.num.partitions": "3"}
GROUP = "group"
PARTITIONS = 6


class States:
    """What share groups have done with the partitions of one topic."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.topic_id: TopicId

    def node(self, number: int) -> Node:
        node = self._stage.nodes[BrokerId(number)].node
        assert node is not None
        return node

    async def at(self, number: int, work: Callable[[SharePersister], Awaitable[T]]) -> T:
        """Have a node ask."""
        node = self.node(number)

        async def do() -> T:
            return await work(node.share_persister)

        return await self._stage.nodes[BrokerId(number)].machine.do(do)

    async def begin(self) -> None:
        """A topic, whose states are begun."""
        stage = self._stage

        async def update() -> Any:
            return await self.node(stage.controller).controller.request_whole(
                lambda state: state.decide_update_features([FeatureToUpdate(SHARE_VERSION, 1)])
            )

        (updated,) = await stage.nodes[BrokerId(stage.controller)].machine.do(update)
        assert updated.code == Code.NONE, updated
        (created,) = await stage.nodes[BrokerId(1)].machine.do(
            lambda: self.node(1).create_topics([TopicToCreate("read", PARTITIONS, 3)])
        )
        assert created.topic_id is not None
        self.topic_id = TopicId(created.topic_id)
        await stage.until(
            lambda: all(
                SHARE_VERSION in self.node(number).image.features
                and self.node(number).image.topic_by_id(self.topic_id) is not None
                for number in stage.nodes
            )
        )
        states = [StartedState(self.topic_id, index, 1, Offset(0)) for index in self.indexes]
        assert await self.at(1, lambda persister: persister.initialize(GROUP, states)) == [None] * PARTITIONS
        await self.until_settled()
        for index in self.indexes:
            await self.read(1, index, leader_epoch=0)

    @property
    def indexes(self) -> list[PartitionIndex]:
        return [PartitionIndex(index) for index in range(PARTITIONS)]

    def coordinates(self, index: int) -> PartitionImage:
        """The partition of the internal topic that the state of a partition is on."""
        key = ShareKey(GROUP, self.topic_id, PartitionIndex(index))
        place = self.node(self.running()[0]).share_states.partition_for(str(key))
        assert place is not None
        found = self._stage.recorder.latest.partition(place.topic, place.partition)
        assert found is not None
        return found

    def running(self) -> list[int]:
        return [number for number, node in self._stage.nodes.items() if node.machine.is_running]

    async def until_settled(self) -> None:
        """All partitions of the internal topic are led, and in sync on all nodes."""

        def is_settled() -> bool:
            topic = self._stage.recorder.latest.topics_by_name.get(SHARE_GROUP_STATE_TOPIC)
            return topic is not None and all(one.leader and len(one.isr) == 3 for one in topic.partitions)

        await self._stage.until(is_settled)

    async def until_another_coordinates(self, index: int, before: int) -> None:
        await self._stage.until(lambda: self.coordinates(index).leader not in (None, before))

    async def read(self, number: int, index: int, leader_epoch: int = -1) -> ShareState:
        return await self.at(
            number,
            lambda persister: persister.read(GROUP, self.topic_id, PartitionIndex(index), LeaderEpoch(leader_epoch)),
        )

    async def write(self, number: int, index: int, *batches: Any, leader_epoch: int = 1, **what: Any) -> None:
        changed = change(*batches, leader_epoch=leader_epoch, **what)
        await self.at(number, lambda persister: persister.write(GROUP, self.topic_id, PartitionIndex(index), changed))

    async def refused(self, work: Awaitable[object]) -> Code:
        with pytest.raises(KafkaError) as refused:
            await work
        return refused.value.code


def test_whoever_asks_finds_whoever_coordinates() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        leaders = {states.coordinates(index).leader for index in states.indexes}
        assert len(leaders) > 1, "one node coordinates all: the test shows little"
        for index in states.indexes:
            for number in (1, 2, 3):
                await states.write(number, index, batch(number, number, epoch=number), complete=number)
            expected = ShareState(1, Offset(0), batches=tuple(batch(n, n, epoch=n) for n in (1, 2, 3)))
            assert [await states.read(number, index) for number in (1, 2, 3)] == [expected] * 3
        keys = [(states.topic_id, index) for index in states.indexes]
        summaries = await states.at(2, lambda persister: persister.summarize(GROUP, keys))
        assert summaries == [ShareSummary(1, LeaderEpoch(1), Offset(0), 3)] * PARTITIONS
        assert await states.at(3, lambda persister: persister.delete(GROUP, keys[1:])) == [None] * (PARTITIONS - 1)
        summaries = await states.at(2, lambda persister: persister.summarize(GROUP, keys))
        assert [one.start for one in summaries if isinstance(one, ShareSummary)] == [0] + [None] * (PARTITIONS - 1)
        assert await states.refused(states.read(1, 1)) is Code.INVALID_REQUEST

    tell(story, properties=PROPERTIES)


def test_what_a_coordinator_has_answered_outlives_it_and_whoever_led_before_stays_fenced() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        assert (await states.read(1, 0, leader_epoch=4)).batches == ()
        await states.write(1, 0, batch(0, 9, epoch=4), leader_epoch=4, start=2, start_epoch=3)
        killed = states.coordinates(0).leader
        assert killed is not None
        stage.kill(killed)
        asker = states.running()[0]
        expected = ShareState(1, Offset(2), LeaderEpoch(3), (batch(2, 9, epoch=4),))
        assert await states.read(asker, 0) == expected, "it is asked for until another coordinates"
        assert states.coordinates(0).leader not in (None, killed)
        assert await states.refused(states.write(asker, 0, leader_epoch=3)) is Code.FENCED_LEADER_EPOCH
        await states.write(asker, 0, batch(2, 2, ARCHIVED, 2, epoch=5), leader_epoch=5)
        await stage.start(killed)
        await states.until_settled()
        while states.coordinates(0).leader != killed:
            other = states.coordinates(0).leader
            assert other is not None
            stage.kill(other)
            await states.until_another_coordinates(0, other)
            await stage.start(other)
            await states.until_settled()
        assert (await states.read(killed, 0)).batches == (batch(2, 2, ARCHIVED, 2, epoch=5), batch(3, 9, epoch=4))

    tell(story, properties=PROPERTIES)


def test_changes_of_one_state_are_written_in_their_order_whatever_fails() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        coordinator = states.coordinates(0).leader
        assert coordinator is not None
        asker = next(number for number in states.running() if number != coordinator)
        writing = [
            asyncio.ensure_future(states.write(asker, 0, batch(0, 0, ACKNOWLEDGED, number, epoch=1), start=0))
            for number in range(1, 40)
        ]
        await asyncio.sleep(0)
        stage.kill(coordinator)
        for one in writing:
            await one
        assert (await states.read(asker, 0)).batches == (batch(0, 0, ACKNOWLEDGED, 39, epoch=1),)

    tell(story, properties=PROPERTIES)


def test_a_change_of_very_many_batches_is_one_for_who_writes_it() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        many = [batch(2 * number, 2 * number, epoch=number % 3) for number in range(1_000)]
        for index in states.indexes[:4]:
            await states.write(1, index, *many, complete=5)
            assert (await states.read(2, index)).batches == tuple(many)

    tell(story, properties=PROPERTIES)


def test_what_does_not_commit_in_time_is_refused_and_may_be_written_yet() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        coordinator = states.coordinates(0).leader
        assert coordinator is not None
        stage.part([coordinator], [number for number in states.running() if number != coordinator])
        key = ShareKey(GROUP, states.topic_id, PartitionIndex(0))
        here = states.node(coordinator).share_states
        answer = await stage.nodes[coordinator].machine.do(
            lambda: here.write(key, iter([change(batch(0, 0))]), batch_count=1)
        )
        assert isinstance(answer, KafkaError)
        assert answer.code is Code.COORDINATOR_NOT_AVAILABLE
        assert "may yet" in str(answer)
        stage.heal()
        await states.until_settled()
        assert (await states.read(1, 0)).batches in {(), (batch(0, 0),)}

    tell(story, properties=PROPERTIES | {"share.coordinator.write.timeout.ms": "300"})


def test_a_group_that_nobody_coordinates_is_told_so_in_the_end() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        coordinator = states.coordinates(0).leader
        assert coordinator is not None
        others = [number for number in states.running() if number != coordinator]
        stage.kill(coordinator)
        await states.until_another_coordinates(0, coordinator)
        stage.part([others[0]], [others[1]])
        left = next(number for number in others if number != states.coordinates(0).leader)
        assert await states.refused(states.write(left, 0)) is Code.COORDINATOR_NOT_AVAILABLE
        stage.heal()
        await stage.start(coordinator)
        await states.until_settled()

    tell(story, properties=PROPERTIES)


def test_states_of_a_deleted_topic_go_and_what_is_redundant_leaves_the_disk() -> None:
    async def story(stage: Stage) -> None:
        states = States(stage)
        await states.begin()
        for _ in range(4):
            for index in states.indexes:
                await states.write(1, index, batch(0, 0))

        async def delete() -> Any:
            return await states.node(stage.controller).controller.request(
                lambda state: state.decide_delete_topics([TopicToDelete("read", None)])
            )

        await stage.nodes[BrokerId(stage.controller)].machine.do(delete)

        def kept() -> int:
            here = [one for number in states.running() for one in states.node(number).share_states.here]
            return sum(len(one.coordinator.states) for one in here)

        await stage.until(lambda: kept() == 0)

        def are_empty() -> bool:
            places = [TopicPartition(SHARE_GROUP_STATE_TOPIC, PartitionIndex(index)) for index in range(3)]
            logs = [found.log for node in stage.nodes.values() for one in places if (found := hosted(node, one))]
            return len(logs) == 9 and all(log.log_start_offset == log.log_end_offset > 0 for log in logs)

        await stage.until(are_empty)

    tell(story, properties=PROPERTIES | {"share.coordinator.state.topic.prune.interval.ms": "5000"})
