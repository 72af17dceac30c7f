"""DeleteTopics 1-6: by name, or (6+) by id. Each topic on its own.

Behaviour: when the answer comes, this broker serves the topic no more, and no loss of power gives the offsets that
groups committed for it to a topic that is made under its name; its files go after `file.delete.delay.ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import TopicId
from tidelog.controller import DeletedTopic, TopicToDelete
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.wire.messages.api_20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import ServerApi

TOPIC_STATES_FROM_VERSION = 6


async def handle(node: ServerApi, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    wanted = _wanted(request, context)
    results: tuple[DeletedTopic, ...]
    try:
        results = await node.controller.request(lambda state: state.decide_delete_topics(wanted))
        await node.caught_up()
        await node.groups.events_synced()
    except KafkaError as error:
        return refused(request, context, error)
    return DeleteTopicsResponse(responses=[_row(result) for result in results])


def refused(request: DeleteTopicsRequest, context: RequestContext, error: KafkaError) -> DeleteTopicsResponse:
    """The answer where nothing could be decided."""
    code = code_of(error, "DeleteTopics")
    results = (DeletedTopic(one.name, one.topic_id, code, str(error)) for one in _wanted(request, context))
    return DeleteTopicsResponse(responses=[_row(result) for result in results])


def _wanted(request: DeleteTopicsRequest, context: RequestContext) -> list[TopicToDelete]:
    if context.api_version < TOPIC_STATES_FROM_VERSION:
        return [TopicToDelete(name) for name in request.topic_names]
    return [
        TopicToDelete(one.name, None if one.topic_id == ZERO_UUID else TopicId(one.topic_id)) for one in request.topics
    ]


def _row(result: DeletedTopic) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=result.name,
        topic_id=ZERO_UUID if result.topic_id is None else result.topic_id,
        error_code=result.code,
        error_message=result.message,
    )
