"""DescribeGroups 0-6: state and members of classic groups that this broker coordinates.

Behaviour: a group that is not there is "Dead", without an error before version 6, with GROUP_ID_NOT_FOUND since
(KIP-1043). Who asks what one is authorized to do (KIP-430) learns it of each group that has no error.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.authorized_operations import AuthorizedOperations
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_15_describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    names = list(dict.fromkeys(request.groups))

    def respond(answers: list[Any]) -> DescribeGroupsResponse:
        rows = [_row(group_id, answer) for group_id, answer in zip(names, answers, strict=True)]
        if request.include_authorized_operations:
            AuthorizedOperations(node, context).add_to_groups(rows)
        return DescribeGroupsResponse(groups=rows)

    return when_all_answered([_answer(node, context.api_version, name) for name in names], respond)


def _answer(node: GroupsApi, version: int, group_id: str) -> object:
    return node.groups.submit(
        group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_describe_group(
            request_id, group_id, api_version=version, now_ms=now_ms, wall_ms=wall_ms
        ),
    )


def _row(group_id: str, answer: DescribedGroup | KafkaError) -> DescribedGroup:
    if not isinstance(answer, KafkaError):
        return answer
    return DescribedGroup(group_id=group_id, error_code=code_of(answer, "DescribeGroups"), error_message=str(answer))
