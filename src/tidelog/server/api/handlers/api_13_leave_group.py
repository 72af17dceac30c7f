"""LeaveGroup 0-5: members of classic groups go, and the others rebalance at once.

Behaviour: several at once, each with an answer of its own (3+), static ones by their names (KIP-345). The reason (5+,
KIP-800) goes to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_13_leave_group import LeaveGroupRequest, LeaveGroupResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi

logger = logging.getLogger("tidelog.server.groups")


def handle(
    node: GroupsApi, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    for member in request.members:
        if member.reason:
            logger.debug("group %r: %r leaves: %r", request.group_id, member.member_id, member.reason)
    return when_answered(
        node.groups.submit(
            request.group_id,
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.classic_groups.on_leave(
                request_id, request, api_version=context.api_version, now_ms=now_ms, wall_ms=wall_ms
            ),
        ),
        _respond,
    )


def _respond(answer: LeaveGroupResponse | KafkaError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code_of(answer, "LeaveGroup")) if isinstance(answer, KafkaError) else answer
