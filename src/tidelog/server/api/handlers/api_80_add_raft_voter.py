"""AddRaftVoter 0-1: one more node votes in the metadata quorum (KIP-853).

Behaviour: the node has to follow already, and is given the request's time to catch up. The answer comes when the new
set of voters is committed, unless it need not be waited for (version 1). Asked of a broker, the leader is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId
from tidelog.quorum.values import ReplicaKey, Voter
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import directory_id
from tidelog.wire.messages.api_80_add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(node: QuorumApi, request: AddRaftVoterRequest, context: RequestContext) -> Awaitable[AddRaftVoterResponse]:
    async def wait() -> AddRaftVoterResponse:
        try:
            node.quorum.check_requester(request.cluster_id, context.connection.peer)
            await node.voter_requests.add(
                _voter(request), timeout_ms=request.timeout_ms, waits=request.ack_when_committed
            )
            await node.caught_up()
        except KafkaError as error:
            return AddRaftVoterResponse(error_code=code_of(error, "AddRaftVoter"), error_message=str(error))
        return AddRaftVoterResponse()

    return wait()


def _voter(request: AddRaftVoterRequest) -> Voter:
    directory = directory_id(request.voter_directory_id)
    if directory is None or not request.listeners:
        raise refusal(Code.INVALID_REQUEST, "a voter needs the id of its directory, and a listener")
    endpoints = tuple((one.name, one.host, one.port) for one in request.listeners)
    return Voter(ReplicaKey(BrokerId(request.voter_id), directory), endpoints)
