"""OffsetForLeaderEpoch (key 23): where a leader epoch ends in the leader's log (KIP-101, KIP-279, KIP-320).

Version 2 carries the epoch that fences and a throttle time, 3 the id of the replica, 4 is flexible. librdkafka asks for
exactly 2, Java for 3 at least.
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct

CONSUMER_REPLICA_ID = -1
"""The replica id of an ordinary consumer."""

DEBUGGING_CONSUMER_REPLICA_ID = -2
"""The replica id that versions without the field stand for: a reader that may see beyond the high watermark."""


@struct(kw_only=True)
class OffsetForLeaderPartition:
    """The epoch to look up in one partition."""

    partition: int = field(int32, doc="The partition.")
    current_leader_epoch: int = field(
        int32, versions="2+", default=-1, ignorable=True, doc="What the asker believes; -1 is not checked."
    )
    leader_epoch: int = field(int32, doc="The epoch of which to find the end.")


@struct
class OffsetForLeaderTopic:
    """The partitions of one topic."""

    topic: str = field(string, doc="The topic's name.")
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition), doc="The partitions.")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Ask the leader where epochs end, before following or reading on."""

    replica_id: int = field(
        int32,
        versions="3+",
        default=DEBUGGING_CONSUMER_REPLICA_ID,
        ignorable=True,
        doc="The follower that asks; -1 for a consumer.",
    )
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic), default_factory=list, doc="The topics.")


@struct(kw_only=True)
class EpochEndOffset:
    """The largest epoch up to the asked one, and where it ends."""

    error_code: int = field(int16, default=0, doc="0 if it was looked up.")
    partition: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, versions="1+", default=-1, ignorable=True, doc="The epoch found, or -1.")
    end_offset: int = field(int64, default=-1, doc="Its end, exclusive, or -1.")


@struct
class OffsetForLeaderTopicResult:
    """The partitions of one topic."""

    topic: str = field(string, doc="The topic's name.")
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset), doc="The partitions.")


@message(api_key=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """Where the epochs end."""

    throttle_time_ms: int = field(int32, versions="2+", default=0, ignorable=True, doc="How long it was held back.")
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult), doc="The topics.")
