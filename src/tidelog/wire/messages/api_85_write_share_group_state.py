"""WriteShareGroupState (key 85): a partition's leader saves what share groups have done with it (KIP-932).

Version 1 tells how many deliveries are complete, for the group's lag (KIP-1226).
"""

from __future__ import annotations

from uuid import UUID

from tidelog.wire.messages.api_84_read_share_group_state import RECORD_EPOCH_TAG, WRITE_NUMBER_TAG
from tidelog.wire.schema import array, field, int8, int16, int32, int64, message, string, struct, uuid


@struct
class WriteShareGroupStateBatch:
    """How consecutive records stand with the group."""

    first_offset: int = field(int64, doc="The first record.")
    last_offset: int = field(int64, doc="The last record, inclusive.")
    delivery_state: int = field(int8, doc="0: available; 2: acknowledged; 4: archived.")
    delivery_count: int = field(int16, doc="How often they were delivered.")
    leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of these records in the log of who tells it (a field of ours); -1: not told.",
    )


@struct
class WriteShareGroupStatePartition:
    """What has changed in one partition."""

    partition: int = field(int32, doc="The partition.")
    state_epoch: int = field(int32, doc="Raised when the state is initialized anew.")
    leader_epoch: int = field(int32, doc="In which the asker leads the partition.")
    start_offset: int = field(int64, doc="Where the share group begins now; -1: as before.")
    delivery_complete_count: int = field(
        int32,
        versions="1+",
        default=-1,
        ignorable=True,
        doc="Records from the start offset on that are done; -1 if it is not known.",
    )
    state_batches: list[WriteShareGroupStateBatch] = field(
        array(WriteShareGroupStateBatch), default_factory=list, doc="What has changed."
    )
    start_leader_epoch: int = field(
        int32,
        tag=RECORD_EPOCH_TAG,
        default=-1,
        ignorable=True,
        doc="Of the record just before the start offset, in the log of who tells it (a field of ours); -1: not told.",
    )
    write_number: int = field(
        int64,
        tag=WRITE_NUMBER_TAG,
        default=-1,
        ignorable=True,
        doc="Larger than those of all changes that this leader wrote before (a field of ours); -1: not told.",
    )


@struct
class WriteShareGroupStateTopic:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[WriteShareGroupStatePartition] = field(
        array(WriteShareGroupStatePartition), default_factory=list, doc="The partitions."
    )


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateRequest:
    """Ask the share coordinator to add to the state of each partition."""

    group_id: str = field(string, doc="The group.")
    topics: list[WriteShareGroupStateTopic] = field(
        array(WriteShareGroupStateTopic), default_factory=list, doc="The topics."
    )


@struct(kw_only=True)
class WriteShareGroupStatePartitionResult:
    """Whether the change of one partition is saved."""

    partition: int = field(int32, doc="The partition.")
    error_code: int = field(int16, default=0, doc="0 if that was done.")
    error_message: str | None = field(string, nullable="0+", default=None, doc="Why not, in words.")


@struct
class WriteShareGroupStateResult:
    """The partitions of one topic."""

    topic_id: UUID = field(uuid, doc="The topic's id.")
    partitions: list[WriteShareGroupStatePartitionResult] = field(
        array(WriteShareGroupStatePartitionResult), default_factory=list, doc="The partitions."
    )


@message(api_key=85, versions="0-1", flexible="0+")
class WriteShareGroupStateResponse:
    """What became of each partition."""

    results: list[WriteShareGroupStateResult] = field(
        array(WriteShareGroupStateResult), default_factory=list, doc="The topics."
    )
