"""OffsetFetch 1-10: how far groups have read, with the leader epoch that was committed (5+, KIP-320).

Behaviour: a partition without an offset is answered -1, a group without any likewise. All partitions where none is
named (2+); several groups from 8 on (KIP-709), each with an error of its own. Who asks for stable offsets (7+, KIP-447)
gets UNSTABLE_OFFSET_COMMIT for a partition that an open transaction may move, others what was committed last. A member
of a consumer group says its epoch (9+, KIP-848), and is refused with STALE_MEMBER_EPOCH if that is another by now.
Version 10 names topics by their ids: one that there is not gets UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.existing_partitions import named, with_ids
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.metadata import MetadataImage
    from tidelog.server.api.ports import GroupsApi

ERROR_OF_GROUP_FROM_VERSION = 2
SEVERAL_GROUPS_FROM_VERSION = 8
IDS_FROM_VERSION = 10


def handle(
    node: GroupsApi, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    version = context.api_version
    image = node.image  # the coordinator looks the offsets up by now: a topic made anew meanwhile has another id
    groups = request.groups
    if version < SEVERAL_GROUPS_FROM_VERSION:
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)]

    by_id = version >= IDS_FROM_VERSION
    unknown: list[list[OffsetFetchRequestTopic]] = [_named(image, group) if by_id else [] for group in groups]

    def respond(answers: list[Any]) -> OffsetFetchResponse:
        rows = [_row(group, answer) for group, answer in zip(groups, answers, strict=True)]
        for row, unknown_topics in zip(rows, unknown, strict=True) if by_id else ():
            row.topics = with_ids(image, row.topics)
            if not row.error_code:
                row.topics += [_unknown(topic) for topic in unknown_topics]
        if version >= SEVERAL_GROUPS_FROM_VERSION:
            return OffsetFetchResponse(groups=rows)
        (row,) = rows
        if row.error_code and version < ERROR_OF_GROUP_FROM_VERSION:
            row.topics = _each_refused(groups[0], row.error_code)
        return OffsetFetchResponse(topics=row.topics, error_code=row.error_code)

    return when_all_answered([_answer(node, group, request.require_stable) for group in groups], respond)


def _answer(node: GroupsApi, group: OffsetFetchRequestGroup, require_stable: bool) -> object:
    return node.groups.submit(
        group.group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_offset_fetch(
            request_id, group, require_stable=require_stable, now_ms=now_ms, wall_ms=wall_ms
        ),
    )


def _named(image: MetadataImage, group: OffsetFetchRequestGroup) -> list[OffsetFetchRequestTopic]:
    """Leave in the request the topics that there are, by their names. Returns the others."""
    if group.topics is None:
        return []
    group.topics, unknown = named(image, group.topics)
    return unknown


def _unknown(topic: OffsetFetchRequestTopic) -> OffsetFetchResponseTopic:
    code = Code.UNKNOWN_TOPIC_ID
    return OffsetFetchResponseTopic(
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartition(partition_index=one, error_code=code) for one in topic.partition_indexes
        ],
    )


def _row(group: OffsetFetchRequestGroup, answer: OffsetFetchResponseGroup | KafkaError) -> OffsetFetchResponseGroup:
    if isinstance(answer, KafkaError):
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code_of(answer, "OffsetFetch"))
    return answer


def _each_refused(group: OffsetFetchRequestGroup, code: int) -> list[OffsetFetchResponseTopic]:
    """Version 1 has no place for an error but beside each partition."""
    return [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(partition_index=one, error_code=code) for one in topic.partition_indexes
            ],
        )
        for topic in group.topics or []
    ]
