"""A snapshot of the metadata from the node that leads: FetchSnapshot, piece by piece, onto this node's disk.

Kafka: `KafkaRaftClient`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tidelog.base.errors import Code, KafkaError, NetworkError, refusal
from tidelog.base.ids import CLUSTER_METADATA_TOPIC, BrokerId, ClusterId, LeaderEpoch
from tidelog.base.invariant import invariant
from tidelog.base.ports import Executor
from tidelog.quorum.values import ReplicaKey, Role, SnapshotId
from tidelog.server.quorum.metadata_storage import MetadataStorage
from tidelog.server.quorum.quorum_peers import FETCH_REQUESTS, QuorumPeers
from tidelog.server.storage.metadata_snapshots import Snapshot
from tidelog.wire.messages import api_59_fetch_snapshot as wire
from tidelog.wire.primitives import ZERO_UUID

PIECE_SIZE_BYTES_MAX = 1 << 20


class SnapshotLoading:
    """Loads snapshots onto this node.

    Args:
        reader: this node's log.
    """

    def __init__(
        self,
        reader: ReplicaKey,
        cluster_id: ClusterId,
        peers: QuorumPeers,
        storage: MetadataStorage,
        *,
        executor: Executor,
    ) -> None:
        self._reader = reader
        self._cluster_id = cluster_id
        self._peers = peers
        self._storage = storage
        self._snapshots = storage.snapshots
        self._executor = executor

    async def load(self, snapshot_id: SnapshotId, *, timeout_ms: int) -> Snapshot:
        """Fetch it from the leader, and have the log start behind it. Raises as `fetch`."""
        standing = self._storage.machine.standing
        leader_id, leader_epoch = standing.leader_id, standing.leader_epoch
        if leader_id is None:
            raise NetworkError("nobody is known to lead")
        snapshot = await self.fetch(snapshot_id, leader=(leader_id, leader_epoch), timeout_ms=timeout_ms)
        if (leader_id, leader_epoch) != (standing.leader_id, standing.leader_epoch) or standing.role is Role.LEADER:
            raise NetworkError("another node leads meanwhile")
        await self._storage.start_at(snapshot_id, snapshot.voters)
        return snapshot

    async def fetch(
        self, snapshot_id: SnapshotId, *, leader: tuple[BrokerId, LeaderEpoch], timeout_ms: int
    ) -> Snapshot:
        """Fetch it whole; it is on disk when this returns.

        Args:
            timeout_ms: for each piece.

        Raises:
            NetworkError: the leader cannot be reached, or answers something else.
            KafkaError: it has no such snapshot any more, or leads no more.
            CorruptLogError: what came is no snapshot.
            DiskError: here.
        """
        position = 0
        while True:
            piece = await self._fetch_piece(snapshot_id, position, leader, timeout_ms)
            data = bytes(piece.unaligned_records)
            if piece.position != position or (not data and position < piece.size):
                raise NetworkError(
                    f"node {leader[0]} answers {len(data)} bytes at {piece.position} of a snapshot, not at {position}"
                )
            await self._executor.run(partial(self._snapshots.append_part, snapshot_id, position, data))
            position += len(data)
            if position >= piece.size:
                return await self._executor.run(partial(self._snapshots.finish_part, snapshot_id))

    async def _fetch_piece(
        self, snapshot_id: SnapshotId, position: int, leader: tuple[BrokerId, LeaderEpoch], timeout_ms: int
    ) -> Any:
        requested = wire.FetchSnapshotPartition(
            current_leader_epoch=leader[1],
            snapshot_id=wire.SnapshotId(snapshot_id.end_offset, snapshot_id.leader_epoch),
            position=position,
            replica_directory_id=self._reader.directory_id or ZERO_UUID,
        )
        request = wire.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=self._reader.node_id,
            max_bytes=PIECE_SIZE_BYTES_MAX,
            topics=[wire.FetchSnapshotTopic(CLUSTER_METADATA_TOPIC, [requested])],
        )
        connection = await self._peers.connection(leader[0], FETCH_REQUESTS)
        return _piece(await connection.request(request, wire.FetchSnapshotResponse, timeout_ms=timeout_ms))


def _piece(response: wire.FetchSnapshotResponse) -> Any:
    if response.error_code:
        raise KafkaError(f"FetchSnapshot: error {response.error_code}", code=Code(response.error_code))
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise refusal(Code.INVALID_REQUEST, "an answer to FetchSnapshot that is not about the metadata log")
    piece = response.topics[0].partitions[0]
    if piece.error_code:
        raise KafkaError(f"FetchSnapshot: {Code(piece.error_code).name}", code=Code(piece.error_code))
    invariant(piece.size >= 0 and piece.position >= 0, "a snapshot of {} bytes", piece.size)
    return piece
