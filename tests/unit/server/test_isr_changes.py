"""What leaders propose to the controller, and what becomes of it when that does not answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from support.fixtures.replicated_brokers import ReplicatedCluster, run, until
from tidelog.base.errors import Code
from tidelog.base.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, PartitionIndex, TopicId, TopicPartition
from tidelog.replica import IsrProposal
from tidelog.server.replication.isr_changes import IsrChanges
from tidelog.server.tasks import Tasks
from tidelog.wire.messages.api_56_alter_partition import (
    AlteredPartitionData,
    AlteredTopic,
    AlterPartitionRequest,
    AlterPartitionResponse,
)

LAGS = {"replica.lag.time.max.ms": "3000"}


def test_what_several_partitions_propose_goes_in_few_requests() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(partitions=40)
        await asyncio.sleep(1)  # everybody has fetched everything
        cluster.controller.delay_seconds = 0.1
        slow = cluster.brokers[3]
        for other in (1, 2):
            cluster.world.network.block(slow.machine.name, f"broker-{other}")
        led = [index for index in range(40) if cluster.state(index).leader != 3]
        for index in led:
            leader = cluster.state(index).leader
            assert (await cluster.produce("a", index=index, broker=leader, acks=1)).error_code == Code.NONE
        await until(lambda: all(3 not in cluster.state(index).isr for index in led))
        assert len(cluster.controller.requests) < len(led) / 2
        cluster.world.network.heal()
        await until(lambda: all(3 in cluster.state(index).isr for index in led))
        replications = [broker.broker.replication for broker in cluster.brokers.values()]
        assert sum(one.isr_shrinks for one in replications if one is not None) == len(led)
        assert sum(one.isr_expands for one in replications if one is not None) == len(led)

    run(story, properties=LAGS)


@pytest.mark.parametrize("trouble", ["answers_nothing", "has_bug"])
def test_a_proposal_that_is_not_answered_is_made_again_and_nothing_is_committed_by_it(trouble: str) -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create(min_insync_replicas="2")
        slow = cluster.followers[0]
        setattr(cluster.controller, trouble, True)
        slow.kill()
        waiting = asyncio.ensure_future(cluster.produce("a"))
        await until(lambda: len(cluster.controller.requests) > 3)
        assert not waiting.done(), "whoever was proposed to leave may be in sync all the same"
        setattr(cluster.controller, trouble, False)
        assert (await waiting).error_code == Code.NONE
        assert slow.broker_id not in cluster.state().isr

    run(story, properties=LAGS)


def test_who_was_let_in_after_it_was_fenced_is_proposed_though_it_has_nothing_new_to_say() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        follower = cluster.followers[0]
        cluster.controller.fence(follower.broker_id)
        await cluster.caught_up()
        assert follower.broker_id not in cluster.state().isr
        await asyncio.sleep(5)
        cluster.controller.unfence(follower.broker_id)
        await cluster.in_sync(1, 2, 3)

    run(story)


class Proposing(NamedTuple):
    """A partition, as far as a proposal needs it."""

    topic_id: TopicId
    topic_partition: TopicPartition


@dataclass(frozen=True)
class Leading:
    """A leader, as far as its proposals need it."""

    partition: Proposing


def test_thousands_of_proposals_are_put_to_the_controller_some_at_a_time() -> None:
    """What it does not answer in time is proposed again: so a request asks for no more than it answers in time."""
    asked: list[int] = []

    async def alter_partitions(request: AlterPartitionRequest) -> AlterPartitionResponse:
        asked.append(sum(len(topic.partitions) for topic in request.topics))
        await asyncio.sleep(0)
        return AlterPartitionResponse(
            topics=[
                AlteredTopic(topic.topic_id, [AlteredPartitionData(partition_index=row.partition_index)])
                for topic in request.topics
                for row in topic.partitions
            ]
        )

    async def story() -> None:
        changes = IsrChanges(BrokerId(1), alter_partitions, Tasks("isr"), broker_epoch=lambda: BrokerEpoch(1))
        for index in range(2_100):
            name = TopicPartition("flights", PartitionIndex(index))
            leading: Any = Leading(Proposing(TopicId(UUID(int=1)), name))
            changes.propose(leading, IsrProposal(LeaderEpoch(1), PartitionEpoch(1), frozenset({BrokerId(1)})))
        await until(lambda: sum(asked) == 2_100)

    asyncio.run(story())
    assert asked == [500, 500, 500, 500, 100]
