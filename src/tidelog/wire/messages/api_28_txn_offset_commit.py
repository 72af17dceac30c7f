"""TxnOffsetCommit (key 28): offsets of a group that take effect when the producer's transaction is committed.

Version 2 carries leader epochs (KIP-320), 3 is flexible and fenced by the group's generation (KIP-447), 4 may answer
TRANSACTION_ABORTABLE, 5 adds the group to the transaction by itself, without AddOffsetsToTxn (both KIP-890).
"""

from __future__ import annotations

from tidelog.wire.schema import array, field, int16, int32, int64, message, string, struct


@struct(kw_only=True)
class TxnOffsetCommitRequestPartition:
    """The position in one partition."""

    partition_index: int = field(int32, doc="The partition.")
    committed_offset: int = field(int64, doc="The next offset to read.")
    committed_leader_epoch: int = field(
        int32, versions="2+", default=-1, ignorable=True, doc="Of the last record read, or -1."
    )
    committed_metadata: str | None = field(string, nullable="0+", default="", doc="Whatever the client likes.")


@struct
class TxnOffsetCommitRequestTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        array(TxnOffsetCommitRequestPartition), default_factory=list, doc="The partitions."
    )


@message(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    """Ask the group's coordinator to keep positions until the transaction ends."""

    transactional_id: str = field(string, doc="Of the producer.")
    group_id: str = field(string, doc="The group.")
    producer_id: int = field(int64, doc="The producer's id.")
    producer_epoch: int = field(int16, doc="The producer's epoch.")
    generation_id: int = field(
        int32, versions="3+", default=-1, doc="Generation or member epoch, as the consumer believes; -1 if unknown."
    )
    member_id: str = field(string, versions="3+", default="", doc="The consumer, or empty.")
    group_instance_id: str | None = field(
        string, versions="3+", nullable="3+", default=None, doc="The static member's name (KIP-345)."
    )
    topics: list[TxnOffsetCommitRequestTopic] = field(
        array(TxnOffsetCommitRequestTopic), default_factory=list, doc="The topics."
    )


@struct
class TxnOffsetCommitResponsePartition:
    """Whether one position is kept."""

    partition_index: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if it is.")


@struct
class TxnOffsetCommitResponseTopic:
    """The partitions of one topic."""

    name: str = field(string, doc="The topic's name.")
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        array(TxnOffsetCommitResponsePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=28, versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    """What became of each position."""

    throttle_time_ms: int = field(int32, default=0, doc="How long it was held back.")
    topics: list[TxnOffsetCommitResponseTopic] = field(
        array(TxnOffsetCommitResponseTopic), default_factory=list, doc="The topics."
    )
