"""ConsumerGroupHeartbeat 0-1: a member joins a consumer group, stays in it, and learns what it reads (KIP-848).

Behaviour: served from group.version 1 on; below it UNSUPPORTED_VERSION. In version 0 the coordinator names a member
that has no id; from 1 on a member brings its own (KIP-1082), and may subscribe to a pattern.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.server.api.dispatch import RequestContext, code_of
from tidelog.server.api.group_answers import consumer_groups_refused, when_answered
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    version = context.api_version
    client_id = context.header.client_id or ""
    host = "/" + context.connection.peer.rpartition(":")[0]

    def respond(answer: ConsumerGroupHeartbeatResponse | KafkaError) -> ConsumerGroupHeartbeatResponse:
        if isinstance(answer, KafkaError):
            code = code_of(answer, "ConsumerGroupHeartbeat")
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=str(answer))
        return answer

    refused = consumer_groups_refused(node.image)
    if refused is not None:
        return respond(refused)
    return when_answered(
        node.groups.submit(
            request.group_id,
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.consumer_groups.on_consumer_group_heartbeat(
                request_id,
                request,
                api_version=version,
                client_id=client_id,
                client_host=host,
                now_ms=now_ms,
                wall_ms=wall_ms,
            ),
        ),
        respond,
    )
