"""DescribeQuorum 0-2: who leads the metadata quorum, who votes, how far each of them is (KIP-595, KIP-836, KIP-853).

Behaviour: the leader knows, and answers; a broker asks it. Times are since 1970, as the leader's clock has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.errors import Code
from tidelog.base.ids import CLUSTER_METADATA_TOPIC
from tidelog.quorum import ReplicaDescription
from tidelog.server.api.request_context import RequestContext
from tidelog.server.quorum.quorum_messages import number_of
from tidelog.wire.messages.api_55_describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    QuorumPartition,
    QuorumTopic,
    ReplicaState,
)
from tidelog.wire.messages.api_55_describe_quorum import (
    Node as Voter,
)
from tidelog.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi


def handle(node: QuorumApi, request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    del context
    requested = [(topic.topic_name, one.partition_index) for topic in request.topics for one in topic.partitions]
    if requested != [(CLUSTER_METADATA_TOPIC, 0)]:
        return DescribeQuorumResponse(
            topics=[
                QuorumTopic(
                    topic,
                    [QuorumPartition(partition_index=index, error_code=Code.UNKNOWN_TOPIC_OR_PARTITION)],
                )
                for topic, index in requested
            ]
        )
    quorum = node.quorum
    if not quorum.is_leader:
        said = f"node {node.config.node_id} does not lead the metadata quorum"
        partition = QuorumPartition(
            error_code=Code.NOT_LEADER_OR_FOLLOWER,
            error_message=said,
            leader_id=number_of(quorum.leader_id),
            leader_epoch=-1 if quorum.leader_epoch is None else quorum.leader_epoch,
        )
        return DescribeQuorumResponse(
            error_code=Code.NOT_LEADER_OR_FOLLOWER,
            error_message=said,
            topics=[QuorumTopic(CLUSTER_METADATA_TOPIC, [partition])],
        )
    found = quorum.describe()
    since_1970_ms = node.clock.wall_ms() - node.clock.now_ms()
    partition = QuorumPartition(
        leader_id=number_of(found.leader_id),
        leader_epoch=found.leader_epoch,
        high_watermark=-1 if found.high_watermark is None else found.high_watermark,
        current_voters=[_state(one, since_1970_ms) for one in found.voters],
        observers=[_state(one, since_1970_ms) for one in found.observers],
    )
    return DescribeQuorumResponse(
        topics=[QuorumTopic(CLUSTER_METADATA_TOPIC, [partition])],
        nodes=[
            Voter(voter.key.node_id, [Listener(*endpoint) for endpoint in voter.endpoints])
            for voter in quorum.voters.voters
        ],
    )


def _state(replica: ReplicaDescription, since_1970_ms: int) -> ReplicaState:
    def wall(moment_ms: int | None) -> int:
        return -1 if moment_ms is None else moment_ms + since_1970_ms

    return ReplicaState(
        replica_id=replica.key.node_id,
        replica_directory_id=replica.key.directory_id or ZERO_UUID,
        log_end_offset=-1 if replica.log_end_offset is None else replica.log_end_offset,
        last_fetch_timestamp=wall(replica.last_fetch_ms),
        last_caught_up_timestamp=wall(replica.last_caught_up_ms),
    )
