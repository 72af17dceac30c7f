"""Who asks share coordinators: what goes together, what is asked again, and what is never overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from support.fixtures.coordinated_share import ARCHIVED, TOPIC, batch, change
from tidelog.base.errors import Code, KafkaError, NetworkError
from tidelog.base.ids import Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.io.rng import SystemRng
from tidelog.net.backoff import Backoff
from tidelog.server.share_state.persister import ATTEMPTS_MAX, ROWS_MAX, SharePersister, StartedState
from tidelog.server.share_state.state_messages import portions_told
from tidelog.server.tasks import Tasks
from tidelog.share.state import NOT_NUMBERED, StateChange
from tidelog.wire.messages.api_85_write_share_group_state import (
    WriteShareGroupStatePartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteShareGroupStateResult,
)

SECONDS_MAX = 30.0


class Coordinator:
    """On another broker. Notes the requests, which it answers while the gate is open.

    Attributes:
        outcomes: of the next rows, each once: a code, or a failure of the whole request; then all is well.
        forgets: partitions of which its answers say nothing.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.outcomes: list[Code | Exception] = []
        self.forgets: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def connection(self, leader: int, request_class: str) -> Coordinator:
        assert leader == 2
        return self

    async def request(self, request: Any, response: type[Any], *, timeout_ms: int) -> Any:
        self.requests.append(request)
        await self.gate.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else Code.NONE
        if isinstance(outcome, Exception):
            raise outcome
        return WriteShareGroupStateResponse(
            results=[
                WriteShareGroupStateResult(
                    topic_id=topic.topic_id,
                    partitions=[
                        WriteShareGroupStatePartitionResult(partition=row.partition, error_code=outcome)
                        for row in topic.partitions
                        if row.partition not in self.forgets
                    ],
                )
                for topic in request.topics
            ]
        )

    @property
    def written(self) -> list[list[tuple[int, StateChange]]]:
        """By request, what was to be written, whatever its number."""
        return [
            [
                (row.partition, replace(one, number=NOT_NUMBERED))
                for topic in request.topics
                for row in topic.partitions
                for one in portions_told(row)
            ]
            for request in self.requests
            if isinstance(request, WriteShareGroupStateRequest)
        ]

    @property
    def numbers(self) -> list[int]:
        """Of what was to be written, in its order."""
        return [row.write_number for request in self.requests for topic in request.topics for row in topic.partitions]


def new_persister(coordinator: Coordinator) -> SharePersister:
    """Of broker 1; all is coordinated by broker 2."""
    place = TopicPartition("__share_group_state", PartitionIndex(0))
    broker: Any = SimpleNamespace(
        broker_id=1,
        tasks=Tasks("broker"),
        image=SimpleNamespace(partition=lambda topic, index: SimpleNamespace(leader=2)),
        replication=SimpleNamespace(peers=coordinator),
    )
    coordinators: Any = SimpleNamespace(partition_for=lambda key: place)
    return SharePersister(broker, coordinators, SystemRng(), backoff=Backoff(1, 1, SystemRng()))


def run(scenario: Callable[[Coordinator, SharePersister], Awaitable[None]]) -> None:
    async def bounded() -> None:
        coordinator = Coordinator()
        await asyncio.wait_for(scenario(coordinator, new_persister(coordinator)), SECONDS_MAX)

    asyncio.run(bounded())


def writing(
    persister: SharePersister, partition: int, changed: StateChange, *, group_id: str = "g", topic_id: TopicId = TOPIC
) -> asyncio.Future[None]:
    return asyncio.ensure_future(persister.write(group_id, topic_id, PartitionIndex(partition), changed))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_what_is_asked_together_or_meanwhile_goes_together() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.gate.clear()
        other = TopicId(UUID(int=9))
        first = [writing(persister, one, change()) for one in range(3)] + [
            writing(persister, 0, change(), topic_id=other)
        ]
        another = writing(persister, 0, change(), group_id="h")
        await turns()
        assert [request.group_id for request in coordinator.requests] == ["g", "h"]
        assert [len(rows) for rows in coordinator.written] == [4, 1]
        later = [writing(persister, one, change()) for one in range(3, 3 + ROWS_MAX + 5)]
        await turns()
        assert len(coordinator.requests) == 2
        coordinator.gate.set()
        await asyncio.gather(*first, another, *later)
        assert [len(rows) for rows in coordinator.written] == [4, 1, ROWS_MAX, 5]

    run(scenario)


