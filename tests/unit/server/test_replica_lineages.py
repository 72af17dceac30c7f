"""What each replica's own log holds, as it tells whoever debugs: followers answer nobody else."""

from __future__ import annotations

import pytest

from support.fixtures.replicated_brokers import TOPIC, ReplicatedBroker, ReplicatedCluster, run, until
from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch
from tidelog.client.core.lineage_search import LineageSearch
from tidelog.wire.messages.api_23_offset_for_leader_epoch import (
    CONSUMER_REPLICA_ID,
    DEBUGGING_CONSUMER_REPLICA_ID,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def epoch_end(
    cluster: ReplicatedCluster,
    broker: ReplicatedBroker,
    leader_epoch: int,
    *,
    current_leader_epoch: int = -1,
    replica_id: int = DEBUGGING_CONSUMER_REPLICA_ID,
    version: int = 4,
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch)
    request = OffsetForLeaderEpochRequest(replica_id=replica_id, topics=[OffsetForLeaderTopic(TOPIC, [asked])])
    answer = await cluster.ask(broker.broker_id, request, OffsetForLeaderEpochResponse, version=version)
    return answer.topics[0].partitions[0]


async def lineage(cluster: ReplicatedCluster, broker: ReplicatedBroker) -> list[tuple[int, int, int]]:
    search = LineageSearch(LeaderEpoch(cluster.state().leader_epoch))
    while (question := search.question) is not None:
        row = await epoch_end(cluster, broker, question)
        assert row.error_code == Code.NONE
        search.on_answer(None if row.leader_epoch < 0 else (row.leader_epoch, row.end_offset))  # type: ignore[arg-type]
    return [(span.leader_epoch, span.start_offset, span.end_offset) for span in search.spans]


def test_a_replica_that_lost_an_election_still_shows_what_it_alone_has() -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        await cluster.produce("a")
        first = cluster.state().leader_epoch
        old = cluster.leader
        for other in cluster.followers:
            cluster.world.network.block(old.machine.name, other.machine.name)
            cluster.world.network.block(other.machine.name, old.machine.name)
        await cluster.produce("lost", "too", acks=1)
        old.is_deaf = True
        cluster.controller.fence(old.broker_id)
        await cluster.caught_up()
        await cluster.produce("b")
        new = cluster.leader
        await until(lambda: new.partition().high_watermark == 2)
        second = cluster.state().leader_epoch
        assert await lineage(cluster, old) == [(first, 0, 3)]
        for broker in cluster.brokers.values():
            if broker is not old:
                assert await lineage(cluster, broker) == [(first, 0, 1), (second, 1, 2)]

    run(story)


@pytest.mark.parametrize(
    "asked",
    [{"replica_id": CONSUMER_REPLICA_ID}, {"current_leader_epoch": 0}, {"version": 2}, {"replica_id": 3}],
    ids=["consumer", "current epoch", "no replica id", "follower"],
)
def test_nobody_else_is_answered_by_a_follower(asked: dict[str, int]) -> None:
    async def story(cluster: ReplicatedCluster) -> None:
        await cluster.create()
        row = await epoch_end(cluster, cluster.followers[0], 0, **asked)
        assert (row.error_code, row.leader_epoch, row.end_offset) == (Code.NOT_LEADER_OR_FOLLOWER, -1, -1)

    run(story)
