"""Vote (key 52): a voter of the metadata quorum asks another for its vote (KIP-595).

Version 1 names directories, so that a voter that lost its disk is another voter (KIP-853), 2 asks for pre-votes, which
change nothing (KIP-996). All are flexible.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct, uint16, uuid


@struct(kw_only=True)
class VotePartition:
    """What the candidate says of itself and its log."""

    partition_index: int = field(int32, default=0, doc="0: the quorum has one partition.")
    replica_epoch: int = field(int32, doc="The leader epoch of the candidacy; of a pre-vote, the one it is in.")
    replica_id: int = field(int32, doc="The candidate.")
    replica_directory_id: UUID = field(
        uuid, versions="1+", default=ZERO_UUID, ignorable=True, doc="The directory of the candidate's log."
    )
    voter_directory_id: UUID = field(
        uuid, versions="1+", default=ZERO_UUID, ignorable=True, doc="The directory of who is asked, as far as is known."
    )
    last_offset_epoch: int = field(int32, doc="The leader epoch of the last record in the candidate's log.")
    last_offset: int = field(int64, doc="The candidate's log end offset, exclusive whatever the name says.")
    pre_vote: bool = field(boolean, versions="2+", default=False, doc="Only ask whether there would be a vote.")


@struct
class VoteTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic: the metadata log.")
    partitions: list[VotePartition] = field(array(VotePartition), doc="The partitions.")


@message(api_key=52, versions="0-2", flexible="0+")
class VoteRequest:
    """Ask for a vote."""

    cluster_id: str | None = field(string, nullable="0+", default=None, doc="Checked if it is given.")
    voter_id: int = field(int32, versions="1+", default=-1, ignorable=True, doc="Who is asked; -1 is not checked.")
    topics: list[VoteTopic] = field(array(VoteTopic), doc="The topics.")


@struct(kw_only=True)
class VotedPartition:
    """The vote, and whom the voter takes for the leader."""

    partition_index: int = field(int32, default=0, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if the request could be judged.")
    leader_id: int = field(int32, default=-1, doc="The leader, or -1 if none is known.")
    leader_epoch: int = field(int32, doc="The latest leader epoch that the voter knows.")
    vote_granted: bool = field(boolean, default=False, doc="Whether the candidate has the vote.")


@struct
class VotedTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic.")
    partitions: list[VotedPartition] = field(array(VotedPartition), doc="The partitions.")


@struct
class NodeEndpoint:
    """Where the leader named in the same response listens (KIP-853)."""

    node_id: int = field(int32, doc="The leader.")
    host: str = field(string, doc="Its host, on the listener of the quorum.")
    port: int = field(uint16, doc="Its port.")


@message(api_key=52, versions="0-2", flexible="0+")
class VoteResponse:
    """The vote, unless the request was refused as a whole."""

    error_code: int = field(int16, default=0, doc="Why the whole request was refused.")
    topics: list[VotedTopic] = field(array(VotedTopic), default_factory=list, doc="The topics.")
    node_endpoints: list[NodeEndpoint] = field(
        array(NodeEndpoint), versions="1+", tag=0, default_factory=list, ignorable=True, doc="Of the leaders named."
    )
