"""OffsetCommit 2-10: how far a group has read, written to its partition of `__consumer_offsets` before it is answered.

Behaviour: the leader epoch of the last record read is kept beside the offset (6+, KIP-320). A partition that does not
exist gets UNKNOWN_TOPIC_OR_PARTITION, the others of the request are remembered. Members are fenced by generation,
member id and static name (KIP-345); generation -1 with no member id commits for a group that assigns partitions itself.
Members of consumer groups commit with their epoch (9+, KIP-848, KIP-1251). Version 10 names topics by their ids: one
that there is not gets UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.existing_partitions import merged, named, take_out_missing
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


IDS_FROM_VERSION = 10


def handle(
    node: GroupsApi, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    if context.api_version >= IDS_FROM_VERSION:
        return _handle_by_id(node, request, context)
    return _handle_by_name(node, request, context)


def _handle_by_id(
    node: GroupsApi, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    request.topics, unknown = named(node.image, request.topics)
    ids = {topic.name: topic.topic_id for topic in request.topics}

    def respond(answer: OffsetCommitResponse) -> OffsetCommitResponse:
        for topic in answer.topics:
            topic.topic_id = ids[topic.name]
        for one in unknown:
            (row,) = _rows([one], Code.UNKNOWN_TOPIC_ID)
            row.topic_id = one.topic_id
            answer.topics.append(row)
        return answer

    if unknown and not request.topics:
        return respond(OffsetCommitResponse())
    answer = _handle_by_name(node, request, context)
    return _respond_later(answer, respond) if isinstance(answer, Awaitable) else respond(answer)


async def _respond_later(
    answer: Awaitable[OffsetCommitResponse], respond: Callable[[OffsetCommitResponse], OffsetCommitResponse]
) -> OffsetCommitResponse:
    return respond(await answer)


def _handle_by_name(
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


def _rows(topics: list[OffsetCommitRequestTopic], code: Code) -> list[OffsetCommitResponseTopic]:
    return [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions],
        )
        for topic in topics
    ]
