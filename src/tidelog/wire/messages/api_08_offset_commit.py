"""OffsetCommit (key 8): remember how far a group has read.

Version 3 tells of throttling, 5 drops the retention time (KIP-211), 6 carries leader epochs (KIP-320), 7 static members
(KIP-345), 8 is flexible, 9 serves the consumer protocol of KIP-848 too, 10 names topics by id.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uuid


@struct(kw_only=True)
class OffsetCommitRequestPartition:
    """The position in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    committed_offset: int = field(int64, doc="The next offset to read.")
    committed_leader_epoch: int = field(
        int32, versions="6+", default=-1, ignorable=True, doc="Of the last record read, or -1."
    )
    committed_metadata: str | None = field(string, nullable="0+", default=None, doc="Whatever the client likes.")


@struct(kw_only=True)
class OffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = field(string, versions="2-9", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="10+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition), doc="The partitions.")


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """A member tells its coordinator, or whoever assigns partitions himself does, with generation -1."""

    group_id: str = field(string, doc="The group.")
    generation_id_or_member_epoch: int = field(
        int32, versions="1+", default=-1, ignorable=True, doc="As the member believes; -1 for no membership."
    )
    member_id: str = field(string, versions="1+", default="", ignorable=True, doc="The member, or empty.")
    group_instance_id: str | None = field(
        string, versions="7+", nullable="7+", default=None, doc="The static member's name (KIP-345)."
    )
    retention_time_ms: int = field(
        int64, versions="2-4", default=-1, ignorable=True, doc="How long to keep it; -1 for the broker's setting."
    )
    topics: list[OffsetCommitRequestTopic] = field(
        array(OffsetCommitRequestTopic), default_factory=list, doc="The topics."
    )


@struct
class OffsetCommitResponsePartition:
    """Whether one position is remembered."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is.")


@struct(kw_only=True)
class OffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = field(string, versions="2-9", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="10+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition), doc="The partitions.")


@message(api_key=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """What became of each position."""

    throttle_time_ms: int = field(int32, versions="3+", default=0, ignorable=True, doc="How long it was held back.")
    topics: list[OffsetCommitResponseTopic] = field(
        array(OffsetCommitResponseTopic), default_factory=list, doc="The topics."
    )
