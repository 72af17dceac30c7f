"""ReportResumptions 0, ours: a reader says where it goes on after a log lost what it had read.

Behaviour: noted beside what this broker told that reader (told_readers.py), and in no log. Topics that are not there
are passed over; more than `RESUMPTIONS_MAX` partitions are INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.base.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicPartition
from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.told_readers import ReaderName, Resumption
from tidelog.wire.messages.api_10005_report_resumptions import ReportResumptionsRequest, ReportResumptionsResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import DataApi

RESUMPTIONS_MAX = 1_000


def handle(node: DataApi, request: ReportResumptionsRequest, context: RequestContext) -> ReportResumptionsResponse:
    if len(request.resumptions) > RESUMPTIONS_MAX:
        return ReportResumptionsResponse(error_code=Code.INVALID_REQUEST)
    reader = ReaderName(context.header.client_id or "", context.connection.peer.rpartition(":")[0])
    now_ms = node.clock.wall_ms()
    for row in request.resumptions:
        topic = node.image.topic_by_id(TopicId(row.topic_id))
        if topic is None or not 0 <= row.partition_index < len(topic.partitions):
            continue
        node.told_readers.note_resumption(
            TopicPartition(topic.name, PartitionIndex(row.partition_index)),
            TopicId(row.topic_id),
            reader,
            (LeaderEpoch(row.leader_epoch), Offset(row.divergent_offset)),
            Resumption(Offset(row.position), Offset(row.resumed_offset), row.policy),
            now_ms=now_ms,
        )
    return ReportResumptionsResponse()
