"""DeleteRecords 0-2: the oldest records of partitions go, up to an offset (KIP-107).

Behaviour: -1 stands for the high watermark, beyond which nothing is deleted (OFFSET_OUT_OF_RANGE). The new log start is
on the disk before it is answered, and every follower that is up has gone along, so that whoever leads next does not
bring the records back; if that takes too long, the answer is REQUEST_TIMED_OUT. A topic that is only compacted keeps
its records (POLICY_VIOLATION), and so do the cluster's own. A partition that is named twice is refused.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.record_deletion import RecordsToDelete, delete_records
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_21_delete_records import (
    TO_HIGH_WATERMARK,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi


async def handle(node: DataApi, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    counts = Counter(
        (topic.name, requested.partition_index) for topic in request.topics for requested in topic.partitions
    )
    wanted = [
        RecordsToDelete(
            topic.name, requested.partition_index, None if requested.offset == TO_HIGH_WATERMARK else requested.offset
        )
        for topic in request.topics
        for requested in topic.partitions
        if counts[topic.name, requested.partition_index] == 1
    ]
    outcomes = {
        (one.topic, one.partition): outcome
        for one, outcome in zip(wanted, await delete_records(node, wanted, timeout_ms=request.timeout_ms), strict=True)
    }
    topics = []
    for topic in request.topics:
        rows = []
        for requested in topic.partitions:
            row = DeleteRecordsPartitionResult(partition_index=requested.partition_index)
            outcome = outcomes.get((topic.name, requested.partition_index))
            if outcome is None:
                row.error_code = Code.INVALID_REQUEST
            elif isinstance(outcome, KafkaError):
                row.error_code = code_of(outcome, f"DeleteRecords {topic.name}-{requested.partition_index}")
            else:
                row.low_watermark = outcome
            rows.append(row)
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
    return DeleteRecordsResponse(topics=topics)
