"""DeleteGroups 0-2: forget groups that have no members, with all their offsets (KIP-229).

Behaviour: each stands for itself: NON_EMPTY_GROUP for one with members, GROUP_ID_NOT_FOUND for one that is not there.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import KafkaError
from tidelog.server.api.group_answers import when_all_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_42_delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi


def handle(
    node: GroupsApi, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    names = list(dict.fromkeys(request.groups_names))  # each once, as Kafka does

    def respond(answers: list[Any]) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(results=[_row(name, answer) for name, answer in zip(names, answers, strict=True)])

    return when_all_answered([_answer(node, name) for name in names], respond)


def _answer(node: GroupsApi, group_id: str) -> object:
    return node.groups.submit(
        group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.on_delete_group(
            request_id, group_id, now_ms=now_ms, wall_ms=wall_ms
        ),
    )


def _row(group_id: str, answer: DeletableGroupResult | KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id, code_of(answer, "DeleteGroups")) if isinstance(answer, KafkaError) else answer
