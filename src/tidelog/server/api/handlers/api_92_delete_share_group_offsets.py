"""DeleteShareGroupOffsets 0: a share group without members forgets all that it has done with topics (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION. NON_EMPTY_GROUP for a group with members,
GROUP_ID_NOT_FOUND for one that is not there. Each topic stands for itself: UNKNOWN_TOPIC_OR_PARTITION for one that the
group has read nothing of. It is answered once the share coordinator keeps nothing of it.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.share_answers import share_groups_refused
from tidelog.wire.messages.api_92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi

TOPICS_MAX = 10_000
"""Of one request: other requests of the group wait until all of it is recorded. Kafka has no such bound."""


def handle(
    node: GroupsApi, request: DeleteShareGroupOffsetsRequest, context: RequestContext
) -> DeleteShareGroupOffsetsResponse | Awaitable[DeleteShareGroupOffsetsResponse]:
    refused = share_groups_refused(node.image) or _too_many(request)
    if refused is not None:
        return _respond(refused)
    answer = node.groups.submit(
        request.group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.share_groups.offsets.on_delete(
            request_id, request, now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    return when_answered(answer, _respond)


def _too_many(request: DeleteShareGroupOffsetsRequest) -> KafkaError | None:
    count = len(request.topics)
    if count <= TOPICS_MAX:
        return None
    return refusal(
        Code.INVALID_REQUEST, f"{count} topics are more than one request forgets ({TOPICS_MAX}): send several"
    )


def _respond(answer: Any) -> DeleteShareGroupOffsetsResponse:
    if isinstance(answer, KafkaError):
        code = code_of(answer, "DeleteShareGroupOffsets")
        return DeleteShareGroupOffsetsResponse(error_code=code, error_message=str(answer))
    response: DeleteShareGroupOffsetsResponse = answer
    return response
