"""ConsumerGroupDescribe 0-1: state, epochs and members of consumer groups that this broker coordinates (KIP-848).

Behaviour: served from group.version 1 on; below it UNSUPPORTED_VERSION for each group. One that is not there, or is of
another kind, has GROUP_ID_NOT_FOUND. Version 1 tells which protocol each member speaks (KIP-1099). Who asks what one is
authorized to do (KIP-430) learns it of each group that has no error.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.authorized_operations import AuthorizedOperations
from tidelog.server.api.group_answers import consumer_groups_refused, when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_69_consumer_group_describe import (
    ConsumerGroupDescribeGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)

if TYPE_CHECKING:
    from tidelog.coordinator.groups.consumer.describe_consumer_groups import GroupView
    from tidelog.server.api.ports import GroupsApi


MEMBERS_AT_ONCE_MAX = 50
"""Of groups that are described on the event loop, in a millisecond."""


def handle(
    node: GroupsApi, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    names = list(dict.fromkeys(request.group_ids))
    refused = consumer_groups_refused(node.image)
    answers = [refused or _answer(node, name) for name in names]
    return when_all_answered(answers, partial(_respond, node, names, request, context))


def _respond(
    node: GroupsApi,
    names: list[str],
    request: ConsumerGroupDescribeRequest,
    context: RequestContext,
    answers: list[Any],
) -> ConsumerGroupDescribeResponse | Awaitable[ConsumerGroupDescribeResponse]:
    operations = AuthorizedOperations(node, context)

    def described() -> ConsumerGroupDescribeResponse:
        rows = [_row(group_id, answer) for group_id, answer in zip(names, answers, strict=True)]
        if request.include_authorized_operations:
            operations.add_to_groups(rows)
        return ConsumerGroupDescribeResponse(groups=rows)

    count = sum(len(answer.subscriptions) for answer in answers if not isinstance(answer, KafkaError))
    if count <= MEMBERS_AT_ONCE_MAX:
        return described()
    context.is_long = True
    return node.executor.compute(described)


def _answer(node: GroupsApi, group_id: str) -> object:
    if not group_id:
        return refusal(Code.INVALID_GROUP_ID, "the group id is empty")
    return node.groups.submit(
        group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.consumer_groups.on_consumer_group_describe(
            request_id, group_id, now_ms=now_ms, wall_ms=wall_ms
        ),
    )


def _row(group_id: str, answer: GroupView | KafkaError) -> ConsumerGroupDescribeGroup:
    if not isinstance(answer, KafkaError):
        return answer.described()
    code = code_of(answer, "ConsumerGroupDescribe")
    return ConsumerGroupDescribeGroup(group_id=group_id, error_code=code, error_message=str(answer))
