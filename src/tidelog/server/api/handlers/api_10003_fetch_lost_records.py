"""FetchLostRecords 0, ours: a page of what this broker keeps of the records that its replica lost.

Behaviour: whole batches, one at least, as they were in the log. Control batches are among them. Read off the loop.
RESOURCE_NOT_FOUND where nothing is kept; UNKNOWN_TOPIC_ID and NOT_LEADER_OR_FOLLOWER where this broker has no such
replica.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, CorruptLogError, DiskError, KafkaError, refusal
from tidelog.base.ids import LeaderEpoch, TopicId
from tidelog.log.lost_records import read_kept
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_10003_fetch_lost_records import FetchLostRecordsRequest, FetchLostRecordsResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi

PAGE_SIZE_BYTES_MAX = 1024 * 1024


async def handle(node: DataApi, request: FetchLostRecordsRequest, context: RequestContext) -> FetchLostRecordsResponse:
    del context
    what = f"FetchLostRecords {request.topic_id}-{request.partition_index}@{request.leader_epoch}"
    try:
        if request.position < 0 or request.max_bytes <= 0:
            said = f"position {request.position} is below 0, or max_bytes {request.max_bytes} below 1"
            raise refusal(Code.INVALID_REQUEST, said)
        partition = node.broker.partition_by_id(TopicId(request.topic_id), request.partition_index)
        size_bytes_max = min(request.max_bytes, PAGE_SIZE_BYTES_MAX)
        leader_epoch = LeaderEpoch(request.leader_epoch)
        page = await node.executor.run(
            partial(read_kept, node.files.disk, partition.log.directory, leader_epoch, request.position, size_bytes_max)
        )
        if page is None:
            loss = f"{partition.topic_partition}@{request.leader_epoch}"
            raise refusal(
                Code.RESOURCE_NOT_FOUND,
                f"broker {node.config.node_id} keeps no records of loss {loss}: it cut off none, or they were removed "
                "by retention.ms or by losses.kept.bytes",
            )
    except KafkaError as error:
        return FetchLostRecordsResponse(error_code=code_of(error, what), error_message=str(error))
    except (CorruptLogError, DiskError) as error:
        return FetchLostRecordsResponse(error_code=Code.KAFKA_STORAGE_ERROR, error_message=str(error))
    return FetchLostRecordsResponse(size_bytes=page.size_bytes, records=page.data)
