"""Produce 3-13: append batches to the partitions that this broker leads.

Behaviour: each partition stands for itself; what is acknowledged has been written (not synced: `flush.*` says when),
stamped with the leader epoch (KIP-101). A duplicate of an idempotent producer is answered with the offsets of the
original. acks=0 has no answer: where it fails, the connection is closed, which is all that the protocol offers.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import Code, DiskError, KafkaError, MalformedMessageError, refusal
from tidelog.base.ids import TopicId
from tidelog.server.dispatch import RequestContext, code_of
from tidelog.wire.messages.api_00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node

TOPIC_IDS_FROM_VERSION = 13


def handle(
    node: Node, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse] | None:
    by_id = context.header.api_version >= TOPIC_IDS_FROM_VERSION
    acks = request.acks
    now_ms = node.clock.wall_ms()
    failed: PartitionProduceResponse | None = None
    topics = []
    for topic in request.topic_data:
        rows = []
        for data in topic.partition_data:
            row = _append(node, topic.topic_id if by_id else topic.name, data, acks, now_ms)
            if row.error_code and failed is None:
                failed = row
            rows.append(row)
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
    if acks == 0:
        if failed is not None:
            raise MalformedMessageError(
                "a produce request with acks=0 failed, which only a close can tell its producer: "
                f"{Code(failed.error_code).name}: {failed.error_message}"
            )
        return None
    return ProduceResponse(responses=topics)


def _append(
    node: Node, topic: UUID | str, data: PartitionProduceData, acks: int, now_ms: int
) -> PartitionProduceResponse:
    try:
        if acks not in (-1, 0, 1):
            raise refusal(Code.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1 (all), 0 or 1")
        if isinstance(topic, str):
            partition = node.broker.partition(topic, data.index)
        else:
            partition = node.broker.partition_by_id(TopicId(topic), data.index)
        if not isinstance(data.records, memoryview) or not len(data.records):
            raise refusal(Code.INVALID_RECORD, "no batch was sent")
        result = partition.append(data.records, acks_all=acks == -1, now_ms=now_ms)
    except KafkaError as error:
        return _refused(data.index, code_of(error, f"Produce {topic}-{data.index}"), str(error))
    except DiskError as error:
        node.broker.on_disk_error(partition, error)
        return _refused(data.index, Code.KAFKA_STORAGE_ERROR, str(error))
    return PartitionProduceResponse(
        index=data.index,
        base_offset=result.first_offset,
        log_append_time_ms=-1 if result.log_append_time_ms is None else result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def _refused(index: int, code: Code, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
