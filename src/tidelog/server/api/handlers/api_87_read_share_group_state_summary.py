"""ReadShareGroupStateSummary 0-1: where share groups stand in partitions, without each record (KIP-932, KIP-1226).

Behaviour: sent by the coordinator of the group. Each partition stands for itself; where nothing is kept the start
offset is -1. The leader epoch that is told is not looked at, as in Kafka. Served from share.version 1 on; below it
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.share_answers import answers_of, rows_of
from tidelog.server.share_state.state_messages import told_summary
from tidelog.wire.messages.api_87_read_share_group_state_summary import (
    ReadShareGroupStateSummaryPartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadShareGroupStateSummaryResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareStatesApi


async def handle(
    node: ShareStatesApi, request: ReadShareGroupStateSummaryRequest, context: RequestContext
) -> ReadShareGroupStateSummaryResponse:
    answers = await answers_of(
        node, request.group_id, request.topics, lambda key, row: node.share_states.summarize(key)
    )
    return ReadShareGroupStateSummaryResponse(
        results=rows_of(
            request.topics,
            answers,
            ReadShareGroupStateSummaryResult,
            ReadShareGroupStateSummaryPartitionResult,
            told_summary,
        )
    )