def test_changes_that_wait_become_one_in_their_order() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.gate.clear()
        changes = [
            change(batch(0, 0)),
            change(batch(1, 5), start=1, start_epoch=3, complete=4),
            change(batch(5, 6, ARCHIVED), complete=5),
            change(batch(7, 7), leader_epoch=2),
        ]
        waiting = [writing(persister, 0, one) for one in changes[:1]]
        await turns()
        waiting += [writing(persister, 0, one) for one in changes[1:]]
        await turns()
        coordinator.gate.set()
        await asyncio.gather(*waiting)
        joined = change(batch(1, 4), batch(5, 6, ARCHIVED), start=1, start_epoch=3, complete=5)
        assert coordinator.written == [[(0, changes[0])], [(0, joined)], [(0, changes[3])]]
        assert not persister._waiting
        assert not persister._pending

    run(scenario)


def test_what_may_be_otherwise_soon_is_asked_again_so_often() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.outcomes = [
            Code.NOT_COORDINATOR,
            Code.COORDINATOR_LOAD_IN_PROGRESS,
            NetworkError("it hung up"),
            Code.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await writing(persister, 0, change())
        assert len(coordinator.requests) == ATTEMPTS_MAX
        coordinator.outcomes = [Code.COORDINATOR_NOT_AVAILABLE] * ATTEMPTS_MAX
        with pytest.raises(KafkaError) as refused:
            await writing(persister, 0, change())
        assert refused.value.code is Code.COORDINATOR_NOT_AVAILABLE
        assert not coordinator.outcomes
        coordinator.outcomes = [NetworkError("it hung up")] * ATTEMPTS_MAX
        with pytest.raises(KafkaError, match="hung up") as refused:
            await writing(persister, 0, change())
        assert refused.value.code is Code.COORDINATOR_NOT_AVAILABLE

    run(scenario)


def test_all_attempts_of_a_change_have_its_number_and_the_next_change_has_a_larger_one() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.outcomes = [NetworkError("it hung up"), Code.NOT_COORDINATOR]
        await writing(persister, 0, change())
        await writing(persister, 0, change())
        assert coordinator.numbers == [1, 1, 1, 2]

    run(scenario)


@pytest.mark.parametrize("code", [Code.FENCED_LEADER_EPOCH, Code.FENCED_STATE_EPOCH, Code.INVALID_REQUEST])
def test_what_is_refused_for_good_is_not_asked_again(code: Code) -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.outcomes = [code]
        with pytest.raises(KafkaError) as refused:
            await writing(persister, 0, change())
        assert refused.value.code is code
        assert len(coordinator.requests) == 1
        await writing(persister, 0, change())

    run(scenario)


def test_of_many_each_is_told_its_own() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.forgets = {1}
        states = [StartedState(TOPIC, PartitionIndex(one), 1, Offset(0)) for one in range(3)]
        first, second, third = await persister.initialize("g", states)
        assert (first, third) == (None, None)
        assert isinstance(second, KafkaError)
        assert second.code is Code.UNKNOWN_SERVER_ERROR
        assert [len(request.topics[0].partitions) for request in coordinator.requests] == [3]

    run(scenario)


def test_a_bug_of_ours_leaves_nobody_waiting() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.outcomes = [ValueError("a bug")]
        await writing(persister, 0, change())
        assert len(coordinator.requests) == 2

    run(scenario)


def test_who_waits_no_longer_takes_nothing_back() -> None:
    async def scenario(coordinator: Coordinator, persister: SharePersister) -> None:
        coordinator.gate.clear()
        waiting = writing(persister, 0, change(batch(0, 0)))
        await turns()
        waiting.cancel()
        later = writing(persister, 0, change(batch(1, 1)))
        await turns()
        coordinator.gate.set()
        await later
        assert coordinator.written == [[(0, change(batch(0, 0)))], [(0, change(batch(1, 1)))]]

    run(scenario)
