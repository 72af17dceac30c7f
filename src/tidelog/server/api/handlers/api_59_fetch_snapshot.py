"""FetchSnapshot 0-1: a piece of a snapshot of the metadata, for a node whose log ends before ours starts (KIP-630).

Behaviour: only the leader answers; it keeps two snapshots, so that who reads one can go on when another is made.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from tidelog.base.errors import Code, DiskError, KafkaError
from tidelog.base.ids import CLUSTER_METADATA_TOPIC, BrokerId, LeaderEpoch, Offset
from tidelog.quorum.values import ReplicaKey, SnapshotId
from tidelog.server.api.request_context import RequestContext, code_of
from tidelog.server.quorum.quorum_messages import directory_id, number_of
from tidelog.wire.messages import api_59_fetch_snapshot as wire

if TYPE_CHECKING:
    from tidelog.server.api.ports import QuorumApi

PIECE_SIZE_BYTES_MAX = 8 << 20


def handle(
    node: QuorumApi, request: wire.FetchSnapshotRequest, context: RequestContext
) -> wire.FetchSnapshotResponse | Awaitable[wire.FetchSnapshotResponse]:
    try:
        node.quorum.check_requester(request.cluster_id, context.connection.peer)
    except KafkaError as error:
        return wire.FetchSnapshotResponse(error_code=code_of(error, "FetchSnapshot"))
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return wire.FetchSnapshotResponse(error_code=Code.INVALID_REQUEST)
    return _read(node, request, request.topics[0].partitions[0], context.connection.listener_name)


async def _read(
    node: QuorumApi,
    request: wire.FetchSnapshotRequest,
    requested: wire.FetchSnapshotPartition,
    listener_name: str,
) -> wire.FetchSnapshotResponse:
    quorum = node.quorum
    reader = ReplicaKey(BrokerId(request.replica_id), directory_id(requested.replica_directory_id))
    snapshot_id = SnapshotId(Offset(requested.snapshot_id.end_offset), LeaderEpoch(requested.snapshot_id.epoch))
    code = quorum.may_read_snapshot(reader, LeaderEpoch(requested.current_leader_epoch))
    size, piece = 0, b""
    if code is Code.NONE and snapshot_id not in quorum.storage.snapshots.ids:
        code = Code.SNAPSHOT_NOT_FOUND
    if code is Code.NONE:
        size_max = max(min(request.max_bytes, PIECE_SIZE_BYTES_MAX), 1)
        read = partial(quorum.storage.snapshots.piece, snapshot_id, max(requested.position, 0), size_max)
        try:
            size, piece = await node.executor.run(read)
        except DiskError:
            code = Code.SNAPSHOT_NOT_FOUND
        if code is Code.NONE and not 0 <= requested.position < max(size, 1):
            code = Code.POSITION_OUT_OF_RANGE
    answered = wire.PartitionSnapshot(
        error_code=code,
        snapshot_id=requested.snapshot_id,
        current_leader=wire.LeaderIdAndEpoch(number_of(quorum.leader_id), quorum.leader_epoch or 0),
        size=size,
        position=requested.position,
        unaligned_records=b"" if code else piece,
    )
    leader = quorum.peers.endpoint_of(quorum.leader_id, listener_name)
    return wire.FetchSnapshotResponse(
        topics=[wire.SnapshotTopic(CLUSTER_METADATA_TOPIC, [answered])],
        node_endpoints=[] if leader is None else [wire.NodeEndpoint(leader[0], *leader[1])],
    )
