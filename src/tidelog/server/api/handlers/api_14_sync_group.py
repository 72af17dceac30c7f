"""SyncGroup 0-5: the leader of a generation says who gets what; every member is told its part once that is written.

Behaviour: fenced by generation, member id and static name (KIP-345); from 5 on a member that believes in another
protocol, or does not say in which, gets INCONSISTENT_GROUP_PROTOCOL (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_14_sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi

PROTOCOL_FROM_VERSION = 5


def handle(
    node: GroupsApi, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    names_protocol = request.protocol_type is not None and request.protocol_name is not None
    if context.api_version >= PROTOCOL_FROM_VERSION and not names_protocol:
        return SyncGroupResponse(error_code=Code.INCONSISTENT_GROUP_PROTOCOL)
    return when_answered(
        node.groups.submit(
            request.group_id,
            lambda coordinator, request_id, now_ms, wall_ms: coordinator.classic_groups.on_sync(
                request_id, request, now_ms=now_ms, wall_ms=wall_ms
            ),
        ),
        _respond,
    )


def _respond(answer: SyncGroupResponse | KafkaError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code_of(answer, "SyncGroup")) if isinstance(answer, KafkaError) else answer
