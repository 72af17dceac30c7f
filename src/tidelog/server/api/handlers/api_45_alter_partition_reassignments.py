"""AlterPartitionReassignments 0-1: move partitions to other replicas, or give up moving them (KIP-455, KIP-860).

Behaviour: each partition on its own; a second reassignment takes the place of the first, and both in one request are
refused. That one has begun is committed, and in this broker's metadata, when the answer comes; nobody waits until it is
done. Of one that has to wait for brokers that do not live, the message says so beside the code 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId, PartitionIndex, TopicPartition
from tidelog.controller import PartitionToReassign, ReassignedPartition
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    wanted = [
        PartitionToReassign(
            TopicPartition(topic.name, PartitionIndex(one.partition_index)),
            None if one.replicas is None else tuple(map(BrokerId, one.replicas)),
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    allows_factor_change = request.allow_replication_factor_change
    try:
        reassigned: tuple[ReassignedPartition, ...] = await node.controller.request(
            lambda state: state.decide_alter_reassignments(wanted, allows_factor_change=allows_factor_change)
        )
        await node.caught_up()
    except KafkaError as error:
        return refused(request, context, error)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allows_factor_change, responses=_rows(reassigned)
    )


def refused(
    request: AlterPartitionReassignmentsRequest, _: RequestContext, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """The answer where nothing could be decided."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code_of(error, "AlterPartitionReassignments"),
        error_message=str(error),
    )


def _rows(reassigned: Sequence[ReassignedPartition]) -> list[ReassignableTopicResponse]:
    topics: dict[str, ReassignableTopicResponse] = {}
    for one in reassigned:
        name, index = one.topic_partition
        topic = topics.setdefault(name, ReassignableTopicResponse(name, []))
        topic.partitions.append(ReassignablePartitionResponse(index, one.code, one.message))
    return list(topics.values())
