"""A snapshot of the metadata from the node that leads: FetchSnapshot, piece by piece, onto this node's disk."""

from __future__ import annotations

from functools import partial
from typing import Any

from tidelog.base.errors import Code, KafkaError, NetworkError, refusal
from tidelog.base.ids import CLUSTER_METADATA_TOPIC, BrokerId, ClusterId, LeaderEpoch
from tidelog.base.invariant import invariant
from tidelog.base.ports import Executor
from tidelog.quorum.values import ReplicaKey, SnapshotId
from tidelog.server.metadata_snapshots import MetadataSnapshots, Snapshot
from tidelog.server.quorum_peers import FETCH_LANE, QuorumPeers
from tidelog.wire.messages import api_59_fetch_snapshot as wire
from tidelog.wire.primitives import ZERO_UUID

PIECE_SIZE_BYTES_MAX = 1 << 20


async def fetch_snapshot(
    snapshot_id: SnapshotId,
    *,
    reader: ReplicaKey,
    cluster_id: ClusterId,
    leader: tuple[BrokerId, LeaderEpoch],
    peers: QuorumPeers,
    snapshots: MetadataSnapshots,
    executor: Executor,
    timeout_ms: int,
) -> Snapshot:
    """Fetch it whole; it is on disk when this returns.

    Args:
        timeout_ms: for each piece.

    Raises:
        NetworkError: the leader cannot be reached.
        KafkaError: it has no such snapshot any more, or leads no more.
        CorruptLogError: what came is no snapshot.
        DiskError: here.
    """
    leader_id, leader_epoch = leader
    position = 0
    while True:
        request = wire.FetchSnapshotRequest(
            cluster_id=cluster_id,
            replica_id=reader.node_id,
            max_bytes=PIECE_SIZE_BYTES_MAX,
            topics=[
                wire.FetchSnapshotTopic(
                    CLUSTER_METADATA_TOPIC,
                    [
                        wire.FetchSnapshotPartition(
                            current_leader_epoch=leader_epoch,
                            snapshot_id=wire.SnapshotId(snapshot_id.end_offset, snapshot_id.leader_epoch),
                            position=position,
                            replica_directory_id=reader.directory_id or ZERO_UUID,
                        )
                    ],
                )
            ],
        )
        connection = await peers.connection(leader_id, FETCH_LANE)
        response = await connection.request(request, wire.FetchSnapshotResponse, timeout_ms=timeout_ms)
        piece = _piece(response)
        if piece.position != position:
            raise NetworkError(f"node {leader_id} answered position {piece.position} of a snapshot for {position}")
        data = bytes(piece.unaligned_records)
        if not data and position < piece.size:
            raise NetworkError(f"node {leader_id} answered nothing at position {position} of a snapshot")
        await executor.run(partial(snapshots.append_part, snapshot_id, position, data))
        position += len(data)
        if position >= piece.size:
            return await executor.run(partial(snapshots.finish_part, snapshot_id))


def _piece(response: wire.FetchSnapshotResponse) -> Any:
    if response.error_code:
        raise KafkaError(f"FetchSnapshot: error {response.error_code}", code=_code(response.error_code))
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise refusal(Code.INVALID_REQUEST, "an answer to FetchSnapshot that is not about the metadata log")
    piece = response.topics[0].partitions[0]
    if piece.error_code:
        raise KafkaError(f"FetchSnapshot: {_code(piece.error_code).name}", code=_code(piece.error_code))
    invariant(piece.size >= 0 and piece.position >= 0, "a snapshot of {} bytes", piece.size)
    return piece


def _code(number: int) -> Code:
    return Code(number) if number in Code._value2member_map_ else Code.UNKNOWN_SERVER_ERROR
