"""AlterShareGroupOffsets 0: a share group without members begins elsewhere (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION. NON_EMPTY_GROUP for one with members; one that
is not there is made. Each partition stands for itself, and is answered once the share coordinator keeps it. All that
the group has done from the new offset on is forgotten. -1 has it begin where `share.auto.offset.reset` says.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.group_answers import when_answered
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.share_answers import share_groups_refused
from tidelog.wire.messages.api_91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import GroupsApi

PARTITIONS_MAX = 10_000
"""And topics, of one request: other requests of the group wait until all of it is recorded. Kafka has no such bound."""


def handle(
    node: GroupsApi, request: AlterShareGroupOffsetsRequest, context: RequestContext
) -> AlterShareGroupOffsetsResponse | Awaitable[AlterShareGroupOffsetsResponse]:
    refused = share_groups_refused(node.image) or _too_many(request)
    if refused is not None:
        return _respond(refused)
    answer = node.groups.submit(
        request.group_id,
        lambda coordinator, request_id, now_ms, wall_ms: coordinator.share_groups.offsets.on_alter(
            request_id, request, now_ms=now_ms, wall_ms=wall_ms
        ),
    )
    return when_answered(answer, _respond)


def _too_many(request: AlterShareGroupOffsetsRequest) -> KafkaError | None:
    count = len(request.topics)  # of very many, that says enough, and does not look at each
    if count <= PARTITIONS_MAX:
        count = sum(max(len(topic.partitions), 1) for topic in request.topics)
    if count <= PARTITIONS_MAX:
        return None
    return refusal(
        Code.INVALID_REQUEST, f"{count} partitions are more than one request alters ({PARTITIONS_MAX}): send several"
    )


def _respond(answer: Any) -> AlterShareGroupOffsetsResponse:
    if isinstance(answer, KafkaError):
        code = code_of(answer, "AlterShareGroupOffsets")
        return AlterShareGroupOffsetsResponse(error_code=code, error_message=str(answer))
    response: AlterShareGroupOffsetsResponse = answer
    return response
