"""RemoveRaftVoter 0: a node votes in the metadata quorum no more (KIP-853).

Behaviour: the answer comes when the new set of voters is committed. A leader that is removed resigns then. Asked of a
broker, the leader is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from tidelog.base.errors import KafkaError
from tidelog.base.ids import BrokerId
from tidelog.quorum.values import ReplicaKey
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import directory_id
from tidelog.wire.messages.api_81_remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(
    node: QuorumApi, request: RemoveRaftVoterRequest, context: RequestContext
) -> Awaitable[RemoveRaftVoterResponse]:
    async def wait() -> RemoveRaftVoterResponse:
        try:
            node.quorum.check_requester(request.cluster_id, context.connection.peer)
            key = ReplicaKey(BrokerId(request.voter_id), directory_id(request.voter_directory_id))
            await node.voter_requests.remove(key)
            await node.caught_up()
        except KafkaError as error:
            return RemoveRaftVoterResponse(error_code=code_of(error, "RemoveRaftVoter"), error_message=str(error))
        return RemoveRaftVoterResponse()

    return wait()
