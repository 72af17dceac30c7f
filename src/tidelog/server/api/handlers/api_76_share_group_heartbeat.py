"""ShareGroupHeartbeat 1: a member joins a share group, stays in it, and learns what it reads (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION. A member brings its own id. It is assigned a
partition once the share coordinator keeps a state of it, so a member that joins learns with its second heartbeat what
it reads. Several members read a partition, and nobody waits for anybody to give one up.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.share_answers import share_groups_refused
from tidelog.wire.messages.api_76_share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi

LISTED_AT_ONCE_MAX = 300
"""Topics in an answer that is encoded on the event loop, in less than a millisecond."""


def handle(
    node: GroupsApi, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]:
    refused = share_groups_refused(node.image)
    if refused is not None:
        return _respond(context, refused)
    client_id = context.header.client_id or ""
    host = "/" + context.connection.peer.rpartition(":")[0]
    answer = node.groups.submit(
        request.group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.share_groups.on_share_group_heartbeat(
            request_id, request, client_id=client_id, client_host=host, now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    return when_answered(answer, partial(_respond, context))


def _respond(context: RequestContext, answer: Any) -> ShareGroupHeartbeatResponse:
    if isinstance(answer, KafkaError):
        code = code_of(answer, "ShareGroupHeartbeat")
        return ShareGroupHeartbeatResponse(error_code=code, error_message=str(answer))
    response: ShareGroupHeartbeatResponse = answer
    if response.assignment is not None and len(response.assignment.topic_partitions) > LISTED_AT_ONCE_MAX:
        context.is_long = True  # encoded on another thread
    return response
