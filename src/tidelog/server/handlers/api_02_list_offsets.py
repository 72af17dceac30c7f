"""ListOffsets 1-10: offsets by timestamp, the earliest, the latest, and the one with the largest timestamp.

Behaviour: each answer carries the leader epoch *of the offset answered*; `latest` carries the current one, which may
hold no record yet. `latest` is the high watermark (the last stable offset for read_committed), and OFFSET_NOT_AVAILABLE
while that is below the start of the leader's epoch. There is no tiered storage: earliest local is earliest, latest
tiered is unknown. The leader epoch is checked (KIP-320). A partition that is named twice is refused, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.dispatch import RequestContext, code_of
from tidelog.server.partition import READ_UNCOMMITTED, Partition
from tidelog.wire.messages.api_02_list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node


async def handle(node: Node, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    counts = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            try:
                if counts[topic.name, asked.partition_index] > 1:
                    raise refusal(Code.INVALID_REQUEST, "the request names this partition more than once")
                if asked.timestamp >= 0 or asked.timestamp == MAX_TIMESTAMP:
                    await asyncio.sleep(0)  # a look into the log takes a while: let others have their turn
                partition = node.broker.partition(topic.name, asked.partition_index)
                partition.leader(asked.current_leader_epoch)
                row = _answer(partition, asked, request.isolation_level)
            except KafkaError as error:
                code = code_of(error, f"ListOffsets {topic.name}-{asked.partition_index}")
                row = ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
                )
            rows.append(row)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics)


def _answer(partition: Partition, asked: ListOffsetsPartition, isolation_level: int) -> ListOffsetsPartitionResponse:
    log = partition.log
    replica = partition.leader()
    end_offset = partition.high_watermark if isolation_level == READ_UNCOMMITTED else partition.last_stable_offset
    row = ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, error_code=0, timestamp=-1, offset=-1, leader_epoch=-1
    )
    if asked.timestamp == LATEST_TIMESTAMP:
        replica.latest_offset()  # refuses while a new leader does not know it yet
        row.offset, row.leader_epoch = end_offset, replica.leader_epoch
    elif asked.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        row.offset = log.log_start_offset
        epoch = log.lineage.epoch_at(log.log_start_offset)
        row.leader_epoch = -1 if epoch is None else epoch
    elif asked.timestamp == MAX_TIMESTAMP:
        found = partition.newest(end_offset)
        if found is not None:
            row.timestamp, row.offset, row.leader_epoch = found
    elif asked.timestamp == LATEST_TIERED_TIMESTAMP:
        pass
    elif asked.timestamp < 0:
        raise refusal(Code.INVALID_REQUEST, f"timestamp {asked.timestamp} has no meaning in ListOffsets")
    else:
        found = partition.at_timestamp(asked.timestamp, end_offset)
        if found is not None:
            row.timestamp, row.offset, row.leader_epoch = found
    return row
