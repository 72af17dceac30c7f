"""OffsetDelete 0: forget how far a group has read some partitions (KIP-496).

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC for a topic that members still read; UNKNOWN_TOPIC_OR_PARTITION for a partition
that does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    unknown = _take_out_unknown(node, request)

    def respond(answer: OffsetDeleteResponse | KafkaError) -> OffsetDeleteResponse:
        if isinstance(answer, KafkaError):
            return OffsetDeleteResponse(error_code=code_of(answer, "OffsetDelete"))
        if unknown and not answer.error_code:
            by_name = {topic.name: topic for topic in answer.topics}
            for topic in unknown:
                found = by_name.setdefault(topic.name, topic)
                if found is not topic:
                    found.partitions += topic.partitions
            answer.topics = list(by_name.values())
        return answer

    return when_answered(
        node.groups.submit(
            request.group_id,
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_offset_delete(
                request_id, request, now_ms=now_ms, wall_ms=wall_ms
            ),
        ),
        respond,
    )


def _take_out_unknown(node: GroupsApi, request: OffsetDeleteRequest) -> list[OffsetDeleteResponseTopic]:
    """Leave in the request what exists; the rest is answered."""
    known = node.image.topics_by_name
    unknown = []
    for topic in request.topics:
        found = known.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        wrong = [one.partition_index for one in topic.partitions if not 0 <= one.partition_index < count]
        if wrong:
            rows = [OffsetDeleteResponsePartition(index, Code.UNKNOWN_TOPIC_OR_PARTITION) for index in wrong]
            unknown.append(OffsetDeleteResponseTopic(topic.name, rows))
            topic.partitions = [one for one in topic.partitions if 0 <= one.partition_index < count]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return unknown
