"""UpdateRaftVoter 0: a voter of the metadata quorum says where it listens now (KIP-853).

Behaviour: the answer comes when the set of voters says so, committed; at once if it did before.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, KafkaError, refusal
from tidelog.base.ids import BrokerId
from tidelog.quorum.values import ReplicaKey, Voter
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import directory_id, number_of
from tidelog.wire.messages.api_82_update_raft_voter import (
    CurrentLeader,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(
    node: QuorumApi, request: UpdateRaftVoterRequest, context: RequestContext
) -> Awaitable[UpdateRaftVoterResponse]:
    async def wait() -> UpdateRaftVoterResponse:
        code = Code.NONE
        try:
            node.quorum.check_requester(request.cluster_id, context.connection.peer)
            if not request.listeners:
                raise refusal(Code.INVALID_REQUEST, "a voter needs a listener")
            key = ReplicaKey(BrokerId(request.voter_id), directory_id(request.voter_directory_id))
            endpoints = tuple((one.name, one.host, one.port) for one in request.listeners)
            await node.voter_requests.update(Voter(key, endpoints))
        except KafkaError as error:
            code = code_of(error, "UpdateRaftVoter")
        return UpdateRaftVoterResponse(error_code=code, current_leader=_leader(node))

    return wait()


def _leader(node: QuorumApi) -> CurrentLeader:
    quorum = node.quorum
    address = quorum.leader_address
    return CurrentLeader(
        leader_id=number_of(quorum.leader_id),
        leader_epoch=-1 if quorum.leader_epoch is None else quorum.leader_epoch,
        host="" if address is None else address.host,
        port=-1 if address is None else address.port,
    )
