"""ReadShareGroupStateSummary (key 87): where share groups begin in partitions, without the rest of the state (KIP-932).

Version 1 tells how many deliveries are complete, for the group's lag (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct, uuid


@struct
class ReadShareGroupStateSummaryPartition:
    """Which summary to read."""

    partition: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="Of the partition, as the asker knows it; -1 is not checked.")


@struct
class ReadShareGroupStateSummaryTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ReadShareGroupStateSummaryPartition] = field(
        array(ReadShareGroupStateSummaryPartition), default_factory=list, doc="The partitions."
    )


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryRequest:
    """Ask the share coordinator for a summary of each partition."""

    group_id: str = field(string, doc="The group.")
    topics: list[ReadShareGroupStateSummaryTopic] = field(
        array(ReadShareGroupStateSummaryTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class ReadShareGroupStateSummaryPartitionResult:
    """The summary of one partition."""

    partition: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if that was done.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")
    state_epoch: int = field(int32, default=0, doc="Of the state.")
    leader_epoch: int = field(int32, default=0, doc="Of the leader that wrote it last.")
    start_offset: int = field(
        int64, default=0, doc="Where the share group begins: all before it is done; -1 if not known yet."
    )
    delivery_complete_count: int = field(
        int32,
        versions="1+",
        default=-1,
        ignorable=True,
        doc="Records from the start offset on that are done; -1 if it is not known.",
    )


@struct
class ReadShareGroupStateSummaryResult:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ReadShareGroupStateSummaryPartitionResult] = field(
        array(ReadShareGroupStateSummaryPartitionResult), default_factory=list, doc="The partitions."
    )


@message(api_key=87, versions="0-1", flexible="0+")
class ReadShareGroupStateSummaryResponse:
    """The summaries."""

    results: list[ReadShareGroupStateSummaryResult] = field(
        array(ReadShareGroupStateSummaryResult), default_factory=list, doc="The topics."
    )
