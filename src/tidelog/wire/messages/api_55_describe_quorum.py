"""DescribeQuorum (key 55): who leads the metadata quorum, and how far each replica of its log is (KIP-595).

Version 1 carries times (KIP-836), 2 directories, listeners and error messages (KIP-853). All are flexible.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uint16, uuid


@struct
class DescribeQuorumPartition:
    """A partition to describe."""

    partition_index: int = field(int32, doc="The partition.")


@struct
class DescribeQuorumTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic: the metadata log.")
    partitions: list[DescribeQuorumPartition] = field(array(DescribeQuorumPartition), doc="The partitions.")


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumRequest:
    """Ask the leader; brokers pass it on."""

    topics: list[DescribeQuorumTopic] = field(array(DescribeQuorumTopic), doc="The topics.")


@struct(kw_only=True)
class ReplicaState:
    """How far one replica of the log is, as the leader knows."""

    replica_id: int = field(int32, doc="The node.")
    replica_directory_id: UUID = field(
        uuid, versions="2+", default=ZERO_UUID, ignorable=True, doc="The directory of its log; zeros if unknown."
    )
    log_end_offset: int = field(int64, default=-1, doc="Exclusive; -1 if it has not fetched yet.")
    last_fetch_timestamp: int = field(
        int64, versions="1+", default=-1, ignorable=True, doc="When it last fetched, in ms; -1 of the leader itself."
    )
    last_caught_up_timestamp: int = field(
        int64, versions="1+", default=-1, ignorable=True, doc="When it last had all there was, in ms; -1 if never."
    )


@struct(kw_only=True)
class QuorumPartition:
    """The state of one partition."""

    partition_index: int = field(int32, default=0, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if the one asked leads.")
    error_message: str | None = field(
        string, versions="2+", nullable="2+", default=None, ignorable=True, doc="What went wrong."
    )
    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if none is known.")
    leader_epoch: int = field(int32, default=-1, doc="The latest leader epoch known.")
    high_watermark: int = field(int64, default=-1, doc="Exclusive end of what is committed; -1 if it is not known.")
    current_voters: list[ReplicaState] = field(array(ReplicaState), default_factory=list, doc="Those who vote.")
    observers: list[ReplicaState] = field(array(ReplicaState), default_factory=list, doc="Those who only read.")


@struct
class QuorumTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic.")
    partitions: list[QuorumPartition] = field(array(QuorumPartition), doc="The partitions.")


@struct
class Listener:
    """Where a voter listens, under one listener name."""

    name: str = field(string, versions="2+", doc="The listener's name.")
    host: str = field(string, versions="2+", doc="Its host.")
    port: int = field(uint16, versions="2+", doc="Its port.")


@struct
class Node:
    """A voter, and where it listens."""

    node_id: int = field(int32, versions="2+", doc="The voter.")
    listeners: list[Listener] = field(array(Listener), versions="2+", doc="Its listeners.")


@message(api_key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    """The state of the quorum, unless the request was refused as a whole."""

    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    error_message: str | None = field(
        string, versions="2+", nullable="2+", default=None, ignorable=True, doc="What went wrong."
    )
    topics: list[QuorumTopic] = field(array(QuorumTopic), default_factory=list, doc="The topics.")
    nodes: list[Node] = field(array(Node), versions="2+", default_factory=list, ignorable=True, doc="The voters.")
