"""JoinGroup 0-9: members of classic groups join, and wait until all have.

Behaviour: a new member is given its id and asked to come back with it (4+, KIP-394). Static members take their place
again without a rebalance (5+, KIP-345); one that led is told to skip the assignment (9+, KIP-814). The first generation
waits for more members (`group.initial.rebalance.delay.ms`).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_11_join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi

PROTOCOL_MAY_BE_NULL_FROM_VERSION = 7

logger = logging.getLogger("tidelog.server.groups")


def handle(
    node: GroupsApi, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    if request.reason:
        logger.debug("group %r: %r joins: %r", request.group_id, request.member_id, request.reason)
    version = context.api_version
    client_id = context.header.client_id or ""
    host = "/" + context.connection.peer.rpartition(":")[0]
    member_id = request.member_id

    def respond(answer: JoinGroupResponse | KafkaError) -> JoinGroupResponse:
        if isinstance(answer, KafkaError):
            answer = JoinGroupResponse(error_code=code_of(answer, "JoinGroup"), protocol_name=None, member_id=member_id)
        if answer.protocol_name is None and version < PROTOCOL_MAY_BE_NULL_FROM_VERSION:
            answer.protocol_name = ""
        return answer

    answer = node.groups.submit(
        request.group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.classic_groups.on_join(
            request_id,
            request,
            api_version=version,
            client_id=client_id,
            client_host=host,
            now_ms=now_ms,
            wall_ms=wall_ms,
        ),
    )
    if context.kept is not None:  # however long the others take to join: what it lists is the group's, counted there
        context.kept.let_go()
    return when_answered(answer, respond)
