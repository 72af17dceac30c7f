"""ListPartitionReassignments 0: which partitions are on their way, and who comes and goes (KIP-455).

Behaviour: of the partitions that are named, or of all; those that are not being moved, or do not exist, are left out.
The active controller is asked, so the answer is as recent as that of whoever began them.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import PartitionIndex, TopicPartition
from tidelog.controller import OngoingReassignment
from tidelog.controller.reassignments import reassignments
from tidelog.journal import Decision
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ControllerApi


async def handle(
    node: ControllerApi, request: ListPartitionReassignmentsRequest, _: RequestContext
) -> ListPartitionReassignmentsResponse:
    requested = None
    if request.topics is not None:
        requested = [
            TopicPartition(topic.name, PartitionIndex(index))
            for topic in request.topics
            for index in topic.partition_indexes
        ]
    try:
        found: tuple[OngoingReassignment, ...] = await node.controller.request(
            lambda state: Decision((), reassignments(state.metadata, requested))
        )
        await node.caught_up()
    except KafkaError as error:
        code = code_of(error, "ListPartitionReassignments")
        return ListPartitionReassignmentsResponse(error_code=code, error_message=str(error))
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name, [_row(one) for one in rows])
            for name, rows in groupby(found, key=lambda one: one.topic_partition.topic)
        ]
    )


def _row(one: OngoingReassignment) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        one.topic_partition.partition, list(one.replicas), list(one.adding_replicas), list(one.removing_replicas)
    )
