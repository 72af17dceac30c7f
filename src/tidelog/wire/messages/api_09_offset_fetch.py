"""OffsetFetch (key 9): how far groups have read.

Version 2 asks for all partitions with null and has an error for the group, 3 tells of throttling, 5 carries leader
epochs (KIP-320), 6 is flexible, 7 may wait for open transactions (KIP-447), 8 asks for several groups (KIP-709), 9 is
fenced by the member's epoch (KIP-848), 10 names topics by id.
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.primitives import ZERO_UUID
from tidelog.wire.schema import array, boolean, field, int16, int32, int64, message, string, struct, uuid


@struct(kw_only=True)
class OffsetFetchRequestTopic:
    """The partitions of one topic."""

    name: str = field(string, versions="0-9", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="10+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partition_indexes: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct(kw_only=True)
class OffsetFetchRequestGroup:
    """What is wanted of one group."""

    group_id: str = field(string, doc="The group.")
    member_id: str | None = field(
        string, versions="9+", nullable="9+", default=None, ignorable=True, doc="Who asks, in KIP-848's protocol."
    )
    member_epoch: int = field(int32, versions="9+", default=-1, ignorable=True, doc="Its epoch, or -1.")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), nullable="8+", default=None, doc="The topics; None for all there are."
    )


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchRequest:
    """Ask the coordinator of the groups."""

    group_id: str = field(string, versions="0-7", default="", doc="The group.")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic),
        versions="0-7",
        nullable="2-7",
        default_factory=list,
        doc="The topics; None for all there are.",
    )
    groups: list[OffsetFetchRequestGroup] = field(
        array(OffsetFetchRequestGroup), versions="8+", default_factory=list, doc="The groups."
    )
    require_stable: bool = field(
        boolean, versions="7+", default=False, doc="Whether offsets of open transactions are worth an error."
    )


@struct(kw_only=True)
class OffsetFetchResponsePartition:
    """The position in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    committed_offset: int = field(int64, default=-1, doc="The next offset to read; -1 if there is none.")
    committed_leader_epoch: int = field(
        int32, versions="5+", default=-1, ignorable=True, doc="Of the last record read, or -1."
    )
    metadata: str | None = field(string, nullable="0+", default="", doc="Whatever the client liked.")
    error_code: int = field(int16, default=0, doc="0 if it was looked up.")


@struct(kw_only=True)
class OffsetFetchResponseTopic:
    """The partitions of one topic."""

    name: str = field(string, versions="0-9", default="", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(uuid, versions="10+", default=ZERO_UUID, ignorable=True, doc="The topic's id.")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition), doc="The partitions.")


@struct(kw_only=True)
class OffsetFetchResponseGroup:
    """The positions of one group."""

    group_id: str = field(string, doc="The group.")
    topics: list[OffsetFetchResponseTopic] = field(
        array(OffsetFetchResponseTopic), default_factory=list, doc="The topics."
    )
    error_code: int = field(int16, default=0, doc="Of the group as a whole.")


@message(api_key=9, versions="1-10", flexible="6+")
class OffsetFetchResponse:
    """The positions."""

    throttle_time_ms: int = field(int32, versions="3+", default=0, ignorable=True, doc="How long it was held back.")
    topics: list[OffsetFetchResponseTopic] = field(
        array(OffsetFetchResponseTopic), versions="0-7", default_factory=list, doc="The topics."
    )
    error_code: int = field(int16, versions="2-7", default=0, ignorable=True, doc="Of the group as a whole.")
    groups: list[OffsetFetchResponseGroup] = field(
        array(OffsetFetchResponseGroup), versions="8+", default_factory=list, doc="The groups."
    )
