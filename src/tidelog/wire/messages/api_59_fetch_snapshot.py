"""FetchSnapshot (key 59): read a snapshot of the metadata log, piece by piece (KIP-630).

Version 1 names the directory of the reader and says where the leader listens (KIP-853). Both are flexible.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.compile import Piece
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, int64, message, records, string, struct, uint16, uuid


@struct
class SnapshotId:
    """The snapshot of everything below an offset."""

    end_offset: int = field(int64, doc="Exclusive.")
    epoch: int = field(int32, doc="The leader epoch of its last record.")


@struct(kw_only=True)
class FetchSnapshotPartition:
    """From where to read one snapshot."""

    partition: int = field(int32, default=0, doc="0: the quorum has one partition.")
    current_leader_epoch: int = field(int32, doc="What the reader believes; -1 is not checked.")
    snapshot_id: SnapshotId = field(SnapshotId, doc="The snapshot.")
    position: int = field(int64, doc="Of the first byte wanted, from the start of the snapshot.")
    replica_directory_id: UUID = field(
        uuid, versions="1+", tag=0, default=ZERO_UUID, ignorable=True, doc="The directory of the reader's log."
    )


@struct
class FetchSnapshotTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic: the metadata log.")
    partitions: list[FetchSnapshotPartition] = field(array(FetchSnapshotPartition), doc="The partitions.")


@message(api_key=59, versions="0-1", flexible="0+")
class FetchSnapshotRequest:
    """Read on in a snapshot."""

    cluster_id: str | None = field(string, nullable="0+", tag=0, default=None, doc="Checked if it is given.")
    replica_id: int = field(int32, default=-1, doc="Who reads.")
    max_bytes: int = field(int32, default=0x7FFF_FFFF, doc="How much to answer at most.")
    topics: list[FetchSnapshotTopic] = field(array(FetchSnapshotTopic), doc="The topics.")


@struct
class LeaderIdAndEpoch:
    """Who leads now."""

    leader_id: int = field(int32, doc="The leader, or -1 if none is known.")
    leader_epoch: int = field(int32, doc="The latest leader epoch known.")


@struct(kw_only=True)
class PartitionSnapshot:
    """A piece of one snapshot."""

    index: int = field(int32, default=0, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it could be read.")
    snapshot_id: SnapshotId = field(SnapshotId, doc="The snapshot.")
    current_leader: LeaderIdAndEpoch | None = field(
        LeaderIdAndEpoch, tag=0, default=None, doc="When the asked one is not it."
    )
    size: int = field(int64, default=0, doc="Of the whole snapshot, in bytes.")
    position: int = field(int64, default=0, doc="Of the first byte here.")
    unaligned_records: Piece = field(records, default=b"", doc="Bytes of the file: batches may be cut anywhere.")


@struct
class SnapshotTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic.")
    partitions: list[PartitionSnapshot] = field(array(PartitionSnapshot), doc="The partitions.")


@struct
class NodeEndpoint:
    """Where the leader named in the same response listens (KIP-853)."""

    node_id: int = field(int32, doc="The leader.")
    host: str = field(string, doc="Its host, on the listener of the quorum.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=59, versions="0-1", flexible="0+")
class FetchSnapshotResponse:
    """A piece of the snapshot, unless the request was refused as a whole."""

    throttle_time_ms: int = field(int32, default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    topics: list[SnapshotTopic] = field(array(SnapshotTopic), default_factory=list, doc="The topics.")
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="1+", tag=0, default_factory=list, ignorable=True, doc="Of the leaders named."
    )
