"""Fetch (key 1): read record batches, as a consumer or as a follower.

Version 5 carries log start offsets, 7 sessions (KIP-227), 9 the leader epoch that fences (KIP-320), 11 the rack of the
reader (KIP-392), 12 is flexible and detects divergence, 13 names topics by id, 15 carries the follower's broker epoch
(KIP-903), 16 tells where new leaders are (KIP-951), 17 the directory of a voter (KIP-853), 18 the follower's high
watermark (KIP-1166).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.compile import Piece
from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, records, string, struct, uuid

HIGH_WATERMARK_UNSENT = 0x7FFF_FFFF_FFFF_FFFF
"""What the follower's high watermark is when the field is absent: park the fetch as if it were up to date."""


@struct
class ReplicaState:
    """The follower that fetches (KIP-903)."""

    replica_id: int = field(int32, default=-1, doc="The broker, or -1 for a consumer.")
    replica_epoch: int = field(int64, default=-1, doc="Its broker epoch, or -1 if it is not known.")


@struct(kw_only=True)
class FetchPartition:
    """From where to read one partition, and what the reader believes about it."""

    partition: int = field(int32, doc="The partition.")
    current_leader_epoch: int = field(
        int32, versions="9+", default=-1, ignorable=True, doc="What the reader believes; -1 is not checked."
    )
    fetch_offset: int = field(int64, doc="The first offset wanted.")
    last_fetched_epoch: int = field(
        int32, versions="12+", default=-1, doc="The leader epoch of the record before it; -1 if unknown."
    )
    log_start_offset: int = field(
        int64, versions="5+", default=-1, ignorable=True, doc="Of the follower's own log; -1 from consumers."
    )
    partition_max_bytes: int = field(int32, doc="How much to answer at most, but for a first batch that is larger.")
    replica_directory_id: UUID = field(
        uuid, versions="17+", tag=0, default=ZERO_UUID, ignorable=True, doc="The directory of a voter (KIP-853)."
    )
    high_watermark: int = field(
        int64,
        versions="18+",
        tag=1,
        default=HIGH_WATERMARK_UNSENT,
        ignorable=True,
        doc="The one the follower knows; -1 if it knows none (KIP-1166).",
    )


