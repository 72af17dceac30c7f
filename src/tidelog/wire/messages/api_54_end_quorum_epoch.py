"""EndQuorumEpoch (key 54): the leader of the metadata quorum resigns, and says who should be next (KIP-595).

Version 1 is flexible, names directories and says where the leader listens (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uint16, uuid


@struct
class ReplicaInfo:
    """A voter that may stand for election."""

    candidate_id: int = field(int32, doc="The voter.")
    candidate_directory_id: UUID = field(uuid, doc="The directory of its log; all zeros if it is not known.")


@struct(kw_only=True)
class EndQuorumEpochPartition:
    """Who leads no more."""

    partition_index: int = field(int32, default=0, doc="0: the quorum has one partition.")
    leader_id: int = field(int32, doc="The leader that resigns, who sends this.")
    leader_epoch: int = field(int32, doc="The epoch that it led in.")
    preferred_successors: list[int] = field(
        array(int32), versions="0", default_factory=list, ignorable=True, doc="The best first (version 0)."
    )
    preferred_candidates: list[ReplicaInfo] = field(
        array(ReplicaInfo), versions="1+", default_factory=list, ignorable=True, doc="The best first (version 1)."
    )


@struct
class EndQuorumEpochTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic: the metadata log.")
    partitions: list[EndQuorumEpochPartition] = field(array(EndQuorumEpochPartition), doc="The partitions.")


@struct
class LeaderEndpoint:
    """Where the leader listens, under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="Its host.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=54, versions="0-1", flexible="1+")
class EndQuorumEpochRequest:
    """The sender leads no more."""

    cluster_id: str | None = field(string, nullable="0+", default=None, doc="Checked if it is given.")
    topics: list[EndQuorumEpochTopic] = field(array(EndQuorumEpochTopic), doc="The topics.")
    leader_endpoints: list[LeaderEndpoint] = field(
        array(LeaderEndpoint), versions="1+", default_factory=list, ignorable=True, doc="Where the leader listens."
    )


@struct(kw_only=True)
class EndedPartition:
    """Whom the voter takes for the leader."""

    partition_index: int = field(int32, default=0, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if the voter took note.")
    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if none is known.")
    leader_epoch: int = field(int32, doc="The latest leader epoch that the voter knows.")


@struct
class EndedTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic.")
    partitions: list[EndedPartition] = field(array(EndedPartition), doc="The partitions.")


@struct
class NodeEndpoint:
    """Where the leader named in the same response listens (KIP-853)."""

    node_id: int = field(int32, doc="The leader.")
    host: str = field(string, doc="Its host, on the listener of the quorum.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=54, versions="0-1", flexible="1+")
class EndQuorumEpochResponse:
    """That the voter took note, unless the request was refused as a whole."""

    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    topics: list[EndedTopic] = field(array(EndedTopic), default_factory=list, doc="The topics.")
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="1+", tag=0, default_factory=list, ignorable=True, doc="Of the leaders named."
    )
