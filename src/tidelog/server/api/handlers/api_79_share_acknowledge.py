"""ShareAcknowledge 1-2: a member of a share group says what became of records that it acquired (KIP-932).

Behaviour: served from share.version 1 on; below it UNSUPPORTED_VERSION. It is answered once the share coordinator keeps
what is acknowledged. What is said of one partition counts together: INVALID_RECORD_STATE says that all of it was
refused. The final epoch ends the session, and releases what the member still has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.server.api.leader_hints import endpoints_of
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.api.rights import readable_topics
from tidelog.server.api.share_acknowledgements import ROWS_MAX, Acknowledgements, check_served
from tidelog.server.share_fetching.share_sessions import FINAL_EPOCH, INITIAL_EPOCH
from tidelog.server.transport.turns import in_turns
from tidelog.wire.messages.api_78_share_fetch import ShareFetchLeader, ShareFetchNodeEndpoint
from tidelog.wire.messages.api_79_share_acknowledge import (
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import ShareApi


async def handle(node: ShareApi, request: ShareAcknowledgeRequest, context: RequestContext) -> ShareAcknowledgeResponse:
    fetching, epoch = node.share_fetching, request.share_session_epoch
    try:
        group_id, member_id = check_served(node.image, request.group_id, request.member_id)
        if epoch == INITIAL_EPOCH:
            raise refusal(Code.INVALID_SHARE_SESSION_EPOCH, "ShareFetch opens sessions, ShareAcknowledge does not")
        session = fetching.sessions.begin(group_id, member_id, epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(error_code=code_of(error, "ShareAcknowledge"), error_message=str(error))
    fetching.use_on(session, context.connection)
    readable = readable_topics(node, context)
    acknowledgements = Acknowledgements(
        fetching, node.executor, group_id, member_id, is_renewing=request.is_renew_ack, readable=readable
    )
    await acknowledgements.add(request.topics)
    await acknowledgements.kept()
    if epoch == FINAL_EPOCH:
        fetching.end_session(session)
    response = await _answer(node, context, acknowledgements)
    response.acquisition_lock_timeout_ms = fetching.settings_of(group_id).delivery.lock_ms
    return response


async def _answer(
    node: ShareApi, context: RequestContext, acknowledgements: Acknowledgements
) -> ShareAcknowledgeResponse:
    context.is_long = context.is_long or len(acknowledgements.errors) > ROWS_MAX
    topics: dict[UUID, ShareAcknowledgeTopicResponse] = {}
    async for (topic_id, index), (code, message) in in_turns(acknowledgements.errors.items()):
        leader = acknowledgements.leader_for((topic_id, index))
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
        topic.partitions.append(
            ShareAcknowledgePartitionData(
                partition_index=index,
                error_code=code,
                error_message=message,
                current_leader=leader or ShareFetchLeader(),
            )
        )
    leaders, name = acknowledgements.leaders, context.connection.listener_name
    endpoints = endpoints_of(node.image, leaders, name, ShareFetchNodeEndpoint) if leaders else []
    return ShareAcknowledgeResponse(responses=list(topics.values()), node_endpoints=endpoints)
