"""DeleteShareGroupState 0: what a share group has done with partitions is kept no longer (KIP-932).

Behaviour: sent by the coordinator of the group. Each partition stands for itself; where nothing is kept that is no
error. A row may name an epoch, in a field of ours: a state with a higher one was begun since, and stays, without an
error. Served from share.version 1 on; below it UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.server.api.request_context import RequestContext
from tidelog.server.api.share_answers import answers_of, rows_of
from tidelog.wire.messages.api_86_delete_share_group_state import (
    DeleteShareGroupStatePartitionResult,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteShareGroupStateResult,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareStatesApi


async def handle(
    node: ShareStatesApi, request: DeleteShareGroupStateRequest, context: RequestContext
) -> DeleteShareGroupStateResponse:
    answers = await answers_of(
        node,
        request.group_id,
        request.topics,
        lambda key, row: node.share_states.delete(key, state_epoch=row.state_epoch),
    )
    return DeleteShareGroupStateResponse(
        results=rows_of(request.topics, answers, DeleteShareGroupStateResult, DeleteShareGroupStatePartitionResult)
    )