@struct(kw_only=True)
class FetchTopic:
    """The partitions of one topic."""

    topic: str = field(string, versions="0-12", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="13+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partitions: list[FetchPartition] = field(array(FetchPartition), doc="The partitions.")


@struct(kw_only=True)
class ForgottenTopic:
    """Partitions to drop from a session."""

    topic: str = field(string, versions="7-12", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="13+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partitions: list[int] = field(array(int32), versions="7+", doc="The partitions.")


@message(api_key=1, versions="4-18", flexible="12+")
class FetchRequest:
    """Read, in the order of the partitions, until a limit is reached."""

    cluster_id: str | None = field(
        string, versions="12+", nullable="12+", tag=0, default=None, ignorable=True, doc="Checked by voters."
    )
    replica_id: int = field(
        int32, versions="0-14", default=-1, doc="The follower, or -1 for a consumer; later in `replica_state`."
    )
    replica_state: ReplicaState | None = field(
        ReplicaState, versions="15+", tag=1, default=None, doc="None: the reader is a consumer."
    )
    max_wait_ms: int = field(int32, doc="How long to wait for `min_bytes`.")
    min_bytes: int = field(int32, doc="How much must be there before the answer is sent early.")
    max_bytes: int = field(
        int32, versions="3+", default=0x7FFF_FFFF, ignorable=True, doc="Of the whole answer, but for a first batch."
    )
    isolation_level: int = field(
        int8, versions="4+", default=0, ignorable=True, doc="0: read uncommitted; 1: read committed."
    )
    session_id: int = field(int32, versions="7+", default=0, ignorable=True, doc="0: none.")
    session_epoch: int = field(
        int32, versions="7+", default=-1, ignorable=True, doc="-1: none; 0: start one; above: the next of it."
    )
    topics: list[FetchTopic] = field(array(FetchTopic), doc="What to read; in a session, what changed.")
    forgotten_topics_data: list[ForgottenTopic] = field(
        array(ForgottenTopic), versions="7+", default_factory=list, doc="What to drop from the session."
    )
    rack_id: str = field(string, versions="11+", default="", ignorable=True, doc="Where the reader is.")


@struct
class EpochEndOffset:
    """Where the leader's log leaves the reader's: the largest epoch it has up to the one sent, and its end."""

    epoch: int = field(int32, default=-1, doc="The leader epoch.")
    end_offset: int = field(int64, default=-1, doc="Exclusive.")


@struct
class LeaderIdAndEpoch:
    """Who leads now."""

    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if there is none or it is not known.")
    leader_epoch: int = field(int32, default=-1, doc="The latest leader epoch known.")


@struct
class SnapshotId:
    """The snapshot to load instead, when the offset is below the start of the metadata log (KIP-630)."""

    end_offset: int = field(int64, default=-1, doc="Exclusive.")
    epoch: int = field(int32, default=-1, doc="The leader epoch of its last record.")


@struct
class AbortedTransaction:
    """A transaction of which records may be in the answer that a committed reader must drop."""

    producer_id: int = field(int64, doc="Its producer.")
    first_offset: int = field(int64, doc="Where it starts.")


@struct
class PartitionData:
    """What was read from one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it could be read.")
    high_watermark: int = field(int64, default=-1, doc="Exclusive end of what is committed.")
    last_stable_offset: int = field(
        int64, versions="4+", default=-1, ignorable=True, doc="Exclusive end of what is decided."
    )
    log_start_offset: int = field(int64, versions="5+", default=-1, ignorable=True, doc="Where the log starts.")
    diverging_epoch: EpochEndOffset | None = field(
        EpochEndOffset, versions="12+", tag=0, default=None, ignorable=True, doc="Truncate, then fetch again."
    )
    current_leader: LeaderIdAndEpoch | None = field(
        LeaderIdAndEpoch, versions="12+", tag=1, default=None, ignorable=True, doc="When the asked one is not it."
    )
    snapshot_id: SnapshotId | None = field(
        SnapshotId, versions="12+", tag=2, default=None, ignorable=True, doc="Load this first."
    )
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction),
        versions="4+",
        nullable="4+",
        default=None,
        ignorable=True,
        doc="None for readers that take uncommitted records.",
    )
    preferred_read_replica: int = field(
        int32, versions="11+", default=-1, doc="Read from this broker instead (KIP-392); -1: stay."
    )
    records: Piece | None = field(records, nullable="0+", default=None, doc="Whole batches.")


@struct(kw_only=True)
class FetchableTopicResponse:
    """The partitions of one topic."""

    topic: str = field(string, versions="0-12", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="13+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partitions: list[PartitionData] = field(array(PartitionData), doc="The partitions.")


@struct
class NodeEndpoint:
    """Where a leader named in the same response is (KIP-951)."""

    node_id: int = field(int32, doc="The broker.")
    host: str = field(string, doc="Its host, on the listener that the client used.")
    port: int = field(int32, doc="Its port.")
    rack: str | None = field(string, nullable="0+", default=None, doc="Its rack, if it has one.")


@message(api_key=1, versions="4-18", flexible="12+")
class FetchResponse:
    """What was read."""

    throttle_time_ms: int = field(int32, versions="1+", default=0, ignorable=True, doc="How long it was held back.")
    error_code: int = field(int16, versions="7+", default=0, ignorable=True, doc="Of the session as a whole.")
    session_id: int = field(int32, versions="7+", default=0, doc="0: there is no session.")
    responses: list[FetchableTopicResponse] = field(
        array(FetchableTopicResponse), default_factory=list, doc="The topics."
    )
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint),
        versions="16+",
        tag=0,
        default_factory=list,
        ignorable=True,
        doc="Of the leaders in `current_leader`.",
    )
