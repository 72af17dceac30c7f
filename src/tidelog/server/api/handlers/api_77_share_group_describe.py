"""ShareGroupDescribe 1: state, epochs and members of share groups that this broker coordinates (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION for each group. One that is not there, or is of
another kind, has GROUP_ID_NOT_FOUND. Who asks what one is authorized to do (KIP-430) learns it of each group that has
no error.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.authorized_operations import AuthorizedOperations
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


DESCRIBED_AT_ONCE_MAX = 300
"""Members of groups, and topics of theirs, that are told of on the event loop, in a millisecond."""


def handle(
    node: GroupsApi, request: ShareGroupDescribeRequest, context: RequestContext
) -> ShareGroupDescribeResponse | Awaitable[ShareGroupDescribeResponse]:
    names = list(dict.fromkeys(request.group_ids))
    refused = share_groups_refused(node.image)
    answers = [refused or _answer(node, name) for name in names]
    return when_all_answered(answers, partial(_respond, node, names, request, context))


def _respond(
    node: GroupsApi, names: list[str], request: ShareGroupDescribeRequest, context: RequestContext, answers: list[Any]
) -> ShareGroupDescribeResponse | Awaitable[ShareGroupDescribeResponse]:
    operations = AuthorizedOperations(node, context)

    def described() -> ShareGroupDescribeResponse:
        rows = [_row(group_id, answer) for group_id, answer in zip(names, answers, strict=True)]
        if request.include_authorized_operations:
            operations.add_to_groups(rows)
        return ShareGroupDescribeResponse(groups=rows)

    weight = sum(answer.weight for answer in answers if not isinstance(answer, KafkaError))
    if weight <= DESCRIBED_AT_ONCE_MAX:
        return described()
    context.is_long = True
    return node.executor.compute(described)


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
