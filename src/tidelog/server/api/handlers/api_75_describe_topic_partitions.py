"""DescribeTopicPartitions 0: topics and partitions as the published image has them, piece by piece (KIP-966).

Behaviour: topics in the order of their names, each once; all of them if none is named. At most
`response_partition_limit` partitions (and at most `max.request.partition.size.limit`) come at once; the cursor says
where to go on. What one is authorized to do (KIP-430) always comes with them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.metadata import MetadataImage, PartitionImage
from tidelog.metadata.topic_names import INTERNAL_TOPICS, check_topic_name
from tidelog.server.api.authorized_operations import AuthorizedOperations
from tidelog.server.api.request_context import RequestContext
from tidelog.wire.messages.api_75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import MetadataApi


async def handle(
    node: MetadataApi, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """On another thread: all the topics there are, or that a request names, are brought into order."""
    image, context.is_long = context.read(node).image, True
    partitions_max = min(request.response_partition_limit, node.config.described_partitions_max)
    operations = AuthorizedOperations(node, context)
    return await node.executor.compute(partial(_described, image, request, partitions_max, operations))


def _described(
    image: MetadataImage,
    request: DescribeTopicPartitionsRequest,
    partitions_max: int,
    operations: AuthorizedOperations,
) -> DescribeTopicPartitionsResponse:
    cursor, left = request.cursor, partitions_max
    if left < 1 or (cursor is not None and cursor.partition_index < 0):
        # There is no field for it but those of the topics that were named.
        return DescribeTopicPartitionsResponse(
            topics=[_refused(one.name, Code.INVALID_REQUEST, operations) for one in request.topics]
        )
    names = sorted({one.name for one in request.topics} or image.topics_by_name)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if left == 0:
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, 0))
        found = image.topic(name)
        if found is None:
            illegal = check_topic_name(name) is not None
            code = Code.INVALID_TOPIC_EXCEPTION if illegal else Code.UNKNOWN_TOPIC_OR_PARTITION
            topics.append(_refused(name, code, operations))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(first + left, len(found.partitions))
        rows = [_partition(image, index, found.partitions[index]) for index in range(first, end)]
        left -= len(rows)
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=found.topic_id,
                is_internal=name in INTERNAL_TOPICS,
                partitions=rows,
                topic_authorized_operations=operations.on_topic(name),
            )
        )
        if end < len(found.partitions):
            return DescribeTopicPartitionsResponse(topics=topics, next_cursor=Cursor(name, end))
    return DescribeTopicPartitionsResponse(topics=topics)


def _refused(name: str, code: Code, operations: AuthorizedOperations) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, topic_authorized_operations=operations.on_topic(name)
    )


def _partition(image: MetadataImage, index: int, state: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    leader = image.reachable_leader(state)
    return DescribeTopicPartitionsResponsePartition(
        error_code=Code.LEADER_NOT_AVAILABLE if leader is None else Code.NONE,
        partition_index=index,
        leader_id=-1 if leader is None else leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.eligible_leader_replicas),
        last_known_elr=list(state.last_known_eligible_leader_replicas),
        offline_replicas=[r for r in state.replicas if r not in image.brokers or image.brokers[r].is_fenced],
    )
