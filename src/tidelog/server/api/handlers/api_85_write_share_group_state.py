"""WriteShareGroupState 0-1: the leader of a partition saves what share groups have done with it (KIP-932, KIP-1226).

Behaviour: each partition stands for itself, and is answered once its change is committed. An older leader gets
FENCED_LEADER_EPOCH, one that read a state of before FENCED_STATE_EPOCH, as long as nobody has read this one any write;
what was not initialized INVALID_REQUEST, and more batches than a state has MESSAGE_TOO_LARGE. Of a change of very many
batches some may be saved where it is refused. Served from share.version 1 on; below it UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.share_answers import answers_of, rows_of
from tidelog.server.share_state.state_messages import portions_told
from tidelog.wire.messages.api_85_write_share_group_state import (
    WriteShareGroupStatePartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteShareGroupStateResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareStatesApi


async def handle(
    node: ShareStatesApi, request: WriteShareGroupStateRequest, context: RequestContext
) -> WriteShareGroupStateResponse:
    answers = await answers_of(
        node,
        request.group_id,
        request.topics,
        lambda key, row: node.share_states.write(key, portions_told(row), batch_count=len(row.state_batches)),
    )
    return WriteShareGroupStateResponse(
        results=rows_of(request.topics, answers, WriteShareGroupStateResult, WriteShareGroupStatePartitionResult)
    )
