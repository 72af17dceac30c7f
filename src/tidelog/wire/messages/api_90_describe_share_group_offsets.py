"""DescribeShareGroupOffsets (key 90): where share groups begin in partitions (KIP-932).

Version 1 tells the lag (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uuid


@struct
class DescribeShareGroupOffsetsRequestTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic's name.")
    partitions: list[int] = field(array(int32), default_factory=list, doc="The partitions.")


@struct
class DescribeShareGroupOffsetsRequestGroup:
    """What is wanted of one group."""

    group_id: str = field(string, doc="The group.")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(
        array(DescribeShareGroupOffsetsRequestTopic),
        nullable="0+",
        default_factory=list,
        doc="The topics; None for all there are.",
    )


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsRequest:
    """Ask the coordinator of the groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(
        array(DescribeShareGroupOffsetsRequestGroup), default_factory=list, doc="The groups."
    )


@struct(kw_only=True)
class DescribeShareGroupOffsetsResponsePartition:
    """Where one partition stands."""

    partition_index: int = field(int32, doc="The partition.")
    start_offset: int = field(int64, default=0, doc="All before it is done; -1 if it is not known.")
    leader_epoch: int = field(int32, default=0, doc="Of the leader that wrote it last.")
    lag: int = field(
        int64, versions="1+", default=-1, ignorable=True, doc="Records that are not done yet; -1 if it is not known."
    )
    error_code: int = field(int16, default=0, doc="0 if it was looked up.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")


@struct
class DescribeShareGroupOffsetsResponseTopic:
    """The partitions of one topic."""

    topic_name: str = field(string, doc="The topic's name.")
    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(
        array(DescribeShareGroupOffsetsResponsePartition), default_factory=list, doc="The partitions."
    )


@struct(kw_only=True)
class DescribeShareGroupOffsetsResponseGroup:
    """Where one group stands."""

    group_id: str = field(string, doc="The group.")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(
        array(DescribeShareGroupOffsetsResponseTopic), default_factory=list, doc="The topics."
    )
    error_code: int = field(int16, default=0, doc="Of the group as a whole.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="What went wrong.")


@message(api_key=90, versions="0-1", flexible="0+")
class DescribeShareGroupOffsetsResponse:
    """Where each group stands."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(
        array(DescribeShareGroupOffsetsResponseGroup), default_factory=list, doc="The groups."
    )
