"""OffsetCommit 2-9: how far a group has read, written to its partition of `__consumer_offsets` before it is answered.

Behaviour: the leader epoch of the last record read is kept beside the offset (6+, KIP-320). A partition that does not
exist gets UNKNOWN_TOPIC_OR_PARTITION, the others of the request are remembered. Members are fenced by generation,
member id and static name (KIP-345); generation -1 with no member id commits for a group that assigns partitions itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.dispatch import RequestContext, code_of
from tidelog.server.api.existing_partitions import merged, take_out_missing
from tidelog.server.api.group_answers import when_answered
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    request.topics, unknown = take_out_missing(node.image, request.topics)
    if unknown and not request.topics:
        return OffsetCommitResponse(topics=_rows(unknown, Code.UNKNOWN_TOPIC_OR_PARTITION))

    def respond(answer: OffsetCommitResponse | KafkaError) -> OffsetCommitResponse:
        if isinstance(answer, KafkaError):
            answer = OffsetCommitResponse(topics=_rows(request.topics, code_of(answer, "OffsetCommit")))
        if unknown:
            answer.topics = merged(answer.topics + _rows(unknown, Code.UNKNOWN_TOPIC_OR_PARTITION))
        return answer

    return when_answered(
        node.groups.submit(
            request.group_id,
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_offset_commit(
                request_id, request, api_version=context.api_version, now_ms=now_ms, wall_ms=wall_ms
            ),
        ),
        respond,
    )


def _take_out_unknown(node: GroupsApi, request: OffsetCommitRequest) -> list[OffsetCommitRequestTopic]:
    """Leave in the request what exists."""
    known = node.image.topics_by_name
    unknown = []
    for topic in request.topics:
        found = known.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        wrong = [one for one in topic.partitions if not 0 <= one.partition_index < count]
        if wrong:
            unknown.append(OffsetCommitRequestTopic(name=topic.name, partitions=wrong))
            topic.partitions = [one for one in topic.partitions if 0 <= one.partition_index < count]
    if unknown:
        request.topics = [topic for topic in request.topics if topic.partitions]
    return unknown


def _rows(topics: list[OffsetCommitRequestTopic], code: Code) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
        )
        for topic in topics
    ]
