"""The admin client and reassignments: what is asked, what answers mean, and what is tried again."""

from __future__ import annotations

import pytest

from support.fixtures.model_cluster import ModelCluster
from support.fixtures.modelled_admin import in_turn, run
from support.fixtures.scripted_broker import HANG_UP
from tidelog import KafkaError, TopicPartition, UnsupportedVersionError, aio
from tidelog.base.errors import Code
from tidelog.base.ids import PartitionIndex
from tidelog.client.admin.reassignment import PartitionReassignment, ReassignmentOutcome
from tidelog.wire import ApiKey
from tidelog.wire.messages import api_45_alter_partition_reassignments as alter
from tidelog.wire.messages import api_46_list_partition_reassignments as listed

P0 = TopicPartition("t", PartitionIndex(0))
P1 = TopicPartition("t", PartitionIndex(1))


def answer(*rows: alter.ReassignablePartitionResponse) -> alter.AlterPartitionReassignmentsResponse:
    return alter.AlterPartitionReassignmentsResponse(responses=[alter.ReassignableTopicResponse("t", list(rows))])


def row(index: int, code: Code = Code.NONE, message: str | None = None) -> alter.ReassignablePartitionResponse:
    return alter.ReassignablePartitionResponse(index, code, message)


def test_each_partition_is_answered_and_asked_for_again_only_where_that_may_help() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.on(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            in_turn(
                alter.AlterPartitionReassignmentsResponse(error_code=Code.NOT_CONTROLLER),
                answer(row(0, Code.NONE, "waits for broker 3"), row(1, Code.NOT_CONTROLLER)),
                answer(row(1, Code.INVALID_REPLICA_ASSIGNMENT, "broker 9 is not registered")),
            ),
        )
        found = await admin.alter_partition_reassignments({P0: [3, 1], P1: [9]})
        assert found[P0] == ReassignmentOutcome(None, "waits for broker 3")
        error = found[P1].error
        assert error is not None
        assert str(error) == "t-1: broker 9 is not registered (INVALID_REPLICA_ASSIGNMENT)"
        asked = [
            [(one.partition_index, one.replicas) for topic in request.topics for one in topic.partitions]
            for request in cluster.messages(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        ]
        assert asked == [[(0, [3, 1]), (1, [9])], [(0, [3, 1]), (1, [9])], [(1, [9])]]

    run(work)


def test_a_cancel_whose_answer_was_lost_was_done_if_there_is_nothing_left_to_cancel() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        nothing = answer(row(0, Code.NO_REASSIGNMENT_IN_PROGRESS))
        cluster.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, in_turn(HANG_UP, nothing))
        assert (await admin.alter_partition_reassignments({P0: None}))[P0] == ReassignmentOutcome()
        refused = (await admin.alter_partition_reassignments({P0: None}))[P0].error
        assert refused is not None
        assert refused.code is Code.NO_REASSIGNMENT_IN_PROGRESS, "that one was answered"

    run(work)


def test_what_an_old_broker_cannot_be_told_is_not_asked_of_it() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        cluster.versions[ApiKey.ALTER_PARTITION_REASSIGNMENTS] = (0, 0)
        cluster.on(ApiKey.ALTER_PARTITION_REASSIGNMENTS, in_turn(answer(row(0))))
        assert (await admin.alter_partition_reassignments({P0: [1]}))[P0].error is None
        with pytest.raises(UnsupportedVersionError):
            await admin.alter_partition_reassignments({P0: [1]}, allow_replication_factor_change=False)
        assert await admin.alter_partition_reassignments({}) == {}

    run(work)


def test_which_are_under_way() -> None:
    async def work(cluster: ModelCluster, admin: aio.Admin) -> None:
        rows = [
            listed.OngoingPartitionReassignment(1, [1, 2, 3], [3], [1]),
            listed.OngoingPartitionReassignment(0, [1, 2], [2], []),
        ]
        cluster.on(
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            in_turn(
                listed.ListPartitionReassignmentsResponse(topics=[listed.OngoingTopicReassignment("t", rows)]),
                listed.ListPartitionReassignmentsResponse(error_code=Code.CLUSTER_AUTHORIZATION_FAILED),
            ),
        )
        found = await admin.list_partition_reassignments()
        assert list(found) == [P0, P1]
        assert found[P1] == PartitionReassignment((1, 2, 3), (3,), (1,))
        assert found[P1].target == (2, 3)
        assert cluster.messages(ApiKey.LIST_PARTITION_REASSIGNMENTS)[-1].topics is None
        with pytest.raises(KafkaError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await admin.list_partition_reassignments([P0, P1, P0])
        (topic,) = cluster.messages(ApiKey.LIST_PARTITION_REASSIGNMENTS)[-1].topics
        assert (topic.name, topic.partition_indexes) == ("t", [0, 1])

    run(work)
