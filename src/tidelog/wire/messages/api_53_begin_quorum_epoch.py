"""BeginQuorumEpoch (key 53): the elected leader of the metadata quorum says so to the voters (KIP-595).

Version 1 is flexible, names directories and says where the leader listens (KIP-853).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, message, string, struct, uint16, uuid


@struct(kw_only=True)
class BeginQuorumEpochPartition:
    """Who leads, since when."""

    partition_index: int = field(int32, default=0, doc="0: the quorum has one partition.")
    voter_directory_id: UUID = field(
        uuid, versions="1+", default=ZERO_UUID, ignorable=True, doc="The directory of who is told, as far as is known."
    )
    leader_id: int = field(int32, doc="The leader, who sends this.")
    leader_epoch: int = field(int32, doc="The epoch that it leads in.")


@struct
class BeginQuorumEpochTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic: the metadata log.")
    partitions: list[BeginQuorumEpochPartition] = field(array(BeginQuorumEpochPartition), doc="The partitions.")


@struct
class LeaderEndpoint:
    """Where the leader listens, under one listener name."""

    name: str = field(string, doc="The listener's name.")
    host: str = field(string, doc="Its host.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochRequest:
    """The sender leads from here on."""

    cluster_id: str | None = field(string, nullable="0+", default=None, doc="Checked if it is given.")
    voter_id: int = field(int32, versions="1+", default=-1, ignorable=True, doc="Who is told; -1 is not checked.")
    topics: list[BeginQuorumEpochTopic] = field(array(BeginQuorumEpochTopic), doc="The topics.")
    leader_endpoints: list[LeaderEndpoint] = field(
        array(LeaderEndpoint), versions="1+", default_factory=list, ignorable=True, doc="Where the leader listens."
    )


@struct(kw_only=True)
class BegunPartition:
    """Whom the voter takes for the leader."""

    partition_index: int = field(int32, default=0, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if the voter follows the sender.")
    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if none is known.")
    leader_epoch: int = field(int32, doc="The latest leader epoch that the voter knows.")


@struct
class BegunTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic.")
    partitions: list[BegunPartition] = field(array(BegunPartition), doc="The partitions.")


@struct
class NodeEndpoint:
    """Where the leader named in the same response listens (KIP-853)."""

    node_id: int = field(int32, doc="The leader.")
    host: str = field(string, doc="Its host, on the listener of the quorum.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=53, versions="0-1", flexible="1+")
class BeginQuorumEpochResponse:
    """Whom the voter follows, unless the request was refused as a whole."""

    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    topics: list[BegunTopic] = field(array(BegunTopic), default_factory=list, doc="The topics.")
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="1+", tag=0, default_factory=list, ignorable=True, doc="Of the leaders named."
    )
