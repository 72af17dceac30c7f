"""Heartbeat 0-4: a member of a classic group is alive.

Behaviour: fenced by generation, member id and static name (KIP-345). REBALANCE_IN_PROGRESS asks it to join again; that
counts as a sign of life too. While the group is being loaded it is believed: no session ends meanwhile, and aiokafka
takes any other answer for the end of its consumer.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_12_heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    return when_answered(
        node.groups.submit(
            request.group_id,
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.classic_groups.on_heartbeat(
                request_id, request, now_ms=now_ms, wall_ms=wall_ms
            ),
        ),
        _respond,
    )


def _respond(answer: HeartbeatResponse | KafkaError) -> HeartbeatResponse:
    if isinstance(answer, HeartbeatResponse):
        return answer
    if answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=code_of(answer, "Heartbeat"))
