"""DescribeShareGroupOffsets 0-1: where share groups stand in partitions, and by how much they lag (KIP-932, KIP-1226).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION for each group. As in Kafka, a group, a topic or
a partition of which nothing is kept has the start offset -1 and no error. The lag counts what is neither done nor below
the start offset; it is -1 where the group has not begun. Version 0 does not tell it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.base.ids import PartitionIndex, TopicId
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.share_answers import share_groups_refused
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareGroupsApi
    from tidelog.server.groups.partition_ends import Place
    from tidelog.server.groups.share_group_positions import SharePosition

NOT_KNOWN = -1
ROWS_MAX = 200
"""Of an answer that is written on the event loop: a longer one is written on another thread."""


async def handle(
    node: ShareGroupsApi, request: DescribeShareGroupOffsetsRequest, context: RequestContext
) -> DescribeShareGroupOffsetsResponse:
    refused = share_groups_refused(node.image)
    groups = []
    for group in request.groups:
        try:
            if refused is not None:
                raise refused
            groups.append(await _described(node, group, context))
        except KafkaError as error:
            groups.append(
                DescribeShareGroupOffsetsResponseGroup(
                    group_id=group.group_id,
                    error_code=code_of(error, "DescribeShareGroupOffsets"),
                    error_message=str(error),
                )
            )
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _described(
    node: ShareGroupsApi, group: DescribeShareGroupOffsetsRequestGroup, context: RequestContext
) -> DescribeShareGroupOffsetsResponseGroup:
    image = node.image
    wanted: list[tuple[TopicId, str, list[int]]] = []
    if group.topics is None:
        async for topic_id, states in in_turns((await _initialized(node, group.group_id)).items()):
            topic = image.topic_by_id(topic_id)
            if topic is not None:
                wanted.append((topic_id, topic.name, sorted(states.partitions)))
    else:
        for one in group.topics:
            topic = image.topic(one.topic_name)
            wanted.append((TopicId(ZERO_UUID) if topic is None else topic.topic_id, one.topic_name, one.partitions))
    places: dict[Place, None] = {}
    async for place in in_turns((topic_id, index) for topic_id, _, partitions in wanted for index in partitions):
        topic_id, index = place
        known = image.topics_by_id.get(topic_id)
        if known is not None and 0 <= index < len(known.partitions):
            places[topic_id, PartitionIndex(index)] = (
                None  # of what a share coordinator does not know it is asked again
            )
    positions = await node.share_positions.of(group.group_id, list(places))
    context.is_long = context.is_long or len(places) > ROWS_MAX
    topics = [
        DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=[])
        for topic_id, name, _ in wanted
    ]
    rows = ((number, index) for number, (_, _, partitions) in enumerate(wanted) for index in partitions)
    async for number, index in in_turns(rows):
        topic_id = wanted[number][0]
        topics[number].partitions.append(_row(index, positions.get((topic_id, PartitionIndex(index)))))
    return DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=topics)


async def _initialized(node: ShareGroupsApi, group_id: str) -> Any:
    answer = node.groups.submit(
        group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.share_groups.offsets.on_initialized_partitions(
            request_id, group_id, now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    if isinstance(answer, asyncio.Future):
        answer = await answer
    if isinstance(answer, KafkaError):
        raise answer
    return answer


def _row(index: int, position: SharePosition | None) -> DescribeShareGroupOffsetsResponsePartition:
    if position is None:
        return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=NOT_KNOWN)
    if position.error is not None:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index,
            error_code=Code(position.error.code).value,
            error_message=str(position.error),
        )
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=NOT_KNOWN if position.start is None else position.start,
        leader_epoch=position.leader_epoch,
        lag=NOT_KNOWN if position.lag is None else position.lag,
    )
