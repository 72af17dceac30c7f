"""BeginQuorumEpoch 0-1: a leader of the metadata quorum says that it leads (KIP-595), and where it listens (KIP-853).

Behaviour: the epoch is on disk before it is answered.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.quorum.values import EpochAnswer, EpochBegun
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import begin_response, peer_request_of
from tidelog.wire.messages.api_53_begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(
    node: QuorumApi, request: BeginQuorumEpochRequest, context: RequestContext
) -> BeginQuorumEpochResponse | Awaitable[BeginQuorumEpochResponse]:
    try:
        node.quorum.check_requester(request.cluster_id, context.connection.peer)
        requested = peer_request_of(request, context.api_version, node.config.node_id)
        assert isinstance(requested, EpochBegun)
        node.quorum.check_requester(request.cluster_id, context.connection.peer, requested.leader_id)
    except KafkaError as error:
        return BeginQuorumEpochResponse(error_code=code_of(error, "BeginQuorumEpoch"))

    async def wait() -> BeginQuorumEpochResponse:
        answer, _ = await node.quorum.handle(requested)
        assert isinstance(answer, EpochAnswer)
        return begin_response(answer, node.quorum.peers.endpoint_of(answer.leader_id, context.connection.listener_name))

    return wait()
