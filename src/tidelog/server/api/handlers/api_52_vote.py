"""Vote 0-2: a voter of the metadata quorum is asked for its vote (KIP-595), or whether there would be one (KIP-996).

Behaviour: a vote is on disk before it is answered. Who is of another cluster is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.quorum.values import VoteAnswer, VoteRequested
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import peer_request_of, vote_response
from tidelog.wire.messages.api_52_vote import VoteRequest, VoteResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(node: QuorumApi, request: VoteRequest, context: RequestContext) -> VoteResponse | Awaitable[VoteResponse]:
    try:
        node.quorum.check_requester(request.cluster_id, context.connection.peer)
        requested = peer_request_of(request, context.api_version, node.config.node_id)
        assert isinstance(requested, VoteRequested)
        node.quorum.check_requester(request.cluster_id, context.connection.peer, requested.candidate.node_id)
    except KafkaError as error:
        return VoteResponse(error_code=code_of(error, "Vote"))

    async def wait() -> VoteResponse:
        answer, _ = await node.quorum.handle(requested)
        assert isinstance(answer, VoteAnswer)
        return vote_response(answer, node.quorum.peers.endpoint_of(answer.leader_id, context.connection.listener_name))

    return wait()
