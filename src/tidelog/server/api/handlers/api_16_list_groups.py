"""ListGroups 0-5: the groups of all coordinators at this broker, by state (4+, KIP-518) and type (5+, KIP-848).

Behaviour: COORDINATOR_LOAD_IN_PROGRESS while one of them is loading, since a list with gaps looks like a whole one. A
partition whose log is damaged is left out: whoever asks FindCoordinator for its groups is told.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse | Awaitable[ListGroupsResponse]:
    answers = node.groups.submit_all(
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_list_groups(
            request_id, request.states_filter, request.types_filter, now_ms=now_ms, wall_ms=wall_ms
        )
    )
    return when_all_answered(answers, _respond)


def _respond(answers: list[Any]) -> ListGroupsResponse:
    groups: list[ListedGroup] = []
    for answer in answers:
        if not isinstance(answer, KafkaError):
            groups += answer
        elif answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS:
            return ListGroupsResponse(error_code=code_of(answer, "ListGroups"))
    return ListGroupsResponse(groups=groups)
