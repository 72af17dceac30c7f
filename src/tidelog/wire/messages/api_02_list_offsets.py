"""ListOffsets (key 2): the offset at a timestamp, or at a named place of the log.

Version 2 reads committed only if asked to, 4 carries leader epochs both ways (KIP-320), 6 is flexible, 7 knows
MAX_TIMESTAMP (KIP-734), 8 EARLIEST_LOCAL_TIMESTAMP (KIP-405), 9 LATEST_TIERED_TIMESTAMP (KIP-1005), 10 carries a time
limit (KIP-1075), 11 knows EARLIEST_PENDING_UPLOAD_TIMESTAMP (KIP-1023).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, string, struct

LATEST_TIMESTAMP = -1
"""The end of what the reader may see: the high watermark, or the last stable offset."""

EARLIEST_TIMESTAMP = -2
"""The log start offset."""

MAX_TIMESTAMP = -3
"""The record with the largest timestamp (from version 7)."""

EARLIEST_LOCAL_TIMESTAMP = -4
"""The first offset on the leader's own disk (from version 8)."""

LATEST_TIERED_TIMESTAMP = -5
"""The last offset in tiered storage (from version 9)."""

EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
"""The first offset that tiered storage does not have yet (from version 11)."""


@struct(kw_only=True)
class ListOffsetsPartition:
    """What to look up in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    current_leader_epoch: int = field(
        int32, versions="4+", default=-1, ignorable=True, doc="What the asker believes; -1 is not checked."
    )
    timestamp: int = field(int64, doc="Milliseconds: the first record at or after it; or one of the constants above.")


@struct
class ListOffsetsTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition), doc="The partitions.")


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Look up offsets at the leaders of their partitions."""

    replica_id: int = field(int32, default=-1, doc="The follower that asks, or -1 for a consumer.")
    isolation_level: int = field(int8, versions="2+", default=0, doc="0: read uncommitted; 1: read committed.")
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic), doc="The topics.")
    timeout_ms: int = field(int32, versions="10+", default=0, ignorable=True, doc="For look-ups in tiered storage.")


@struct
class ListOffsetsPartitionResponse:
    """What was found in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if the look-up was done.")
    timestamp: int = field(int64, default=-1, doc="Of the record found; -1 for named places, or if there is none.")
    offset: int = field(int64, default=-1, doc="The offset found; -1 if there is none.")
    leader_epoch: int = field(
        int32, versions="4+", default=-1, ignorable=True, doc="Of the record found; of LATEST, the leader's own."
    )


@struct
class ListOffsetsTopicResponse:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse), doc="The partitions.")


@message(api_key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """What was found."""

    throttle_time_ms: int = field(int32, versions="2+", default=0, ignorable=True, doc="How long it was held back.")
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse), doc="The topics.")
