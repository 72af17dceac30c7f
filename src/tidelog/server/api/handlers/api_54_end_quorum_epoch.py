"""EndQuorumEpoch 0-1: a leader of the metadata quorum says that it leads no more, and who should be next (KIP-595).

Behaviour: who stands first stands for election at once, the others a moment later.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.quorum.values import EpochAnswer
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import end_response, peer_request_of
from tidelog.wire.messages.api_54_end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(
    node: QuorumApi, request: EndQuorumEpochRequest, context: RequestContext
) -> EndQuorumEpochResponse | Awaitable[EndQuorumEpochResponse]:
    try:
        node.quorum.check_requester(request.cluster_id, context.connection.peer)
        requested = peer_request_of(request, context.api_version, node.config.node_id)
    except KafkaError as error:
        return EndQuorumEpochResponse(error_code=code_of(error, "EndQuorumEpoch"))

    async def wait() -> EndQuorumEpochResponse:
        answer, _ = await node.quorum.handle(requested)
        assert isinstance(answer, EpochAnswer)
        return end_response(answer, node.quorum.peers.endpoint_of(answer.leader_id, context.connection.listener_name))

    return wait()
