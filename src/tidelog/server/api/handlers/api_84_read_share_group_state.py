"""ReadShareGroupState 0: the leader of a partition loads what share groups have done with it (KIP-932).

Behaviour: each partition stands for itself. The leader epoch that is told is recorded before the answer leaves, and
fences leaders of older ones: FENCED_LEADER_EPOCH. A state that was not initialized gets INVALID_REQUEST. Served from
share.version 1 on; below it UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.ids import LeaderEpoch
from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.share_answers import answers_of, rows_of
from tidelog.server.share_state.state_messages import batch_count, told_state
from tidelog.wire.messages.api_84_read_share_group_state import (
    ReadShareGroupStatePartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareStatesApi

TOLD_AT_ONCE_MAX = 512
"""Batches, of an answer that is made on the event loop."""


async def handle(
    node: ShareStatesApi, request: ReadShareGroupStateRequest, context: RequestContext
) -> ReadShareGroupStateResponse:
    answers = await answers_of(
        node,
        request.group_id,
        request.topics,
        lambda key, row: node.share_states.read(key, leader_epoch=LeaderEpoch(row.leader_epoch)),
    )
    if batch_count(answers) <= TOLD_AT_ONCE_MAX:
        return _response(request, answers)
    context.is_long = True
    return await node.executor.compute(partial(_response, request, answers))


def _response(request: ReadShareGroupStateRequest, answers: list[Any]) -> ReadShareGroupStateResponse:
    return ReadShareGroupStateResponse(
        results=rows_of(
            request.topics, answers, ReadShareGroupStateResult, ReadShareGroupStatePartitionResult, told_state
        )
    )
