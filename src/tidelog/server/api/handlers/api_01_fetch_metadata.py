"""Fetch 4-18 on the listener of controllers: the metadata log, by voters and observers of its quorum.

Behaviour: nodes ask in version 17, or 18, which carries their high watermark (KIP-1166). The leader parks a fetch that
has no news; the answer carries what the log holds when it is sent. Where the logs part, and which snapshot to load
first, is told at once (KIP-595, KIP-630); so is who leads, by every node. Whoever hangs up is forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.quorum.values import FetchAnswer, QuorumFetch
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import fetch_response, peer_request_of
from tidelog.wire.messages.api_01_fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(node: QuorumApi, request: FetchRequest, context: RequestContext) -> FetchResponse | Awaitable[FetchResponse]:
    try:
        node.quorum.check_requester(request.cluster_id, context.connection.peer)
        requested = peer_request_of(request, context.api_version, node.config.node_id)
    except KafkaError as error:
        return FetchResponse(error_code=code_of(error, "Fetch"))
    assert isinstance(requested, QuorumFetch)
    return _wait(node, requested, context.connection.listener_name)


async def _wait(node: QuorumApi, requested: QuorumFetch, listener_name: str) -> FetchResponse:
    quorum = node.quorum
    answer, records = await quorum.handle(requested)
    assert isinstance(answer, FetchAnswer)
    leader = quorum.peers.endpoint_of(answer.leader_id, listener_name)
    return fetch_response(answer, records, quorum.storage.log.log_start_offset, leader)
