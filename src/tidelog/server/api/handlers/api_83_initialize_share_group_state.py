"""InitializeShareGroupState 0: a share group begins with partitions, or begins anew (KIP-932).

Behaviour: sent by the coordinator of the group. Each partition stands for itself, and is answered once its state is
committed. A state of a higher epoch gets FENCED_STATE_EPOCH; of the same epoch it is begun anew, as in Kafka. Served
from share.version 1 on; below it UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code, refusal
from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.share_answers import answers_of, rows_of
from tidelog.server.share_state.state_messages import NOT_KNOWN, offset_of
from tidelog.share.key import ShareKey
from tidelog.wire.messages.api_83_initialize_share_group_state import (
    InitializeShareGroupStatePartition,
    InitializeShareGroupStatePartitionResult,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeShareGroupStateResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareStatesApi


async def handle(
    node: ShareStatesApi, request: InitializeShareGroupStateRequest, context: RequestContext
) -> InitializeShareGroupStateResponse:
    async def ask(key: ShareKey, row: InitializeShareGroupStatePartition) -> object:
        if row.start_offset < NOT_KNOWN:
            raise refusal(Code.INVALID_REQUEST, f"{key}: there is no start offset {row.start_offset}")
        start = offset_of(row.start_offset)
        return await node.share_states.initialize(key, state_epoch=row.state_epoch, start=start)

    answers = await answers_of(node, request.group_id, request.topics, ask)
    return InitializeShareGroupStateResponse(
        results=rows_of(
            request.topics, answers, InitializeShareGroupStateResult, InitializeShareGroupStatePartitionResult
        )
    )
