"""ShareGroupDescribe 1: state, epochs and members of share groups that this broker coordinates (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION for each group. One that is not there, or is of
another kind, has GROUP_ID_NOT_FOUND. Who asks what one is authorized to do (KIP-430) learns it of each group that has
no error.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.authorized_operations import GROUP_OPERATIONS
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.share_answers import share_groups_refused
from tidelog.wire.messages.api_77_share_group_describe import (
    ShareGroupDescribeGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.groups.share.describe_share_groups import ShareGroupView
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse | Awaitable[ShareGroupDescribeResponse]:
    names = list(dict.fromkeys(request.group_ids))
    refused = share_groups_refused(node.image)

    def respond(answers: list[Any]) -> ShareGroupDescribeResponse:
        rows = [_row(group_id, answer) for group_id, answer in zip(names, answers, strict=True)]
        if request.include_authorized_operations:
            for row in rows:
                if row.error_code == Code.NONE:
                    row.authorized_operations = GROUP_OPERATIONS
        return ShareGroupDescribeResponse(groups=rows)

    return when_all_answered([refused or _answer(node, name) for name in names], respond)


def _answer(node: GroupsApi, group_id: str) -> object:
    if not group_id:
        return refusal(Code.INVALID_GROUP_ID, "the group id is empty")
    return node.groups.submit(
        group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.share_groups.on_share_group_describe(
            request_id, group_id, now_ms=now_ms, wall_ms=wall_ms
        ),
    )


def _row(group_id: str, answer: ShareGroupView | KafkaError) -> ShareGroupDescribeGroup:
    if not isinstance(answer, KafkaError):
        return answer.described()
    code = code_of(answer, "ShareGroupDescribe")
    return ShareGroupDescribeGroup(group_id=group_id, error_code=code, error_message=str(answer))
