"""Produce 3-13: append batches to the partitions that this broker leads.

Behaviour: each partition stands for itself; what is acknowledged has been written, stamped with the leader epoch
(KIP-101), and synced first where `flush.messages` asks for it. A duplicate of an idempotent producer is answered with
the offsets of the original. acks=0 has no answer: where it fails, the connection is closed, which is all that the
protocol offers. Internal topics take records from their coordinators and, as in Kafka, from clients that call
themselves `__admin_client`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import (
    Code,
    DiskError,
    InvalidRecordsError,
    InvariantBrokenError,
    KafkaError,
    MalformedMessageError,
    refusal,
)
from tidelog.base.ids import TopicId
from tidelog.server.dispatch import RequestContext, code_of
from tidelog.server.partition import Partition
from tidelog.wire.messages.api_00_produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from tidelog.server.node import Node

TOPIC_IDS_FROM_VERSION = 13

ADMIN_CLIENT_ID = "__admin_client"


def handle(
    node: Node, request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    by_id = context.header.api_version >= TOPIC_IDS_FROM_VERSION
    acks = request.acks
    is_admin = context.header.client_id == ADMIN_CLIENT_ID
    unsynced: list[tuple[Partition, PartitionProduceResponse]] = []
    topics = []
    for topic in request.topic_data:
        name = topic.topic_id if by_id else topic.name
        rows = [_append(node, name, data, acks, unsynced, is_admin=is_admin) for data in topic.partition_data]
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=rows))
    response = ProduceResponse(responses=topics)
    if unsynced:
        return _sync_then_answer(node, unsynced, response, acks)
    return _answer(response, acks)


def _answer(response: ProduceResponse, acks: int) -> ProduceResponse | None:
    if acks:
        return response
    for topic in response.responses:
        for row in topic.partition_responses:
            if row.error_code:
                raise MalformedMessageError(
                    "a produce request with acks=0 failed, which only a close can tell its producer: "
                    f"{Code(row.error_code).name}: {row.error_message}"
                )
    return None


async def _sync_then_answer(
    node: Node, unsynced: list[tuple[Partition, PartitionProduceResponse]], response: ProduceResponse, acks: int
) -> ProduceResponse | None:
    for partition, row in unsynced:
        try:
            await node.files.flush(partition)
        except DiskError as error:
            node.broker.on_disk_error(partition, error)
            row.error_code, row.base_offset, row.error_message = Code.KAFKA_STORAGE_ERROR, -1, str(error)
    return _answer(response, acks)


def _append(
    node: Node,
    topic: UUID | str,
    data: PartitionProduceData,
    acks: int,
    unsynced: list[tuple[Partition, PartitionProduceResponse]],
    *,
    is_admin: bool,
) -> PartitionProduceResponse:
    try:
        if acks not in (-1, 0, 1):
            raise refusal(Code.INVALID_REQUIRED_ACKS, f"acks is {acks}; it must be -1 (all), 0 or 1")
        if isinstance(topic, str):
            partition = node.broker.partition(topic, data.index)
        else:
            partition = node.broker.partition_by_id(TopicId(topic), data.index)
        if partition.is_internal and not is_admin:
            name = partition.topic_partition.topic
            raise refusal(Code.INVALID_TOPIC_EXCEPTION, f"{name} is written by its coordinators alone")
        records = data.records
        if not isinstance(records, memoryview) or not len(records):
            raise refusal(Code.INVALID_RECORD, "no batch was sent")
        result = partition.append(records, acks_all=acks == -1, now_ms=node.clock.wall_ms())
    except KafkaError as error:
        row = _refused(data.index, code_of(error, f"Produce {topic}-{data.index}"), str(error))
        if isinstance(error, InvalidRecordsError):
            row.record_errors = [BatchIndexAndErrorMessage(index) for index in error.record_indexes]
        return row
    except InvariantBrokenError as error:
        node.broker.on_bug(partition, error)
        raise
    except DiskError as error:
        node.broker.on_disk_error(partition, error)
        return _refused(data.index, Code.KAFKA_STORAGE_ERROR, str(error))
    row = PartitionProduceResponse(
        index=data.index,
        base_offset=result.first_offset,
        log_append_time_ms=-1 if result.log_append_time_ms is None else result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )
    if partition.is_sync_awaited:
        unsynced.append((partition, row))
    return row


def _refused(index: int, code: Code, message: str) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=code, base_offset=-1, error_message=message)
