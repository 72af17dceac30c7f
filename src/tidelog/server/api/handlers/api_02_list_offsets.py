"""ListOffsets 1-11: offsets by timestamp, the earliest, the latest, and the one with the largest timestamp.

Behaviour: each answer carries the leader epoch *of the offset answered*; `latest` carries the current one, which may
hold no record yet. `latest` is the high watermark (the last stable offset for read_committed), and OFFSET_NOT_AVAILABLE
while that is below the start of the leader's epoch. There is no tiered storage: earliest local is earliest, latest
tiered (KIP-1005) and earliest pending upload (KIP-1023) are unknown, -1 without an error, and the time limit of version
10 (KIP-1075), which is for look-ups there, has no effect. A named place that is newer than the request's version is
refused with UNSUPPORTED_VERSION. The leader epoch is checked (KIP-320). A partition that is named twice is refused, as
Kafka does. Look-ups by time wait for the disk on a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import Offset
from tidelog.log import NotCachedError, TimestampOffset
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.replication.partition import READ_UNCOMMITTED, Partition
from tidelog.wire.messages.api_02_list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
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
    from tidelog.server.api.ports import DataApi

OFFSET_NOT_AVAILABLE_FROM_VERSION = 5
INT16_MAX = 0x7FFF


VERSIONS = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
"""From which version on a request may name the place."""

LOOK_UPS_MAX = 64
"""How often a time is looked up without waiting for the disk, each time with another MiB in memory. Then it waits."""


def handle(
    node: DataApi, request: ListOffsetsRequest, context: RequestContext
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    counts = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    is_named_twice = {named for named, count in counts.items() if count > 1}
    looking: list[tuple[str, ListOffsetsPartition, ListOffsetsPartitionResponse]] = []
    topics = []
    for topic in request.topics:
        rows = []
        for requested in topic.partitions:
            row = ListOffsetsPartitionResponse(partition_index=requested.partition_index)
            with _refusals_reported(row, topic.name, context.api_version):
                if (topic.name, requested.partition_index) in is_named_twice:
                    raise refusal(Code.INVALID_REQUEST, "the request names this partition more than once")
                if requested.timestamp < 0 and context.api_version < VERSIONS.get(requested.timestamp, INT16_MAX):
                    raise refusal(
                        Code.UNSUPPORTED_VERSION, f"ListOffsets of this version knows no {requested.timestamp}"
                    )
                if requested.timestamp >= 0 or requested.timestamp == MAX_TIMESTAMP:
                    looking.append((topic.name, requested, row))
                else:
                    _fill_offset(_led(node, topic.name, requested), requested, row, request.isolation_level)
            rows.append(row)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    response = ListOffsetsResponse(topics=topics)
    return _look(node, request, context, looking, response) if looking else response


async def _look(
    node: DataApi,
    request: ListOffsetsRequest,
    context: RequestContext,
    looking: list[tuple[str, ListOffsetsPartition, ListOffsetsPartitionResponse]],
    response: ListOffsetsResponse,
) -> ListOffsetsResponse:
    """Look into the logs, one after the other."""
    for topic, requested, row in looking:
        await asyncio.sleep(0)  # a look takes a while: let others have their turn
        with _refusals_reported(row, topic, context.api_version):
            found = await _found(node, topic, requested, request.isolation_level)
            if found is not None:
                row.timestamp, row.offset, row.leader_epoch = found
            else:
                _led(
                    node, topic, requested
                ).leader().latest_offset()  # refuses while it may be that one is not committed yet
    return response


async def _found(
    node: DataApi, topic: str, requested: ListOffsetsPartition, isolation_level: int
) -> TimestampOffset | None:
    look_ups = 0
    while True:
        look_ups += 1
        partition = _led(node, topic, requested)  # each time: much may have happened since
        end_offset = _end_offset(partition, isolation_level)
        may_wait = look_ups > LOOK_UPS_MAX
        try:
            if requested.timestamp == MAX_TIMESTAMP:
                return partition.newest(end_offset, may_wait=may_wait)
            return partition.at_timestamp(requested.timestamp, end_offset, may_wait=may_wait)
        except NotCachedError as missing:
            await node.broker.bring_into_memory([missing])


def _fill_offset(
    partition: Partition, requested: ListOffsetsPartition, row: ListOffsetsPartitionResponse, isolation_level: int
) -> None:
    log = partition.log
    if requested.timestamp == LATEST_TIMESTAMP:
        replica = partition.leader()
        replica.latest_offset()  # refuses while a new leader does not know it yet
        row.offset, row.leader_epoch = _end_offset(partition, isolation_level), replica.leader_epoch
    elif requested.timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        row.offset = log.log_start_offset
        epoch = log.lineage.epoch_at(log.log_start_offset)
        row.leader_epoch = -1 if epoch is None else epoch
    # Of the places of tiered storage nothing is known: there is none.


def _led(node: DataApi, topic: str, requested: ListOffsetsPartition) -> Partition:
    partition = node.broker.partition(topic, requested.partition_index)
    partition.leader(requested.current_leader_epoch)
    return partition


def _end_offset(partition: Partition, isolation_level: int) -> Offset:
    return partition.high_watermark if isolation_level == READ_UNCOMMITTED else partition.last_stable_offset


@contextmanager
def _refusals_reported(row: ListOffsetsPartitionResponse, topic: str, api_version: int) -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        code = code_of(error, f"ListOffsets {topic}-{row.partition_index}")
        if code == Code.OFFSET_NOT_AVAILABLE and api_version < OFFSET_NOT_AVAILABLE_FROM_VERSION:
            code = Code.LEADER_NOT_AVAILABLE
        row.error_code = code
