"""ConsumerGroupHeartbeat 0-1: a member joins a consumer group, stays in it, and learns what it reads (KIP-848).

Behaviour: served from group.version 1 on; below it UNSUPPORTED_VERSION. In version 0 the coordinator names a member
that has no id; from 1 on a member brings its own (KIP-1082), and may subscribe to a pattern.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.group_answers import consumer_groups_refused, when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.groups.consumer.heartbeat_checks import Lists
    from tidelog.server.api.ports import GroupsApi


LISTED_AT_ONCE_MAX = 300
"""Topics in a request, or an answer, that are seen to on the event loop, in less than a millisecond."""


def handle(
    node: GroupsApi, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    refused = consumer_groups_refused(node.image)
    if refused is not None:
        return _respond(context, refused)
    listed = len(request.subscribed_topic_names or ()) + len(request.topic_partitions or ())
    if listed <= LISTED_AT_ONCE_MAX:
        return when_answered(_submit(node, request, context, None), partial(_respond, context))
    return _handle_long(node, request, context)


async def _handle_long(
    node: GroupsApi, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse:
    from tidelog.coordinator.groups.consumer.heartbeat_checks import TOPIC_NAMES_MAX, lists_of

    lists = None
    if (
        len(request.subscribed_topic_names or ()) <= TOPIC_NAMES_MAX
    ):  # else it is refused; no other thread runs meanwhile
        lists = await node.executor.compute(partial(lists_of, request))
    answer = _submit(node, request, context, lists)
    return _respond(context, await answer if isinstance(answer, asyncio.Future) else answer)


def _submit(
    node: GroupsApi, request: ConsumerGroupHeartbeatRequest, context: RequestContext, lists: Lists | None
) -> object:
    client_id = context.header.client_id or ""
    host = "/" + context.connection.peer.rpartition(":")[0]
    return node.groups.submit(
        request.group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.consumer_groups.on_consumer_group_heartbeat(
            request_id,
            request,
            api_version=context.api_version,
            client_id=client_id,
            client_host=host,
            now_ms=now_ms,
            wall_ms=wall_ms,
            lists=lists,
        ),
    )


def _respond(context: RequestContext, answer: Any) -> ConsumerGroupHeartbeatResponse:
    if isinstance(answer, KafkaError):
        code = code_of(answer, "ConsumerGroupHeartbeat")
        return ConsumerGroupHeartbeatResponse(error_code=code, error_message=str(answer))
    response: ConsumerGroupHeartbeatResponse = answer
    if response.assignment is not None and len(response.assignment.topic_partitions) > LISTED_AT_ONCE_MAX:
        context.is_long = True  # encoded on another thread
    return response
