"""ReadShareGroupState (key 84): a partition's leader loads what share groups have done with it (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, string, struct, uuid

RECORD_EPOCH_TAG = 10_000
"""Of what Kafka does not tell: the leader epoch of the records that a state speaks of."""
WRITE_NUMBER_TAG = 10_001
"""Likewise: the number of a change."""

DELIVERY_AVAILABLE = 0
DELIVERY_ACKNOWLEDGED = 2
DELIVERY_ARCHIVED = 4
"""Nobody gets the record any more: it was rejected, or delivered too often."""


@struct
class ReadShareGroupStateBatch:
    """How consecutive records stand with the group."""

    first_offset: int = field(int64, doc="The first record.")
    last_offset: int = field(int64, doc="The last record, inclusive.")
    delivery_state: int = field(int8, doc="One of the constants above.")
    delivery_count: int = field(int16, doc="How often they were delivered.")
    leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of these records in the log of who tells it (a field of ours); -1: not told.",
    )


@struct
class ReadShareGroupStatePartition:
    """Which state to read."""

    partition: int = field(int32, doc="The partition.")
    leader_epoch: int = field(int32, doc="In which the asker leads the partition.")


@struct
class ReadShareGroupStateTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ReadShareGroupStatePartition] = field(
        array(ReadShareGroupStatePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateRequest:
    """Ask the share coordinator for the state of each partition."""

    group_id: str = field(string, doc="The group.")
    topics: list[ReadShareGroupStateTopic] = field(
        array(ReadShareGroupStateTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class ReadShareGroupStatePartitionResult:
    """The state of one partition."""

    partition: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if that was done.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")
    state_epoch: int = field(int32, default=0, doc="Of the state.")
    start_offset: int = field(
        int64, default=0, doc="Where the share group begins: all before it is done; -1 if not known yet."
    )
    state_batches: list[ReadShareGroupStateBatch] = field(
        array(ReadShareGroupStateBatch), default_factory=list, doc="What differs from being available."
    )
    start_leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of the record just before the start offset, in the log of who tells it (a field of ours); -1: not told.",
    )


@struct
class ReadShareGroupStateResult:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[ReadShareGroupStatePartitionResult] = field(
        array(ReadShareGroupStatePartitionResult), default_factory=list, doc="The partitions."
    )


@message(api_key=84, versions="0", flexible="0+")
class ReadShareGroupStateResponse:
    """The states."""

    results: list[ReadShareGroupStateResult] = field(
        array(ReadShareGroupStateResult), default_factory=list, doc="The topics."
    )
